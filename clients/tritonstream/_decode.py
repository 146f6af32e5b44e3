"""Responses → events. One decoder reads the responses of one attempt; it does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from . import _tensors
from ._answers import Answer, IdAnswer
from ._stencil import TextStencil
from .errors import ProtocolError
from .events import Event, Finish, FinishReason, Logprobs, TextDelta, TokenIds, Usage

if TYPE_CHECKING:
    from ._proto import Message

Fields = Mapping[str, tuple[Any, bytes]]  # output name → (its description, its bytes)

_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "cancelled": "cancelled",
    "deadline": "deadline",
    "timeout": "deadline",  # TensorRT-LLM's word
}
_RUNNING: Final = frozenset({"", "none", "null", "not_finished"})


class Decoder:
    """Turns responses into events.

    Args:
        request_id: what every response must carry, if it carries any.
        make: the answer with this index.
        n: how many answers were asked for.
        engine: responses carry token ids instead of text.
        plain: text comes as it is, one answer, nothing to look for: the quick way is open.
        want_ids: the caller asked for ids.
        max_tokens: what was asked for, if anything.
        prompt_tokens: length of the prompt, where the client knows it.
        checked: the last response will bring a checksum of the text.

    Attributes:
        final: nothing more is to come: the server said so, or the client ended it.
        ended_here: the client ended it (end id, or a stop string that only it looks for).
        stopped: by a stop string, so the server goes on until it is told.
        heard: any response was read.
        server_ns: the engine's clock, where it sends it.
    """

    def __init__(
        self,
        request_id: str,
        make: Callable[[int], Answer],
        *,
        n: int = 1,
        engine: bool = False,
        plain: bool = False,
        want_ids: bool = False,
        max_tokens: int | None = None,
        prompt_tokens: int | None = None,
        checked: bool = False,
    ) -> None:
        self._id = request_id
        self._make = make
        self._n = n
        self._engine = engine
        self._want_ids = want_ids or engine
        self._max_tokens = max_tokens
        self._checked = checked
        self._prompt_tokens = prompt_tokens
        self._answers: dict[int, Answer] = {}
        self._usage: dict[str, dict[int, int]] = {"num_input_tokens": {}, "num_output_tokens": {}}
        self._responses = 0
        self._crc32 = 0  # of the text's bytes as they came
        self._crc32_told: int | None = None
        self._plain = self._answer(0).feed if plain else None
        self._stencil = TextStencil() if plain else None
        self.server_ns: dict[str, int] = {}
        self.final = self.ended_here = self.stopped = self.heard = False

    def quick(self, data: bytes) -> str | None:
        """See ``_task.Reader``."""
        if self._stencil is None:
            return None
        raw = self._stencil.match(data)
        if raw is None:
            return None
        self._responses += 1
        self._crc32 = crc32(raw, self._crc32)
        return self._plain(raw)  # type: ignore[misc]

    def learn(self, data: bytes, response: Message) -> None:
        """See ``_task.Reader``."""
        if self._stencil is None or self.final or len(response.raw_output_contents) != 1:
            return
        output = response.outputs[0]
        if output.name == "text_output" and output.datatype == "BYTES":
            self._stencil.learn(data, response.raw_output_contents[0])

    def feed(self, response: Message) -> list[Event]:
        """Reads one response and returns its events.

        Raises:
            ProtocolError: for a response of another request, and for tensors that are not what they say.
        """
        id_ = response.id
        if id_ and id_ != self._id:
            raise ProtocolError(f"got a response of request {id_!r}: the server mixed up two requests")
        flag = response.parameters.get("triton_final_response")
        if flag is not None and flag.bool_param:
            self.final = True
        self.heard = True
        outputs, raws = response.outputs, response.raw_output_contents
        if not outputs:
            return []
        if len(raws) != len(outputs):
            raws = [_tensors.contents(output) for output in outputs]
        return self._read(outputs, raws)

    def end(self, reason: FinishReason | None = None) -> list[Event]:
        """Ends the request: what was held comes out, and every answer gets its finish.

        Args:
            reason: why it ended where neither the server nor the answer says, such as ``cancelled``.
        """
        if reason is None:
            self._check_whole()
        events: list[Event] = []
        for index in range(max(1, len(self._answers))):
            answer = self._answer(index)
            text = answer.flush()
            if text:
                events.append(TextDelta(text, index))
            events.append(Finish(answer.reason or reason or self._infer(answer), index))
        events.append(self._count())
        return events

    def _check_whole(self) -> None:
        """Raises ProtocolError where the responses show that some were lost, doubled or changed places."""
        if self.final and 1 < self._n != len(self._answers):
            raise ProtocolError(f"{self._n} answers were asked for and {len(self._answers)} came")
        if self._crc32_told is None:
            if self._checked and not self.final:
                raise ProtocolError("the stream ended and its last response did not come")
        elif self._crc32_told != self._crc32:
            raise ProtocolError(
                "the text that came has not the checksum of the text that was sent: "
                "a response was lost, doubled, or changed its place"
            )
        most = max((answer.tokens for answer in self._answers.values()), default=0)
        if self._max_tokens is not None and most > self._max_tokens:
            raise ProtocolError(
                f"{most} tokens came where {self._max_tokens} were allowed: some were doubled"
            )

    def discard(self) -> None:
        """Nothing is held; see ``_task.Reader``."""

    def _read(self, outputs: Sequence[Message], raws: Sequence[bytes]) -> list[Event]:
        fields = {output.name: (output, raw) for output, raw in zip(outputs, raws, strict=True)}
        place = fields.get("sequence_index")
        first = int(_tensors.unpack(place[0].datatype, place[1])[0]) if place and place[1] else 0
        events: list[Event] = []
        if self._engine:
            counts = self._read_ids(fields, first, events)
        else:
            counts = []
            self._read_text(fields, first, events)
        self._read_others(fields, first, events)
        self._read_logprobs(fields, first, counts, events)
        if len(self._answers) >= self._n:
            answers = self._answers.values()
            if all(answer.stopped for answer in answers):
                self.stopped = self.ended_here = self.final = True
            elif self._engine and all(answer.reason for answer in answers):
                self.ended_here = self.final = True
        return events

    def _answer(self, index: int) -> Answer:
        answer = self._answers.get(index)
        if answer is None:
            answer = self._answers[index] = self._make(index)
        return answer

    def _read_text(self, fields: Fields, first: int, events: list[Event]) -> None:
        found = fields.get("text_output")
        if found is None:
            return
        output, raw = found
        if output.datatype != "BYTES":
            raise ProtocolError(f"text_output is {output.datatype}, not text (BYTES)")
        self._responses += 1
        for offset, data in enumerate(_tensors.unpack_bytes(raw)):
            self._crc32 = crc32(data, self._crc32)
            answer = self._answer(first + offset)
            text = answer.feed(data) if data else ""
            if text:
                events.append(TextDelta(text, first + offset))

    def _read_ids(self, fields: Fields, first: int, events: list[Event]) -> list[int]:
        """Reads ``output_ids`` [1, answers, tokens]; returns how many tokens each answer got."""
        found = fields.get("output_ids")
        if found is None:
            return []
        output, raw = found
        if output.datatype != "INT32":
            raise ProtocolError(f"output_ids is {output.datatype}, not INT32")
        self._responses += 1
        flat = _tensors.unpack("INT32", raw)
        width = int(output.shape[-1]) if output.shape else len(flat)
        rows = [flat[at : at + width] for at in range(0, len(flat), width)] if width else []
        lengths = _lengths(fields, len(rows), width)
        for offset, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            answer = self._answer(first + offset)
            assert isinstance(answer, IdAnswer)
            text, ids = answer.take(row[:length])
            if text:
                events.append(TextDelta(text, answer.index))
            if ids:
                events.append(TokenIds(ids, answer.index))
        return list(lengths)

    def _read_others(self, fields: Fields, first: int, events: list[Event]) -> None:
        for name, (output, raw) in fields.items():
            if name in _READ or not raw:
                continue
            if name == "token_ids":
                ids = _tensors.unpack(output.datatype, raw)
                self._answer(first).tokens += len(ids)
                if self._want_ids:
                    events.append(TokenIds(ids, first))
            elif name == "finish_reason":
                for offset, word in enumerate(_tensors.unpack_bytes(raw)):
                    reason = word.decode("utf-8", "replace").lower()
                    if reason not in _RUNNING:
                        self._answer(first + offset).reason = _REASONS.get(reason, "unknown")
            elif name == "text_crc32":
                self._crc32_told = int(_tensors.unpack(output.datatype, raw)[0])
            elif name in self._usage:
                self._usage[name][first] = sum(_tensors.unpack(output.datatype, raw))
            elif name.endswith("_time_ns"):
                self.server_ns[name] = int(_tensors.unpack(output.datatype, raw)[0])

    def _read_logprobs(self, fields: Fields, first: int, counts: Sequence[int], events: list[Event]) -> None:
        each, total = (
            fields.get("output_log_probs"),
            fields.get("cum_log_probs") or fields.get("cumulative_logprob"),
        )
        values = _tensors.unpack(each[0].datatype, each[1]) if each else ()
        totals = _tensors.unpack(total[0].datatype, total[1]) if total else ()
        width = int(each[0].shape[-1]) if each and each[0].shape else len(values)
        rows = max(len(totals), len(values) // width if width else 0)
        for row in range(rows):
            mine = values[row * width : (row + 1) * width]
            if row < len(counts) and len(mine) > counts[row]:
                mine = mine[len(mine) - counts[row] :]  # an engine may repeat those of earlier tokens
            if mine or totals:
                events.append(Logprobs(mine, first + row, totals[row] if row < len(totals) else None))

    def _infer(self, answer: Answer) -> FinishReason:
        """Why an answer ended when the model does not say: at its length limit, or at a stop.

        Text models send at least one token a response, so as many responses as tokens were allowed is length.
        """
        if self._max_tokens is None:
            return "unknown"
        counted = answer.tokens or self._usage["num_output_tokens"].get(answer.index, 0)
        if counted:
            return "length" if counted >= self._max_tokens else "stop"
        return "length" if self._responses >= self._max_tokens * self._n else "unknown"

    def _count(self) -> Usage:
        counted = sum(answer.tokens for answer in self._answers.values())
        outputs, inputs = self._usage["num_output_tokens"], self._usage["num_input_tokens"]
        told = sum(outputs.values()) if outputs else None
        if told is not None and counted and self.final and not self._engine:
            # A model may count the token that ended the answer, or a stop string's, and not send them.
            cut = all(answer.reason == "length" for answer in self._answers.values())
            if counted > told or (cut and counted < told):
                raise ProtocolError(
                    f"the server counts {told} tokens and sent {counted}: some were lost or doubled"
                )
        known = counted if counted or self._engine else None
        return Usage(max(inputs.values(), default=self._prompt_tokens), told if told is not None else known)


_READ: Final = frozenset(
    [
        "text_output",
        "output_ids",
        "sequence_length",
        "sequence_index",
        "batch_index",
        "output_log_probs",
        "cum_log_probs",
        "cumulative_logprob",
    ]
)


def _lengths(fields: Fields, rows: int, width: int) -> Sequence[int]:
    found = fields.get("sequence_length")
    if found is None:
        return [width] * rows
    lengths = _tensors.unpack(found[0].datatype, found[1])
    if rows == 0 and not any(lengths):
        return []
    if len(lengths) != rows or any(not 0 <= length <= width for length in lengths):
        raise ProtocolError(f"sequence_length {list(lengths)} does not fit output_ids of {rows} x {width}")
    return lengths
