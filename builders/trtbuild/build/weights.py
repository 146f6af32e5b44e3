"""Where local weights are and what they are: files that a package carries, and ``--weights PATH``.

A package is found by its metadata alone and never imported. Pickled weights are never opened.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from trtbuild.build.tensors import weight_files
from trtbuild.errors import ModelSourceError
from trtbuild.plan.lfs import refuse_pointer
from trtbuild.plan.quant_configs import format_in, with_modelopt
from trtbuild.serve.local.tensorrtllm.gguf import GgufHeader, read_gguf_header
from trtbuild.serve.local.tensorrtllm.limits import LoadRefused
from trtbuild.serve.local.tensorrtllm.weights import gguf_weights

Kind = Literal["gguf", "openvino-ir", "safetensors"]

IR_MODEL_FILE = "openvino_model.xml"
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.pickle")
_SHARD = re.compile(r"model-(\d{5})-of-(\d{5})\.safetensors")
_TO_IR = "optimum-cli export openvino --model {model} --weight-format int4 FOLDER, then --weights FOLDER"


@dataclass(frozen=True)
class LocalWeights:
    """Weights on this machine.

    Attributes:
        path: the GGUF file, or the folder.
        kind: how they are stored.
        format: weight format in the words of ``trtbuild formats``, such as ``gguf-q4_1`` or ``awq``.
        architecture: ``llama``, ``qwen2``, … as the file itself says.
        size_bytes: bytes of all weight files.
        origin: where they come from, for messages.
    """

    path: Path
    kind: Kind
    format: str
    architecture: str
    size_bytes: int
    origin: str


def packaged_file(*, package: str, version: str, file: str, sha256: str, install: str) -> Path:
    """The file that an installed distribution carries, its checksum verified.

    Raises:
        ModelSourceError: the distribution or file is missing, or its content is another.
    """
    remedy = f"run: {install}"
    try:
        distribution = importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError as error:
        raise ModelSourceError(
            f"the weights come in the package {package} {version}, not installed", remedy
        ) from error
    path = Path(str(distribution.locate_file(file)))
    if not path.is_file():
        raise ModelSourceError(
            f"{package} {distribution.version} is installed but carries no {file}; {version} does", remedy
        )
    stat = path.stat()
    found = _sha256(path, stat.st_size, stat.st_mtime_ns)
    if found != sha256:
        raise ModelSourceError(
            f"{path}: sha256 {found[:12]}…, but {package} {version} carries {sha256[:12]}…; "
            f"{package} {distribution.version} is installed",
            remedy,
        )
    return path


def inspect_weights(path: Path, *, origin: str | None = None) -> LocalWeights:
    """Says what ``path`` holds.

    Raises:
        ModelSourceError: nothing there, only pickled weights, no config.json, missing shards, or no weights.
    """
    origin = origin or str(path)
    if not path.exists():
        raise ModelSourceError(f"{path}: no such file or folder", _what_works())
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelSourceError(f"{path}: not a .gguf file", _what_works())
        header = gguf_header(path)
        return LocalWeights(
            path, "gguf", f"gguf-{header.weight_type}", header.architecture, _size(path), origin
        )
    if (path / IR_MODEL_FILE).is_file():
        return _inspect_ir(path, origin)
    return _inspect_checkpoint(path, origin)


def refuse_unless_local(weights: LocalWeights) -> None:
    """Raises unless the local engine can run these weights.

    Raises:
        ModelSourceError: an architecture that was not tried, or a checkpoint that needs conversion; says how.
    """
    convert = "convert with: " + _TO_IR.format(model=weights.path)
    if weights.kind == "safetensors":
        raise ModelSourceError(
            f"{weights.path}: the local engine reads GGUF and OpenVINO IR, not safetensors",
            convert,
            "use --target engine",
        )
    if weights.kind == "gguf":
        try:
            gguf_weights(weights.path)
        except LoadRefused as error:
            raise ModelSourceError(str(error)) from error


def gguf_header(path: Path, *, arrays: str | None = None) -> GgufHeader:
    """The header of a GGUF file; ``arrays`` is the beginning of the keys whose arrays are read, too.

    Raises:
        ModelSourceError: not a GGUF file, damaged, or not readable.
    """
    try:
        return read_gguf_header(path, arrays=arrays)
    except LoadRefused as error:
        refuse_pointer(path)
        raise ModelSourceError(f"{path}: {error}", "fetch the file again") from error
    except OSError as error:
        raise ModelSourceError(f"{path}: cannot be read: {error.strerror}") from error


def quantised_by(folder: Path, config: dict[str, Any]) -> str | None:
    """The format of a folder that is quantised already, by its config.json or modelopt's own file."""
    config = with_modelopt(folder, config)
    section = config.get("quantization_config")
    if not isinstance(section, dict):
        return None
    return format_in(config) or str(section.get("quant_method", "unknown")).lower()


