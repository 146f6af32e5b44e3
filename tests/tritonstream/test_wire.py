"""The parts that do no I/O: tensors on the wire, responses to events, the clock, waits, requests."""

from __future__ import annotations

import math
import struct
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritonstream import (
    BetweenTokensTimeout,
    Finish,
    FirstTokenTimeout,
    Logprobs,
    ProtocolError,
    Retry,
    TextDelta,
    Timeouts,
    TokenIds,
    TotalTimeout,
    Usage,
    UsageError,
    errors,
)
from tritonstream import _tensors as tensors
from tritonstream._answers import Answer, IdAnswer, RepeatedAnswer
from tritonstream._decode import Decoder
from tritonstream._proto import service_pb2
from tritonstream._retry import Budget, wait_s
from tritonstream._status import from_status, parse_version, settle
from tritonstream._stencil import TextStencil
from tritonstream._timing import Clock


@given(st.lists(st.binary(max_size=40)))
def test_bytes_tensors_come_back_as_they_went(items: list[bytes]) -> None:
    packed = tensors.pack_bytes(items)
    assert len(packed) == sum(4 + len(item) for item in items)
    assert tensors.unpack_bytes(packed) == items


@given(st.lists(st.binary(max_size=40), min_size=1), st.data())
def test_a_cut_bytes_tensor_is_noticed(items: list[bytes], data: Any) -> None:
    packed = tensors.pack_bytes(items)
    boundaries = {0}
    for item in items:
        boundaries.add(max(boundaries) + 4 + len(item))
    cut = data.draw(st.integers(0, len(packed) - 1).filter(lambda at: at not in boundaries))
    with pytest.raises(ProtocolError, match="cut"):
        tensors.unpack_bytes(packed[:cut])


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_numbers_are_little_endian(values: list[int]) -> None:
    assert tensors.pack("x", "INT32", values) == np.array(values, "<i4").tobytes()
    assert tensors.unpack("INT32", tensors.pack("x", "INT32", values)) == tuple(values)


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("INT32", [2**31]),
        ("UINT64", [-1]),
        ("INT32", [1.5]),
        ("FP32", ["a"]),
        ("BYTES", [1]),
        ("WHAT", [1]),
        ("FP16", [1e6]),
    ],
)
def test_values_that_do_not_fit_are_refused_with_the_input_s_name(dtype: str, values: list[Any]) -> None:
    with pytest.raises(UsageError, match="'limit'"):
        tensors.pack("limit", dtype, values)


def test_bf16_is_the_upper_half_of_a_float() -> None:
    raw = struct.pack("<HH", 0x3F80, 0xC040)  # 1.0 and -3.0
    assert tensors.to_array("BF16", [2], raw).tolist() == [1.0, -3.0]


def response(*outputs: tuple[str, str, list[int], bytes], final: bool | None = None, id_: str = "r") -> Any:
    made = service_pb2.ModelInferResponse(model_name="m", id=id_)
    for name, dtype, shape, raw in outputs:
        made.outputs.add(name=name, datatype=dtype, shape=shape)
        made.raw_output_contents.append(raw)
    if final is not None:
        made.parameters["triton_final_response"].bool_param = final
    return made


def text(*items: bytes, **options: Any) -> Any:
    return response(("text_output", "BYTES", [len(items)], tensors.pack_bytes(items)), **options)


def ids(*rows: list[int], lengths: list[int] | None = None, **options: Any) -> Any:
    width = max(map(len, rows), default=0)
    flat = [id_ for row in rows for id_ in row + [0] * (width - len(row))]
    shape = [1, len(rows), width]
    counted = lengths if lengths is not None else [len(row) for row in rows]
    return response(
        ("output_ids", "INT32", shape, tensors.pack("", "INT32", flat)),
        ("sequence_length", "INT32", [1, len(rows)], tensors.pack("", "INT32", counted)),
        **options,
    )


@given(st.text(max_size=60), st.lists(st.integers(0, 200), max_size=8), st.booleans())
def test_text_comes_out_whole_however_it_is_cut(whole: str, cuts: list[int], plain: bool) -> None:
    data = whole.encode()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    decoder = Decoder("r", Answer, plain=plain)
    events = [event for a, b in pairwise(edges) for event in decoder.feed(text(data[a:b]))]
    events += decoder.end()
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == whole


