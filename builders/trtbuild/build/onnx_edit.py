"""Changes of an ONNX graph that make it servable: a free batch, 8-bit pixels as its input, best labels.

Every function returns a new model; ``onnx.ModelProto`` in and out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from trtbuild.build.onnx_file import OURS, axis_of, constant_tensors, import_onnx
from trtbuild.plan.vision import PIXELS

_SHAPE_INPUT = {"Reshape": 1, "Expand": 1, "Resize": 3}  # operator → input that holds a target shape
_FIRST_OPSET_WITH_AXES_INPUT = 13  # Squeeze, Unsqueeze
_FIRST_OPSET_WITH_REDUCE_AXES_INPUT = 18


def with_free_batch(model: Any, picture: str) -> Any:
    """The model with a free batch dimension where a number was written into it.

    Inputs and outputs whose first dimension is that number get a free one, and shapes that begin with it and
    are applied to something that depends on the picture begin with its batch size instead; other shapes get a
    free first dimension where they have none. A constant with a row for each picture that is joined to them,
    as a class token is, has its first row repeated. That is right for graphs that treat each picture alike;
    whether it was is for a run to prove.

    Args:
        picture: the input whose first dimension is the batch.
    """
    onnx = import_onnx()
    model = _copy(model)
    graph = model.graph
    weights = {item.name for item in graph.initializer}
    (fixed,) = (item.type.tensor_type.shape.dim[0].dim_value for item in graph.input if item.name == picture)
    for item in (*graph.input, *graph.output):
        dims = item.type.tensor_type.shape.dim
        if item.name not in weights and len(dims) and dims[0].dim_value == fixed:
            dims[0].dim_param = "batch"
    del graph.value_info[:]
    shapes = _shapes(graph)
    ranks = _ranks_of_batches(graph, shapes, fixed)
    depends = {item.name for item in graph.input if item.name not in weights}
    nodes: list[Any] = []
    changed = False
    for node in graph.node:
        if depends & set(node.input):
            depends |= set(node.output)
        place = _SHAPE_INPUT.get(node.op_type)
        if place is not None and len(node.input) > place and node.input[0] in depends:
            shape = shapes.get(node.input[place])
            if shape is not None and shape.ndim == 1 and len(shape) and shape[0] == fixed:
                name = f"{OURS}shape_{len(nodes)}"
                nodes += _after_batch(onnx, name, shape)
                node.input[place] = name
                changed = True
            elif node.op_type == "Reshape" and shape is not None and len(shape) and shape.min() > 0:
                name = f"{OURS}shape_{len(nodes)}"
                free = onnx.numpy_helper.from_array(np.array([-1, *shape[1:]], np.int64), name)
                nodes.append(onnx.helper.make_node("Constant", [], [name], value=free))
                node.input[place] = name
        if node.op_type == "Concat" and depends & set(node.input) and axis_of(node) != 0:
            for at, name in enumerate(node.input):
                if name in ranks and name not in depends:
                    nodes += _repeated(onnx, name, f"{OURS}row_{len(nodes)}", ranks[name])
                    node.input[at] = nodes[-1].output[0]
                    changed = True
        nodes.append(node)
    head = _batch_size(onnx, picture) if changed else []
    _set_nodes(graph, [*head, *nodes])
    return model


def with_pixels(
    model: Any,
    *,
    picture: str,
    layout: Literal["nchw", "nhwc"],
    size: tuple[int, int],
    scale: Sequence[float],
    offset: Sequence[float],
    swap_colours: bool = False,
    constants: Mapping[str, tuple[int, int]] | None = None,
    unbatched: Sequence[str] = (),
) -> Any:
    """The model with one input, ``pixels`` UINT8[batch, height, width, channels].

    The network sees ``pixels * scale + offset`` in its own type and layout. A quarter of the bytes pass
    between the processes, and the arithmetic is done where the network runs.

    Args:
        picture, layout: the input that took the picture.
        size: height and width.
        scale, offset: one value a channel, in the order of ``pixels``.
        swap_colours: the network takes BGR; ``pixels`` are RGB.
        constants: further inputs that are not fed any more: name → the row that every picture has there.
        unbatched: outputs without a batch dimension, which get one of 1.
    """
    onnx = import_onnx()
    helper, types = onnx.helper, onnx.TensorProto
    model = _copy(model)
    graph = model.graph
    kept, gone = {}, {picture, *(constants or {})}
    for item in graph.input:
        if item.name in gone:
            kept[item.name] = item.type.tensor_type.elem_type
    inputs = [_copy(item) for item in graph.input if item.name not in gone]
    channels = len(scale)
    nodes: list[Any] = []
    tensors: list[Any] = []
    at = PIXELS

    def add(operator: str, *more: str, **attributes: Any) -> None:
        nonlocal at
        name = f"{OURS}{operator.lower()}_{len(nodes)}"
        nodes.append(helper.make_node(operator, [at, *more], [name], name=name, **attributes))
        at = name

    arithmetic = any(value != 1 for value in scale) or any(value != 0 for value in offset)
    wanted = kept[picture]
    if arithmetic or wanted != types.UINT8 or swap_colours:
        add("Cast", to=types.FLOAT)  # TensorRT takes UINT8 as an input, and does nothing else with it
    if arithmetic:
        add("Mul", _constant(onnx, tensors, "scale", np.asarray(scale, np.float32)))
        add("Add", _constant(onnx, tensors, "offset", np.asarray(offset, np.float32)))
    if swap_colours:
        bgr = np.arange(channels)[::-1].astype(np.int64).copy()
        add("Gather", _constant(onnx, tensors, "bgr", bgr), axis=3)
    if layout == "nchw":
        add("Transpose", perm=[0, 3, 1, 2])
    add("Cast", to=wanted)
    nodes[-1].output[0] = picture
    for name, row in (constants or {}).items():
        nodes += _same_row_for_each_picture(onnx, tensors, name, row, kept[name])
    tail = _batched_outputs(onnx, graph, unbatched, tensors, opset=_opset(model))
    # Triton's onnxruntime backend wants a free first dimension, also for batches of 1.
    for item in graph.output:
        if (dims := item.type.tensor_type.shape.dim) and dims[0].dim_value == 1:
            dims[0].dim_param = "batch"
    pixels = helper.make_tensor_value_info(PIXELS, types.UINT8, ["batch", *size, channels])
    del graph.input[:]
    graph.input.extend([pixels, *inputs])
    graph.initializer.extend(tensors)
    _set_nodes(graph, [*nodes, *graph.node, *tail])
    return model


def with_best(model: Any, scores: str) -> Any:
    """The model with two more outputs that summarise one of its own.

    Args:
        scores: an output FLOAT[batch, steps, classes].

    Returns:
        The same model with ``best_id`` INT64[batch, steps], the class of the highest score at each step, and
        ``best_score`` FLOAT[batch, steps], that score.
    """
    onnx = import_onnx()
    helper, types = onnx.helper, onnx.TensorProto
    model = _copy(model)
    graph = model.graph
    graph.node.append(helper.make_node("ArgMax", [scores], ["best_id"], axis=2, keepdims=0))
    if _opset(model) < _FIRST_OPSET_WITH_REDUCE_AXES_INPUT:
        graph.node.append(helper.make_node("ReduceMax", [scores], ["best_score"], axes=[2], keepdims=0))
    else:
        graph.initializer.append(onnx.numpy_helper.from_array(np.array([2], np.int64), OURS + "axes"))
        graph.node.append(helper.make_node("ReduceMax", [scores, OURS + "axes"], ["best_score"], keepdims=0))
    for name, kind in (("best_id", types.INT64), ("best_score", types.FLOAT)):
        graph.output.append(helper.make_tensor_value_info(name, kind, ["batch", "steps"]))
    return model


def _copy(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _opset(model: Any) -> int:
    return next((int(item.version) for item in model.opset_import if item.domain in ("", "ai.onnx")), 0)


def _set_nodes(graph: Any, nodes: Sequence[Any]) -> None:
    copies = [_copy(node) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _shapes(graph: Any) -> dict[str, Any]:
    """Small whole numbers by name, as arrays: shapes."""
    onnx = import_onnx()
    return {
        name: onnx.numpy_helper.to_array(tensor)
        for name, tensor in constant_tensors(graph).items()
        if not tensor.external_data and tensor.data_type == onnx.TensorProto.INT64 and sum(tensor.dims) <= 16
    }


def _ranks_of_batches(graph: Any, shapes: Mapping[str, Any], fixed: int) -> dict[str, int]:
    """Constants and what is expanded to a constant shape, where the first dimension is the batch's: rank."""
    found = {name: list(item.dims) for name, item in constant_tensors(graph).items()}
    for node in graph.node:
        if node.op_type == "Expand" and node.input[1] in shapes:
            found[node.output[0]] = shapes[node.input[1]].tolist()
    return {name: len(dims) for name, dims in found.items() if dims and dims[0] == fixed}


