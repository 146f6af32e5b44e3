"""``trtbuild serve``: a repository's server, on this machine, until it is told to stop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtbuild.cli.options import DEFAULT_OUTPUT, FOLDER

if TYPE_CHECKING:
    pass

_PORT = click.IntRange(1, 65535)


@click.command("serve")
@click.argument("repo", type=FOLDER, default=DEFAULT_OUTPUT)
@click.option(
    "--detach", is_flag=True, help="Leave it running, restarted when it crashes; see `trtbuild stop`."
)
@click.option("--grpc-port", type=_PORT, help="Default: a free one.")
@click.option("--http-port", type=_PORT, help="Default: a free one.")
@click.option("--metrics-port", type=_PORT, help="Default: a free one.")
def serve_command(
    repo: Path, detach: bool, grpc_port: int | None, http_port: int | None, metrics_port: int | None
) -> None:
    """Start the server of the repository REPO on the loopback address, and stop it on Ctrl-C."""
