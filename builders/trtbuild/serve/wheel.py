"""Finds the tritonserver that the nvidia-pytriton wheel carries."""

from __future__ import annotations

import importlib.util
import platform
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from trtbuild.errors import ServeError

INSTALL = "pip install 'trtbuild[local]'"


@dataclass(frozen=True)
class TritonWheel:
    """Paths inside the installed wheel (nvidia-pytriton 0.7.0: tritonserver 2.51.0, release 24.10)."""

    server: Path  # the binary
    python_backend: Path  # folder of libtriton_python.so and triton_python_backend_utils.py
    stub: Path  # of the running Python's minor version
    libraries: Path

    @property
    def library_path(self) -> str:
        """``LD_LIBRARY_PATH``: without the interpreter's own folder the stub picks up the distribution's
        libpython of the same minor version, and compiled modules of the standard library fail to load."""
        return f"{self.libraries}:{sysconfig.get_config_var('LIBDIR')}"


def find_wheel() -> TritonWheel:
    """The wheel in this environment.

    Raises:
        ServeError: on a Python or a machine for which there is no wheel, and when it is not installed.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if sys.version_info >= (3, 13):
        raise ServeError(
            f"This is Python {version}; the tritonserver wheel nvidia-pytriton needs numpy 1, which has no "
            "wheels for 3.13 and later, so nothing can be served from here.",
            "make an environment with Python 3.10, 3.11 or 3.12 and install trtbuild[local] there",
        )
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        raise ServeError(
            f"This is {sys.platform} on {platform.machine()}; tritonserver runs on Linux, x86_64 or aarch64.",
            "run it in a Linux container or virtual machine",
        )
    spec = importlib.util.find_spec("pytriton")
    if spec is None or not spec.submodule_search_locations:
        raise ServeError("The tritonserver wheel nvidia-pytriton is not installed.", INSTALL)
    package = Path(spec.submodule_search_locations[0])
    root = package / "tritonserver"
    wheel = TritonWheel(
        server=root / "bin" / "tritonserver",
        python_backend=root / "backends" / "python",
        stub=root / "python_backend_stubs" / version / "triton_python_backend_stub",
        libraries=package.parent / "nvidia_pytriton.libs",
    )
    missing = [str(path) for path in (wheel.server, wheel.stub, wheel.libraries) if not path.exists()]
    if missing:
        raise ServeError(
            f"The installed nvidia-pytriton lacks {', '.join(missing)}; only 0.7.0 is known to work.",
            "pip install --force-reinstall nvidia-pytriton==0.7.0",
        )
    return wheel