def _repeated(onnx: Any, source: str, name: str, rank: int) -> list[Any]:
    """Nodes that repeat a tensor's first row for each picture; the last one's output is ``name``."""
    zero = onnx.numpy_helper.from_array(np.array([0], np.int64), f"{name}_zero")
    ones = onnx.numpy_helper.from_array(np.ones(rank - 1, np.int64), f"{name}_ones")
    return [
        onnx.helper.make_node("Constant", [], [f"{name}_zero"], value=zero),
        onnx.helper.make_node("Gather", [source, f"{name}_zero"], [f"{name}_one"], axis=0),
        onnx.helper.make_node("Constant", [], [f"{name}_ones"], value=ones),
        onnx.helper.make_node("Concat", [f"{OURS}batch", f"{name}_ones"], [f"{name}_shape"], axis=0),
        onnx.helper.make_node("Expand", [f"{name}_one", f"{name}_shape"], [name]),
    ]


def _constant(onnx: Any, tensors: list[Any], name: str, values: Any) -> str:
    """Adds a tensor of ours to ``tensors`` and returns the name that it got."""
    tensors.append(onnx.numpy_helper.from_array(values, OURS + name))
    return OURS + name


def _same_row_for_each_picture(
    onnx: Any, tensors: list[Any], name: str, row: tuple[int, int], kind: int
) -> list[Any]:
    """Nodes that make the former input ``name``, of the element type ``kind``: ``row`` once a picture."""
    make = onnx.helper.make_node
    two = _constant(onnx, tensors, f"two_{name}", np.array([2], np.int64))
    values = _constant(onnx, tensors, f"row_{name}", np.array([row], np.float32))
    rows, spread = f"{OURS}rows_{name}", f"{OURS}spread_{name}"
    return [
        *_batch_size(onnx, PIXELS, suffix=f"_of_{name}"),
        make("Concat", [f"{OURS}batch_of_{name}", two], [rows], axis=0),
        make("Expand", [values, rows], [spread]),
        make("Cast", [spread], [name], to=kind),
    ]


