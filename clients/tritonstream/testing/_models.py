"""Fake models: which responses a request gets. Timing and faults are the server's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

from .. import _checks, _tensors
from ..errors import UsageError
from ..models import ModelKind
from ._arrays import FakePage, new_response, put, tensor_response
from ._faults import Fault
from ._front import check_request, prompt_text, until_stop

Piece = str | bytes | int | Sequence[int]
Compute = Callable[[Mapping[str, Any]], Mapping[str, Any]]
_pace = _checks.number(0.0, 1e9, "seconds of at least 0")
_size = _checks.whole(0, 2**20, "from 0 (no batch dimension)")
_count = _checks.whole(1, 2**20, "from 1")
Reply = Sequence[Piece] | Callable[[Mapping[str, Any]], Sequence[Piece]]


class Made(NamedTuple):
    """What a request is answered with: one piece a response."""

    pieces: list[Piece]
    tokens: int
    reason: str


@dataclass
class FakeModel:
    """A model of a ``FakeTriton``. Fields may be changed while the server runs.

    Attributes:
        kind: whose tensor names it speaks.
        reply: what it answers, one response and token each: text (``str``, or ``bytes`` to cut characters),
            for an engine token ids. A front looks for the request's stop strings in it. A function is given
            the request's inputs by name. Where ``n`` answers are asked for, each is this.
        first_token_s, between_tokens_s: pace.
        decoupled: whether it streams.
        final_apart: the final flag comes in an empty response of its own, as from an ensemble or BLS.
        faults: what goes wrong.
        ready: what ModelReady says; a model that is not ready refuses requests.
        instances: in its config.
        steps: models of an ensemble.
        parameters: string parameters in its config.
        without: inputs and outputs that its config lacks.
        several: the pieces are so many whole answers, given in one response.
        finish: finish reason to tell; default by what happened.
        compute: of a model of tensors or pictures: arrays by name → arrays by name.
        tensors: ``inputs`` and ``outputs`` of a model of kind OTHER, as ``name:dtype:dims`` with spaces
            between (``"x:FP32:3! y:STRING"``; ``!``: required; dims default to 1).
    """

    kind: ModelKind = ModelKind.FRONT
    reply: Reply = ("Hello", ",", " world", "!")
    first_token_s: float = 0.0
    between_tokens_s: float = 0.0
    decoupled: bool = True
    final_apart: bool = False
    faults: list[Fault] = field(default_factory=list)
    ready: bool = True
    instances: int = 1
    max_batch_size: int = 1
    steps: Sequence[str] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    without: frozenset[str] = frozenset()
    several: bool = False
    finish: str | None = None
    compute: Compute | None = None
    tensors: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises UsageError for what no model can be."""
        _checks.instance(ModelKind, what="a ModelKind, such as ModelKind.FRONT")("kind", self.kind)
        for name in ("first_token_s", "between_tokens_s"):
            _pace(name, getattr(self, name))
        for name, check in (("max_batch_size", _size), ("instances", _count)):
            check(name, getattr(self, name))
        for name in ("decoupled", "final_apart", "ready", "several"):
            _checks.flag(name, getattr(self, name))
        _checks.sequence_of(Fault, "a list of Fault(...)")("faults", self.faults)
        _checks.names("without", self.without)
        if not callable(self.reply):
            _checks.sequence_of(object, "a list of pieces, or a function of the inputs")("reply", self.reply)
        if self.finish is not None:
            _checks.name_of("finish", self.finish)

    @classmethod
    def ocr(cls, page: FakePage, **fields: Any) -> FakeModel:
        """A model that reads this page in every picture."""
        return cls(kind=ModelKind.OCR, decoupled=False, compute=lambda arrays: page.arrays(), **fields)

    def take_fault(self) -> Fault | None:
        """The fault of the next request, if any; counts it."""
        if not self.faults:
            return None
        fault = self.faults[0]
        if fault.times is not None:
            left = fault.times - 1
            self.faults[0:1] = (
                [] if left <= 0 else [Fault(fault.kind, fault.at, fault.message, fault.code, left)]
            )
        return fault

    def pieces(self, inputs: Mapping[str, Any]) -> list[Piece]:
        """The answer, cut to the request's length; one piece counts as one token."""
        return list(self.made(inputs).pieces)

    def made(self, inputs: Mapping[str, Any]) -> Made:
        """What a request is answered with, and how that ends.

        Raises:
            Refusal: the front would turn the request away.
        """
        if self.kind is ModelKind.FRONT:
            check_request(inputs)
        pieces = _pieces(self.reply(inputs) if callable(self.reply) else self.reply, self.kind)
        limit = _first(inputs, "max_tokens", "sampling_param_max_tokens", "request_output_len", default=2**31)
        tokens = min(len(pieces), limit)
        reason = "length" if len(pieces) >= limit else "stop"
        pieces = pieces[:limit]
        stops = inputs.get("stop_words", ())
        if self.kind is ModelKind.FRONT and any(stops):
            texts, tokens, stopped = until_stop([_bytes(piece) for piece in pieces], stops)
            pieces, reason = list(texts), "stop" if stopped else reason
        return Made(pieces, tokens, self.finish or reason)

    def responses(self, request: Any, inputs: Mapping[str, Any]) -> Iterator[Any]:
        """The responses to a request, the last one with the final flag."""
        if self.compute is not None:
            yield tensor_response(request, self.compute(inputs["arrays"]), final=self.decoupled)
            return
        made = self.made(inputs)
        pieces = made.pieces
        several = int(inputs.get("num_return_sequences", 1))
        if self.several or (several > 1 and self.kind is ModelKind.FRONT):  # a front gives them whole
            yield self._several(
                request, inputs, pieces if self.several else [_joined(pieces)] * several, made
            )
            return
        streams = self.decoupled and bool(_first(inputs, "stream", "streaming", default=False))
        if not streams:
            pieces = [_joined(pieces)] if pieces else []
        turns = [(piece, index) for piece in pieces for index in range(several)]
        for number, (piece, index) in enumerate(turns):
            last = number == len(turns) - 1 and not self.final_apart
            response = new_response(request)
            self._fill(request, response, piece)
            if several > 1:
                put(response, "sequence_index", "INT32", [1, 1], _tensors.pack("", "INT32", [index]))
            if last or (number == len(turns) - 1 and self.kind is ModelKind.LLMAPI):
                self._finish(request, response, inputs, made)
            if self.decoupled:
                response.parameters["triton_final_response"].bool_param = last
            yield response
        if self.decoupled and (self.final_apart or not pieces):
            response = new_response(request)
            response.parameters["triton_final_response"].bool_param = True
            if not pieces:
                self._finish(request, response, inputs, made)
            yield response

    def _several(self, request: Any, inputs: Mapping[str, Any], pieces: Sequence[Piece], made: Made) -> Any:
        response = new_response(request)
        count = len(pieces)
        put(
            response,
            "text_output",
            "BYTES",
            [1, count],
            _tensors.pack_bytes([_bytes(piece) for piece in pieces]),
        )
        reason = b"stop" if self.several else made.reason.encode()
        put(response, "finish_reason", "BYTES", [1, count], _tensors.pack_bytes([reason] * count))
        if not self.several:
            _put_counts(response, inputs, made.tokens * count)
        _put_crc32(request, response, pieces)
        response.parameters["triton_final_response"].bool_param = True
        return response

    def _fill(self, request: Any, response: Any, piece: Piece) -> None:
        if self.kind is ModelKind.ENGINE:
            ids = [piece] if isinstance(piece, int) else list(piece)
            put(response, "output_ids", "INT32", [1, 1, len(ids)], _tensors.pack("output_ids", "INT32", ids))
            put(
                response,
                "sequence_length",
                "INT32",
                [1, 1],
                _tensors.pack("sequence_length", "INT32", [len(ids)]),
            )
        else:
            data = _bytes(piece)
            put(response, "text_output", "BYTES", [1, 1], _tensors.pack_bytes([data]))
            if any(output.name == "token_ids" for output in request.outputs):
                put(response, "token_ids", "INT32", [1, 1], _tensors.pack("token_ids", "INT32", [len(data)]))

    def _finish(self, request: Any, response: Any, inputs: Mapping[str, Any], made: Made) -> None:
        """What the last response tells besides."""
        if self.kind not in (ModelKind.FRONT, ModelKind.LLMAPI):
            return
        put(response, "finish_reason", "BYTES", [1, 1], _tensors.pack_bytes([made.reason.encode()]))
        if self.kind is ModelKind.FRONT:
            _put_counts(response, inputs, made.tokens)
            _put_crc32(request, response, [_joined(made.pieces)])


