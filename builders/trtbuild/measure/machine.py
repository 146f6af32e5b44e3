"""The machine and the versions that a figure belongs to."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from trtbuild.targets import detect_gpus, installed_version

_PACKAGES = (
    "trtbuild",
    "tritonclient",
    "grpcio",
    "openvino-genai",
    "onnxruntime",
    "tensorrt-llm",
    "nvidia-pytriton",
)


def machine_facts() -> dict[str, Any]:
    """CPU, cores that this process may use, memory, GPUs, system, interpreter."""
    import psutil

    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": int(psutil.virtual_memory().total),
        "gpus": [{"name": gpu.name, "memory_bytes": gpu.memory_bytes} for gpu in detect_gpus()],
        "system": platform.platform(),
        "python": platform.python_version(),
        "name": platform.node(),
    }


def versions() -> dict[str, str]:
    """Installed versions of what takes part."""
    found = ((name, installed_version(name)) for name in _PACKAGES)
    return {name: version for name, version in found if version is not None}


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
