"""The steps of a build as ``trtbuild build`` shows them: each with its place, its time, and its log."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from trtbuild.cli.console import note
from trtbuild.errors import in_shell

if TYPE_CHECKING:
    from pathlib import Path

    from trtbuild.build.steps import StepEvent
    from trtbuild.prepare import Prepared

_STATES = {"cached": "is done", "done": "done", "adopted": "was made elsewhere; it is what the plan asks for"}


def show_commands(prepared: Prepared, output: Path, *, as_json: bool) -> dict[str, list[list[str]]]:
    """The commands that a build would run, one a line, as a shell takes them."""
    from trtbuild.compiling import commands_of, work_folder

    commands = dict(commands_of(prepared.plan, prepared.spec, output))
    for name, lines in () if as_json else commands.items():
        click.echo(f"would run for {name}, in {work_folder(output).absolute() / name}:")
        for words in lines:
            click.echo(f"  {shlex.join(words)}")
    return commands


def build_here(
    prepared: Prepared, repo: Path, *, names: Any, answer: list[dict[str, Any]], as_json: bool
) -> None:
    """Runs every step that this machine takes, and says what is left.

    Args:
        answer: gets one entry a step.
    """
    from trtbuild.compiling import compile_engines, work_folder

    work = work_folder(repo)

    def on_event(model: str, event: StepEvent) -> None:
        label = event.command.label
        if event.state == "started":
            note(f"· {model}: {label} ({event.detail}); its log: {work / model / 'logs' / label}.log")
            return
        entry = {"model": model, "step": label, "state": event.state, "detail": event.detail}
        answer.append({**entry, "seconds": round(event.seconds, 1)})
        if event.state in _STATES:
            seconds = f" after {event.seconds:.0f} s" if event.seconds else ""
            note(f"· {model}: {label} {_STATES[event.state]}{seconds}")

    left = compile_engines(prepared.plan, prepared.spec, repo, names=names, on_event=on_event)
    for rest in left:
        note(f"{rest.model}: left for another machine: {', '.join(rest.steps)} ({rest.why})")
    if as_json:
        return
    if left:
        click.echo(f"next, on the machine with the GPU: {repo}/build_engines.sh, then {repo}/launch.sh")
        click.echo(f"it goes on from what is finished in {work}: take that folder along")
    else:
        click.echo(f"engines are in {repo}; next: trtbuild serve {in_shell(repo)}")