def _put_counts(response: Any, inputs: Mapping[str, Any], output_tokens: int) -> None:
    """Words of the prompt pass for its tokens."""
    counts = {"num_input_tokens": len(prompt_text(inputs).split()), "num_output_tokens": output_tokens}
    for name, count in counts.items():
        put(response, name, "INT32", [1, 1], _tensors.pack(name, "INT32", [count]))


def _put_crc32(request: Any, response: Any, texts: Sequence[Piece]) -> None:
    """The checksum of all text, where the request names it."""
    if any(output.name == "text_crc32" for output in request.outputs):
        total = 0
        for text in texts:
            total = crc32(text if isinstance(text, bytes) else str(text or "").encode(), total)
        put(response, "text_crc32", "UINT32", [1, 1], _tensors.pack("text_crc32", "UINT32", [total]))


def read_inputs(request: Any, raws: Sequence[bytes]) -> dict[str, Any]:
    """The request's inputs by name: a value for one element, else a list; text as ``str``."""
    inputs: dict[str, Any] = {}
    for tensor, raw in zip(request.inputs, raws, strict=True):
        if tensor.datatype == "BYTES":
            values: list[Any] = [_text(item) for item in _tensors.unpack_bytes(raw)]
        else:
            values = list(_tensors.unpack(tensor.datatype, raw))
        many = tensor.name in ("input_ids", "stop_words", "bad_words") or len(values) != 1
        inputs[tensor.name] = values if many else values[0]
    return inputs


