"""tritonstream: a streaming client for Triton servers with TensorRT-LLM models.

>>> from tritonstream import Client
>>> with Client("127.0.0.1:8001") as client:  # doctest: +SKIP
...     for piece in client.stream("qwen-7b", "Once upon a time", max_tokens=64).text_deltas():
...         print(piece, end="", flush=True)

``Client`` and ``AsyncClient`` have the same surface. gRPC is imported with the first of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._codec import embedding_bias
from ._params import GenerateParams, Guide, InferParams
from .errors import (
    AccessDenied,
    BetweenTokensTimeout,
    BrokenCharacters,
    ClosedError,
    ConnectError,
    ConnectionLost,
    ConnectTimeout,
    FirstTokenTimeout,
    InvalidRequest,
    MessageTooLarge,
    ModelNotFound,
    ModelNotReady,
    Overloaded,
    ProtocolError,
    Refused,
    ServerError,
    TimeoutExceeded,
    TotalTimeout,
    TransportError,
    TritonStreamError,
    Unavailable,
    UnsupportedError,
    UsageError,
)
from .events import (
    Choice,
    Completion,
    Event,
    Finish,
    FinishReason,
    Logprobs,
    Origin,
    Tensors,
    TextDelta,
    Timings,
    TokenIds,
    Usage,
)
from .hooks import Hooks, RequestInfo
from .models import Cancel, CancelHow, Characters, ModelDescription, ModelKind, TensorSpec
from .ocr import OcrLine, OcrResult
from .options import ClientOptions, Degrade, Keepalive, Retry, Timeouts, Tls
from .vision import Classification, ClassScore, Detection, Detections, Embedding, Segmentation

if TYPE_CHECKING:
    from ._aio import AsyncClient
    from ._aio_stream import AsyncStream
    from ._sync import Client
    from ._sync_stream import Stream

_LAZY = {"Client": "_sync", "Stream": "_sync_stream", "AsyncClient": "_aio", "AsyncStream": "_aio_stream"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        value = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AccessDenied",
    "AsyncClient",
    "AsyncStream",
    "BetweenTokensTimeout",
    "BrokenCharacters",
    "Cancel",
    "CancelHow",
    "Characters",
    "Choice",
    "ClassScore",
    "Classification",
    "Client",
    "ClientOptions",
    "ClosedError",
    "Completion",
    "ConnectError",
    "ConnectTimeout",
    "ConnectionLost",
    "Degrade",
    "Detection",
    "Detections",
    "Embedding",
    "Event",
    "Finish",
    "FinishReason",
    "FirstTokenTimeout",
    "GenerateParams",
    "Guide",
    "Hooks",
    "InferParams",
    "InvalidRequest",
    "Keepalive",
    "Logprobs",
    "MessageTooLarge",
    "ModelDescription",
    "ModelKind",
    "ModelNotFound",
    "ModelNotReady",
    "OcrLine",
    "OcrResult",
    "Origin",
    "Overloaded",
    "ProtocolError",
    "Refused",
    "RequestInfo",
    "Retry",
    "Segmentation",
    "ServerError",
    "Stream",
    "TensorSpec",
    "Tensors",
    "TextDelta",
    "TimeoutExceeded",
    "Timeouts",
    "Timings",
    "Tls",
    "TokenIds",
    "TotalTimeout",
    "TransportError",
    "TritonStreamError",
    "Unavailable",
    "UnsupportedError",
    "Usage",
    "UsageError",
    "embedding_bias",
]
