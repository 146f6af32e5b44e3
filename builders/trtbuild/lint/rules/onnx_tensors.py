"""The config's tensors are not those of the ONNX file.

onnxruntime's backend compares both when it loads: names, number of inputs, types and dimensions; a
`reshape` counts in place of `dims`. With `max_batch_size` above 0 the file's first dimension must be free,
and `dims` leave it out. `dims` may be narrower than a free dimension of the file, and not wider than a fixed
one. A config without tensors is completed from the file. (onnxruntime_backend, `ValidateInputs`,
`ValidateOutputs`.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtbuild.lint.findings import Found
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.pbtxt import Field, Message
from trtbuild.lint.repository import LintRepository

SEVERITY = "error"
_WHY = "onnxruntime's backend compares them when it loads, and refuses the model"
_LARGEST_FILE_BYTES = 512 << 20  # read whole; larger ones are left to Triton
# Inputs that are declared elsewhere in the config.
_FURTHER_INPUTS = ("batch_input", "sequence_batching")


@dataclass(frozen=True)
class _OnnxTensor:
    dtype: str  # TYPE_ included; empty: one that Triton has not
    dims: tuple[int, ...] | None  # -1: free; None: not said


def check(repository: LintRepository) -> Iterator[Found]:
    """Every version's file against the config."""
    for model in repository.readable:
        if model.backend != "onnxruntime" or model.all("model_repository_agents"):
            continue
        name = model.text("default_model_filename") or "model.onnx"
        for version in model.numbered:
            graph = _graph(model.path / version / name)
            if graph is None:
                continue
            sides = {"input": _tensors(graph.input), "output": _tensors(graph.output)}
            weights = {item.name for item in graph.initializer}
            found = [*_count(model, sides["input"], weights), *_sides(model, sides)]
            yield from found
            if found:
                break  # versions have the same tensors: one tells it


def _count(model: ModelFolder, there: Mapping[str, _OnnxTensor], weights: set[str]) -> Iterator[Found]:
    needed = [name for name in there if name not in weights]
    declared = [item.name for item in model.tensors("input")]
    missing = [name for name in needed if name not in declared]
    known = declared and all(name in there for name in declared)
    if missing and known and not any(model.all(key) for key in _FURTHER_INPUTS):
        yield Found(
            model.at(model.all("input")[0]),
            f"the ONNX file has {_number(needed, 'input')}, and {', '.join(missing)} is not declared",
            _WHY,
            "declare every input of the file",
        )


def _sides(model: ModelFolder, sides: Mapping[str, Mapping[str, _OnnxTensor]]) -> Iterator[Found]:
    for side, there in sides.items():
        for entry in model.all(side):
            if entry.message is None:
                continue
            name = entry.message.get("name")
            if name is None or "${" in name.text:
                continue
            if name.text not in there:
                yield Found(
                    model.at(name),
                    f"the ONNX file has no {side} {name.text!r}; it has {', '.join(there) or 'none'}",
                    _WHY,
                    "write the name of the file's tensor",
                )
                continue
            yield from _tensor(model, name, entry.message, there[name.text])


def _tensor(model: ModelFolder, name: Field, tensor: Message, there: _OnnxTensor) -> Iterator[Found]:
    dtype = tensor.get("data_type")
    if dtype is not None and there.dtype and dtype.text.startswith("TYPE_") and dtype.text != there.dtype:
        yield Found(
            model.at(dtype),
            f"{name.text} is {dtype.text}, and {there.dtype} in the ONNX file",
            _WHY,
            f"write data_type: {there.dtype}",
        )
    reshape = tensor.get("reshape")
    shaped = reshape.message if reshape is not None else None
    fields = shaped.all("shape") if shaped is not None else tensor.all("dims")
    dims = [item.number for item in fields if item.number is not None]
    ragged = tensor.get("allow_ragged_batch")
    if there.dims is None or not fields or len(dims) != len(fields) or (ragged is not None and ragged.is_on):
        return
    batched = model.number("max_batch_size") > 0
    if batched and (not there.dims or there.dims[0] != -1):
        yield Found(
            model.at(model.field("max_batch_size")),
            f"max_batch_size is {model.text('max_batch_size')}, and the first dimension of {name.text} is "
            f"fixed in the ONNX file: {list(there.dims)}",
            _WHY,
            "export the file with a free batch dimension, or write max_batch_size: 0 and all dimensions",
        )
        return
    wanted = there.dims[1:] if batched else there.dims
    # Without a size for batches, the backend gives one to a file that takes them.
    completed = not batched and there.dims[:1] == (-1,) and _fits(dims, there.dims[1:])
    if not completed and not _fits(dims, wanted):
        behind = " behind the batch" if batched else ""
        yield Found(
            model.at(fields[0]),
            f"{name.text} has dims {dims}, and {list(wanted)}{behind} in the ONNX file",
            _WHY,
            f"write dims: {list(wanted)}",
        )


def _fits(dims: Sequence[int], wanted: Sequence[int]) -> bool:
    return len(dims) == len(wanted) and all(free in (-1, dim) for dim, free in zip(dims, wanted, strict=True))


def _graph(path: Path) -> Any | None:
    """The file's graph; None where there is none, or nothing here can read it."""
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST_FILE_BYTES:
            return None
        import onnx
        from google.protobuf.message import DecodeError
    except (ImportError, OSError):
        return None
    model = onnx.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except (DecodeError, OSError):
        return None
    return model.graph if model.graph.output else None


def _tensors(items: Any) -> dict[str, _OnnxTensor]:
    return {item.name: _read(item.type.tensor_type) for item in items}


def _read(kind: Any) -> _OnnxTensor:
    from trtbuild.build.onnx_file import DATA_TYPES

    name = DATA_TYPES.get(kind.elem_type, "")
    dims = tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.shape.dim)
    return _OnnxTensor(f"TYPE_{name}" if name else "", dims if kind.HasField("shape") else None)


def _number(names: list[str], what: str) -> str:
    return f"{len(names)} {what}" + ("" if len(names) == 1 else "s")