def read_config(folder: Path) -> dict[str, Any]:
    """``config.json`` of a model folder.

    Raises:
        ModelSourceError: missing, not JSON, or no mapping.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelSourceError(f"{folder}: no config.json in this folder", _what_works()) from error
    except (ValueError, RecursionError) as error:
        refuse_pointer(path)
        raise ModelSourceError(f"{path}: not valid JSON: {error}", "fetch the file again") from error
    if not isinstance(config, dict):
        raise ModelSourceError(f"{path}: holds no mapping")
    return config


def _inspect_ir(path: Path, origin: str) -> LocalWeights:
    # The front tokenises, so that OpenVINO's own tokenizer models are not needed.
    missing = [name for name in ("openvino_model.bin", "tokenizer.json") if not (path / name).is_file()]
    if missing:
        raise ModelSourceError(
            f"{path}: an OpenVINO IR folder without {', '.join(missing)}", "export the model again"
        )
    config = read_config(path)
    size = _size(path / "openvino_model.bin")
    return LocalWeights(path, "openvino-ir", _ir_format(path), _architecture(config), size, origin)


def _inspect_checkpoint(path: Path, origin: str) -> LocalWeights:
    shards = weight_files(path)
    pickled = sorted(item.name for pattern in _PICKLED for item in path.glob(pattern))
    if not shards and pickled:
        raise ModelSourceError(
            f"{path}: the weights are pickled ({pickled[0]}): loading could run code, so they stay closed",
            "take the model's safetensors files, or convert them on a machine that you trust for it",
        )
    config = read_config(path)
    if not shards:
        raise ModelSourceError(f"{path}: no .safetensors file beside config.json", _what_works())
    _check_shards(path, sorted(path.glob("*.safetensors")))
    form = quantised_by(path, config) or str(config.get("torch_dtype") or config.get("dtype") or "bf16")
    form = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}.get(form, form)
    return LocalWeights(path, "safetensors", form, _architecture(config), sum(map(_size, shards)), origin)


def _check_shards(path: Path, shards: list[Path]) -> None:
    numbered = [match for shard in shards if (match := _SHARD.fullmatch(shard.name))]
    if numbered:
        wanted = int(numbered[0][2])
        missing = sorted(set(range(1, wanted + 1)) - {int(match[1]) for match in numbered})
        if missing:
            raise ModelSourceError(
                f"{path}: shard {missing[0]} of {wanted} is missing", "fetch the missing files"
            )


def _ir_format(path: Path) -> str:
    """``ir-int4`` and the like: the narrowest type that NNCF's compression left in the graph, else 16 bit."""
    types = set(re.findall(rb'element_type="(\w+)"', (path / IR_MODEL_FILE).read_bytes()))
    for form, names in (("int4", {b"i4", b"u4", b"nf4"}), ("int8", {b"i8", b"u8"})):
        if types & names:
            return f"ir-{form}"
    return "ir-fp16"


def _architecture(config: dict[str, Any]) -> str:
    return str(config.get("model_type", "unknown"))


def _size(path: Path) -> int:
    return path.stat().st_size


def _what_works() -> str:
    return "give a .gguf file, an OpenVINO IR folder, or a folder with config.json and .safetensors files"


@lru_cache(maxsize=64)
def _sha256(path: Path, size_bytes: int, modified_ns: int) -> str:
    # Size and time are in the key so that a changed file is read again.
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
