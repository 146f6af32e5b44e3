"""Holds the files that the tool writes into git true: model_repo/ and the outputs shown in README.md.

python scripts/generated.py           exits 1 and names what differs
python scripts/generated.py --write   writes them anew
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from trtbuild.errors import TrtbuildError
from trtbuild.reference import differences, write

ROOT = Path(__file__).resolve().parent.parent
_CONSOLE = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)


def main() -> int:
    writing = sys.argv[1:] == ["--write"]
    readme = ROOT / "README.md"
    old = readme.read_text(encoding="utf-8")
    new = _CONSOLE.sub(lambda block: rerun(block[0]), old)
    try:
        if writing:
            write(ROOT / "model_repo")
            readme.write_text(new, encoding="utf-8")
            return 0
        stale = differences(ROOT / "model_repo")
    except TrtbuildError as error:
        print(f"error: {error.message}", *error.remedies, sep="\n  → ", file=sys.stderr)
        return 1
    stale += list(
        difflib.unified_diff(old.splitlines(), new.splitlines(), "README.md", "as it is now", lineterm="")
    )
    if stale:
        print(
            *stale,
            "",
            "generated files are out of date: run scripts/check --write",
            sep="\n",
            file=sys.stderr,
        )
    return 1 if stale else 0


def rerun(block: str) -> str:
    """A console block with the output of each of its ``$ trtbuild …`` lines as it is today."""
    commands = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    with tempfile.TemporaryDirectory() as folder:
        no_gpu = Path(folder, "bin", "nvidia-smi")  # the README shows a machine without one
        no_gpu.parent.mkdir()
        no_gpu.write_text("#!/bin/sh\nexit 1\n")
        no_gpu.chmod(0o755)
        shown = [f"$ {command}\n{output(command, Path(folder))}" for command in commands]
    return "".join(shown)


def output(command: str, folder: Path) -> str:
    """What one command prints, in an empty folder on a machine without a GPU."""
    words = shlex.split(command)
    if words[0] == "trtbuild":
        words[:1] = [sys.executable, "-m", "trtbuild"]
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONUNBUFFERED": "1",
        "COLUMNS": "100",
    }
    done = subprocess.run(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=environment,
        check=False,
    )
    lines = [line.rstrip() for line in done.stdout.strip("\n").splitlines()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
