"""Reads ONNX files: the graph without its external data, and what the plan has to know of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from trtbuild.catalog.vision import TensorRow
from trtbuild.errors import ModelSourceError
from trtbuild.plan.lfs import refuse_pointer
from trtbuild.plan.vision import PIXELS

OURS = "trtbuild_"  # prefix of every name that is added to one
FIRST_OPSET = 7  # from which on operators broadcast as numpy does
NEEDS_ONNX = "run: pip install 'trtbuild[vision]'"
_WIDELY_KNOWN_OPSETS = (13, 17)
_WIDELY_KNOWN_IR = 8  # onnxruntime 1.10 and later
_SMALL = 256  # values
_LARGEST_FILE_BYTES = 2**31 - 1  # of a protobuf message

# TensorProto.DataType → Triton's data type (onnx/onnx.proto; onnxruntime_backend, onnxruntime_utils.cc).
DATA_TYPES = {
    1: "FP32", 2: "UINT8", 3: "INT8", 4: "UINT16", 5: "INT16", 6: "INT32", 7: "INT64", 8: "STRING", 9: "BOOL",
    10: "FP16", 11: "FP64", 12: "UINT32", 13: "UINT64", 16: "BF16",
}  # fmt: skip


@dataclass(frozen=True)
class OnnxFile:
    """A parsed ONNX model and the folder in which its external data lies.

    ``model`` is an ``onnx.ModelProto``; whoever changes it works on a copy.
    """

    model: Any
    folder: Path
    origin: str

    @property
    def opset(self) -> int:
        """Version of the standard operators."""
        return next(
            (int(item.version) for item in self.model.opset_import if item.domain in ("", "ai.onnx")), 0
        )

    @property
    def metadata(self) -> Mapping[str, str]:
        """``metadata_props``."""
        return {item.key: item.value for item in self.model.metadata_props}

    @property
    def inputs(self) -> tuple[TensorRow, ...]:
        """What is fed, weights left out."""
        weights = {item.name for item in self.model.graph.initializer}
        return tuple(_row(item, self.origin) for item in self.model.graph.input if item.name not in weights)

    @property
    def outputs(self) -> tuple[TensorRow, ...]:
        return tuple(_row(item, self.origin) for item in self.model.graph.output)

    @property
    def external_files(self) -> tuple[str, ...]:
        """Files with weights beside the model, relative to its folder."""
        return tuple(dict.fromkeys(_external(self.model.graph.initializer)))

    @property
    def weights_bytes(self) -> int:
        """Of all constants."""
        return sum(map(_tensor_bytes, constant_tensors(self.model.graph).values()))


def load_onnx(path: Path) -> OnnxFile:
    """Parses an ONNX file; external data is not read, but it must be there.

    Raises:
        ModelSourceError: no such file, no ONNX model, external data missing or outside the folder, or an
            opset that this version of ``onnx`` does not know.
    """
    import_onnx()
    if not path.is_file():
        raise ModelSourceError(f"{path}: no such file", "give the path of an .onnx file")
    if path.stat().st_size > _LARGEST_FILE_BYTES:
        raise ModelSourceError(
            f"{path} is larger than the 2 GiB of a protobuf message",
            "save it with external data: onnx.save(model, path, save_as_external_data=True)",
        )
    return parse_onnx(path.read_bytes(), path.parent, str(path))


def parse_onnx(data: bytes, folder: Path, origin: str) -> OnnxFile:
    """The same from a file's bytes; ``folder`` holds its external data."""
    onnx = import_onnx()
    from google.protobuf.message import DecodeError

    refuse_pointer(Path(origin), data)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise ModelSourceError(
            f"{origin} is no ONNX file: {error}", "give the path of an .onnx file"
        ) from error
    if not model.graph.node and not model.graph.output:
        raise ModelSourceError(f"{origin} is no ONNX file: it has no graph", "give the path of an .onnx file")
    file = OnnxFile(model, folder, origin)
    _check_declared_once(file)
    free_names(model)
    _check_external(file)
    _read_small(model, folder, origin)
    _check_outputs(file)
    newest = onnx.defs.onnx_opset_version()
    if not FIRST_OPSET <= file.opset <= newest:
        what = "newer than any that is known here" if file.opset > newest else "too old to be worked with"
        raise ModelSourceError(
            f"{origin} uses opset {file.opset}, {what} ({FIRST_OPSET} to {newest})",
            "export the model again with an opset from 13 to 17",
            f"convert it: onnx.version_converter.convert_version(model, {min(newest, 17)})",
        )
    return file


