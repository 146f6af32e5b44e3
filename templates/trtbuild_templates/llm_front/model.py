"""The text front: prompt or chat messages in, text out as it is made, many requests at once in one instance.

Parameters of config.pbtxt (string values):

    engine_model        name of the engine's model; required
    engine_address      host:port of this server's gRPC; TRTBUILD_GRPC_ADDRESS in the environment goes before.
                        Default 127.0.0.1:8001
    max_input_tokens    longest prompt; 0: what max_seq_len leaves. Default 0
    max_output_tokens   max_tokens where a request gives none. Default 512
    max_seq_len         prompt and answer together; 0: not known. A longer answer is cut there, with the
                        finish reason length. Default 0
    engine_vocab_size   length of embedding_bias, the engine's padded vocabulary; 0: the tokenizer's.
                        Default 0
    min_tokens_input    the engine's name of min_tokens: min_length before TensorRT-LLM 0.20.
                        Default min_tokens
    seed_input          the engine's name of seed: random_seed before TensorRT-LLM 0.20. Default seed
    tokenizer_dir       folder with tokenizer.json and the files beside it, relative to the version's folder.
                        Default tokenizer
    cancel_poll_ms      how often a request's client is asked for, at best. Default 20
    interface           the TensorRT-LLM version; not read here

An output of config.pbtxt that is none of the front's own is taken from the engine's last message by its name.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import triton_python_backend_utils as pb_utils

if TYPE_CHECKING:
    from tritonstream.text import TextAssets, TextError
else:
    from .tritontext import TextAssets, TextError

from .answer import CANCELLED, Answer
from .engine import EngineCalls
from .inputs import TextRequest, read_request
from .meter import Exporter, Meter
from .prepare import prepare
from .sender import Sender
from .settings import Settings

_OWN_OUTPUTS = frozenset(
    {"text_output", "token_ids", "finish_reason", "num_input_tokens", "num_output_tokens"}
)
_LOG_PROBS = ("cum_log_probs", "output_log_probs")
_SENDERS = 1
_INLINE_CHARS = 4096  # a longer prompt is encoded in a thread of its own, so that others need not wait


class TritonPythonModel:
    """Triton's entry. Its one thread takes requests; two others call the engine and send."""

    def initialize(self, args: dict[str, str]) -> None:
        """Reads the tokenizer and starts the threads; the engine need not exist yet."""
        config = json.loads(args["model_config"])
        self._settings = Settings.from_config(config)
        folder = Path(args["model_repository"]) / args["model_version"] / self._settings.tokenizer_dir
        self._assets = TextAssets(folder)
        self._engine_outputs = {output["name"] for output in config["output"]} - _OWN_OUTPUTS - {*_LOG_PROBS}
        self._meter = Meter()
        self._calls = EngineCalls(self._settings.engine_address, self._settings.engine_model)
        self._encoders = ThreadPoolExecutor(max_workers=2, thread_name_prefix="encoder")
        poll_s = self._settings.cancel_poll_ms / 1000
        cancelled = partial(self._calls.end, reason=CANCELLED)
        self._senders = [Sender(pb_utils, self._meter, poll_s, cancelled) for _ in range(_SENDERS)]
        self._next_sender = itertools.cycle(self._senders)
        self._exporter = Exporter(self._meter, pb_utils, args["model_name"])

    def execute(self, requests: Sequence[Any]) -> None:
        """Takes requests in and returns at once; answers go through their response senders."""
        for request in requests:
            try:
                self._take(request)
            except Exception as exc:  # noqa: PERF203 - each request is answered, whatever befalls another
                message, code = _described(exc)
                error = pb_utils.TritonError(message, getattr(pb_utils.TritonError, code))
                response = pb_utils.InferenceResponse(output_tensors=[], error=error)
                request.get_response_sender().send(
                    response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
                )

    def finalize(self) -> None:
        """Ends what is live and the threads."""
        self._encoders.shutdown(wait=True, cancel_futures=True)
        self._calls.stop()
        for sender in self._senders:
            sender.stop()
        self._exporter.stop()

    def _take(self, request: Any) -> None:
        tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        asked = read_request(tensors)
        sender = next(self._next_sender)
        outputs = frozenset(request.requested_output_names())
        answer = Answer(asked, outputs, request.get_response_sender(), sender.ready, self._meter)
        sender.watch(answer)
        timeout_ms = self._timeout_ms(request, asked)
        if timeout_ms:
            self._calls.limit(answer, timeout_ms / 1000)
        size = len(asked.text or "") if asked.messages is None else tensors["messages"].nbytes
        if asked.messages is None and size <= _INLINE_CHARS:
            self._prepare(answer)
        else:
            self._encoders.submit(self._prepare, answer)

    @staticmethod
    def _timeout_ms(request: Any, asked: TextRequest) -> float:
        """The sooner of the input timeout_ms and Triton's own request parameter timeout (µs)."""
        triton_us = request.timeout()
        given = [limit for limit in (asked.timeout_ms, triton_us / 1000) if limit > 0]
        return min(given, default=0)

    def _prepare(self, answer: Answer) -> None:
        extra = [name for name in self._engine_outputs if name in answer.outputs]
        log_probs = answer.request.passed_on.get("return_log_probs")
        if log_probs is not None and bool(log_probs.any()):
            extra += [name for name in _LOG_PROBS if name in answer.outputs]
        try:
            prepared = prepare(answer.request, self._assets, self._settings, extra)
        except Exception as exc:  # a fault of ours must not leave the client waiting
            self._calls.fail(answer, *_described(exc))
        else:
            answer.begin(prepared, self._assets.table)
            self._calls.start(answer)


def _described(exc: Exception) -> tuple[str, str]:
    """The text for the client and the name of the error's code."""
    if isinstance(exc, TextError):
        return str(exc), "INVALID_ARG"
    return f"the text front failed: {type(exc).__name__}: {exc}", "INTERNAL"
