"""TCP ports of the loopback address: free ones, and who holds one that is not."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass

from trtbuild.errors import ServeError

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Ports:
    """Ports of one server; None: take a free one."""

    grpc: int | None = None
    http: int | None = None
    metrics: int | None = None


@dataclass(frozen=True)
class ChosenPorts:
    grpc: int
    http: int
    metrics: int


def choose_ports(wanted: Ports) -> ChosenPorts:
    """Checks asked ports and picks free ones for the rest, all different.

    Raises:
        ServeError: for a port out of range, asked for twice, or in use.
    """
    asked = {name: port for name, port in vars(wanted).items() if port is not None}
    if len(set(asked.values())) < len(asked):
        raise ServeError(f"One port is asked for twice: {asked}.", "name three different ports")
    with contextlib.ExitStack() as held:
        chosen = {}
        for name in ("grpc", "http", "metrics"):
            port = asked.get(name, 0)
            if not 0 <= port < 65536:
                raise ServeError(f"{port} is not a TCP port.", "use a port from 1024 to 65535")
            chosen[name] = held.enter_context(_bound(port)).getsockname()[1]
        return ChosenPorts(**chosen)


def _bound(port: int) -> socket.socket:
    """A socket that holds the port until it is closed. As tritonserver does, without SO_REUSEPORT."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        holder.bind((LOOPBACK, port))
        holder.listen()  # SO_REUSEADDR lets a bind pass beside a listener on another address
    except OSError as error:
        holder.close()
        raise ServeError(
            f"Port {port} cannot be used on {LOOPBACK}: {error.strerror}{_holder(port)}.",
            "choose another port, or let a free one be chosen",
        ) from error
    return holder


def _holder(port: int) -> str:
    """The process that listens there, if it can be told."""
    import psutil

    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            here = connection.status == psutil.CONN_LISTEN and connection.laddr
            if here and here.port == port and connection.pid:
                return f" (held by process {connection.pid}, {psutil.Process(connection.pid).name()})"
    return ""
