"""Keys of finished steps: a key holds everything that changes the product, so that equal keys mean equal
products.

A step's key digests its arguments, what it must hold, the tools that make it (TensorRT-LLM, TensorRT, GPU, or
modelopt), the calibration text, and the keys of the steps whose products it reads. Weights enter by the
commit they are fetched at, or by their content.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trtbuild.build.commands import Command, Step
from trtbuild.build.jobs import Job
from trtbuild.catalog.versions import Container

_SCHEMA = 1
_MEMO = ".hashes.json"
_CPU_TOOLS = ("nvidia-modelopt", "torch", "transformers")


def container_tools(container: Container, sm: str | None) -> dict[str, str]:
    """What makes the products of a container's steps; the GPU's compute capability is in an engine's
    kernels.
    """
    return {
        "tensorrt_llm": container.trtllm,
        "tensorrt": container.tensorrt,
        "cuda": container.cuda,
        "sm": sm or "none",
    }


def step_keys(
    job: Job, *, tools: Mapping[str, str], source: str, loras: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Returns one key a command, as hexadecimal digits.

    Args:
        tools: of ``container_tools``; steps on the CPU take the versions of the packages installed here.
        source: identity of the weights: ``repository@commit``, or ``folder_identity``.
        loras: ``folder_identity`` of each adapter by name.
    """
    known = {"source": source, **{f"loras/{name}": identity for name, identity in (loras or {}).items()}}
    if job.calibration is not None:
        known["calibration"] = _digest(job.calibration.content)
    keys = []
    for command in job.commands:
        parents = {name: known.get(name, "") for name in command.inputs}
        if command.step is Step.FETCH:
            parents["source"] = source
        key = _digest(
            {
                "schema": _SCHEMA,
                "argv": command.argv,
                "facts": [asdict(fact) for fact in command.facts],
                "expects": command.expects,
                "tools": _tools(command, tools),
                "parents": parents,
            }
        )
        known[command.product] = key
        keys.append(key)
    return tuple(keys)


def folder_identity(folder: Path, memo_folder: Path) -> str:
    """Digest of a folder's files by content. Hashes are remembered by path, size and time of change.

    Args:
        memo_folder: where the hashes are remembered, outside ``folder``.
    """
    memo_path = memo_folder / _MEMO
    try:
        memo: dict[str, str] = json.loads(memo_path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        memo = {}
    found = {}
    for path in sorted(item for item in folder.iterdir() if item.is_file()):
        stat = path.stat()
        remembered = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}"
        memo[remembered] = memo.get(remembered) or file_sha256(path)
        found[path.name] = memo[remembered]
    memo_folder.mkdir(parents=True, exist_ok=True)
    partial = memo_path.with_suffix(".partial")
    partial.write_text(json.dumps(memo), encoding="utf-8")
    partial.replace(memo_path)
    return _digest(found)


def file_sha256(path: Path) -> str:
    """sha256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _tools(command: Command, tools: Mapping[str, str]) -> Mapping[str, str]:
    if command.step is Step.FETCH:
        return {}
    if command.step is Step.QUANTISE and not command.needs_gpu:
        return {name: _installed(name) for name in _CPU_TOOLS}
    if command.step is Step.COMPILE:
        return tools
    return {name: version for name, version in tools.items() if name != "sm"}  # a checkpoint fits every GPU


def _installed(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, default=_sequence)
    return hashlib.sha256(text.encode()).hexdigest()


def _sequence(value: Sequence[Any]) -> list[Any]:
    return list(value)