def _batch_size(onnx: Any, source: str, suffix: str = "") -> list[Any]:
    """Nodes that give ``trtbuild_batch…`` INT64[1], the first dimension of a tensor."""
    shape, zero, name = f"{OURS}shape{suffix}", f"{OURS}zero{suffix}", f"{OURS}batch{suffix}"
    first = onnx.numpy_helper.from_array(np.array([0], np.int64), zero)
    return [
        onnx.helper.make_node("Shape", [source], [shape]),
        onnx.helper.make_node("Constant", [], [zero], value=first),
        onnx.helper.make_node("Gather", [shape, zero], [name], axis=0),
    ]


def _after_batch(onnx: Any, name: str, shape: Any) -> list[Any]:
    rest = onnx.numpy_helper.from_array(shape[1:].copy(), f"{name}_rest")
    return [
        onnx.helper.make_node("Constant", [], [f"{name}_rest"], value=rest),
        onnx.helper.make_node("Concat", [f"{OURS}batch", f"{name}_rest"], [name], axis=0),
    ]


def _batched_outputs(
    onnx: Any, graph: Any, names: Sequence[str], tensors: list[Any], *, opset: int
) -> list[Any]:
    nodes = []
    for item in graph.output:
        if item.name not in names:
            continue
        inner = f"{OURS}inner_{item.name}"
        for node in graph.node:
            for place, name in enumerate(node.output):
                if name == item.name:
                    node.output[place] = inner
            for place, name in enumerate(node.input):
                if name == item.name:
                    node.input[place] = inner
        if opset >= _FIRST_OPSET_WITH_AXES_INPUT:
            axes = f"{OURS}axes_{item.name}"
            tensors.append(onnx.numpy_helper.from_array(np.array([0], np.int64), axes))
            nodes.append(onnx.helper.make_node("Unsqueeze", [inner, axes], [item.name]))
        else:
            nodes.append(onnx.helper.make_node("Unsqueeze", [inner], [item.name], axes=[0]))
        dims = [dim.dim_value or dim.dim_param or None for dim in item.type.tensor_type.shape.dim]
        kind = item.type.tensor_type.elem_type
        item.CopyFrom(onnx.helper.make_tensor_value_info(item.name, kind, ["batch", *dims]))
    return nodes