@given(st.binary(max_size=30), st.lists(st.integers(0, 30), max_size=6))
def test_bytes_that_are_no_text_become_what_python_makes_of_the_whole(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    answer = Answer(0)
    pieces = [answer.feed(data[a:b]) for a, b in pairwise(edges)]
    assert "".join(pieces) + answer.flush() == data.decode("utf-8", "replace")


@given(
    st.text("ab聪\n", max_size=30), st.lists(st.text("ab聪\n", min_size=1, max_size=3), max_size=2), st.data()
)
def test_stops_end_the_text_where_it_would_have_ended(whole: str, stops: list[str], data: Any) -> None:
    ends = [whole.find(stop) + len(stop) for stop in stops if stop in whole]
    expected = whole
    if ends:
        first = min(ends)
        expected = whole[: first - max(len(s) for s in stops if whole[:first].endswith(s))]
    raw = whole.encode()
    edges = [0, *sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6))), len(raw)]
    answer = Answer(0, stops)
    pieces = [answer.feed(raw[a:b]) for a, b in pairwise(edges)]
    assert "".join(pieces) + answer.flush() == expected
    assert answer.stopped == bool(ends)


@given(st.text(max_size=20), st.lists(st.integers(0, 80), max_size=6))
def test_text_that_is_repeated_is_given_out_once(whole: str, cuts: list[int]) -> None:
    data = whole.replace("\ufffd", "").encode()
    answer = RepeatedAnswer(0)
    pieces = [answer.feed(data[: min(cut, len(data))]) for cut in [*sorted(cuts), len(data)]]
    assert "".join(pieces) + answer.flush() == data.decode()


def test_ids_are_cut_at_their_length_and_end_ids_do_not_show() -> None:
    decoder = Decoder(
        "r", lambda index: IdAnswer(index, None, frozenset({9})), engine=True, max_tokens=10, prompt_tokens=4
    )
    assert decoder.feed(ids([5, 6], lengths=[1])) == [TokenIds((5,))]
    assert decoder.feed(ids([6, 9, 7])) == [TokenIds((6,))]
    assert decoder.final
    assert decoder.ended_here
    assert decoder.end() == [Finish("stop"), Usage(4, 2)]


def test_a_whole_answer_that_begins_with_the_prompt_is_freed_of_it() -> None:
    answer = IdAnswer(0, None, frozenset(), echo=(1, 2))
    assert answer.take((1, 2, 3)) == ("", (3,))


def test_several_sequences_are_kept_apart() -> None:
    decoder = Decoder("r", Answer, n=2, max_tokens=5)
    index = ("sequence_index", "INT32", [1], tensors.pack("", "INT32", [1]))
    assert decoder.feed(text(b"a")) == [TextDelta("a")]
    one = text(b"b")
    one.outputs.add(name=index[0], datatype=index[1], shape=index[2])
    one.raw_output_contents.append(index[3])
    assert decoder.feed(one) == [TextDelta("b", 1)]
    assert decoder.feed(text(b"c", b"d")) == [TextDelta("c"), TextDelta("d", 1)]
    assert decoder.end()[:2] == [Finish("unknown", 0), Finish("unknown", 1)]


def test_log_probabilities_are_those_of_the_new_tokens() -> None:
    decoder = Decoder("r", lambda index: IdAnswer(index, None, frozenset()), engine=True)
    values = tensors.pack("", "FP32", [-0.5, -0.25])
    with_logprobs = ids([7])
    with_logprobs.outputs.add(name="output_log_probs", datatype="FP32", shape=[1, 1, 2])
    with_logprobs.raw_output_contents.append(values)  # the engine repeats those of earlier tokens
    with_logprobs.outputs.add(name="cum_log_probs", datatype="FP32", shape=[1, 1])
    with_logprobs.raw_output_contents.append(tensors.pack("", "FP32", [-0.75]))
    assert decoder.feed(with_logprobs) == [TokenIds((7,)), Logprobs((-0.25,), 0, -0.75)]


def test_tensors_in_typed_fields_are_read_as_well() -> None:
    decoder = Decoder("r", Answer, plain=True)
    made = service_pb2.ModelInferResponse()
    made.outputs.add(name="text_output", datatype="BYTES", shape=[1]).contents.bytes_contents.append(b"hi")
    assert decoder.feed(made) == [TextDelta("hi")]


@pytest.mark.parametrize("lengths", [[3], [-1], [1, 1]])
def test_lengths_that_do_not_fit_are_not_believed(lengths: list[int]) -> None:
    decoder = Decoder("r", lambda index: IdAnswer(index, None, frozenset()), engine=True)
    with pytest.raises(ProtocolError, match="sequence_length"):
        decoder.feed(ids([5, 6], lengths=lengths))


