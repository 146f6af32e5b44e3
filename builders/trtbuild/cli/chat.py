"""``trtbuild chat``: a conversation; Ctrl-C stops an answer and not the program."""

from __future__ import annotations

import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trtbuild.cli.connection import (
    Connection,
    check_utf8,
    connect,
    generation,
    generation_options,
    raw_stdin,
    server_options,
)
from trtbuild.cli.console import note
from trtbuild.errors import SpecError

if TYPE_CHECKING:
    from tritonstream import GenerateParams, Stream

HELP = """\
/stop    stop the answer that is being given; at the prompt: leave
/clear   forget the conversation
/help    this list
Ctrl-C stops an answer, Ctrl-D leaves."""
_POLL_S = 0.2


@click.command("chat")
@server_options
@click.option("--system", metavar="TEXT", help="What the model is told before the conversation.")
@generation_options
def chat_command(
    model: str | None,
    repo: Path | None,
    url: str | None,
    system: str | None,
    **flags: Any,
) -> None:
    """Talk with a served model. In a pipe, each line of stdin is a message and only answers are printed."""
    params = generation(flags)
    check_utf8("--system", system or "")
    raw_stdin()
    with connect(repo, url) as server:
        Chat(server, server.model(model, "llm"), system, params).run()


class Chat:
    """One conversation: its history is sent whole each time, so that the prefix cache works for it."""

    def __init__(self, server: Connection, model: str, system: str | None, params: GenerateParams) -> None:
        self._server, self._model, self._params = server, model, params
        self._start = [{"role": "system", "content": system}] if system else []
        self._history = list(self._start)
        self._interactive = sys.stdin.isatty()

    def run(self) -> None:
        """Reads messages until the input ends or /stop."""
        if self._interactive:
            with suppress(ImportError):
                import readline  # noqa: F401 - gives input() editing and recall
            note(f"{self._model} at {self._server.address}; /help for what else can be said")
        for line in self._lines():
            if line in ("/stop", "/quit", "/exit", "/bye"):
                return
            if line == "/clear":
                self._history = list(self._start)
            elif line == "/help":
                note(HELP)
            elif line.startswith("/") and " " not in line and self._interactive:
                note(f"{line} is not a command; /help lists them")
            elif line:
                self._answer(line)

    def _lines(self) -> Iterator[str]:
        if not self._interactive:
            yield from (line.strip() for line in sys.stdin)
            return
        while (line := _typed()) is not None:
            yield line

    def _answer(self, text: str) -> None:
        from tritonstream import ConnectError, ConnectionLost, InvalidRequest, UsageError

        try:
            check_utf8("the line", text)
        except SpecError as error:
            note(f"error: {error}")
            return
        self._history.append({"role": "user", "content": text})
        try:
            with self._server.client.chat(self._model, self._history, stream=True, **self._params) as stream:
                with self._stoppable(stream):
                    for piece in stream.text_deltas():
                        click.echo(piece, nl=False)
                answer = stream.completion
        except (ConnectError, ConnectionLost) as error:  # its server may be on its way back
            if not self._interactive:
                raise
            self._history.pop()
            failure = self._server.failure(error)
            note("\n".join([f"error: {failure}", *(f"  → {remedy}" for remedy in failure.remedies)]))
            return
        except (InvalidRequest, UsageError) as error:  # too long, most often; the conversation goes on
            self._history.pop()
            note(f"error: {error}\n(/clear forgets the conversation)")
            return
        click.echo()
        if answer.finish_reason in ("length", "cancelled", "deadline"):
            note(f"({'stopped' if answer.finish_reason == 'cancelled' else answer.finish_reason})")
        self._history.append({"role": "assistant", "content": answer.text})

    @contextmanager
    def _stoppable(self, stream: Stream) -> Iterator[None]:
        """While an answer comes, Ctrl-C and a typed /stop cancel it."""

        def cancel(*_: object) -> None:
            # Not in the handler itself: it interrupts code that may hold the stream's lock.
            threading.Thread(target=stream.cancel, daemon=True).start()

        if not self._interactive:
            yield
            return
        before = signal.signal(signal.SIGINT, cancel)
        over = threading.Event()
        watcher = threading.Thread(target=_watch, args=(over, cancel), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
            signal.signal(signal.SIGINT, before)


def _typed() -> str | None:
    """A line from the terminal; None at its end. Ctrl-C drops the line."""
    try:
        return input("> ").strip()
    except EOFError:
        click.echo()
        return None
    except KeyboardInterrupt:
        note("\n(Ctrl-D or /stop leaves)")
        return ""


def _watch(over: threading.Event, cancel: Any) -> None:
    """Calls ``cancel`` when /stop is typed on the terminal."""
    while not over.is_set():
        ready, _, _ = select.select([sys.stdin], [], [], _POLL_S)
        if ready and not over.is_set() and sys.stdin.readline().strip() == "/stop":
            cancel()
            return
