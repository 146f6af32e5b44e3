"""``trtbuild serve``: a repository's server on this machine, until it is told to stop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtbuild.cli.console import note, step
from trtbuild.cli.options import DEFAULT_OUTPUT, FOLDER
from trtbuild.errors import in_shell

if TYPE_CHECKING:
    from trtbuild.serve.ports import Ports
    from trtbuild.serve.state import ServerRecord
    from trtbuild.serve.supervise import ServeEvent
    from trtbuild.tenants import Repository

_PORT = click.IntRange(1, 65535)


@click.command("serve")
@click.argument("repo", type=FOLDER, default=DEFAULT_OUTPUT)
@click.option("--detach", is_flag=True, help="Leave it running, and restart it when it crashes.")
@click.option("--grpc-port", type=_PORT, help="Default: a free one.")
@click.option("--http-port", type=_PORT, help="Default: a free one.")
@click.option("--metrics-port", type=_PORT, help="Default: a free one.")
def serve_command(
    repo: Path, detach: bool, grpc_port: int | None, http_port: int | None, metrics_port: int | None
) -> None:
    """Start the server of the repository REPO on the loopback address, and stop it on Ctrl-C.

    A repository for a GPU is served in the container that its launch.sh names, any other by the tritonserver
    that is installed here.
    """
    from trtbuild.tenants import Repository

    repository = Repository.open(repo)
    from trtbuild.serve.ports import Ports

    ports = Ports(grpc=grpc_port, http=http_port, metrics=metrics_port)
    if detach:
        show_addresses(repository, start_detached(repository, ports))
        named = in_shell(repo)
        note(f"it stays; see trtbuild status, trtbuild logs {named}, trtbuild stop {named}")
        return
    from trtbuild.serve.supervise import serve_forever

    def on_event(event: ServeEvent) -> None:
        note(f"· {event.message}")
        if event.kind == "ready" and event.server is not None:
            show_addresses(repository, event.server.record)
            note("Ctrl-C stops it")

    serve_forever(repository.path, ports=ports, on_event=on_event)


def start_detached(repository: Repository, ports: Ports | None = None) -> ServerRecord:
    """Starts a server that outlives this command; returns when its models are ready."""
    from trtbuild.serve import registry
    from trtbuild.serve.cautions import cautions

    for caution in cautions(repository.path):
        note(f"· {caution}")
    with step(
        f"starting tritonserver for {repository.path.name}, loading {len(repository.plan.models)} models"
    ):
        return registry.start_detached(repository.path, ports=ports)


def show_addresses(repository: Repository, record: ServerRecord) -> None:
    """Where the server listens, and what it serves."""
    click.echo(f"gRPC     127.0.0.1:{record.grpc_port}")
    click.echo(f"HTTP     127.0.0.1:{record.http_port}")
    click.echo(f"metrics  127.0.0.1:{record.metrics_port}/metrics")
    from trtbuild.serve.contents import left_out

    without = left_out(repository.path)
    click.echo(f"models   {', '.join(m.name for m in repository.plan.models if m.name not in without)}")
