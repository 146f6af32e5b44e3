"""One answer: any way to cut the engine's tokens into messages gives the same text, end and counts."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.front_modules import front_module
from tests.support.real_tokenizers import table, tokenizer

answer = front_module("answer")
inputs = front_module("inputs")
meter = front_module("meter")
prepare = front_module("prepare")
wire = front_module("wire")

END, OTHER_END = 2, 0  # <|im_end|>, <|endoftext|> of SmolLM2
ALL = frozenset({"text_output", "token_ids", "finish_reason"})


def _answer(
    *, limit: int = 1000, stops: tuple[str, ...] = (), outputs: frozenset[str] = ALL, **asked: Any
) -> Any:
    request = inputs.TextRequest(text="x", stream=True, **asked)
    made = answer.Answer(request, outputs, None, lambda one: None, meter.Meter())
    ends = frozenset({END, OTHER_END})
    made.begin(prepare.Prepared(b"", "x", 1, 0, limit, ends, frozenset({END}), stops), table("smollm2"))
    return made


def test_an_answer_counts_in_its_class_and_step() -> None:
    made = _answer(limit=3, traffic_class="interactive", degrade_step=2)
    _run(made, [5, 6, 7], [1])
    totals = made.totals
    assert (totals.input_tokens, totals.output_tokens, totals.ended_count) == (1, 3, 1)
    assert (dict(totals.reasons), dict(totals.steps)) == ({"length": 1}, {"2": 1})
    assert (sum(totals.ttft.counts), sum(totals.itl.counts)) == (1, 2)


def _run(
    made: Any, ids: list[int], cuts: list[int], *, final: bool = True
) -> tuple[str, list[int], list[Any]]:
    """Feeds ids in messages cut at ``cuts``; returns text, ids and what was said after each message."""
    texts, out, said = [], [], []
    places = [0, *sorted({cut for cut in cuts if 0 < cut < len(ids)}), len(ids)]
    for begin, end in itertools.pairwise(places):
        last = end == len(ids)
        said.append(made.accept(wire.Reply(ids=[ids[begin:end]], final=final and last)))
        chunk = made.take()
        if chunk is not None:
            texts += chunk.texts
            out += chunk.ids
        if made.complete:
            break
    return "".join(texts), out, said


@given(
    picks=st.lists(st.integers(3, 49151), min_size=1, max_size=20),
    cuts=st.lists(st.integers(1, 20)),
    end=st.sampled_from([None, END, OTHER_END]),
)
@settings(max_examples=200, deadline=None)
def test_text_and_ids_are_whole_however_they_come(picks: list[int], cuts: list[int], end: int | None) -> None:
    made = _answer()
    ids = picks if end is None else [*picks, end, 5, 6]
    text, out, said = _run(made, ids, cuts)
    assert text == table("smollm2").decode(picks)
    assert out == picks
    assert made.reason == "stop"  # the engine ended below the limit
    assert made.output_tokens == len(picks) + (end is not None)
    if end == OTHER_END and said[-1] is not answer.Then.LET_END:
        assert said[-1] is answer.Then.CANCEL  # the engine goes on behind an end id that it does not know


@given(cuts=st.lists(st.integers(1, 40)))
def test_a_stop_string_cuts_text_and_ids_alike(cuts: list[int]) -> None:
    ids = tokenizer("smollm2").encode("one two three four five").ids
    made = _answer(stops=("o thr",))
    text, out, said = _run(made, ids, cuts, final=False)
    assert text == "one tw"
    assert table("smollm2").decode(out) == "one two three"  # up to the token that completes the stop
    assert (made.reason, made.output_tokens) == ("stop", 3)
    assert said[-1] is answer.Then.CANCEL


def test_the_limit_ends_without_waiting_for_the_engine() -> None:
    made = _answer(limit=2)
    assert made.accept_tokens([500]) is answer.Then.GO_ON
    assert made.accept_tokens([501]) is answer.Then.LET_END
    assert made.reason == "length"


def test_an_engine_that_ignores_the_end_is_cancelled() -> None:
    made = _answer()
    assert made.accept(wire.Reply(ids=[[END]])) is answer.Then.LET_END
    assert made.accept(wire.Reply(ids=[[500]])) is answer.Then.CANCEL


def test_a_final_message_without_tokens_ends() -> None:
    made = _answer()
    made.accept_tokens([500])
    assert made.accept(wire.Reply(final=True)) is answer.Then.LET_END
    assert made.reason == "stop"


def test_half_a_character_is_held_and_given_up_at_the_end() -> None:
    ids = tokenizer("smollm2").encode("𠮷").ids
    assert len(ids) > 1
    made = _answer()
    made.accept_tokens([ids[0]])
    assert made.take() is None  # nothing to send yet
    made.finish("deadline")
    chunk = made.take()
    assert chunk.texts == ["\ufffd"]
    assert chunk.reasons == ["deadline"]


def test_without_coalescing_each_piece_goes_alone() -> None:
    made = _answer()
    for id_ in (500, 501, 502):
        made.accept_tokens([id_])
    made.finish("stop")
    chunks = []
    while (chunk := made.take(everything=False)) is not None and chunk.reasons is None:
        chunks.append(chunk)
    assert len(chunks) == 2
    assert chunk.reasons == ["stop"]
    whole = "".join(text for one in [*chunks, chunk] for text in one.texts)
    assert whole == table("smollm2").decode([500, 501, 502])


def test_ids_alone_are_sent_when_text_is_not_wanted() -> None:
    made = _answer(outputs=frozenset({"token_ids"}))
    ids = tokenizer("smollm2").encode("𠮷").ids
    made.accept_tokens([ids[0]])
    assert made.take().ids == [ids[0]]


def test_log_probabilities_go_with_their_tokens() -> None:
    made = _answer(outputs=frozenset({"text_output", "output_log_probs"}))
    made.accept(wire.Reply(ids=[[500]], extras={"output_log_probs": np.array([[[-0.5]]], np.float32)}))
    # an engine that repeats those of all tokens so far: the last is the new one
    made.accept(wire.Reply(ids=[[501]], extras={"output_log_probs": np.array([[[-0.5, -0.25]]], np.float32)}))
    assert made.take().log_probs == [-0.5, -0.25]


def test_an_error_is_told_once_and_in_one_line() -> None:
    made = _answer()
    made.accept(wire.Reply(error="first line\nsecond line"))
    made.accept(wire.Reply(error="another"))
    made.finish("stop")
    assert made.failure == ("INTERNAL", "the engine refused or failed: first line", None)
    assert made.reason is None


@pytest.mark.parametrize("code", ["UNAVAILABLE", "UNSUPPORTED", "INVALID_ARG"])
def test_a_code_that_the_engine_gives_is_handed_on(code: str) -> None:
    made = _answer()
    made.accept(wire.Reply(error=f"e: the engine is being started again [{code}]"))
    assert made.failure == (code, "the engine refused or failed: e: the engine is being started again", None)


_LOST_SEGMENT = "Failed to increase the shared memory pool size for key 'trtbuild-1-ab' to 8 bytes"


@pytest.mark.parametrize(
    ("said", "part"),
    [
        (
            f"Failed to process the request(s) for model 'e_0_0', message: {_LOST_SEGMENT}",
            "/dev/shm is full",
        ),
        (
            "Failed to process the request(s) for model 'e_0_0', message: Stub process is not healthy.",
            "the server's log says why",
        ),
        (
            "Traceback (most recent call last):\n File '/opt/e/1/model.py'\nKeyError: 1",
            "the server's log",
        ),
    ],
)
def test_what_speaks_of_the_engines_inside_is_for_the_log(said: str, part: str) -> None:
    logged: list[str] = []
    pb_utils = SimpleNamespace(Logger=SimpleNamespace(log_error=logged.append))
    made = _answer()
    made.accept(wire.Reply(error=said))
    text = made.failure.text(pb_utils)
    assert text.startswith("the engine failed: ")
    assert part in text
    assert text.endswith(" [INTERNAL]")
    assert not {word for word in ("trtbuild-1-ab", "e_0_0", "model.py") if word in text}
    assert logged == [f"the engine failed: {said}"]


@pytest.mark.parametrize("final", [False, True])
def test_an_answer_with_a_gap_ends_as_an_error(final: bool) -> None:
    made = _answer()
    made.accept(wire.Reply(ids=[[500, 501]], final=final))
    made.lost(RuntimeError(_LOST_SEGMENT))
    pb_utils = SimpleNamespace(Logger=SimpleNamespace(log_error=lambda _: None))
    assert made.failure.text(pb_utils).startswith("a part of the answer could not be sent: the server has no")


def _message(
    ids: list[int], *, final: bool | None = False, lengths: list[int] | None = None, extra: bool = False
) -> bytes:
    """As a server writes it: tritonclient's generated classes are the other opinion."""
    from tritonclient.grpc import service_pb2

    message = service_pb2.ModelStreamInferResponse()
    response = message.infer_response
    response.model_name, response.model_version, response.id = "engine", "1", "7"
    if final is not None:
        response.parameters["triton_final_response"].bool_param = final
    arrays = (
        {"sequence_length": np.array([lengths or [len(ids)]], np.int32)} if lengths is None or lengths else {}
    )
    arrays["output_ids"] = np.array([[ids]], np.int32)
    if extra:
        arrays["cum_log_probs"] = np.array([[-1.5]], np.float32)
    for name, array in arrays.items():
        kind = "FP32" if array.dtype == np.float32 else "INT32"
        response.outputs.add(name=name, datatype=kind, shape=array.shape)
        response.raw_output_contents.append(array.tobytes())
    return bytes(message.SerializeToString())


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=6), st.booleans(), st.booleans())
def test_replies_are_read_as_protobuf_reads_them(ids: list[int], final: bool, extra: bool) -> None:
    reader = wire.ReplyReader()
    reply = reader.parse(_message(ids, final=final, extra=extra))
    assert (reply.ids, reply.final, reply.error) == ([ids], final, "")
    assert list(reply.extras) == (["cum_log_probs"] if extra else [])


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=20))
def test_a_learned_message_gives_the_token_or_nothing(tokens: list[int]) -> None:
    reader = wire.ReplyReader()
    reader.parse(_message([1]))  # a token whose bytes are those of sequence_length, too
    for token in tokens:
        assert reader.token(_message([token])) == token
    assert reader.token(_message([1, 2])) is None
    assert reader.token(_message([1], final=True)) is None
    assert reader.token(_message([1], lengths=[0])) is None
    assert reader.token(_message([1], extra=True)) is None


