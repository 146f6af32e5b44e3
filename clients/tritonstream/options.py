"""How a client behaves, as frozen data. Durations are seconds, sizes bytes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, Union

from . import _checks
from .errors import UsageError

if TYPE_CHECKING:
    from .hooks import Hooks


def _check_durations(owner: object, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if value is not None:
            _checks.seconds(f"{type(owner).__name__}.{name}", value)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits of one request; None switches one off.

    Attributes:
        connect_s: until the connection stands, per endpoint tried.
        first_token_s: from sending the request to the first response, queueing in the server included.
        between_tokens_s: longest silence once the stream has begun; a slow reader's own pauses do not count.
        total_s: the whole request, waiting, retries and degrade steps included. The server is told, too.
    """

    connect_s: float | None = 5.0
    first_token_s: float | None = 120.0
    between_tokens_s: float | None = 30.0
    total_s: float | None = None

    def __post_init__(self) -> None:
        _check_durations(self, "connect_s", "first_token_s", "between_tokens_s", "total_s")


@dataclass(frozen=True, slots=True)
class Retry:
    """When a request that has not yielded anything may be sent again.

    Only failures that another try can cure count: no connection, lost connection, overload, model not ready.
    The wait before try k is uniform in [0, min(max_wait_s, base_wait_s · 2^(k−1))] ("full jitter"); another
    healthy endpoint is tried without waiting. ``budget_ratio`` bounds retries to that share of recent
    requests, with ``budget_reserve`` in hand, so that a struggling server is not buried.
    """

    attempts: int = 3  # tries in all; 1 switches retries off
    base_wait_s: float = 0.1
    max_wait_s: float = 2.0
    budget_ratio: float = 0.1
    budget_reserve: float = 10.0

    def __post_init__(self) -> None:
        _check_durations(self, "base_wait_s", "max_wait_s")
        _attempts("Retry.attempts", self.attempts)
        _share("Retry.budget_ratio", self.budget_ratio)
        _share("Retry.budget_reserve", self.budget_reserve)


@dataclass(frozen=True, slots=True)
class Keepalive:
    """HTTP/2 pings, so that a dead peer or a forgetful NAT is noticed while a stream is open.

    A server allows one ping in 5 minutes without data by default (``grpc-keepalive`` flags of Triton), and
    Triton answers more with GOAWAY; 30 s with a stream open is within what its defaults accept.
    """

    interval_s: float = 30.0
    timeout_s: float = 10.0
    without_streams: bool = False

    def __post_init__(self) -> None:
        _check_durations(self, "interval_s", "timeout_s")
        _checks.flag("Keepalive.without_streams", self.without_streams)


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS material as PEM bytes; all None means the system's own roots and no client certificate.

    ``server_name`` replaces the name that the certificate is checked against.
    """

    root_certificates: bytes | None = None
    private_key: bytes | None = None
    certificate_chain: bytes | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        for name in ("root_certificates", "private_key", "certificate_chain"):
            _pem(f"Tls.{name}", getattr(self, name))
        if self.server_name is not None:
            _checks.name_of("Tls.server_name", self.server_name)


@dataclass(frozen=True, slots=True)
class Degrade:
    """One step to fall back to when what was asked before it failed without a single token.

    Steps add up: a step that only shortens runs on the model of the step before. ``refuse`` ends the chain
    with ``Refused``; without it, the last failure is raised. trtbuild's front counts what comes from a step
    (``trtbuild_degraded_requests_total``); of what ends at ``refuse`` no server hears.
    """

    model: str | None = None
    max_tokens: int | None = None  # at most; a smaller wish stays
    refuse: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        if self.model is None and self.max_tokens is None and not self.refuse:
            raise UsageError("a Degrade step must name a model or max_tokens, or refuse")
        if self.model is not None:
            _checks.name_of("Degrade.model", self.model)
        if self.max_tokens is not None:
            _length("Degrade.max_tokens", self.max_tokens)
        _checks.flag("Degrade.refuse", self.refuse)

    @property
    def label(self) -> str:
        if self.name:
            return self.name
        if self.refuse:
            return "refuse"
        parts = [
            f"model={self.model}" if self.model else "",
            f"max_tokens={self.max_tokens}" if self.max_tokens else "",
        ]
        return ",".join(part for part in parts if part)


_attempts = _checks.whole(1, 1000, "from 1 (the first try counts) to 1000")
_share = _checks.number(0.0, 1e9, "a finite number of at least 0")
_length = _checks.whole(1, _checks.INT32_MAX, "from 1 to 2^31 - 1")


def _pem(name: str, value: object) -> None:
    if value is not None and not (isinstance(value, bytes) and b"-----BEGIN " in value):
        shown = (
            "other bytes" if isinstance(value, bytes) else type(value).__name__
        )  # not shown: a key, perhaps
        raise UsageError(f"{name} is {shown}; it must be the bytes of a PEM file, or None")


Folder = Union[str, "os.PathLike[str]"]


class ClientOptions(TypedDict, total=False):
    """Options of a client. A call's own ``timeouts``, ``retry``, ``degrade``, ``headers`` and class win.

    ``traffic_class`` ("interactive", "offline", …) is the label ``class`` under which the metrics of
    trtbuild's front count a request; it changes nothing of how that is served. Other models have no such
    metrics and are not told.
    """

    endpoints: Sequence[str]  # several servers with the same models, instead of url
    timeouts: Timeouts
    retry: Retry
    degrade: Sequence[Degrade]
    traffic_class: str | None
    keepalive: Keepalive | None  # pings while a stream is open; None for none
    tls: Tls | bool | None  # True: the system's roots
    headers: Mapping[str, str]  # metadata of every request
    tokenizer: Folder | Mapping[str, Folder] | None  # for bare engines, and to render chat messages here
    hooks: Iterable[Hooks]
    tracing: bool | None  # OpenTelemetry spans; None: if it is installed
    channel_options: Sequence[tuple[str, Any]]  # raw gRPC channel arguments, which win over this client's


def check_address(address: str) -> str:
    """Returns the address as gRPC wants it.

    Raises:
        UsageError: for a URL with a scheme, or no port.
    """
    if "://" in address:
        scheme, rest = address.split("://", 1)
        if scheme != "grpc":
            raise UsageError(
                f"{address!r}: give host:port of Triton's gRPC port (8001 by default), without {scheme}://"
            )
        address = rest
    if address.startswith("unix:"):
        return address
    host, colon, port = address.rstrip("/").rpartition(":")
    sound = bool(colon and host) and host.isprintable() and " " not in host
    if not sound or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise UsageError(f"{address!r} is no host:port; Triton's gRPC port is 8001 by default")
    return address.rstrip("/")
