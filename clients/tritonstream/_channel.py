"""What both gRPC transports share: channel arguments, credentials, translation of errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import errors
from ._proto import Message, grpc
from ._status import from_status
from .options import Keepalive, Tls

_UNLIMITED = -1

OLD_NEWS_S = 0.6
"""How long to wait for a channel whose last attempt to connect has failed: until the next one is made."""

READY = grpc.ChannelConnectivity.READY
FAILED = frozenset({grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN})


@dataclass(frozen=True, slots=True)
class ChannelConfig:
    keepalive: Keepalive | None
    tls: Tls | None
    connect_s: float | None
    options: tuple[tuple[str, Any], ...] = ()  # raw gRPC channel arguments, which win

    def arguments(self) -> list[tuple[str, Any]]:
        """gRPC channel arguments (grpc/impl/channel_arg_names.h)."""
        made: dict[str, Any] = {
            "grpc.max_receive_message_length": _UNLIMITED,
            "grpc.max_send_message_length": _UNLIMITED,
            # After a failure gRPC refuses calls until its back-off is over; a restarted server must not
            # be refused for a minute.
            "grpc.initial_reconnect_backoff_ms": 100,
            "grpc.max_reconnect_backoff_ms": int(OLD_NEWS_S * 900),
            "grpc.use_local_subchannel_pool": 1,  # clients do not share a connection behind their backs
        }
        if self.connect_s is not None:
            # How long gRPC itself tries; a little longer than connect_s, which then names the reason.
            made["grpc.min_reconnect_backoff_ms"] = int(self.connect_s * 1000) + 500
        if self.keepalive is not None:
            made["grpc.keepalive_time_ms"] = int(self.keepalive.interval_s * 1000)
            made["grpc.keepalive_timeout_ms"] = int(self.keepalive.timeout_s * 1000)
            made["grpc.keepalive_permit_without_calls"] = int(self.keepalive.without_streams)
        if self.tls is not None and self.tls.server_name:
            made["grpc.ssl_target_name_override"] = self.tls.server_name
        made.update(self.options)
        return list(made.items())

    def credentials(self) -> Any:
        tls = self.tls
        assert tls is not None
        return grpc.ssl_channel_credentials(tls.root_certificates, tls.private_key, tls.certificate_chain)


def translate(error: Exception, sent: Message, connected: bool) -> errors.TritonStreamError | None:
    """Translates a gRPC error; None for any other."""
    code = getattr(error, "code", None)
    if not isinstance(error, grpc.RpcError) or not callable(code):
        return None
    status = code()
    details = error.details() if callable(getattr(error, "details", None)) else str(error)
    name = status.name if status is not None else "UNKNOWN"
    return from_status(
        name, details or "", connected=connected, sent_bytes=0 if sent is None else sent.ByteSize()
    )
