"""``trtbuild status``, ``logs`` and ``stop``: the servers that run on this machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from trtbuild.cli.console import note, print_json, print_table, step
from trtbuild.cli.options import FOLDER
from trtbuild.errors import ServeError

if TYPE_CHECKING:
    from trtbuild.serve.registry import ServerStatus

_REPO = click.argument("repo", type=FOLDER, required=False)
_FOLLOW_S = 0.3


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def status_command(as_json: bool) -> None:
    """Show the servers that run here, how they are and where they listen. Exit code 1 when none is ready."""
    from trtbuild.serve.registry import running, status

    servers = [status(Path(record.repository)) for record in running()]
    if as_json:
        print_json([_row(server) for server in servers])
    elif servers:
        rows = [
            (
                server.record.repository,
                server.health,
                f"127.0.0.1:{server.record.grpc_port}",
                server.record.http_port,
                server.record.metrics_port,
                _duration(server.uptime_s),
                server.record.restarts,
                ", ".join(name for name, ready in server.models.items() if not ready) or "all ready",
            )
            for server in servers
        ]
        columns = ("repository", "health", "gRPC", ">HTTP", ">metrics", ">up", ">restarts", "models")
        print_table(columns, rows)
    else:
        note("no server runs here; start one: trtbuild serve REPO --detach")
    if not any(server.health == "ready" for server in servers):
        click.get_current_context().exit(1)


def _row(server: ServerStatus) -> dict[str, object]:
    record = server.record
    return {
        "repository": record.repository,
        "health": server.health,
        "grpc": f"127.0.0.1:{record.grpc_port}",
        "http": f"127.0.0.1:{record.http_port}",
        "metrics": f"127.0.0.1:{record.metrics_port}",
        "pid": record.server_pid,
        "uptime_s": round(server.uptime_s, 1),
        "restarts": record.restarts,
        "detached": record.detached,
        "log": record.log,
        "models": server.models,
    }


@click.command("logs")
@_REPO
@click.option("-f", "--follow", is_flag=True, help="Go on with what is added.")
@click.option("-n", "--lines", type=click.IntRange(min=1), default=50, show_default=True, help="How many.")
def logs_command(repo: Path | None, follow: bool, lines: int) -> None:
    """Show the log of a repository's server, also of one that has ended. REPO: default the one that runs."""
    from trtbuild.serve.registry import log_path

    path = log_path(repo) if repo is not None else log_path(only_one())
    with path.open(encoding="utf-8", errors="replace") as log:
        for line in log.readlines()[-lines:]:
            click.echo(line, nl=False)
        if follow:
            _follow(log)


def _follow(log: IO[str]) -> None:
    while True:
        for line in log:
            click.echo(line, nl=False)
        time.sleep(_FOLLOW_S)


@click.command("stop")
@_REPO
@click.option("--all", "everything", is_flag=True, help="All that run here.")
def stop_command(repo: Path | None, everything: bool) -> None:
    """Stop the server of REPO (default: the one that runs); requests in flight may finish."""
    from trtbuild.serve.registry import running, stop

    if everything:
        repositories = [Path(record.repository) for record in running()]
    else:
        repositories = [repo if repo is not None else only_one()]
    for repository in repositories:
        with step(f"stopping the server of {repository}"):
            stop(repository)
        click.echo(f"stopped {repository}")
    if not repositories:
        note("no server runs here")


def only_one() -> Path:
    """The repository whose server runs here, if it is the only one.

    Raises:
        ServeError: none runs, or several do.
    """
    from trtbuild.serve.registry import running

    repositories = [record.repository for record in running()]
    if len(repositories) == 1:
        return Path(repositories[0])
    if repositories:
        raise ServeError(
            f"{len(repositories)} servers run here", *(f"name one: {path}" for path in repositories)
        )
    raise ServeError("no server runs here", "start one: trtbuild serve REPO --detach")


def _duration(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    return f"{seconds:.0f} s" if minutes < 1 else f"{minutes:.0f} min" if hours < 1 else f"{hours:.1f} h"
