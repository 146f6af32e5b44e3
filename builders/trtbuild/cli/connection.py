"""Which server and which model a command talks to, and what its client's errors mean at the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from trtbuild.errors import ServeError

if TYPE_CHECKING:
    from tritonstream import Client, GenerateParams

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Connection:
    """An open client and the repository that its server serves, where that is known."""

    client: Client
    address: str
    repository: Path | None

    def model(self, asked: str | None, kind: str, *, task: str | None = None) -> str:
        """The model to call: as asked, else the only one of its kind (``llm`` or ``vision``) and task.

        Raises:
            ServeError: none, several, or a server that is not ours.
        """
        if asked is not None:
            return asked
        if self.repository is None:
            raise ServeError(f"what {self.address} serves is not known here", "name the model: --model NAME")
        from trtbuild.tenants import Repository

        repository = Repository.open(self.repository)
        tasks = {vision.name: vision.task.value for vision in repository.plan.visions}
        names = [
            name
            for name, unit in repository.manifest.models.items()
            if unit.kind == kind and task in (None, tasks.get(name))
        ]
        if len(names) == 1:
            return names[0]
        what = {"llm": "language model", "vision": "vision model"}[kind]
        if not names:
            raise ServeError(f"{self.repository} holds no {what}", f"trtbuild add {self.repository} …")
        raise ServeError(f"{self.repository} holds {len(names)} {what}s", f"--model {' or '.join(names)}")


def server_options(command: _Command) -> _Command:
    """Adds --model, --repo and --url, which `connect` and `Connection.model` read."""
    for option in (
        click.option("--url", metavar="HOST:PORT", help="gRPC address of another server."),
        click.option("--repo", type=click.Path(path_type=Path), help="Repository whose server is meant."),
        click.option("--model", metavar="NAME", help="Default: the only one there is."),
    ):
        command = option(command)
    return command


def generation_options(command: _Command) -> _Command:
    """Adds --max-tokens, --temperature, --top-p, --seed and --stop, which `generation` reads."""
    for option in (
        click.option("--stop", multiple=True, metavar="TEXT", help="End before this text; may be repeated."),
        click.option("--seed", type=click.IntRange(0, 2**64 - 1), help="Of the random choice of tokens."),
        click.option(
            "--top-p", type=click.FloatRange(0, 1, min_open=True), help="Likeliest tokens up to this share."
        ),
        click.option("--temperature", type=click.FloatRange(min=0), help="0: always the likeliest token."),
        click.option("--max-tokens", type=click.IntRange(min=1), help="Longest answer."),
    ):
        command = option(command)
    return command


def generation(flags: Mapping[str, Any]) -> GenerateParams:
    """What of `generation_options` was given, as the client takes it.

    Raises:
        click.UsageError: an empty --stop, which would end every answer before it began.
    """
    if "" in flags["stop"]:
        raise click.UsageError("--stop is empty.")
    return cast("GenerateParams", {key: value for key, value in flags.items() if value not in (None, ())})


@contextmanager
def connect(repo: Path | None, url: str | None) -> Iterator[Connection]:
    """Opens a client of the server that is meant: by address, by repository, or the only one that runs here.

    Errors of the client come out as `ServeError`, with what the server said.
    """
    address, repository = (url, _served_at(url)) if url is not None else _running(repo)
    from tritonstream import Client, TritonStreamError

    with Client(address) as client:
        try:
            yield Connection(client, address, repository)
        except TritonStreamError as error:
            raise ServeError(str(error), *_ways_out(error)) from error


def _ways_out(error: Exception) -> tuple[str, ...]:
    from tritonstream import ConnectError, ConnectionLost, ModelNotFound

    if isinstance(error, (ConnectError, ConnectionLost)):
        return ("see what runs: trtbuild status", "start one: trtbuild serve")
    return ("see what is served: trtbuild list",) if isinstance(error, ModelNotFound) else ()


def _served_at(url: str) -> Path | None:
    """The repository of a server of this machine, by its address."""
    from trtbuild.serve.registry import running

    host, _, port = url.rpartition(":")
    if host not in ("127.0.0.1", "localhost", "[::1]"):
        return None
    served = {str(record.grpc_port): Path(record.repository) for record in running()}
    return served.get(port)


def _running(repo: Path | None) -> tuple[str, Path]:
    from trtbuild.serve.registry import running

    records = [r for r in running() if repo is None or Path(r.repository) == repo.expanduser().resolve()]
    if len(records) == 1:
        return f"127.0.0.1:{records[0].grpc_port}", Path(records[0].repository)
    if records:
        raise ServeError(
            f"{len(records)} servers run here", *(f"--repo {record.repository}" for record in records)
        )
    raise ServeError(
        f"no server of {repo} runs here" if repo else "no server runs here",
        f"start one: trtbuild serve {repo or ''} --detach".replace("  ", " "),
    )
