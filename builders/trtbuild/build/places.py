"""Where a step can run: here, or in TensorRT-LLM's container. The script for another machine is
``script.py``.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trtbuild.build.commands import Command, Step
from trtbuild.targets import detect_gpus, installed_version

_DOCKER_TIMEOUT_S = 20
_WORK = "/work"
# NCCL and torch's data loaders; docker's default of 64 MiB ends in bus errors.
_SHM_BYTES = 1 << 30
# Steps after the fetch read local files only.
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
_ALWAYS = {"HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONDONTWRITEBYTECODE": "1", "TOKENIZERS_PARALLELISM": "false"}


class Place(Protocol):
    """Runs a command in a model's work folder."""

    @property
    def name(self) -> str: ...

    def refuses(self, command: Command) -> str | None:
        """Why the command cannot run in this place; None: it can."""
        ...

    def argv(self, command: Command, work: Path) -> list[str]:
        """The words to execute on this machine, with ``work`` as working directory."""
        ...

    def environment(self, command: Command) -> dict[str, str]:
        """The environment of the child process on this machine."""
        ...

    def sweep(self, command: Command, work: Path) -> None:
        """Ends what an earlier run of the command, killed before it could, left running."""
        ...


@dataclass(frozen=True)
class Here:
    """This machine: Python packages that are installed, and TensorRT-LLM if it is.

    Attributes:
        version: TensorRT-LLM that the plan is for; None asks for none in particular.
        sm: compute capability that the plan is for, such as "8.9".
        python: interpreter for commands that start with ``python3``.
    """

    version: str | None = None
    sm: str | None = None
    python: str = sys.executable
    name: str = "here"

    def refuses(self, command: Command) -> str | None:
        if command.step is Step.FETCH:
            return _missing("huggingface_hub")
        if command.step is Step.QUANTISE and not command.needs_gpu:
            return cpu_quantiser_problem()
        return self._wrong_trtllm() or _missing_tool(command) or _wrong_gpu(self.sm)

    def _wrong_trtllm(self) -> str | None:
        found = installed_version("tensorrt-llm")
        if found is None:
            return "TensorRT-LLM is not installed"
        if self.version is not None and found != self.version:
            return f"TensorRT-LLM {found} is installed, and the plan is for {self.version}"
        return None

    def argv(self, command: Command, work: Path) -> list[str]:
        first = self.python if command.argv[0] == "python3" else command.argv[0]
        return [first, *command.argv[1:]]

    def environment(self, command: Command) -> dict[str, str]:
        offline = {} if command.step is Step.FETCH else _OFFLINE
        return {**os.environ, **_ALWAYS, **offline}

    def sweep(self, command: Command, work: Path) -> None:
        """Nothing: a child process ends with this one."""


@dataclass(frozen=True)
class Container:
    """TensorRT-LLM's container through docker.

    Attributes:
        image: name with tag.
        sm: compute capability that the plan is for.
        gpus: ids such as ("0",); empty: all.
        user: uid:gid that the files shall belong to.
    """

    image: str
    sm: str | None = None
    gpus: tuple[str, ...] = ()
    user: str = f"{os.getuid()}:{os.getgid()}"
    name: str = "container"

    def refuses(self, command: Command) -> str | None:
        if command.step is Step.QUANTISE and not command.needs_gpu:
            return "trtbuild is not in the container; quantise here, or with quantize.py on its GPU"
        docker = shutil.which("docker")
        if docker is None:
            return "there is no docker on PATH"
        try:
            answer = subprocess.run(
                [docker, "version", "--format", "{{.Server.Version}}"],
                capture_output=True,
                text=True,
                timeout=_DOCKER_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"docker does not answer: {error}"
        if answer.returncode != 0:
            return f"docker does not answer: {answer.stderr.strip()}"
        return None if command.step is Step.FETCH else _wrong_gpu(self.sm)

    def argv(self, command: Command, work: Path) -> list[str]:
        words = ["docker", "run", "--rm", "--init", "--name", self._container_name(command, work)]
        # trtllm tools do not start without the driver's libraries, which --gpus brings; a fetch needs none.
        if command.step is not Step.FETCH:
            gpus = f'"device={",".join(self.gpus)}"' if self.gpus else "all"
            words += ["--gpus", gpus, "--network", "none"]
        words += ["--shm-size", str(_SHM_BYTES), "--ulimit", "memlock=-1", "--ulimit", "stack=67108864"]
        words += ["--security-opt", "no-new-privileges", "--user", self.user]
        words += ["--volume", f"{work.absolute()}:{_WORK}", "--workdir", _WORK]
        for folder in _linked_folders(work):
            words += ["--volume", f"{folder}:{folder}:ro"]
        home = {"HOME": f"{_WORK}/.home", "HF_HOME": f"{_WORK}/.home/hf"}
        for name, value in {**home, **self._fixed(command)}.items():
            words += ["--env", f"{name}={value}"]
        for name in command.env:
            words += ["--env", name]  # the value stays in the environment: no secret among the arguments
        return [*words, self.image, *command.argv]

    def environment(self, command: Command) -> dict[str, str]:
        return dict(os.environ)

    def sweep(self, command: Command, work: Path) -> None:
        (work / ".home").mkdir(exist_ok=True)
        subprocess.run(
            ["docker", "rm", "--force", self._container_name(command, work)],
            capture_output=True,
            timeout=_DOCKER_TIMEOUT_S,
            check=False,
        )

    def _fixed(self, command: Command) -> Mapping[str, str]:
        return _ALWAYS if command.step is Step.FETCH else {**_ALWAYS, **_OFFLINE}

    def _container_name(self, command: Command, work: Path) -> str:
        digest = hashlib.sha256(str(work.absolute()).encode()).hexdigest()[:12]
        return f"trtbuild-{command.label}-{digest}"


def cpu_quantiser_problem() -> str | None:
    """Why this machine cannot quantise on its CPU; None: it can."""
    return _missing("torch") or _missing("modelopt") or _missing("transformers")


def _missing(module: str) -> str | None:
    if importlib.util.find_spec(module) is not None:
        return None
    return f"the Python package {module} is not installed (pip install 'trtbuild[build]')"


def _missing_tool(command: Command) -> str | None:
    if command.argv[0] != "python3":
        return None if shutil.which(command.argv[0]) else f"{command.argv[0]} is not on PATH"
    script = Path(command.argv[1])
    return (
        None
        if script.is_file()
        else f"{script} is not there: this machine has TensorRT-LLM without its examples"
    )


def _wrong_gpu(sm: str | None) -> str | None:
    """TensorRT-LLM's tools need a GPU, and an engine runs on the compute capability that it was made on."""
    found = sorted({gpu.sm for gpu in detect_gpus()})
    if not found:
        return "there is no NVIDIA GPU here"
    if sm is not None and found != [sm]:
        return f"the GPUs here have compute capability {', '.join(found)}, and the plan is for {sm}"
    return None


def _linked_folders(work: Path) -> list[str]:
    """Folders outside ``work`` that its links lead to; a hub cache links each file on."""
    folders = set()
    for link in (work / "source", *(work / "loras").glob("*")):
        if link.is_symlink():
            folders.update({link.resolve(), *(item.resolve().parent for item in link.resolve().iterdir())})
    return sorted(map(str, folders))