def test_padding_behind_sequence_length_is_no_token() -> None:
    assert wire.ReplyReader().parse(_message([5, 6, 0, 0], lengths=[2])).ids == [[5, 6]]
    assert wire.ReplyReader().parse(_message([5, 6], lengths=[9])).ids == [[5, 6]]


def test_requests_are_what_protobuf_reads() -> None:
    from tritonclient.grpc import service_pb2

    tensors = {
        "input_ids": np.array([[1, 2, 300]], np.int32),
        "streaming": np.array([[True]]),
        "seed": np.array([[2**63]], np.uint64),
        "lora_weights": np.array([[[1.5]]], np.float16),
        "guide": np.array([["é".encode()]], np.object_),
    }
    message = service_pb2.ModelInferRequest.FromString(wire.request_bytes("engine", tensors, ["a", "b"]))
    assert message.model_name == "engine"
    assert [(t.name, t.datatype, list(t.shape)) for t in message.inputs] == [
        ("input_ids", "INT32", [1, 3]),
        ("streaming", "BOOL", [1, 1]),
        ("seed", "UINT64", [1, 1]),
        ("lora_weights", "FP16", [1, 1, 1]),
        ("guide", "BYTES", [1, 1]),
    ]
    assert message.raw_input_contents[0] == tensors["input_ids"].tobytes()
    assert message.raw_input_contents[4] == b"\x02\0\0\0\xc3\xa9"
    assert [output.name for output in message.outputs] == ["a", "b"]
    assert message.parameters["triton_enable_empty_final_response"].bool_param


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05ab", b"\x08\xff", b"\x0b", b"\x08" + b"\xff" * 11])
def test_broken_messages_are_told(data: bytes) -> None:
    with pytest.raises(front_module("protobuf").ProtobufError):
        wire.ReplyReader().parse(data)
