"""Assembles the backend directory of a local server: Triton's Python backend, and ours for the CPU."""

from __future__ import annotations

import shutil
from pathlib import Path

from trtbuild.errors import ServeError
from trtbuild.repository.render import shared_code
from trtbuild.serve.wheel import TritonWheel

LOCAL = Path(__file__).parent / "local"


def assemble_backends(wheel: TritonWheel, target: Path) -> None:
    """Writes ``python/`` and each local backend into ``target``, a folder of this server alone.

    Copies, not links: a package that is upgraded while the server runs does not change what it restarts.

    Raises:
        ServeError: the folder cannot be written.
    """
    try:
        _copy(wheel, target)
    except OSError as error:  # its file name may be that of the source
        raise ServeError(
            f"{target.parent} cannot be written: {error.strerror or error}",
            "servers keep there what they run on: make room, or name another folder in TRTBUILD_STATE",
        ) from error


def _copy(wheel: TritonWheel, target: Path) -> None:
    python = target / "python"
    python.mkdir(parents=True)
    for name in ("libtriton_python.so", "triton_python_backend_utils.py"):
        shutil.copy2(wheel.python_backend / name, python / name)
    shutil.copy2(wheel.stub, python / wheel.stub.name)
    for backend in sorted(LOCAL.iterdir()):
        if (backend / "model.py").is_file():
            shutil.copytree(backend, target / backend.name, ignore=shutil.ignore_patterns("__pycache__"))
            (target / backend.name / "faults.py").write_bytes(shared_code()["faults.py"])
