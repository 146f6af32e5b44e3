"""Prefix hygiene: blocks counted by hand, slots of every kind, and what moving them gains."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritonstream._slots import common_prefix, kind_of, slots
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
        ("41", "42", "counter"),
        ("Anna Smith", "Željko", "name"),
        ("anna@example.org", "bob@example.org", "address"),
        ("a  b", "a b", "whitespace"),
        ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}', "json order"),
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
