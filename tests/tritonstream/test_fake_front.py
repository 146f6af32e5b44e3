"""The fake of the text front answers as the front does, in all that users' tests would pin."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritonstream import InvalidRequest, TextDelta, UnsupportedError, UsageError
from tritonstream.testing import FakeModel
from tritonstream.testing._front import Refusal, until_stop


@pytest.mark.parametrize(
    ("reply", "params", "text", "reason", "tokens"),
    [
        (["abc\n\nUs", "er: more"], {"stop": "\n\nUser:"}, "abc", "stop", 2),
        (["a", "b", "END", "c"], {"stop": ["x", "END"]}, "ab", "stop", 3),
        (["a", "<", "/s", "x"], {"stop": ["</s>"]}, "a</sx", "stop", 4),  # it only began like a stop
        (["a", "<", "/s"], {"stop": ["</s>"]}, "a</s", "stop", 3),  # what was held comes out at the end
        (["END", "b"], {"stop": ["END"]}, "", "stop", 1),
        (["a", "b", "c"], {"max_tokens": 2}, "ab", "length", 2),
        (["a", "b"], {"max_tokens": 2}, "ab", "length", 2),  # a front counts; it does not see what would come
        (["a", "b", "c"], {"max_tokens": 2, "stop": ["b"]}, "a", "stop", 2),
        ([b"\xe8\x81", b"\xaa\xe6", b"\x98\x8e."], {"stop": ["明"]}, "聪", "stop", 3),
    ],
)
def test_stops_counts_and_reasons(
    run: Any, serve: Any, reply: Sequence[Any], params: dict[str, Any], text: str, reason: str, tokens: int
) -> None:
    server = serve(llm=FakeModel(reply=reply))

    async def body(client: Any) -> None:
        whole = await client.generate("llm", "one two", **params)
        assert (whole.text, whole.finish_reason) == (text, reason)
        assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (2, tokens)
        deltas = [
            event.text async for event in client.stream("llm", "x", **params) if type(event) is TextDelta
        ]
        assert "".join(deltas) == text

    run(body, server.url)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"messages": '[{"role": "user"}]'}, r"messages\[0\] has no content"),
        ({"messages": '[{"content": "a"}]'}, r"messages\[0\] has no role"),
        ({"messages": "[]"}, "messages is empty"),
        ({"messages": "[{"}, "messages is not JSON"),
        ({}, "neither text_input nor messages"),
        ({"text_input": "a", "tools": "[{}]"}, "tools go with messages"),
    ],
)
def test_what_other_clients_may_send_is_refused_in_the_fronts_words(inputs: Any, said: str) -> None:
    with pytest.raises(Refusal, match=said):
        FakeModel().made(inputs)


@pytest.mark.parametrize("version", ["2.68.0", "2.60.0"])  # from 26.04 on errors have a status
@pytest.mark.parametrize(
    ("messages", "params", "said"),
    [
        ([{"role": "user", "content": [{"type": "image_url"}]}], {}, "this model takes text only"),
        ([{"role": "user", "content": "a"}], {"stop": ["x"] * 65}, "stop_words holds 65 words"),
        ([{"role": "user", "content": "a"}], {"inputs": {"text_input": "b"}}, "are both given"),
    ],
)
def test_what_the_front_refuses_is_refused(
    run: Any, serve: Any, version: str, messages: Any, params: dict[str, Any], said: str
) -> None:
    server = serve(llm=FakeModel())
    server.version = version

    async def body(client: Any) -> None:
        with pytest.raises((InvalidRequest, UsageError), match=said) as caught:
            await client.chat("llm", messages, **params)
        assert "INVALID_ARG" not in str(caught.value)

    run(body, server.url)
    assert server.wait_for(lambda: server.active() == 0)


def test_text_parts_are_read_as_the_front_reads_them(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel())
    parts = [{"type": "text", "text": "one two"}, {"type": "text", "text": " three"}]

    async def body(client: Any) -> None:
        answer = await client.chat("llm", [{"role": "user", "content": parts}])
        assert answer.usage.prompt_tokens == 3

    run(body, server.url)


@given(
    st.text("abé聪", max_size=30), st.lists(st.text("abé聪", min_size=1, max_size=4), min_size=1), st.data()
)
def test_stops_are_found_however_the_reply_is_cut(text: str, stops: list[str], data: Any) -> None:
    raw = text.encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(raw)), max_size=8)) | {0, len(raw)})
    pieces = [raw[begin:end] for begin, end in itertools.pairwise(cuts)]
    ends = [end for end in range(len(text) + 1) if text[:end].endswith(tuple(stops))]
    longest = max((stop for stop in stops if text[: ends[0]].endswith(stop)), key=len) if ends else ""
    texts, used, stopped = until_stop(pieces, stops)
    assert stopped == bool(ends)
    assert "".join(texts) == (text[: ends[0] - len(longest)] if ends else text)
    if ends:  # the piece that completes the stop is the last one used
        reach = len(text[: ends[0]].encode())
        assert used == next(number for number, cut in enumerate(cuts) if cut >= reach)


def test_beams_are_asked_for_whole_as_the_front_gives_them(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel())

    async def body(client: Any) -> None:
        await client.generate("llm", "x", beam_width=2)
        await client.stream("llm", "x", beam_width=2).result()

    run(body, server.url)
    assert [served.inputs.get("stream", False) for served in server.served] == [False, False]


def test_a_template_wanted_here_is_not_blamed_on_the_model(run: Any, serve: Any) -> None:
    server = serve(llm=FakeModel())

    async def body(client: Any) -> None:
        with pytest.raises(UnsupportedError, match="client_template: give the client tokenizer=FOLDER"):
            await client.chat("llm", [{"role": "user", "content": "x"}], client_template=True)

    run(body, server.url)
