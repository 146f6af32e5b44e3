"""Responses → events. One decoder reads one request's responses; it does no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from . import _tensors
from ._request import Built, Codec, Wish
from .errors import ProtocolError
from .events import Event, Finish, FinishReason, Logprobs, TextDelta, TokenIds, Usage
from .models import ModelDescription, ModelKind
from .text.utf8 import Utf8Stream

if TYPE_CHECKING:
    from ._proto import Message

_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "cancelled": "cancelled",
    "deadline": "deadline",
    "timeout": "deadline",  # TensorRT-LLM's word
}
_RUNNING: Final = frozenset({"", "none", "null", "not_finished"})


class _Sequence:
    """One of the ``n`` answers of a request."""

    __slots__ = ("index", "reason", "seen", "stream", "tail", "tokens", "utf8")

    def __init__(self, index: int, stream: Any) -> None:
        self.index = index
        self.stream = stream  # ids → text, for an engine with a codec
        self.utf8 = Utf8Stream()
        self.tokens = 0
        self.seen = ""  # of a model that repeats the text so far: what was given out,
        self.tail = ""  # and the U+FFFD at its end that may yet become a character
        self.reason: FinishReason | None = None


class Decoder:
    """Turns the responses of one request into events.

    ``stopped`` becomes true when a stop string that only the client looks for has ended every sequence:
    the request is then to be cancelled.
    """

    def __init__(
        self, model: ModelDescription, wish: Wish, built: Built, codec: Codec | None, *, stream: bool
    ) -> None:
        self._model = model
        self._id = built.message.id
        self._max_tokens = built.max_tokens
        self._engine = model.kind is ModelKind.ENGINE
        self._codec = codec if self._engine else None
        # Stops that the model matches itself are left to it.
        self._stops = wish.stops if self._engine else []
        self._want_ids = self._engine or bool(wish.params.get("token_ids"))
        self._repeats = model.parameters.get("accumulate_tokens", "").lower() in ("true", "1")
        self._echo = built.input_ids if not stream and _echoes(model) else None
        self._n = int(wish.params.get("n", 1))
        self._sequences: dict[int, _Sequence] = {}
        self._usage: dict[str, int] = {}
        self._prompt_tokens = None if built.input_ids is None else len(built.input_ids)
        self.server_ns: dict[str, int] = {}
        self.stopped = False
        self._responses = 0

    def feed(self, response: Message) -> tuple[list[Event], bool]:
        """Reads one response.

        Returns:
            its events, and whether it is the last one.

        Raises:
            ProtocolError: for a response of another request, and for tensors that are not what they say.
        """
        if response.id and response.id != self._id:
            raise ProtocolError(
                f"got a response of request {response.id!r}: the server mixed up two requests"
            )
        flag = response.parameters.get("triton_final_response")
        final = flag is not None and flag.bool_param
        outputs = response.outputs
        if not outputs:
            return [], final
        raws = response.raw_output_contents
        if len(raws) != len(outputs):
            raws = [_contents(output) for output in outputs]
        events: list[Event] = []
        fields: dict[str, tuple[Any, bytes]] = {}
        for output, raw in zip(outputs, raws, strict=True):
            fields[output.name] = (output, raw)
        first = self._index(fields)
        if self._engine:
            self._ids(fields, first, events)
        else:
            self._text(fields, first, events)
        if len(fields) > 1:
            self._extras(fields, first, events)
        return events, final

    def end(self, reason: FinishReason | None = None) -> list[Event]:
        """Ends the request: what was held comes out, and every sequence gets its finish.

        Args:
            reason: why it ended where the server does not say, such as ``cancelled``.
        """
        events: list[Event] = []
        for index in range(max(1, len(self._sequences))):
            sequence = self._at(index)
            self._emit(sequence, self._flush(sequence), events)
            events.append(Finish(sequence.reason or reason or self._infer(sequence), index))
        events.append(self._count())
        return events

    def _index(self, fields: dict[str, tuple[Any, bytes]]) -> int:
        found = fields.get("sequence_index")
        return int(_tensors.unpack(found[0].datatype, found[1])[0]) if found and found[1] else 0

    def _at(self, index: int) -> _Sequence:
        sequence = self._sequences.get(index)
        if sequence is None:
            stream = self._codec.text_stream(self._stops) if self._codec else None
            sequence = self._sequences[index] = _Sequence(index, stream)
        return sequence

    def _text(self, fields: dict[str, tuple[Any, bytes]], first: int, events: list[Event]) -> None:
        found = fields.get("text_output")
        if found is None:
            return
        output, raw = found
        if output.datatype != "BYTES":
            raise ProtocolError(f"text_output of {self._model.name} is {output.datatype}, not text (BYTES)")
        self._responses += 1
        for offset, data in enumerate(_tensors.unpack_bytes(raw)):
            sequence = self._at(first + offset)
            if self._repeats:
                self._emit(sequence, _growth(sequence, data), events)
            elif data:
                self._emit(sequence, sequence.utf8.feed(data), events)

    def _ids(self, fields: dict[str, tuple[Any, bytes]], first: int, events: list[Event]) -> None:
        found = fields.get("output_ids")
        if found is None:
            return
        output, raw = found
        if output.datatype != "INT32":
            raise ProtocolError(f"output_ids of {self._model.name} is {output.datatype}, not INT32")
        flat = _tensors.unpack("INT32", raw)
        width = output.shape[-1] if output.shape else len(flat)
        rows = [flat[at : at + width] for at in range(0, len(flat), width)] if width else []
        lengths = self._lengths(fields, len(rows), width)
        self._responses += 1
        for offset, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            ids = row[:length]
            if self._echo is not None and ids[: len(self._echo)] == self._echo:
                ids = ids[len(self._echo) :]
            sequence = self._at(first + offset)
            if ids and sequence.reason is None:
                self._take_ids(sequence, ids, events)
        self.stopped = (
            bool(self._stops)
            and len(self._sequences) >= self._n
            and all(s.reason for s in self._sequences.values())
        )

    def _lengths(self, fields: dict[str, tuple[Any, bytes]], rows: int, width: int) -> Sequence[int]:
        found = fields.get("sequence_length")
        if found is None:
            return [width] * rows
        lengths = _tensors.unpack(found[0].datatype, found[1])
        if len(lengths) != rows or any(not 0 <= length <= width for length in lengths):
            raise ProtocolError(
                f"sequence_length {list(lengths)} does not fit output_ids of {rows} x {width}"
            )
        return lengths

    def _take_ids(self, sequence: _Sequence, ids: tuple[int, ...], events: list[Event]) -> None:
        ends = self._codec.end_ids if self._codec else ()
        cut = next((at for at, id_ in enumerate(ids) if id_ in ends), None)
        if cut is not None:
            ids, sequence.reason = ids[:cut], "stop"
        if sequence.stream is not None and ids:
            text, used = sequence.stream.push_counted(ids)
            self._emit(sequence, text, events)
            if sequence.stream.stopped is not None:
                ids, sequence.reason = ids[:used], "stop"
        sequence.tokens += len(ids)
        if ids:
            events.append(TokenIds(ids, sequence.index))

    def _extras(self, fields: dict[str, tuple[Any, bytes]], first: int, events: list[Event]) -> None:
        for name, (output, raw) in fields.items():
            if not raw or name in _READ:
                continue
            if name == "token_ids":
                ids = _tensors.unpack(output.datatype, raw)
                self._at(first).tokens += len(ids)
                if self._want_ids:
                    events.append(TokenIds(ids, first))
            elif name == "finish_reason":
                self._finish_reason(_tensors.unpack_bytes(raw), first)
            elif name in ("num_input_tokens", "num_output_tokens"):
                self._usage[name] = sum(_tensors.unpack(output.datatype, raw))
            elif name.endswith("_time_ns"):
                self.server_ns[name] = int(_tensors.unpack(output.datatype, raw)[0])
        self._logprobs(fields, first, events)

    def _logprobs(self, fields: dict[str, tuple[Any, bytes]], first: int, events: list[Event]) -> None:
        cumulative = fields.get("cum_log_probs") or fields.get("cumulative_logprob")
        each = fields.get("output_log_probs")
        values = _tensors.unpack(each[0].datatype, each[1]) if each else ()
        totals = _tensors.unpack(cumulative[0].datatype, cumulative[1]) if cumulative else ()
        if values or totals:
            events.append(Logprobs(values, first, totals[0] if totals else None))

    def _finish_reason(self, words: Sequence[bytes], first: int) -> None:
        for offset, word in enumerate(words):
            reason = word.decode("utf-8", "replace").lower()
            if reason not in _RUNNING:
                self._at(first + offset).reason = _REASONS.get(reason, "unknown")

    def _emit(self, sequence: _Sequence, text: str, events: list[Event]) -> None:
        if text:
            events.append(TextDelta(text, sequence.index))

    def _flush(self, sequence: _Sequence) -> str:
        if sequence.stream is not None:
            return cast(str, sequence.stream.flush())
        return sequence.tail + sequence.utf8.flush()

    def _infer(self, sequence: _Sequence) -> FinishReason:
        """Why a sequence ended when the model does not say: at its length limit, or at a stop.

        Text models send at least one token a response, so as many responses as tokens were allowed is length.
        """
        if self._max_tokens is None:
            return "unknown"
        counted = sequence.tokens or self._usage.get("num_output_tokens", 0)
        if counted:
            return "length" if counted >= self._max_tokens else "stop"
        return "length" if self._responses >= self._max_tokens else "unknown"

    def _count(self) -> Usage:
        counted = sum(sequence.tokens for sequence in self._sequences.values()) if self._want_ids else None
        told = self._usage.get("num_output_tokens")
        if counted and told is not None and counted != told and not self._engine:
            raise ProtocolError(
                f"the server counts {told} tokens and sent {counted}: some were lost or came twice"
            )
        return Usage(
            self._usage.get("num_input_tokens", self._prompt_tokens), told if told is not None else counted
        )


_READ: Final = frozenset({"text_output", "output_ids", "sequence_length", "sequence_index", "batch_index"})


def _echoes(model: ModelDescription) -> bool:
    """Whether a whole answer of this engine begins with the prompt (TensorRT-LLM's default)."""
    told = "exclude_input_in_output" in model.inputs  # then the request says true
    return not told and model.parameters.get("exclude_input_in_output", "").lower() not in ("true", "1")


def _growth(sequence: _Sequence, data: bytes) -> str:
    """New text of a model that sends all text so far; an unfinished character at its end waits."""
    whole = data.decode("utf-8", "replace")
    settled = whole.rstrip("\ufffd")
    if not settled.startswith(sequence.seen):
        raise ProtocolError("a model with accumulate_tokens changed text that it had sent")
    new = settled[len(sequence.seen) :]
    sequence.seen, sequence.tail = settled, whole[len(settled) :]
    return new


def _contents(output: Message) -> bytes:
    """A tensor that came in typed fields, as the raw bytes that Triton sends otherwise."""
    contents = output.contents
    if output.datatype == "BYTES":
        return _tensors.pack_bytes(contents.bytes_contents)
    for field in (
        "int_contents",
        "fp32_contents",
        "bool_contents",
        "int64_contents",
        "uint_contents",
        "uint64_contents",
        "fp64_contents",
    ):
        values = getattr(contents, field)
        if values:
            return _tensors.pack(output.name, output.datatype, values)
    return b""