def import_onnx() -> Any:
    """The package ``onnx``, with what is used of it.

    Raises:
        ModelSourceError: it is not installed.
    """
    try:
        import onnx
        import onnx.external_data_helper
        import onnx.numpy_helper
        import onnx.shape_inference
    except ImportError as error:
        raise ModelSourceError("reading an ONNX file needs the package onnx", NEEDS_ONNX) from error
    return onnx


def constant_tensors(graph: Any) -> dict[str, Any]:
    """The tensors that a graph holds itself, by name: initializers, and values of Constant nodes."""
    found = {item.name: item for item in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            found.update((node.output[0], item.t) for item in node.attribute if item.name == "value")
    return found


def axis_of(node: Any) -> int:
    """A node's attribute ``axis``; 0 where it has none."""
    return next((int(item.i) for item in node.attribute if item.name == "axis"), 0)


def with_shapes(model: Any, sides: Mapping[str, tuple[int, ...]]) -> Any:
    """A copy of the model whose inputs have these dimensions, with the shape of every tensor inferred."""
    onnx = import_onnx()
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.value_info[:]
    for item in copy.graph.input:
        for dim, size in zip(item.type.tensor_type.shape.dim, sides.get(item.name, ()), strict=False):
            dim.dim_value = size
    for item in copy.graph.output:
        item.type.tensor_type.ClearField("shape")
    try:
        return onnx.shape_inference.infer_shapes(copy, data_prop=True)
    except Exception:  # a graph with operators of its own: the rest is known without
        return model


def live_bytes(model: Any) -> int:
    """The most bytes of intermediate tensors that are needed at the same time, node by node in order.

    Args:
        model: with inferred shapes; a tensor of unknown shape counts as the largest known one.
    """
    sizes = {item.name: _value_bytes(item) for item in (*model.graph.value_info, *model.graph.output)}
    sizes |= {item.name: _value_bytes(item) for item in model.graph.input}
    weights = {item.name for item in model.graph.initializer}
    known = [size for size in sizes.values() if size]
    unknown = max(known, default=0)
    last_use = {name: at for at, node in enumerate(model.graph.node) for name in node.input}
    last_use |= {item.name: len(model.graph.node) for item in model.graph.output}
    alive = {
        name: sizes[name] or 0 for name in (item.name for item in model.graph.input) if name not in weights
    }
    most = sum(alive.values())
    for at, node in enumerate(model.graph.node):
        alive |= {
            name: sizes.get(name) or (0 if node.op_type == "Constant" else unknown) for name in node.output
        }
        most = max(most, sum(alive.values()))
        for name in (*node.input, *node.output):
            if last_use.get(name, -1) <= at:
                alive.pop(name, None)
    return most


def free_names(model: Any) -> None:
    """Gives tensors that are called as those that are added to a served graph (``pixels``, ``trtbuild_…``)
    other names, in place."""
    used = set(_names(model.graph))
    others = {}
    for name in sorted(name for name in used if name == PIXELS or name.startswith(OURS)):
        other = f"model_{name}"
        while other in used:
            other += "_"
        used.add(other)
        others[name] = other
    if others:
        _rename(model.graph, others)


def _names(graph: Any) -> Iterator[str]:
    """Of all tensors, those of inner graphs included."""
    for item in (*graph.input, *graph.output, *graph.initializer):
        yield item.name
    for node in graph.node:
        yield from node.output
        for inner in _inner(node):
            yield from _names(inner)


def _rename(graph: Any, others: Mapping[str, str]) -> None:
    for item in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        item.name = others.get(item.name, item.name)
    for sparse in graph.sparse_initializer:
        sparse.values.name = others.get(sparse.values.name, sparse.values.name)
    for node in graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                names[place] = others.get(name, name)
        for inner in _inner(node):
            _rename(inner, others)


def _inner(node: Any) -> Iterator[Any]:
    """The graphs of If, Loop and Scan."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _read_small(model: Any, folder: Path, origin: str) -> None:
    """Reads shapes and other small constants out of external data: onnxruntime's shape inference and our own
    need their values, and cannot get them from there."""
    onnx = import_onnx()
    for tensor in model.graph.initializer:
        if tensor.external_data and math.prod(tensor.dims) <= _SMALL:
            try:
                onnx.external_data_helper.load_external_data_for_tensor(tensor, str(folder))
                onnx.numpy_helper.to_array(tensor)
            except Exception as error:  # the package's errors share no base
                raise ModelSourceError(
                    f"{origin}: {tensor.name} cannot be read from its external data: {error}",
                    "save it again: onnx.save(model, path, save_as_external_data=True)",
                ) from error
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]


def _check_declared_once(file: OnnxFile) -> None:
    for what, items in (("input", file.model.graph.input), ("output", file.model.graph.output)):
        names = [item.name for item in items]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ModelSourceError(
                f"{file.origin} is no valid ONNX file: it declares its {what} {', '.join(twice)} twice",
                f"export the model again, with another name for each {what}",
            )


def loadable(file: OnnxFile) -> tuple[str, ...]:
    """What may make a graph loadable that onnxruntime refuses: remedies that its file does not meet yet."""
    onnx = import_onnx()
    functions = {(item.domain, item.name) for item in file.model.functions}
    nodes = [node for node in file.model.graph.node if (node.domain, node.op_type) not in functions]
    own = sorted(
        {
            node.op_type
            for node in nodes
            if not onnx.defs.has(node.op_type, "" if node.domain == "ai.onnx" else node.domain)
        }
    )
    remedies = []
    if own:
        remedies.append(f"export it again with standard operators in place of {', '.join(own)}")
    if file.model.ir_version > onnx.IR_VERSION:
        remedies.append(
            f"its IR version {file.model.ir_version} is newer than any that is known here: save it with "
            f"model.ir_version = {min(onnx.IR_VERSION, _WIDELY_KNOWN_IR)}"
        )
    kinds = {DATA_TYPES.get(tensor.data_type) for tensor in constant_tensors(file.model.graph).values()}
    if "FP64" in kinds | {row.dtype for row in (*file.inputs, *file.outputs)}:
        remedies.append("export it in float32: onnxruntime has no float64 kernel for most operators")
    if not _WIDELY_KNOWN_OPSETS[0] <= file.opset <= _WIDELY_KNOWN_OPSETS[1]:
        remedies.append(
            f"export it again with an opset from {_WIDELY_KNOWN_OPSETS[0]} to {_WIDELY_KNOWN_OPSETS[1]}"
        )
    if remedies:
        return tuple(remedies)
    return (
        "its operators and opset are those that exporters use, so the graph itself is at fault: "
        f"onnx.checker.check_model({file.origin!r}, full_check=True) says where",
    )


def _check_outputs(file: OnnxFile) -> None:
    if not file.outputs:
        raise ModelSourceError(f"{file.origin} has no outputs", "export the model again, with its outputs")
    for row in file.outputs:
        if row.dtype == "BF16":
            raise ModelSourceError(
                f"{file.origin}: its output {row.name} is BF16, which no client and no post-processing reads",
                "export the model with outputs in FP32 or FP16",
            )


def _row(item: Any, origin: str) -> TensorRow:
    kind = item.type.tensor_type
    if not item.type.HasField("tensor_type") or kind.elem_type not in DATA_TYPES:
        raise ModelSourceError(
            f"{origin}: {item.name} is no tensor of a type that a server can pass on",
            "export the model with plain tensors as its inputs and outputs",
        )
    dims = tuple(dim.dim_value if dim.dim_value > 0 else -1 for dim in kind.shape.dim)
    return TensorRow(name=item.name, dtype=DATA_TYPES[kind.elem_type], dims=dims)


def _external(tensors: Any) -> Iterator[str]:
    for tensor in tensors:
        yield from (entry.value for entry in tensor.external_data if entry.key == "location")


def _check_external(file: OnnxFile) -> None:
    for name in file.external_files:
        place = PurePosixPath(name)
        if place.is_absolute() or ".." in place.parts:
            raise ModelSourceError(
                f"{file.origin} keeps weights in {name!r}, outside its own folder",
                "save it again: onnx.save(model, path, save_as_external_data=True)",
            )
        if (file.folder / place).is_file():
            refuse_pointer(file.folder / place)
        else:
            raise ModelSourceError(
                f"{file.origin} keeps weights in {name!r}, and there is no such file beside it",
                f"put it into {file.folder}",
            )


def _tensor_bytes(tensor: Any) -> int:
    lengths = [int(entry.value) for entry in tensor.external_data if entry.key == "length"]
    return lengths[0] if lengths else int(tensor.ByteSize())


def _value_bytes(item: Any) -> int | None:
    kind = item.type.tensor_type
    dims = [int(dim.dim_value) for dim in kind.shape.dim]
    if not kind.HasField("shape") or any(dim <= 0 for dim in dims):
        return None
    size = {"FP64": 8, "INT64": 8, "UINT64": 8, "FP16": 2, "BF16": 2, "INT16": 2, "UINT16": 2}
    size |= dict.fromkeys(("INT8", "UINT8", "BOOL"), 1)
    total = size.get(DATA_TYPES.get(kind.elem_type, "FP32"), 4)
    for dim in dims:
        total *= dim
    return total