def _text(item: bytes) -> str | bytes:
    try:
        return item.decode()
    except UnicodeDecodeError:
        return item


def _pieces(reply: Any, kind: ModelKind) -> list[Piece]:
    """The pieces of a reply; raises UsageError for what this kind of model cannot say."""
    what = "token ids" if kind is ModelKind.ENGINE else "text (str or bytes)"
    if isinstance(reply, (str, bytes)) or not isinstance(reply, Iterable):
        raise UsageError(f"reply gave {reply!r}; it must give a list of {what}")
    pieces = list(reply)
    for piece in pieces:
        if piece is None or isinstance(piece, (str, bytes)) is (kind is ModelKind.ENGINE):
            raise UsageError(f"reply holds {piece!r}; of a model of kind {kind.value} it holds {what}")
    return pieces


def _bytes(piece: Piece) -> bytes:
    return piece if isinstance(piece, bytes) else str(piece).encode()


def _first(inputs: Mapping[str, Any], *names: str, default: Any) -> Any:
    return next((inputs[name] for name in names if name in inputs), default)


def _joined(pieces: Sequence[Piece]) -> Piece:
    """All pieces as one."""
    text = [
        piece.encode() if isinstance(piece, str) else piece
        for piece in pieces
        if isinstance(piece, (str, bytes))
    ]
    if text:
        return b"".join(text)
    ids = [
        [piece] if isinstance(piece, int) else piece
        for piece in pieces
        if not isinstance(piece, (str, bytes))
    ]
    return [id_ for some in ids for id_ in some]
