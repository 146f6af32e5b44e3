"""Which server and which model a command talks to, and what its client's errors mean at the command line."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from trtbuild.cli.console import step
from trtbuild.cli.options import GRPC_ADDRESS, NOT_NEGATIVE, Number
from trtbuild.errors import ServeError, SpecError, in_shell

if TYPE_CHECKING:
    from tritonstream import Client, GenerateParams, TritonStreamError
    from trtbuild.serve.condition import Condition

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Connection:
    """An open client and the repository that its server serves, where that is known."""

    client: Client
    address: str
    repository: Path | None

    def model(self, asked: str | None, kind: str, *, task: str | None = None) -> str:
        """The model to call: as asked, else the only served one of its kind (``llm`` or ``vision``) and task.

        Raises:
            ServeError: none, several, one that the server has not loaded, or a server that is not ours.
        """
        now = self._condition()
        later = self._not_loaded(now)
        if asked is not None:
            if now is not None and asked in later:
                raise _loads_at_its_start(now, asked)
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
        if now is not None and names and later.issuperset(names):
            raise _loads_at_its_start(now, *names)
        names = [name for name in names if name not in later]
        if len(names) == 1:
            return names[0]
        what = {"llm": "language model", "vision": "vision model"}[kind]
        if not names:
            raise ServeError(
                f"{self.repository} holds no {what}", f"trtbuild add {in_shell(self.repository)} …"
            )
        raise ServeError(f"{self.repository} holds {len(names)} {what}s", f"--model {' or '.join(names)}")

    def failure(self, error: TritonStreamError) -> ServeError:
        """A client's error as the command line tells it: with what became of the server, where it is ours."""
        from tritonstream import ConnectError, ConnectionLost, ModelNotFound

        if isinstance(error, (ConnectError, ConnectionLost)):
            now = self._condition()
            if now is not None and now.health != "ready":
                return ServeError(f"{error}; {now.sentence()}", *now.remedies())
            again = "try again" if now else "start one: trtbuild serve REPO --detach"
            return ServeError(str(error), again, "see what runs: trtbuild status")
        if isinstance(error, ModelNotFound):
            named = f"{in_shell(self.repository)} " if self.repository is not None else ""
            return ServeError(str(error), f"see what is served: trtbuild status {named}--json")
        return ServeError(str(error))

    def _condition(self) -> Condition | None:
        from trtbuild.serve.condition import condition_of

        return condition_of(self.repository) if self.repository is not None else None

    def _not_loaded(self, now: Condition | None) -> set[str]:
        from trtbuild.serve.registry import not_loaded

        return not_loaded(now.record) if now is not None and now.record is not None else set()


def _loads_at_its_start(server: Condition, *names: str) -> ServeError:
    return ServeError(
        f"the server of {server.repository} has not loaded {', '.join(names)}: added after it was started",
        f"start it again: {server.start_again()}",
    )


def server_options(command: _Command) -> _Command:
    """Adds --model, --repo and --url, which `connect` and `Connection.model` read."""
    for option in (
        click.option("--url", type=GRPC_ADDRESS, metavar="HOST:PORT", help="gRPC address of another server."),
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
            "--top-p",
            type=Number(0, 1, min_open=True),
            help="Sample from the likeliest tokens up to this probability.",
        ),
        click.option("--temperature", type=NOT_NEGATIVE, help="0: always the likeliest token."),
        click.option("--max-tokens", type=click.IntRange(min=1), help="Longest answer."),
    ):
        command = option(command)
    return command


def generation(flags: Mapping[str, Any]) -> GenerateParams:
    """What of `generation_options` was given, as the client takes it.

    Raises:
        click.UsageError: an empty --stop, which would end every answer before it began.
        SpecError: a --stop that is not UTF-8.
    """
    if "" in flags["stop"]:
        raise click.UsageError("--stop is empty.")
    for stop in flags["stop"]:
        check_utf8("--stop", stop)
    return cast("GenerateParams", {key: value for key, value in flags.items() if value not in (None, ())})


def raw_stdin() -> None:
    """Makes stdin give bytes that are not UTF-8 on, as arguments do, for `check_utf8` to tell of."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")


def check_utf8(what: str, text: str) -> None:
    """Raises SpecError where Python stood surrogates in for bytes of stdin or of an argument (PEP 383)."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        byte = ord(text[error.start]) & 0xFF
        raise SpecError(
            f"{what} is not UTF-8: byte 0x{byte:02x} after {error.start} characters",
            "convert it first: iconv -f ENCODING -t UTF-8",
        ) from None


@contextmanager
def connect(repo: Path | None, url: str | None) -> Iterator[Connection]:
    """Opens a client of the server that is meant: by address, by repository, or the only one that runs here.

    Errors of the client come out as `ServeError`, with what the server said.
    """
    address, repository = (url, _served_at(url)) if url is not None else _reached(repo)
    from tritonstream import Client, TritonStreamError

    with Client(address) as client:
        connection = Connection(client, address, repository)
        try:
            yield connection
        except TritonStreamError as error:
            raise connection.failure(error) from error


def _served_at(url: str) -> Path | None:
    """The repository of a server that runs on this machine, or did, by its address."""
    from trtbuild.serve.condition import conditions

    host, _, port = url.rpartition(":")
    if host not in ("127.0.0.1", "localhost", "[::1]"):
        return None
    there = [item for item in conditions() if str(item.grpc_port) == port]
    there.sort(key=lambda item: (item.runs, item.since_s))  # a port is used again
    return there[-1].repository if there else None


def _reached(repo: Path | None) -> tuple[str, Path]:
    from trtbuild.serve.registry import reach

    record = reach(repo, waiting=lambda condition: step(f"{condition.sentence()}; waiting for it"))
    return f"127.0.0.1:{record.grpc_port}", Path(record.repository)
