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
    tokens_per_block    of the engine's paged KV, and
    kv_tokens           how many tokens its pool holds: for counting prompts that begin as earlier ones did.
                        0: no KV reuse, not counted. Default 0
    max_requests        how many may run and wait at once; one more is refused as UNAVAILABLE. 0: no limit.
                        Default 0
    cancel_poll_ms      how often a request's client is asked for, at best. Default 20
    coalesce            whether tokens that wait together are sent together; false is for measuring what
                        that saves. Default true
    interface           the TensorRT-LLM version; not read here

An output of config.pbtxt that is none of the front's own is taken from the engine's last message by its name.

Parameters of a request, for the metrics alone; what cannot be one of them refuses no request:

    traffic_class       whose totals count it, such as "interactive": 1 to 64 letters, digits and _.:/-.
                        Anything else, and what comes after 16 classes, counts as "other". Default "default"
    degrade_step        which step of the client's degrade chain it comes from. Default 0, as first asked
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import triton_python_backend_utils as pb_utils

# One text leaves nothing to share among threads: handing it to one takes twice as long as encoding it.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

if TYPE_CHECKING:
    from tritonstream.text import TextAssets, TextError
else:
    from .tritontext import TextAssets, TextError

from .answer import Answer, Failure
from .inputs import TextRequest, read_request
from .loop import FrontLoop
from .meter import Exporter, Meter
from .prefixes import SeenPrefixes
from .prepare import prepare
from .settings import Settings

_OWN_OUTPUTS = frozenset(
    {"text_output", "token_ids", "finish_reason", "num_input_tokens", "num_output_tokens", "text_crc32"}
)
_LOG_PROBS = ("cum_log_probs", "output_log_probs")
_HELD_S = 0.002  # how long a prepared request waits for others that came with it; one alone does not wait
_INLINE_BYTES = 4096  # a longer prompt is encoded in a thread of its own, so that others need not wait


class _Busy(Exception):
    """A request that could be served later."""


class TritonPythonModel:
    """Triton's entry. Its thread takes requests; a second one calls the engine and sends."""

    def initialize(self, args: dict[str, str]) -> None:
        """Reads the tokenizer and starts the threads; the engine need not exist yet."""
        config = json.loads(args["model_config"])
        self._settings = Settings.from_config(config)
        folder = Path(args["model_repository"]) / args["model_version"] / self._settings.tokenizer_dir
        self._assets = TextAssets(folder)
        self._engine_outputs = {output["name"] for output in config["output"]} - _OWN_OUTPUTS - {*_LOG_PROBS}
        self._prefixes = SeenPrefixes.of(self._settings.tokens_per_block, self._settings.kv_tokens)
        self._meter = Meter()
        self._taken = 0  # answers begun; only this thread counts, as only the loop's counts those that ended
        self._loop = FrontLoop(self._settings, pb_utils)
        self._encoders = ThreadPoolExecutor(max_workers=2, thread_name_prefix="encoder")
        self._exporter = Exporter(self._meter, pb_utils, args["model_name"])

    def execute(self, requests: Sequence[Any]) -> None:
        """Takes requests in and returns at once; answers go through their response senders.

        What came together goes to the engine together: tokens of the first would slow the taking of the last.
        """
        ready: list[tuple[Answer, float]] = []
        begun_s = time.perf_counter()
        for request in requests:
            try:
                if (taken := self._take(request)) is not None:
                    ready.append(taken)
            except Exception as exc:
                failure = _described(exc)
                error = pb_utils.TritonError(
                    failure.text(pb_utils), getattr(pb_utils.TritonError, failure.code)
                )
                response = pb_utils.InferenceResponse(output_tensors=[], error=error)
                request.get_response_sender().send(
                    response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
                )
            if time.perf_counter() - begun_s > _HELD_S:
                self._loop.start(ready)
                ready, begun_s = [], time.perf_counter()
        self._loop.start(ready)

    def finalize(self) -> None:
        """Ends what is live and the threads."""
        self._encoders.shutdown(wait=True, cancel_futures=True)
        self._loop.stop()
        self._exporter.stop()

    def _take(self, request: Any) -> tuple[Answer, float] | None:
        """The answer, ready for the engine, and its deadline in seconds; None if a thread prepares it."""
        limit = self._settings.max_requests
        if limit and self._taken - self._meter.ended_count >= limit:
            raise _Busy(f"{limit} requests run or wait already; try again later")
        tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        asked = read_request(tensors, _parameters(request))
        limit_s = self._limit_s(request, asked)
        outputs = frozenset(request.requested_output_names())
        answer = Answer(asked, outputs, request.get_response_sender(), self._loop.ready, self._meter)
        size = sum(
            len(tensors[name].reshape(-1)[0]) for name in ("text_input", "messages") if name in tensors
        )
        if size <= _INLINE_BYTES:
            self._prepare(answer)
            self._taken += 1
            return answer, limit_s
        self._taken += 1
        self._loop.watch(answer, limit_s)
        self._encoders.submit(self._prepare_later, answer)
        return None

    @staticmethod
    def _limit_s(request: Any, asked: TextRequest) -> float:
        """The sooner of the input timeout_ms and Triton's own request parameter timeout; 0: none."""
        given = [limit for limit in (asked.timeout_ms / 1e3, request.timeout() / 1e6) if limit > 0]
        return min(given, default=0.0)

    def _prepare(self, answer: Answer) -> None:
        extra = [name for name in self._engine_outputs if name in answer.outputs]
        log_probs = answer.request.passed_on.get("return_log_probs")
        if log_probs is not None and bool(log_probs.any()):
            extra += [name for name in _LOG_PROBS if name in answer.outputs]
        prepared = prepare(answer.request, self._assets, self._settings, self._prefixes, extra)
        answer.begin(prepared, self._assets.table)

    def _prepare_later(self, answer: Answer) -> None:
        try:
            self._prepare(answer)
        except Exception as exc:  # a fault of ours must not leave the client waiting
            self._loop.fail(answer, _described(exc))
        else:
            self._loop.go_on(answer)


def _parameters(request: Any) -> dict[str, Any]:
    """The request's own parameters; none where they are not UTF-8, as HTTP may bring them."""
    try:
        parameters: dict[str, Any] = json.loads(request.parameters() or "{}")
    except ValueError:
        return {}
    return parameters


def _described(exc: Exception) -> Failure:
    if isinstance(exc, TextError):
        return Failure("INVALID_ARG", str(exc))
    if isinstance(exc, _Busy):
        return Failure("UNAVAILABLE", str(exc))
    return Failure("INTERNAL", "the text front failed", exc)
