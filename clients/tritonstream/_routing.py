"""Which endpoint the next request goes to: the fewest outstanding requests among the healthy. No I/O here."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from .errors import UsageError
from .options import check_address

_PROBE_FIRST_S = 0.5
_PROBE_MAX_S = 15.0


@dataclass(eq=False, slots=True)
class Endpoint:
    """One server. ``probe_at`` is when to look again at an unhealthy one (seconds, monotonic)."""

    address: str
    outstanding: int = 0
    healthy: bool = True
    failures: int = 0
    probe_at: float = 0.0
    probing: bool = False


class Pool:
    """The endpoints of a client; safe for threads."""

    def __init__(self, addresses: Sequence[str]) -> None:
        if not addresses:
            raise UsageError("a client needs at least one endpoint, as host:port")
        self._lock = threading.Lock()
        self._turn = itertools.count()
        self.endpoints = tuple(Endpoint(check_address(address)) for address in dict.fromkeys(addresses))

    def take(self, avoid: Collection[Endpoint] = ()) -> Endpoint:
        """Picks an endpoint and counts the request as outstanding there.

        Endpoints to ``avoid`` (already tried) and unhealthy ones come last, but they come: with nothing
        better, trying is the quickest way to learn that a server is back.
        """
        with self._lock:
            first = next(self._turn) % len(self.endpoints)
            order = self.endpoints[first:] + self.endpoints[:first]  # ties go round
            best = min(order, key=lambda e: (e in avoid, not e.healthy, e.outstanding))
            best.outstanding += 1
            return best

    def give_back(self, endpoint: Endpoint) -> None:
        with self._lock:
            endpoint.outstanding -= 1

    def has_fresh(self, tried: Collection[Endpoint]) -> bool:
        """Whether a healthy endpoint is left that was not tried."""
        return any(endpoint.healthy and endpoint not in tried for endpoint in self.endpoints)

    def failed(self, endpoint: Endpoint, now: float) -> None:
        """The endpoint could not be reached: left out until a probe finds it well, asked ever more rarely."""
        with self._lock:
            endpoint.healthy = False
            endpoint.failures += 1
            endpoint.probe_at = now + min(_PROBE_MAX_S, _PROBE_FIRST_S * 2.0 ** (endpoint.failures - 1))

    def well(self, endpoint: Endpoint) -> None:
        with self._lock:
            endpoint.healthy = True
            endpoint.failures = 0

    def to_probe(self, now: float) -> list[Endpoint]:
        """Unhealthy endpoints that are due for a probe; each is handed out once until ``probed`` is told."""
        with self._lock:
            due = [e for e in self.endpoints if not e.healthy and not e.probing and e.probe_at <= now]
            for endpoint in due:
                endpoint.probing = True
            return due

    def probed(self, endpoint: Endpoint, now: float, ready: bool) -> None:
        """What a probe found."""
        endpoint.probing = False
        if ready:
            self.well(endpoint)
        else:
            self.failed(endpoint, now)

    def next_probe(self) -> float | None:
        """When the next probe is due; None while all are healthy or there is no choice to make."""
        if len(self.endpoints) == 1:
            return None
        return min((e.probe_at for e in self.endpoints if not e.healthy and not e.probing), default=None)
