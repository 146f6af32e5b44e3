"""System shared memory for servers on this machine: inputs that need not go through a socket.

Regions are files in /dev/shm whose names carry the process that made them, so that those of a process that
was killed can be told from those in use, and swept. A region is used by one request at a time and kept for
the next one of its size.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import UsageError

if TYPE_CHECKING:
    from ._proto import Message

FOLDER = Path("/dev/shm")
PREFIX = "tritonstream-"
_LEAST_BYTES = 1 << 16


def process_start(pid: int) -> str | None:
    """When a process began, in clock ticks since boot (pids are reused); None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[19]  # field 22 of proc(5), counted behind the name


def sweep() -> list[str]:
    """Removes regions of processes that are gone; returns their names."""
    stale = []
    for path in FOLDER.glob(f"{PREFIX}*"):
        pid, _, rest = path.name.removeprefix(PREFIX).partition("-")
        start = rest.partition("-")[0]
        if pid.isdigit() and process_start(int(pid)) != start:
            with contextlib.suppress(OSError):  # another process was quicker, or it is another user's
                path.unlink()
                stale.append(path.name)
    return stale


class Region:
    """A piece of shared memory. ``registered``: addresses of the servers that know it."""

    _numbers = itertools.count()

    def __init__(self, size_bytes: int) -> None:
        pid = os.getpid()
        self.name = f"{PREFIX}{pid}-{process_start(pid)}-{next(self._numbers)}"
        self.size_bytes = size_bytes
        self.registered: set[str] = set()
        self._path = FOLDER / self.name
        descriptor = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            os.ftruncate(descriptor, size_bytes)
            os.posix_fallocate(descriptor, 0, size_bytes)  # else a full /dev/shm shows as a bus error later
            self._map = mmap.mmap(descriptor, size_bytes)
        except BaseException:
            self._path.unlink()
            raise
        finally:
            os.close(descriptor)

    def write(self, data: bytes) -> None:
        self._map[: len(data)] = data

    def close(self) -> None:
        self._map.close()
        self._path.unlink(missing_ok=True)


class Regions:
    """The regions of one client; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[Region] = []
        self._all: set[Region] = set()
        self._dead: dict[str, list[str]] = {}  # address → names that its server may forget
        self._swept: list[str] | None = None

    def take(self, size_bytes: int) -> Region:
        """Returns a region of at least this size.

        Raises:
            UsageError: where there is no /dev/shm, or no room in it.
        """
        size = max(_LEAST_BYTES, 1 << (size_bytes - 1).bit_length())
        with self._lock:
            if self._swept is None:
                self._swept = sweep()
            for region in self._free:
                if region.size_bytes == size:
                    self._free.remove(region)
                    return region
            try:
                region = Region(size)
            except OSError as exc:
                raise UsageError(f"no {size} bytes of shared memory to be had in {FOLDER}: {exc}") from exc
            self._all.add(region)
            return region

    def introduce(self, region: Region, address: str) -> list[tuple[str, Message]]:
        """What must be called before a server can read the region: (method, message)."""
        from ._proto import METHODS

        with self._lock:
            forget = self._dead.pop(address, [])
            if region.registered.isdisjoint((address,)):
                forget += [*(self._swept or ()), region.name]
                region.registered.add(address)
                known = METHODS["SystemSharedMemoryRegister"].request(
                    name=region.name, key=f"/{region.name}", byte_size=region.size_bytes
                )
                register = [("SystemSharedMemoryRegister", known)]
            else:
                register = []
        return [*_unregister(forget), *register]

    def give_back(self, region: Region, *, clean: bool) -> None:
        """The request is over. Not ``clean``: its server may still read, so the region is not used again."""
        with self._lock:
            if clean:
                self._free.append(region)
                return
            self._all.discard(region)
            for address in region.registered:
                self._dead.setdefault(address, []).append(region.name)
        region.close()

    def close(self) -> dict[str, list[tuple[str, Message]]]:
        """Removes all regions; returns what is to be called, by address, so that the servers forget them."""
        with self._lock:
            names = self._dead
            self._dead = {}
            for region in self._all:
                for address in region.registered:
                    names.setdefault(address, []).append(region.name)
                region.close()
            self._all.clear()
            self._free.clear()
        return {address: _unregister(mine) for address, mine in names.items()}


def _unregister(names: list[str]) -> list[tuple[str, Message]]:
    from ._proto import METHODS

    method = METHODS["SystemSharedMemoryUnregister"]
    return [(method.name, method.request(name=name)) for name in names]


def registers(message: Message) -> bool:
    """Whether a message makes a region known to a server."""
    from ._proto import METHODS

    return isinstance(message, METHODS["SystemSharedMemoryRegister"].request)


def is_local(address: str) -> bool:
    """Whether an address is of this machine, as far as it says."""
    host = address.rpartition(":")[0].strip("[]")
    return address.startswith("unix:") or host in ("localhost", "::1") or host.startswith("127.")