@pytest.mark.parametrize(
    ("told", "responses", "allowed", "reason"),
    [
        (None, 3, 3, "length"),
        (None, 2, 3, "unknown"),
        (3, 1, 3, "length"),
        (2, 1, 3, "stop"),
        (None, 3, None, "unknown"),
    ],
)
def test_the_reason_is_inferred_only_where_it_is_certain(
    told: int | None, responses: int, allowed: int | None, reason: str
) -> None:
    decoder = Decoder("r", Answer, plain=True, max_tokens=allowed)
    for _ in range(responses):
        decoder.feed(text(b"x"))
    if told is not None:
        decoder.feed(response(("num_output_tokens", "INT32", [1], tensors.pack("", "INT32", [told]))))
    assert decoder.end()[0] == Finish(reason)  # type: ignore[arg-type]


def test_the_clock_names_the_limit_that_was_reached() -> None:
    clock = Clock(Timeouts(first_token_s=2, between_tokens_s=1, total_s=10), now=0.0)
    clock.attempt(whole=False)
    assert clock.wait(1.0) == 3.0  # 1 + first_token_s
    assert clock.expire(2.9) is None
    assert isinstance(clock.expire(3.0), FirstTokenTimeout)
    clock.arrived(2.0)
    assert clock.due() == 10.0  # nobody waits: only the end counts
    assert clock.wait(5.0) == 6.0  # the reader was away for 3 s; that is not the server's silence
    assert isinstance(clock.expire(6.0), BetweenTokensTimeout)
    clock.arrived(5.5)
    assert clock.wait(9.5) == 10.0
    assert isinstance(clock.expire(10.0), TotalTimeout)
    timings = clock.timings(10.0, {})
    assert (timings.first_token_s, timings.total_s, timings.responses, timings.longest_gap_s) == (
        2.0,
        10.0,
        2,
        0.5,
    )


def test_an_empty_message_does_not_restart_the_wait() -> None:
    clock = Clock(Timeouts(first_token_s=2), now=0.0)
    clock.attempt(whole=False)
    assert clock.wait(0.0) == 2.0
    assert clock.wait(1.5) == 2.0


def test_limits_that_are_off_never_come() -> None:
    clock = Clock(Timeouts(None, None, None, None), now=0.0)
    clock.attempt(whole=False)
    assert clock.wait(0.0) == math.inf
    assert clock.remaining(5.0) is None


def test_a_whole_answer_is_bound_by_the_total_alone() -> None:
    clock = Clock(Timeouts(first_token_s=1, total_s=5), now=0.0)
    clock.attempt(whole=True)
    assert clock.wait(0.0) == 5.0


@pytest.mark.parametrize("values", [{"total_s": 0}, {"first_token_s": -1}, {"connect_s": float("nan")}])
def test_limits_that_are_none_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Timeouts(**values)


@pytest.mark.parametrize(("tries", "most"), [(1, 0.1), (2, 0.2), (3, 0.4), (6, 2.0), (50, 2.0)])
def test_waits_double_up_to_the_most_with_full_jitter(tries: int, most: float) -> None:
    assert wait_s(Retry(), tries, uniform=lambda low, high: high) == pytest.approx(most)
    assert wait_s(Retry(), tries, uniform=lambda low, high: low) == 0.0


def test_the_budget_earns_a_share_of_requests() -> None:
    budget = Budget(Retry(budget_ratio=0.5, budget_reserve=1))
    assert budget.spend()
    assert not budget.spend()
    budget.earn()
    assert not budget.spend()  # 0.5
    budget.earn()
    assert budget.spend()  # 1.0


@pytest.mark.parametrize(
    ("code", "connected", "kind"),
    [
        ("UNAVAILABLE", False, errors.ConnectError),
        ("UNAVAILABLE", True, errors.ConnectionLost),
        ("NOT_FOUND", True, errors.ModelNotFound),
        ("INVALID_ARGUMENT", True, errors.InvalidRequest),
        ("UNIMPLEMENTED", True, errors.InvalidRequest),
        ("RESOURCE_EXHAUSTED", True, errors.Overloaded),
        ("UNAUTHENTICATED", True, errors.AccessDenied),
        ("PERMISSION_DENIED", True, errors.AccessDenied),
        ("DEADLINE_EXCEEDED", True, errors.TotalTimeout),
        ("INTERNAL", True, errors.ServerError),
        ("SOMETHING_NEW", True, errors.ServerError),
    ],
)
def test_statuses_become_types(code: str, connected: bool, kind: type[Exception]) -> None:
    found = from_status(code, "why", connected=connected)
    assert type(found) is kind
    assert "why" in str(found)


