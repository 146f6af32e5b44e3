"""What the synchronous client does behind its surface: connections, descriptions, errands, probes."""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from . import errors
from ._call import Call
from ._core import Core
from ._grpc_sync import GrpcTransport
from ._proto import METHODS, Message
from ._routing import Endpoint
from ._settings import Metadata
from ._shm import Regions
from ._status import parse_version
from ._stream_base import FACTS_S, STOP_S
from ._sync_stream import Stream
from ._watchdog import Watchdog
from .models import ModelDescription, describing
from .transport import Transport


class SyncBase:
    """Plumbing of ``Client``, for it and its streams."""

    def __init__(self, core: Core, make_transport: Callable[[str], Transport] | None) -> None:
        self._core = core
        self._make_transport = make_transport or (lambda address: GrpcTransport(address, core.channel))
        self._transports: dict[str, Transport] = {}
        self._lock = threading.Lock()
        self._describing = threading.Lock()
        self._watchdog = Watchdog(_ticking(weakref.ref(self)))
        self._errands: ThreadPoolExecutor | None = None
        self._left_open = weakref.finalize(
            self, _let_go, os.getpid(), self._watchdog, self._transports, core.regions
        )
        self._left_open.atexit = False  # then threads may still read

    def close(self) -> None:
        """Ends all that runs (its readers get ``ClosedError``) and closes the connections. Idempotent."""
        if self._core.closed or self._core.forked:
            return
        self._core.closed = True
        self._left_open.detach()
        streams = [item for item in self._watchdog.items() if isinstance(item, Stream)]
        for stream in streams:
            stream._end(errors.ClosedError("the client was closed while the request ran"))
        for stream in streams:
            stream._drop()
        self._watchdog.stop()
        if self._errands is not None:
            self._errands.shutdown(wait=True)
        with self._lock:
            transports = dict(self._transports)
            self._transports.clear()
        for address, calls in self._core.regions.close().items():
            for method, message in calls:
                if address in transports:
                    self._call_quietly(transports[address], method, message)
        for transport in transports.values():
            transport.close()

    def _transport(self, endpoint: Endpoint) -> Transport:
        transport = self._transports.get(endpoint.address)
        if transport is None:
            with self._lock:
                self._core.check_usable()
                transport = self._transports.get(endpoint.address)
                if transport is None:
                    transport = self._make_transport(endpoint.address)
                    self._transports[endpoint.address] = transport
        return transport

    def _describe(self, name: str, transport: Transport, call: Call) -> ModelDescription:
        found = self._core.models.get(name)
        if found is not None:
            return found
        with self._describing:
            found = self._core.models.get(name)
            if found is None:
                found = self._core.models[name] = self._read_config(name, transport, call)
        return found

    def _read_config(self, name: str, transport: Transport, call: Call) -> ModelDescription:
        dialogue = describing(name)
        wanted = next(dialogue)
        while True:
            request = METHODS["ModelConfig"].request(name=wanted)
            limit_s = call.config_s(time.monotonic())
            try:
                config = next(transport.call("ModelConfig", request, limit_s, call.metadata)).config
            except Exception as exc:
                if wanted == name or transport.translate(exc, request, True) is None:
                    raise
                config = None
            try:
                wanted = dialogue.send(config)
            except StopIteration as done:
                metadata = self._ask_quietly(call, "ServerMetadata", {})
                version = () if metadata is None else parse_version(metadata.version)
                described: ModelDescription = done.value
                return described.with_version(version)

    def _ask_quietly(self, call: Call, method: str, fields: Mapping[str, str]) -> Message:
        """The answer to a question about the server, or None if there is none in time."""
        if call.endpoint is None:
            return None
        try:
            transport = self._transport(call.endpoint)
        except errors.ClosedError:
            return None
        return self._call_quietly(transport, method, METHODS[method].request(**fields), call.metadata)

    def _call_quietly(
        self, transport: Transport, method: str, message: Message, metadata: Metadata = ()
    ) -> Message:
        try:
            return next(transport.call(method, message, FACTS_S, metadata))
        except Exception as exc:
            _check_expected(transport, exc)
            return None

    def _errand(self, work: Callable[..., object], *args: object) -> None:
        """Runs something for which nobody waits."""
        with self._lock:
            if self._errands is None:
                self._errands = ThreadPoolExecutor(1, thread_name_prefix="tritonstream-errands")
            self._errands.submit(work, *args)

    def _tell_engine(self, call: Call) -> None:
        """Sends the stop request of a call whose engine does not see that the RPC is cancelled."""
        engine, endpoint = call.stop_engine, call.endpoint
        if engine is not None and endpoint is not None:
            self._errand(self._stop, self._transport(endpoint), engine, call)

    def _stop(self, transport: Transport, engine: str, call: Call) -> None:
        try:
            model = self._describe(engine, transport, call)
            method = "ModelStreamInfer" if model.decoupled else "ModelInfer"
            for _ in transport.call(method, call.stop_message(model), STOP_S, call.metadata):
                pass
        except Exception as exc:  # the request ends by itself later
            _check_expected(transport, exc)

    def _look_after_endpoints(self) -> None:
        """Sees to it that unhealthy endpoints are probed."""
        due = self._core.pool.next_probe()
        if due is not None:
            self._watchdog.notice(due)

    def _probe(self, now: float) -> float:
        """Looks after unhealthy endpoints, on the watchdog's thread; returns when to look again."""
        pool = self._core.pool
        for endpoint in pool.to_probe(now):
            self._errand(self._probe_one, endpoint)
        return pool.next_probe() or math.inf

    def _probe_one(self, endpoint: Endpoint) -> None:
        answer = None
        try:
            transport = self._transport(endpoint)
            transport.connect(FACTS_S)
            answer = self._call_quietly(transport, "ServerReady", METHODS["ServerReady"].request())
        except errors.TritonStreamError:  # no connection yet, or the client was closed meanwhile
            answer = None
        self._core.pool.probed(endpoint, time.monotonic(), answer is not None and bool(answer.ready))
        self._look_after_endpoints()


def _ticking(client: weakref.ref[SyncBase]) -> Callable[[float], float]:
    """The watchdog's other work; it holds no client that everybody else has dropped."""

    def tick(now: float) -> float:
        found = client()
        return math.inf if found is None else found._probe(now)

    return tick


def _let_go(pid: int, watchdog: Watchdog, transports: dict[str, Transport], regions: Regions) -> None:
    """Closes what a dropped client left open. May run in any thread at any moment: it waits for nobody."""
    if pid == os.getpid():
        watchdog.stop(wait=False)
        regions.close()
        for transport in transports.values():
            transport.close()


def _check_expected(transport: Transport, exc: Exception) -> None:
    """Raises what is neither an error of the tree nor of the transport."""
    if not isinstance(exc, errors.TritonStreamError) and transport.translate(exc, None, True) is None:
        raise exc
