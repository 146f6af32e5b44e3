"""``trtbuild chat``: a conversation; Ctrl-C stops an answer and not the program, and no error ends it."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
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
_PASTE_BYTES = 65536


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
        self._ahead: deque[str | None] = deque()  # what was typed while an answer came; None: the end

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
        while True:
            line = self._ahead.popleft() if (typed := bool(self._ahead)) else _typed()
            if line is None:
                return
            if typed:
                click.echo(f"> {line}")
            yield line

    def _answer(self, text: str) -> None:
        from tritonstream import InvalidRequest, TritonStreamError, UsageError

        try:
            check_utf8("the line", text)
        except SpecError as error:
            note(f"error: {error}")
            return
        begun = False
        self._history.append({"role": "user", "content": text})
        try:
            with self._server.client.chat(self._model, self._history, stream=True, **self._params) as stream:
                with self._stoppable(stream):
                    for piece in stream.text_deltas():
                        click.echo(piece, nl=False)
                        begun = True
                answer = stream.completion
        except (InvalidRequest, UsageError) as error:  # too long, most often; the conversation goes on
            self._drop(f"error: {error}\n(/clear forgets the conversation)", begun=begun)
            return
        except TritonStreamError as error:  # its server may be on its way back
            if not self._interactive:
                raise
            failure = self._server.failure(error)
            remedies = "".join(f"\n  → {remedy}" for remedy in failure.remedies)
            self._drop(f"error: {failure}{remedies}", begun=begun)
            return
        except KeyboardInterrupt:  # before the answer began
            if not self._interactive:
                raise
            self._drop("(stopped)", begun=begun)
            return
        click.echo()
        if answer.finish_reason in ("length", "cancelled", "deadline"):
            note(f"({'stopped' if answer.finish_reason == 'cancelled' else answer.finish_reason})")
        self._history.append({"role": "assistant", "content": answer.text})

    def _drop(self, why: str, *, begun: bool) -> None:
        """Forgets the last message, which has no whole answer."""
        if begun:
            click.echo()
        self._history.pop()
        note(why)

    @contextmanager
    def _stoppable(self, stream: Stream) -> Iterator[None]:
        """While an answer comes, Ctrl-C and a typed /stop cancel it; other lines are the next messages."""

        def cancel(*_: object) -> None:
            # Not in the handler itself: it interrupts code that may hold the stream's lock.
            threading.Thread(target=stream.cancel, daemon=True).start()

        if not self._interactive:
            yield
            return
        before = signal.signal(signal.SIGINT, cancel)
        over = threading.Event()
        watcher = threading.Thread(target=_watch, args=(over, cancel, self._ahead), daemon=True)
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


def _watch(over: threading.Event, cancel: Callable[[], object], ahead: deque[str | None]) -> None:
    """Calls ``cancel`` when /stop is typed on the terminal, and keeps what else is.

    Read below Python's buffer, which would hide further lines of a paste from `input`.
    """
    terminal, rest = sys.stdin.fileno(), b""
    while not over.is_set():
        ready, _, _ = select.select([terminal], [], [], _POLL_S)
        if not ready or over.is_set():
            continue
        data = os.read(terminal, _PASTE_BYTES)
        if not data:
            ahead.append(None)
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in (line.decode("utf-8", "replace").strip() for line in lines):
            if line == "/stop":
                cancel()
            elif line:
                ahead.append(line)
