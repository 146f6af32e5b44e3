"""The command line and environment of a local tritonserver."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from trtbuild.serve.ports import LOOPBACK, ChosenPorts
from trtbuild.serve.process import SERVER_ID
from trtbuild.serve.wheel import TritonWheel
from trtbuild.server_options import RESTRICTED, STUB_THREADS

STUB_TIMEOUT_S = 120  # a stub that does not come up


def server_command(
    wheel: TritonWheel,
    *,
    backends: Path,
    ports: ChosenPorts,
    server_id: str,
    exit_timeout_s: int,
    models: Sequence[str] | None = None,
) -> list[str]:
    """Arguments for a server whose working folder is the repository.

    Args:
        models: those to load; None: all.

    The restricted APIs' key is drawn anew and kept nowhere: they are off.
    """
    control = ["none"] if models is None else ["explicit", *(f"--load-model={name}" for name in models)]
    lock = f"{RESTRICTED}:x-disabled={secrets.token_hex(16)}"
    return [
        str(wheel.server),
        "--model-repository=.",
        f"--model-control-mode={control[0]}",
        *control[1:],
        "--disable-auto-complete-config",
        f"--backend-directory={backends}",
        f"--backend-config=python,shm-region-prefix-name={server_id}",
        f"--backend-config=python,thread-pool-size={STUB_THREADS}",
        f"--backend-config=python,stub-timeout-seconds={STUB_TIMEOUT_S}",
        f"--grpc-address={LOOPBACK}",
        f"--grpc-port={ports.grpc}",
        f"--http-address={LOOPBACK}",
        f"--http-port={ports.http}",
        f"--metrics-address={LOOPBACK}",
        f"--metrics-port={ports.metrics}",
        "--metrics-config=histogram_latencies=true",
        "--allow-gpu-metrics=false",
        f"--grpc-restricted-protocol={lock}",
        f"--http-restricted-api={lock}",
        f"--exit-timeout-secs={exit_timeout_s}",
    ]


def server_environment(
    wheel: TritonWheel, *, ports: ChosenPorts, server_id: str, drain_file: Path, base: Mapping[str, str]
) -> dict[str, str]:
    """The server's environment; its stubs and the engine's process inherit it.

    The stub is an embedded interpreter that finds its packages through the first ``python3`` of ``PATH``.
    """
    return {
        **base,
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, (wheel.library_path, base.get("LD_LIBRARY_PATH")))),
        "PATH": os.pathsep.join(filter(None, (str(Path(sys.executable).parent), base.get("PATH")))),
        "VIRTUAL_ENV": sys.prefix,
        "PYTHONDONTWRITEBYTECODE": "1",
        SERVER_ID: server_id,
        "TRTBUILD_PYTHON": sys.executable,
        "TRTBUILD_GRPC_ADDRESS": f"{LOOPBACK}:{ports.grpc}",
        "TRTBUILD_DRAIN_FILE": str(drain_file),
        "TRTBUILD_OWNER_PID": str(os.getpid()),
    }
