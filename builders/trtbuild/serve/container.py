"""A server in NVIDIA's container: the repository's own ``launch.sh``, supervised like a local tritonserver.

The process that is watched is docker's client, which hands signals on to the server. A client that is killed
leaves its container running, so containers are named and removed by name.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from trtbuild.errors import ServeError
from trtbuild.serve.ports import ChosenPorts
from trtbuild.serve.process import SERVER_ID
from trtbuild.targets import detect_gpus

SCRIPT = "launch.sh"
# The server's image may have to be pulled (14 GB) and built first, and engines loaded.
READY_TIMEOUT_S = 3600.0
_DOCKER_TIMEOUT_S = 30
_TRITONSERVER = Path("/opt/tritonserver/bin/tritonserver")  # where a container of NVIDIA's has it


def serves_on_gpu(repository: Path) -> bool:
    """Whether a repository was written for a GPU: the manifest says so. One that is not ours is local."""
    try:
        plan = json.loads((repository / "trtbuild.json").read_text(encoding="utf-8"))["plan"]
        return bool(plan["target"] != "local")
    except (OSError, ValueError, KeyError, TypeError):
        return False


def refuse_unless_possible(repository: Path) -> None:
    """Says what this machine lacks for a repository of a GPU target.

    Raises:
        ServeError: no GPU, no docker, no script.
    """
    if not (repository / SCRIPT).is_file():
        raise ServeError(f"{repository} has no {SCRIPT}", "write the repository again")
    if not detect_gpus():
        raise ServeError(
            f"{repository} is for a GPU, and nvidia-smi shows none here",
            f"on the machine with the GPU: {repository}/build_engines.sh, then {repository}/{SCRIPT}",
            "to serve here: write it anew with --target local, for models with local weights",
        )
    if is_inside():
        return
    docker = shutil.which("docker")
    if docker is None:
        raise ServeError(
            "the server of a GPU target runs in NVIDIA's container, and there is no docker on PATH",
            "install docker and the NVIDIA container toolkit",
            f"or run trtbuild serve, or {SCRIPT} --here, inside that container",
        )
    try:
        answer = subprocess.run(
            [docker, "version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_DOCKER_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServeError(f"docker does not answer: {error}", "check docker version") from error
    if answer.returncode != 0:
        raise ServeError(
            f"docker does not answer: {answer.stderr.strip()}", "check docker version, and your permissions"
        )


def is_inside() -> bool:
    """Whether this is such a container already: its server is here, and no docker."""
    return _TRITONSERVER.is_file() and shutil.which("docker") is None


def container_name(server_id: str) -> str:
    """A name for docker; the id ends with a dash, as the prefix of shared memory regions does."""
    return server_id.rstrip("-")


def command(repository: Path) -> list[str]:
    """What is executed, with the repository as working folder."""
    bash = shutil.which("bash") or "/bin/bash"
    return [bash, str(repository.resolve() / SCRIPT), *(["--here"] if is_inside() else [])]


def environment(server_id: str, ports: ChosenPorts, base: Mapping[str, str]) -> dict[str, str]:
    """Environment of the script."""
    return {
        **base,
        SERVER_ID: server_id,
        "TRTBUILD_CONTAINER": container_name(server_id),
        "TRTBUILD_SHM_PREFIX": server_id,
        "GRPC_PORT": str(ports.grpc),
        "HTTP_PORT": str(ports.http),
        "METRICS_PORT": str(ports.metrics),
    }


def remove(server_id: str) -> None:
    """Ends the container of a server, if it still runs."""
    if shutil.which("docker") is None:
        return
    try:
        subprocess.run(
            ["docker", "rm", "--force", container_name(server_id)],
            capture_output=True,
            timeout=_DOCKER_TIMEOUT_S,
            check=False,
            env=dict(os.environ),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServeError(
            f"docker does not remove {container_name(server_id)}: {error}",
            f"docker rm --force {container_name(server_id)}",
        ) from error
