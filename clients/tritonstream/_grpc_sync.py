"""The synchronous gRPC transport.

One request is one RPC. ``ModelStreamInfer`` takes a stream of requests, but is called here as if it took one:
on the wire that is the same (a message, then the end of the client's side), and it needs no thread per RPC to
send. The channel option makes the reading thread itself poll, instead of being woken by a channel thread for
every message: 1.4 times the tokens/s of the stub's own call at 64 streams, at two thirds of the CPU.
"""

from __future__ import annotations

import math
import time
from typing import Any

from . import errors
from ._channel import FAILED, OLD_NEWS_S, READY, ChannelConfig, translate
from ._proto import METHODS, Message, grpc, grpc_experimental
from ._settings import Metadata
from .transport import Rpc

_SLICE_S = 0.2  # between looks at whether the client was closed


class _Unary:
    """A unary call as an iterator of one message."""

    def __init__(self, future: Any) -> None:
        self._future = future
        self._done = False

    def __iter__(self) -> _Unary:
        return self

    def __next__(self) -> Message:
        if self._done:
            raise StopIteration
        self._done = True
        try:
            return self._future.result()
        except grpc.FutureCancelledError:
            raise errors.ClosedError("the call was cancelled") from None

    def cancel(self) -> object:
        return self._future.cancel()


class GrpcTransport:
    """See ``transport.Transport``."""

    def __init__(self, address: str, config: ChannelConfig) -> None:
        arguments = config.arguments()
        if _RENDEZVOUS is not None:
            arguments.append((grpc_experimental.ChannelOptions.SingleThreadedUnaryStream, 1))
        if config.tls is None:
            self._channel = grpc.insecure_channel(address, options=arguments)
        else:
            self._channel = grpc.secure_channel(address, config.credentials(), options=arguments)
        self._calls = {
            name: (self._channel.unary_stream if method.streaming else self._channel.unary_unary)(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=None if method.streaming else method.response.FromString,
            )
            for name, method in METHODS.items()
        }

    def connect(self, timeout_s: float | None) -> bool:
        end = math.inf if timeout_s is None else time.monotonic() + timeout_s
        state = self._state()
        if state is READY:
            return True
        failing_until = time.monotonic() + OLD_NEWS_S if state in FAILED else -math.inf
        while state is not READY and (state not in FAILED or time.monotonic() < failing_until):
            left_s = end - time.monotonic()
            if left_s <= 0:
                raise errors.ConnectTimeout(f"no connection within connect_s={timeout_s:g}")
            self._wait_for_change(state, min(left_s, _SLICE_S))
            state = self._state()
        return state is READY

    def _state(self) -> Any:
        """The channel's connectivity; asking for it makes it connect.

        The public way to learn it, ``subscribe``, starts a thread that raises when the channel is closed
        within 0.2 s. Should gRPC take away the inner channel, calls connect by themselves, in as much time.
        """
        inner = getattr(self._channel, "_channel", None)
        if inner is None:
            return READY
        try:
            return _STATES[inner.check_connectivity_state(True)]
        except ValueError:
            raise errors.ClosedError("the client was closed while it connected") from None

    def _wait_for_change(self, state: Any, seconds: float) -> None:
        try:
            self._channel._channel.watch_connectivity_state(state.value[0], time.time() + seconds)
        except ValueError:
            raise errors.ClosedError("the client was closed while it connected") from None

    def call(self, method: str, message: Message, timeout_s: float | None, metadata: Metadata) -> Rpc:
        begin = self._calls[method]
        if METHODS[method].streaming:
            rpc: Rpc = begin(message, timeout=timeout_s, metadata=metadata)
            return rpc
        return _Unary(begin.future(message, timeout=timeout_s, metadata=metadata))

    def drop(self, rpc: Rpc) -> None:
        rpc.cancel()
        if _RENDEZVOUS is not None and isinstance(rpc, _RENDEZVOUS):
            while rpc._state.due:
                rpc._consume_next_event()

    def translate(self, error: Exception, sent: Message, connected: bool) -> errors.TritonStreamError | None:
        return translate(error, sent, connected)

    def close(self) -> None:
        self._channel.close()


def _rendezvous() -> Any:
    """The class of calls that are polled by their reader; None if this grpc keeps it elsewhere.

    Their last events must be fetched also after a cancel, else the call keeps its connection open for good
    (grpcio 1.85). There is no public way to do so: without this one, such calls are not used.
    """
    found = getattr(getattr(grpc, "_channel", None), "_SingleThreadedRendezvous", None)
    return found if hasattr(found, "_consume_next_event") else None


_RENDEZVOUS = _rendezvous()
_STATES = {state.value[0]: state for state in grpc.ChannelConnectivity}
