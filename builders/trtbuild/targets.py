"""Which target serves a deployment when the user names none: by what is here, always with a reason."""

from __future__ import annotations

import csv
import importlib.metadata
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from trtbuild.spec import Target

# The GPU that is planned for when the machine has none and the user names none: that of model_repo/.
DEFAULT_GPU = "l4"
NVIDIA_SMI_TIMEOUT_S = 10
_MIB_BYTES = 1 << 20


@dataclass(frozen=True)
class HostGpu:
    """One GPU as nvidia-smi reports it; ``memory_bytes`` is memory.total, the driver's reserve included."""

    name: str
    memory_bytes: int
    sm: str


@dataclass(frozen=True)
class Host:
    """What this machine has that decides the target."""

    gpus: tuple[HostGpu, ...] = ()
    trtllm_version: str | None = None

    def has_gpu(self, sm: str | None) -> bool:
        """Whether a GPU of a compute capability is here: what an engine for it is compiled on."""
        return sm is not None and any(gpu.sm == sm for gpu in self.gpus)


@dataclass(frozen=True)
class Candidate:
    """One model as the choice sees it: why only a GPU can serve it, or which local weights it has."""

    name: str
    gpu_only_reason: str | None = None  # "awq is a GPU format"
    local_only_reason: str | None = None  # "a GGUF file is read by the local engine only"
    local_weights: str | None = None  # where they are, in words


@dataclass(frozen=True)
class TargetChoice:
    target: Target
    reason: str


def detect_host() -> Host:
    """Asks nvidia-smi for GPUs and the installed packages for TensorRT-LLM; imports neither."""
    return Host(gpus=detect_gpus(), trtllm_version=installed_version("tensorrt-llm"))


def detect_gpus() -> tuple[HostGpu, ...]:
    """The GPUs that nvidia-smi lists; none when it is missing, fails or does not answer in time."""
    return tuple(
        HostGpu(row[0].strip(), int(row[1]) * _MIB_BYTES, row[2].strip())
        for row in ask_nvidia_smi("--query-gpu=name,memory.total,compute_cap")
        if len(row) == 3 and row[1].strip().isdecimal()
    )


def ask_nvidia_smi(question: str) -> list[list[str]]:
    """Rows of nvidia-smi's answer, figures without units; none when it is missing, fails or hangs."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = [tool, question, "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, errors="replace", timeout=NVIDIA_SMI_TIMEOUT_S, check=True
        )
        return list(csv.reader(answer.stdout.splitlines(), skipinitialspace=True))
    except (OSError, subprocess.SubprocessError, csv.Error):
        return []


def installed_version(distribution: str) -> str | None:
    """The version of an installed distribution, from its metadata; None when it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def choose_target(
    *,
    asked: Target | None,
    gpu: str | None,
    host: Host,
    candidates: Sequence[Candidate],
    has_builder: bool = True,
) -> TargetChoice:
    """The target for all models of a deployment, and why.

    Args:
        asked: the user's own choice; always followed.
        gpu: the GPU that the user named to plan for, whether or not it is here.
        host: what the machine has.
        candidates: the deployment's language models.
        has_builder: whether the installed TensorRT-LLM (if any) still compiles engines.
    """
    if asked is not None:
        return TargetChoice(asked, "you asked for it")
    gpu_only = [f"{c.name}: {c.gpu_only_reason}" for c in candidates if c.gpu_only_reason]
    local_only = [f"{c.name}: {c.local_only_reason}" for c in candidates if c.local_only_reason]
    if local_only and not gpu_only:
        return TargetChoice(Target.LOCAL, "; ".join(local_only))
    if host.gpus:
        here = f"this machine has a GPU ({host.gpus[0].name})"
        if host.trtllm_version is None:
            return TargetChoice(Target.ENGINE, f"{here}; TensorRT-LLM is not installed, its container builds")
        installed = f"TensorRT-LLM {host.trtllm_version}"
        if has_builder:
            return TargetChoice(Target.ENGINE, f"{here} and {installed}")
        return TargetChoice(Target.LLMAPI, f"{here} and {installed}, which no longer compiles engines")
    no_gpu = "this machine has no GPU"
    if gpu_only:
        return TargetChoice(Target.ENGINE, f"{no_gpu}, and only a GPU serves {'; '.join(gpu_only)}")
    if gpu is not None:
        return TargetChoice(
            Target.ENGINE, f"you named the GPU {gpu}; {no_gpu}, so its steps are written as a script"
        )
    missing = [c.name for c in candidates if c.local_weights is None]
    if missing:
        return TargetChoice(
            Target.ENGINE, f"{no_gpu}, and there are no local weights of {', '.join(missing)}"
        )
    found = [f"the weights of {c.name} are in {c.local_weights}" for c in candidates]
    return TargetChoice(Target.LOCAL, f"{no_gpu}, and " + ("; ".join(found) or "no language model needs one"))
