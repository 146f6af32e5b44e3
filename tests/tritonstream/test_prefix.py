"""Prefix hygiene: blocks counted by hand, slots of every kind, and what moving them gains."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tritonstream._kinds import kind_of
from tritonstream._slots import common_prefix, slots
from tritonstream.prefix import analyse, reused_blocks

BODY = " ".join(f"word{number % 89}" for number in range(600))


@pytest.mark.parametrize(("block_tokens", "reused_tokens"), [(784, 0), (128, 128), (64, 192), (32, 224)])
def test_shared_tokens_count_in_whole_blocks(block_tokens: int, reused_tokens: int) -> None:
    shared = list(range(240))
    log = [[*shared, *range(1000, 1050)], [*shared, *range(2000, 2050)]]
    assert reused_blocks(log, block_tokens) * block_tokens == reused_tokens


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    # 64 equal tokens are 2 blocks of 32; the second holds the last token, so one block is reused
    assert reused_blocks([list(range(64))] * 2, 32) == 1


@given(st.lists(st.lists(st.integers(0, 3), max_size=40), max_size=8), st.integers(1, 8))
def test_reused_blocks_against_a_search_of_all_earlier_prompts(log: list[list[int]], block: int) -> None:
    expected = 0
    for index, ids in enumerate(log):
        whole = [
            count
            for count in range(1, len(ids) // block + 1)
            if count * block < len(ids)
            and any(row[: count * block] == ids[: count * block] for row in log[:index])
        ]
        expected += len(whole)
    assert reused_blocks(log, block) == expected


@given(st.text(alphabet="ab", max_size=60), st.text(alphabet="ab", max_size=60))
def test_common_prefix_is_the_longest(first: str, second: str) -> None:
    count = common_prefix(first, second)
    assert first[:count] == second[:count]
    assert count == min(len(first), len(second)) or first[count] != second[count]


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ("2026-01-01T10:00:00Z", "2026-01-02T11:30:12Z", "timestamp"),
        ("March 3, 2026", "April 14, 2026", "timestamp"),
        ("1767225600", "1767229200", "timestamp"),
        ("6f1d9c1e-2b1a-4c60-9d7e-111111111111", "0a1b2c3d-4e5f-4a60-8d7e-222222222222", "uuid"),
        ("req_8sd7f6a9", "req_1kd93mx0", "id"),
        ("6baa9455e3e70682c2094cac629f6fbed82c07cd", "c386bbc4cd613e30d8f16adf91b7584a2265b1f5", "id"),
        ("2026年11月1日 10时1分", "2026年11月24日 10时24分", "timestamp"),
        ("二〇二六年十一月一日", "二〇二六年十二月三日", "timestamp"),
        ("令和8年11月1日（日）午後3時5分", "令和8年11月2日（月）午前9時7分", "timestamp"),
        ("2026년 11월 1일 오후 3:05", "2026년 11월 2일 오전 9:17", "timestamp"),
        ("٢٠٢٦/١١/٠١", "٢٠٢٦/١١/٠٢", "timestamp"),
        ("١ نوفمبر ٢٠٢٦", "٢ نوفمبر ٢٠٢٦", "timestamp"),
        ("1 de noviembre de 2026", "2 de noviembre de 2026", "timestamp"),
        ("3 ноября 2026", "4 ноября 2026", "timestamp"),
        ("018f3f2c-7a10-7b3c-8d5e-0123456789ab", "018f3f2c-7a11-7c4d-9e6f-abcdef012345", "uuid"),  # v7
        ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "01BX5ZZKBKACTAV9WEVGEMMVRZ", "id"),  # ULID
        ("0ujtsYcgvSTl8PAuAdqWYSMnLOv", "0uk1Hbc9dQ9pxyTqJ93IUrfhdGq", "id"),  # KSUID
        ("V1StGXR8_Z5jdHi6B-myT", "IRFa-VaY2b_7qTHkLpYzw", "id"),  # nanoid
        ("9f86d081884c7d65", "60303ae22b998861", "id"),
        ("175928847299117063", "1097216340612464652", "id"),  # snowflakes
        ("41", "42", "counter"),
        ("Anna Smith", "Željko", "name"),
        ("anna@example.org", "bob@example.org", "address"),
        ("a  b", "a b", "whitespace"),
        ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}', "json order"),
        ("set 5 tables", "set 6 tables", "value"),
        ("market 5", "market 6", "value"),
        ("3分", "5分", "value"),
        ("how to bake", "why is it blue", "value"),
    ],
)
def test_kinds(first: str, second: str, kind: str) -> None:
    assert kind_of(first, second) == kind


def test_a_request_id_and_the_time_at_the_head_cost_the_whole_prompt() -> None:
    log = [
        f"You are helpful. Request ID: 6f1d9c1e-2b1a-4c60-9d7e-{n:012d}. Time: 10:{n:02d}:07. {BODY} Q{n}?"
        for n in range(10, 14)
    ]
    report = analyse(log)
    assert (report.templates, report.reused_blocks) == (1, 0)
    assert {part.kind for part in report.parts} == {"uuid", "timestamp"}
    # 3 of 4 prompts find all blocks of the shared text; a prompt's last block holds what was moved
    per_prompt = report.blocks // 4
    assert report.reused_blocks_moved >= 3 * (per_prompt - 3)
    example = next(part for part in report.parts if part.kind == "uuid")
    assert example.example[0] == "6f1d9c1e-2b1a-4c60-9d7e-000000000010"
    assert example.context.endswith("Request ID: ")


_LOCAL = st.sampled_from(
    [
        "现在是{y}年{m}月{d}日 {h}时{n}分。",
        "現在は{y}年{m}月{d}日（火）{h}時{n}分です。",
        "지금은 {y}년 {m}월 {d}일 {h}시 {n}분입니다. ",
        "Now: {y}-{m:02}-{d:02}T{h:02}:{n:02}:00Z. ",
        "Heute ist der {d}. November {y}, {h:02}:{n:02} Uhr. ",
        "Today is November {d}, {y}. ",
        "{d:02}/{m:02}/{y} {h:02}:{n:02} ",
        "Es ist {h:02}:{n:02} Uhr. ",
    ]
)
_DIGITS = st.sampled_from(["0123456789", "٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "０１２３４５６７８９"])
_TIMES = st.fixed_dictionaries(
    {
        "y": st.integers(2000, 2039),
        "m": st.integers(1, 12),
        "d": st.integers(1, 28),
        "h": st.integers(0, 23),
        "n": st.integers(0, 59),
    }
)


@settings(max_examples=300)
@given(_LOCAL, _DIGITS, st.lists(_TIMES, min_size=2, max_size=4), st.sampled_from(["", "你好。", "Hello. "]))
def test_a_time_is_known_in_every_way_of_writing(
    way: str, digits: str, times: list[dict[str, int]], head: str
) -> None:
    written = [way.format(**time).translate(str.maketrans("0123456789", digits)) for time in times]
    report = analyse([f"{head}{time}{BODY}" for time in written])
    assert {part.kind for part in report.parts} == ({"timestamp"} if len(set(written)) > 1 else set())
    for part in report.parts:  # the prompts part where they cease to be alike, and not before
        assert part.token >= report.common_tokens
        assert part.example[0] in written[0]


@given(
    st.lists(st.lists(st.sampled_from(["Anna", "7", "聪明", "10:05", " ", "a9f3"]), max_size=5), min_size=1)
)
def test_nothing_parts_prompts_before_they_cease_to_be_alike(heads: list[list[str]]) -> None:
    report = analyse(["".join(head) + BODY for head in heads])
    assert all(part.token >= report.common_tokens for part in report.parts)


def test_tools_in_another_order_are_told_and_written_in_one() -> None:
    tools = [{"name": "a", "args": {"x": 1, "y": 2}}, {"name": "b", "args": {}}]
    turned = [{"args": {}, "name": "b"}, {"args": {"y": 2, "x": 1}, "name": "a"}]
    report = analyse([f"Tools: {json.dumps(order)} {BODY}" for order in (tools, turned)])
    assert [part.kind for part in report.parts] == ["json order"]
    assert report.reused_blocks == 0
    assert report.reused_blocks_moved == (report.blocks // 2) - (0 if report.tokens % 64 else 1)


def test_prompts_of_different_templates_are_kept_apart() -> None:
    report = analyse(
        [f"Translate: {BODY}", "A quite different request without anything in common.", f"Translate: {BODY}"]
    )
    assert report.templates == 2
    assert report.parts == ()


@given(st.lists(st.text(max_size=80), min_size=1, max_size=6))
def test_any_log_can_be_read(log: list[str]) -> None:
    report = analyse(log, block_tokens=4)
    assert 0 <= report.reused_blocks <= report.blocks
    assert report.prompts == len(log)


@given(st.text(max_size=60), st.text(max_size=60))
def test_slots_lie_in_order_and_what_is_between_them_is_equal(first: str, second: str) -> None:
    at, other = 0, 0
    for slot in slots(first, second):
        assert slot.start >= at
        assert first[at : slot.start] == second[other : slot.second_start]
        at, other = slot.end, slot.second_end


@pytest.mark.parametrize("log", [[], None])
def test_an_empty_log_is_refused(log: list[str] | None) -> None:
    with pytest.raises(ValueError, match="no prompt"):
        analyse(log or [])


def test_a_counter_that_grows_by_a_digit_is_a_counter() -> None:
    report = analyse([f"Turn {number}: {BODY}" for number in range(12)])
    assert {part.kind: part.prompts for part in report.parts} == {"counter": 11}


def test_reordered_tools_are_seen_where_little_else_is_shared() -> None:
    tools = [
        {"type": "function", "function": {"name": name, "description": f"does the thing called {name}"}}
        for name in ("search", "weather", "email", "calendar", "files", "maps")
    ]
    log = [
        f"{json.dumps([*tools[turn:], *tools[:turn]])}\nsystem: be brief\nuser: question {turn}"
        for turn in range(6)
    ]
    report = analyse(log, block_tokens=16)
    assert (report.templates, [part.kind for part in report.parts]) == (1, ["json order"])
    assert report.reused_blocks_moved > 4 * max(1, report.reused_blocks)


@pytest.mark.parametrize(
    "names", [["Anna", "Bert", "Anna"], ["Anna", "Anna", "Bert"], ["Anna", "Bert", "Bert"]]
)
def test_prompts_that_repeat_the_first_ones_value_are_mended_too(names: list[str]) -> None:
    log = [f"User: {name}\n{BODY}\nQuestion {number}" for number, name in enumerate(names)]
    report = analyse(log, block_tokens=32)
    per_prompt = report.blocks // len(names)
    assert report.reused_blocks_moved >= 2 * (per_prompt - 1)
