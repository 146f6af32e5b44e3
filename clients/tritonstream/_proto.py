"""gRPC and Triton's generated messages, imported once a client is made and not with the package.

``tritonclient.grpc`` brings numpy, asyncio and rapidjson with it (0.2 s and more), so nothing that
``import tritonstream`` runs may import this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

# By import_module, so that types are the same with and without stubs for grpc installed.
grpc: Any = import_module("grpc")
grpc_aio: Any = import_module("grpc.aio")
grpc_experimental: Any = import_module("grpc.experimental")
service_pb2: Any = import_module("tritonclient.grpc.service_pb2")
model_config_pb2: Any = import_module("tritonclient.grpc.model_config_pb2")

Message = Any  # a protobuf message; Triton's stubs are untyped

_SERVICE: Final = "/inference.GRPCInferenceService/"


@dataclass(frozen=True, slots=True)
class Method:
    """A remote procedure. ``streaming``: it answers with any number of messages."""

    name: str
    path: str
    request: Any
    response: Any
    streaming: bool = False


def _method(name: str, *, request: str = "", streaming: bool = False) -> Method:
    return Method(
        name,
        _SERVICE + name,
        getattr(service_pb2, request or f"{name}Request"),
        getattr(service_pb2, f"{name}Response"),
        streaming,
    )


METHODS: Final = {
    method.name: method
    for method in (
        _method("ServerReady"),
        _method("ServerMetadata"),
        _method("ModelReady"),
        _method("ModelConfig"),
        _method("ModelInfer"),
        _method("ModelStreamInfer", request="ModelInferRequest", streaming=True),
        _method("SystemSharedMemoryRegister"),
        _method("SystemSharedMemoryUnregister"),
        _method("SystemSharedMemoryStatus"),
    )
}
