"""``trtbuild status``, ``logs`` and ``stop``: the servers that run on this machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtbuild.cli.console import note, print_json, print_table, step
from trtbuild.cli.options import FOLDER
from trtbuild.errors import ServeError, in_shell

if TYPE_CHECKING:
    from trtbuild.serve.condition import Condition

_REPO = click.argument("repo", type=FOLDER, required=False)


@click.command("status")
@_REPO
@click.option("--all", "everything", is_flag=True, help="Also those that were stopped.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def status_command(repo: Path | None, everything: bool, as_json: bool) -> None:
    """Show the servers that run here or have failed, how they are and where they listen; or that of REPO.

    health is ready, starting, restarting, not ready, stopping, stopped, given up (it did not start, or failed
    too often), killed (with its supervisor) or machine restarted. Models that were added after the start
    are not loaded until the server is started again. Exit code 1 when none is ready.
    """
    from trtbuild.serve.condition import condition_of, conditions

    if repo is None:
        known = conditions()
        shown = [item for item in known if everything or item.health != "stopped"]
    else:
        found = condition_of(repo)
        if found is None and not as_json:
            raise ServeError(
                f"{repo} was never served here", f"start it: trtbuild serve {in_shell(repo)} --detach"
            )
        known = shown = [found] if found is not None else []
    if as_json:
        print_json([_row(item) for item in shown])
    elif shown:
        columns = ("repository", "health", "gRPC", ">HTTP", ">metrics", ">for", ">restarts", "models")
        print_table(columns, [_cells(item) for item in shown])
    else:
        note("no server runs here; start one: trtbuild serve REPO --detach")
    if not as_json:
        for item in known:
            if item not in shown or item.why or not item.runs:
                note(_told(item))
    if not any(item.health == "ready" for item in shown):
        click.get_current_context().exit(1)


def _cells(item: Condition) -> tuple[object, ...]:
    from trtbuild.serve.registry import models_of, not_loaded

    record, lasts = item.record, _duration(time.time() - item.since_s)
    if record is None:
        return (item.repository, item.health, None, None, None, lasts, item.restarts, None)
    unready = [name for name, ready in models_of(record).items() if not ready]
    models = f"not ready: {', '.join(unready)}" if unready else "all ready"
    if later := not_loaded(record):
        models += f"; not loaded: {', '.join(sorted(later))}"
    return (
        item.repository, item.health, f"127.0.0.1:{record.grpc_port}", record.http_port, record.metrics_port,
        lasts, item.restarts, models,
    )  # fmt: skip


def _told(item: Condition) -> str:
    """What became of a server and what to do, indented as errors are."""
    lines = [f"{item.sentence()}"]
    lines += [f"  → {remedy}" for remedy in item.remedies()] if item.health != "stopped" else []
    return "\n".join(lines)


def _row(item: Condition) -> dict[str, object]:
    from trtbuild.serve.registry import models_of, not_loaded

    record = item.record
    return {
        "repository": str(item.repository),
        "health": item.health,
        "why": item.why or None,
        "grpc": f"127.0.0.1:{record.grpc_port}" if record else None,
        "http": f"127.0.0.1:{record.http_port}" if record else None,
        "metrics": f"127.0.0.1:{record.metrics_port}" if record else None,
        "pid": record.server_pid if record else None,
        "uptime_s": round(time.time() - item.since_s, 1) if item.runs else None,
        "ended_unix_s": None if item.runs else round(item.since_s, 1),
        "restarts": item.restarts,
        "last_fault": record.fault if record else None,
        "detached": record.detached if record else None,
        "log": str(item.log),
        "models": models_of(record) if record else {},
        "not_loaded": sorted(not_loaded(record)) if record else [],
    }


def tell_if_served(repository: Path) -> None:
    """After a change on disk: a running server goes on with what it loaded when it started."""
    from trtbuild.serve.condition import condition_of

    found = condition_of(repository)
    if found is not None and found.runs:
        note(
            f"a server of {found.repository} runs: it serves what it loaded at its start until it is started "
            f"again\n  → {found.start_again()}"
        )


@click.command("logs")
@_REPO
@click.option("-f", "--follow", is_flag=True, help="Keep printing what is added.")
@click.option("-n", "--lines", type=click.IntRange(min=1), default=50, show_default=True, help="How many.")
def logs_command(repo: Path | None, follow: bool, lines: int) -> None:
    """Show the log of a repository's server, also of one that has ended.

    REPO: default the one that runs, else the one that failed.
    """
    from trtbuild.serve.logs import followed, last_lines
    from trtbuild.serve.registry import log_path

    path = log_path(repo if repo is not None else only_one(or_failed=True))
    for line in (followed if follow else last_lines)(path, lines):
        click.echo(line, nl=False)


@click.command("stop")
@_REPO
@click.option("--all", "everything", is_flag=True, help="All that run here.")
def stop_command(repo: Path | None, everything: bool) -> None:
    """Stop the server of REPO (default: the one that runs); requests in flight may finish.

    Of a server that was killed, what is left is ended and removed.
    """
    from trtbuild.serve.condition import conditions
    from trtbuild.serve.registry import stop

    if everything:
        repositories = [item.repository for item in conditions() if item.runs]
    else:
        repositories = [repo if repo is not None else only_one()]
    for repository in repositories:
        with step(f"stopping the server of {repository}"):
            stop(repository)
        click.echo(f"stopped {repository}")
    if not repositories:
        note("no server runs here")


def only_one(*, or_failed: bool = False) -> Path:
    """The repository whose server runs here, if it is the only one.

    Args:
        or_failed: where none runs, the only one that has failed.

    Raises:
        ServeError: none, or several.
    """
    from trtbuild.serve.condition import conditions

    known = conditions()
    repositories = [item.repository for item in known if item.runs]
    if not repositories and or_failed:
        repositories = [item.repository for item in known if item.failed]
    if len(repositories) == 1:
        return repositories[0]
    if repositories:
        raise ServeError(
            f"there are {len(repositories)} servers here", *(f"name one: {in_shell(r)}" for r in repositories)
        )
    raise ServeError("no server runs here", "start one: trtbuild serve REPO --detach")


def _duration(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    return f"{seconds:.0f} s" if minutes < 1 else f"{minutes:.0f} min" if hours < 1 else f"{hours:.1f} h"
