"""Runs a job's steps in order: locked, logged, verified, and resumed after the last one that finished.

A step's product is made in ``<product>.partial``, checked, and renamed; ``<product>.done`` then holds its
key. Whatever is killed at whatever moment, a product under its own name is whole, and one whose key is in its
``.done`` need not be made again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trtbuild.build.children import run_child
from trtbuild.build.commands import Command
from trtbuild.build.jobs import Job
from trtbuild.build.places import Place
from trtbuild.build.products import check_product, is_whole
from trtbuild.errors import BuildError

State = Literal["cached", "started", "done", "adopted", "left"]


@dataclass(frozen=True)
class StepEvent:
    """Progress. ``cached``: its key is unchanged; ``adopted``: made elsewhere, and verified here; ``left``:
    for another machine, ``detail`` says why."""

    command: Command
    state: State
    seconds: float = 0.0
    detail: str = ""


@dataclass(frozen=True)
class BuildResult:
    """What became of every step, in order."""

    work: Path
    events: tuple[StepEvent, ...]

    @property
    def left(self) -> tuple[Command, ...]:
        """Steps that remain for another machine."""
        return tuple(event.command for event in self.events if event.state == "left")


def run_job(
    job: Job,
    keys: Sequence[str],
    *,
    work: Path,
    places: Sequence[Place],
    check_source: Callable[[Path], None] | None = None,
    on_event: Callable[[StepEvent], None] | None = None,
    on_line: Callable[[str], None] | None = None,
) -> BuildResult:
    """Brings a model's work folder up to date.

    A step runs in the first of ``places`` that takes it. One that no place takes is left, with all after it,
    unless its product was made elsewhere and put there: then it is verified and adopted.

    Args:
        keys: of ``cache.step_keys``.
        work: ``build/<model>/``; created.
        check_source: called with the folder of the weights before the first step that reads them.

    Raises:
        BuildError: another build is at work in the folder, a step failed, or its product is not what was
        asked for.
    """
    events: list[StepEvent] = []

    def tell(event: StepEvent) -> None:
        if event.state != "started":
            events.append(event)
        if on_event is not None:
            on_event(event)

    work.mkdir(parents=True, exist_ok=True)
    with _locked(work) as lock_fd:
        _prepare(job, work)
        left = ""
        unchecked = check_source
        for command, key in zip(job.commands, keys, strict=True):
            _recover(work, command)
            if unchecked is not None and "source" in command.inputs and not left:
                unchecked(work / "source")
                unchecked = None
            if _is_cached(work, command, key):
                tell(StepEvent(command, "cached"))
                continue
            place, why = choose_place(command, places)
            if place is None or left:
                left = left or why
                tell(_adopt_or_leave(work, command, key, left))
                continue
            tell(StepEvent(command, "started", detail=place.name))
            seconds = _run(command, key, work, place, on_line, lock_fd)
            tell(StepEvent(command, "done", seconds, place.name))
    return BuildResult(work, tuple(events))


@contextmanager
def _locked(work: Path) -> Iterator[int]:
    """Holds the folder's lock. Children inherit it, so that it lasts as long as any of them."""
    path = work / ".lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = path.read_text(encoding="utf-8").strip() or "unknown"
            raise BuildError(
                f"another build is at work in {work} (process {holder})", "wait for it, or end it"
            ) from error
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _prepare(job: Job, work: Path) -> None:
    (work / "logs").mkdir(exist_ok=True)
    if job.folder is not None:
        _link(work / "source", job.folder)  # in place of weights that were fetched before
    elif (work / "source").is_symlink():
        (work / "source").unlink()
    if job.calibration is not None:
        job.calibration.write(work / "calibration")
    for name, folder in job.loras.items():
        (work / "loras").mkdir(exist_ok=True)
        _link(work / "loras" / name, folder)


def _link(link: Path, folder: Path) -> None:
    if not link.is_symlink():
        _remove(link)
    partial = link.with_name(f"{link.name}.link")
    partial.unlink(missing_ok=True)
    partial.symlink_to(folder.absolute(), target_is_directory=True)
    partial.replace(link)


def _recover(work: Path, command: Command) -> None:
    """Finishes or undoes what a kill between two renames left."""
    product, old = work / command.product, work / f"{command.product}.old"
    if old.exists() and not product.exists():
        old.rename(product)  # its key was removed before, so that it is made again
    _remove(old)


def _is_cached(work: Path, command: Command, key: str) -> bool:
    done = work / f"{command.product}.done"
    try:
        recorded = done.read_text(encoding="utf-8").strip()
    except OSError:
        return False
    return recorded == key and is_whole(work / command.product, command)


def choose_place(command: Command, places: Sequence[Place]) -> tuple[Place | None, str]:
    """The first place that takes a command; None, and the reasons of all, if none does."""
    reasons = []
    for place in places:
        why = place.refuses(command)
        if why is None:
            return place, ""
        reasons.append(f"{place.name}: {why}")
    return None, "; ".join(reasons) or "no place was given"


def _adopt_or_leave(work: Path, command: Command, key: str, why: str) -> StepEvent:
    product = work / command.product
    if not product.is_dir():
        return StepEvent(command, "left", detail=why)
    try:
        check_product(product, command)
    except BuildError as error:
        raise BuildError(
            f"{product} was made elsewhere and is not what the plan asks for: {error.message}",
            "build it again with the script of this plan",
            f"remove {product}",
        ) from error
    _write_key(work, command, key)
    return StepEvent(command, "adopted", detail=str(product))


def _run(
    command: Command,
    key: str,
    work: Path,
    place: Place,
    on_line: Callable[[str], None] | None,
    lock_fd: int,
) -> float:
    partial = work / command.partial
    place.sweep(command, work)
    _remove(partial)
    started = time.monotonic()
    try:
        run_child(
            place.argv(command, work),
            cwd=work,
            environment=place.environment(command),
            log=work / "logs" / f"{command.label}.log",
            what=f"{work.name}: {command.label}",
            on_line=on_line,
            held_fd=lock_fd,
        )
    except BuildError:
        raise
    except BaseException:
        place.sweep(command, work)  # a container goes on when its client is gone
        raise
    check_product(partial, command)
    _commit(work, command, key)
    return time.monotonic() - started


def _commit(work: Path, command: Command, key: str) -> None:
    """Puts a product in place. Between any two of these lines the folder can be resumed from."""
    product, old = work / command.product, work / f"{command.product}.old"
    (work / f"{command.product}.done").unlink(missing_ok=True)
    if product.is_symlink():
        product.unlink()
    elif product.exists():
        product.rename(old)
    (work / command.partial).rename(product)
    _write_key(work, command, key)
    _remove(old)


def _write_key(work: Path, command: Command, key: str) -> None:
    done = work / f"{command.product}.done"
    partial = work / f"{command.product}.key"
    partial.write_text(f"{key}\n", encoding="utf-8")
    partial.replace(done)


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)
