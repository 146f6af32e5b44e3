"""The command line: the only place that prints. `main` is the entry point; each command is a module."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn, TextIO

EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells count
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and exits: 0 success, 1 an expected failure, 2 wrong usage, 130 Ctrl-C."""
    # A stream that the caller closed is None; what is written to it is lost, as it should be.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if hasattr(
            stream, "reconfigure"
        ):  # a terminal that cannot show a character gets an escape, not a crash
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:] if args is None else args))


def run(args: Sequence[str]) -> int:
    """Like `main`, but returns the exit code."""
    import click

    from trtbuild.cli.root import root
    from trtbuild.errors import TrtbuildError

    try:
        code = root.main(list(args), prog_name="trtbuild", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except TrtbuildError as error:
        _show(error.message, error.remedies)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort) as error:
        told = str(error.__cause__ if isinstance(error, click.Abort) and error.__cause__ else error)
        print(f"interrupted: {told}" if told else "interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _silence(sys.stdout)
        return EXIT_BROKEN_PIPE
    except OSError as error:
        if os.environ.get("TRTBUILD_DEBUG"):
            raise
        named = f"{error.filename}: " if error.filename else ""
        _show(f"{named}{error.strerror or error}", ())
        return 1


def _show(message: str, remedies: Sequence[str]) -> None:
    print(f"error: {message}", file=sys.stderr)
    for remedy in remedies:
        print("  → " + remedy.replace("\n", "\n    "), file=sys.stderr)


def _silence(stream: TextIO) -> None:
    """Points a stream whose reader left at nothing, so that the interpreter's last flush cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
