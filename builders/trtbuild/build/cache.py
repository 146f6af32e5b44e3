"""Keys of finished steps: a key holds everything that changes the product, so that equal keys mean equal
products.

A key has two parts. The static one digests what is known when a build is decided: arguments, what the product
must hold, the tools that make it (TensorRT-LLM, TensorRT, GPU), the calibration text, and the same of the
steps whose products it reads. The other names what only the machine that builds can tell: the commit or
content of the weights and adapters, and the packages that quantise on the CPU. ``build_engines.sh`` computes
the same keys with ``sha256sum``, so that a build may go on in either way.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trtbuild.build.commands import Command, Step
from trtbuild.build.jobs import Job
from trtbuild.catalog.versions import Container

_SCHEMA = 2
_MEMO = ".hashes.json"
_CPU_PACKAGES = ("nvidia-modelopt", "torch", "transformers")
SOURCE, CPU_TOOLS = "source", "cpu-tools"  # names of identities; an adapter's is loras/<name>


@dataclass(frozen=True)
class StaticKey:
    """The part of a step's key that is known in advance.

    Attributes:
        digest: hexadecimal digits.
        identities: names of what is told by the machine that builds, in the order in which they enter.
    """

    digest: str
    identities: tuple[str, ...]

    def full(self, known: Mapping[str, str]) -> str:
        """The whole key, as hexadecimal digits."""
        lines = [self.digest, *(known[name] for name in self.identities)]
        return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


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


def static_keys(job: Job, *, tools: Mapping[str, str]) -> tuple[StaticKey, ...]:
    """The static part of every command's key.

    Args:
        tools: of ``container_tools``.
    """
    external = [SOURCE, *(f"loras/{name}" for name in sorted(job.loras))]
    known = {name: StaticKey("", (name,)) for name in external}
    if job.calibration is not None:
        known["calibration"] = StaticKey(_digest(job.calibration.content), ())
    keys = []
    for command in job.commands:
        parents = {name: known.get(name, StaticKey("", ())) for name in command.inputs}
        if command.step is Step.FETCH:
            parents[SOURCE] = known[SOURCE]
        named = {name for parent in parents.values() for name in parent.identities}
        if _on_cpu(command):
            named.add(CPU_TOOLS)
        digest = _digest(
            {
                "schema": _SCHEMA,
                # The revision of a fetch is told by the identity of the weights: the commit that it names.
                "argv": [word for word in command.argv if word != job.recipe.revision],
                "facts": [asdict(fact) for fact in command.facts],
                "expects": command.expects,
                "tools": _tools(command, tools),
                "parents": {name: parent.digest for name, parent in parents.items()},
            }
        )
        key = StaticKey(digest, tuple(name for name in (*external, CPU_TOOLS) if name in named))
        known[command.product] = key
        keys.append(key)
    return tuple(keys)


def step_keys(
    job: Job, *, tools: Mapping[str, str], source: str, loras: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Returns one key a command, as hexadecimal digits.

    Args:
        tools: of ``container_tools``; steps on the CPU take the versions of the packages installed here.
        source: identity of the weights: ``repository@commit``, or ``folder_identity``.
        loras: ``folder_identity`` of each adapter by name.
    """
    known = {SOURCE: source, CPU_TOOLS: cpu_tools()}
    known |= {f"loras/{name}": identity for name, identity in (loras or {}).items()}
    return tuple(key.full(known) for key in static_keys(job, tools=tools))


def cpu_tools() -> str:
    """The packages that quantise on the CPU, with their versions."""
    return " ".join(f"{name}=={_installed(name)}" for name in _CPU_PACKAGES)


def folder_identity(folder: Path, memo_folder: Path) -> str:
    """Digest of a folder's files by content, as ``sha256sum * | sha256sum`` gives it for names in the order
    of their bytes. Hashes are remembered by path, size and time of change.

    Args:
        memo_folder: where the hashes are remembered, outside ``folder``.
    """
    memo_path = memo_folder / _MEMO
    try:
        memo: dict[str, str] = json.loads(memo_path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        memo = {}
    lines = []
    for path in sorted(item for item in folder.iterdir() if item.is_file()):
        stat = path.stat()
        remembered = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}"
        memo[remembered] = memo.get(remembered) or file_sha256(path)
        lines.append(f"{memo[remembered]}  {path.name}\n")
    memo_folder.mkdir(parents=True, exist_ok=True)
    partial = memo_path.with_suffix(".partial")
    partial.write_text(json.dumps(memo), encoding="utf-8")
    partial.replace(memo_path)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """sha256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _on_cpu(command: Command) -> bool:
    return command.step is Step.QUANTISE and not command.needs_gpu


def _tools(command: Command, tools: Mapping[str, str]) -> Mapping[str, str]:
    if command.step is Step.FETCH or _on_cpu(command):
        return {}
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