def test_open_errors_are_settled_by_what_the_server_says() -> None:
    def settled(
        error: errors.TritonStreamError, ready: bool | None, version: str = "2.68.0", **how: bool
    ) -> type:
        told = {"heard": False, **how}
        return type(settle(error, model_ready=ready, server_version=parse_version(version), **told))

    lost, told = errors.ConnectionLost("x"), errors.ServerError("x")
    assert settled(lost, None) is errors.ConnectionLost
    assert settled(lost, True) is errors.Unavailable
    assert settled(lost, True, heard=True) is errors.ConnectionLost  # an answer that broke off
    assert settled(lost, True, registering=True) is errors.UnsupportedError
    assert settled(lost, False) is errors.ModelNotReady
    assert settled(told, False) is errors.ModelNotReady
    assert settled(told, True) is errors.InvalidRequest
    assert settled(told, True, heard=True) is errors.ServerError
    assert settled(told, True, version="2.67.0") is errors.ServerError  # no code is asked for
    assert settled(told, True, version="r24") is errors.ServerError


def counted_ids(reason: bytes, told: int, *chunks: list[int]) -> list[Any]:
    """Events of a front that sends these ids and then tells a count and a reason."""
    decoder = Decoder("r", Answer, want_ids=True)
    for chunk in chunks:
        shape = [1, len(chunk)]
        decoder.feed(response(("token_ids", "INT32", shape, tensors.pack("", "INT32", chunk))))
    last = response(
        ("finish_reason", "BYTES", [1], tensors.pack_bytes([reason])),
        ("num_output_tokens", "INT32", [1], tensors.pack("", "INT32", [told])),
        final=True,
    )
    decoder.feed(last)
    return decoder.end()


@pytest.mark.parametrize(("reason", "told"), [(b"length", 4), (b"stop", 4), (b"stop", 2)])
def test_ids_that_were_doubled_or_lost_are_noticed(reason: bytes, told: int) -> None:
    if (reason, told) == (b"stop", 4):  # the fourth is the one that ended the answer
        assert counted_ids(reason, told, [1, 2], [3])[-1] == Usage(None, 4)
    else:
        with pytest.raises(ProtocolError, match="lost or doubled"):
            counted_ids(reason, told, [1, 2], [3])


def test_an_answer_without_tokens_is_counted_as_none() -> None:
    decoder = Decoder("r", Answer, max_tokens=5)
    decoder.feed(response(("num_output_tokens", "INT32", [1], tensors.pack("", "INT32", [0])), final=True))
    assert decoder.end() == [Finish("unknown"), Usage(None, 0)]


def streamed(content: bytes, **options: Any) -> bytes:
    """A message of a stream, as bytes."""
    message = service_pb2.ModelStreamInferResponse(infer_response=text(content, **options))
    return message.SerializeToString()  # type: ignore[no-any-return]


@given(st.binary(max_size=300), st.lists(st.binary(max_size=20_000), max_size=5))
def test_a_stencil_finds_the_text_that_parsing_finds(first: bytes, others: list[bytes]) -> None:
    stencil = TextStencil()
    assert stencil.match(streamed(first)) is None  # nothing learned yet
    stencil.learn(streamed(first, final=False), tensors.pack_bytes([first]))
    for other in others:
        found = stencil.match(streamed(other, final=False))
        assert found == other or (found is None and len(other) > 16_000)  # longer lengths are left to parsing


@pytest.mark.parametrize(
    "other",
    [
        streamed(b"x", final=True),
        streamed(b"x", final=False, id_="another"),
        streamed(b"x"),
        service_pb2.ModelStreamInferResponse(error_message="x").SerializeToString(),
        service_pb2.ModelStreamInferResponse(
            infer_response=text(b"x", b"y", final=False)
        ).SerializeToString(),
        service_pb2.ModelStreamInferResponse(infer_response=ids([1], final=False)).SerializeToString(),
        streamed(b"x", final=False)[:-1],
        streamed(b"x", final=False) + b"\x0a\x01e",  # an error after the response
    ],
)
def test_a_stencil_leaves_everything_else_to_parsing(other: bytes) -> None:
    stencil = TextStencil()
    stencil.learn(streamed(b"some text", final=False), tensors.pack_bytes([b"some text"]))
    assert stencil.match(streamed(b"more", final=False)) == b"more"
    assert stencil.match(other) is None


@given(st.binary(max_size=60))
def test_a_stencil_takes_any_bytes(data: bytes) -> None:
    stencil = TextStencil()
    stencil.learn(streamed(b"t", final=False), tensors.pack_bytes([b"t"]))
    for shown in (data, streamed(b"t", final=False)[: len(data)], streamed(b"t", final=False) + data):
        if shown != streamed(b"t", final=False):
            assert stencil.match(shown) is None
