"""What the plan has to know of an ONNX graph, tried out where onnxruntime is installed.

A batch dimension is only believed when a run of two pictures gave what each gives alone; where the graph runs
no picture alone, when runs of smaller numbers gave what all at once give.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from trtbuild.build.onnx_edit import with_free_batch
from trtbuild.build.onnx_ends import makers, own_normalisation, scored
from trtbuild.build.onnx_file import NEEDS_ONNX, OnnxFile, live_bytes, loadable, with_shapes
from trtbuild.catalog.vision import TensorRow
from trtbuild.errors import ModelSourceError
from trtbuild.plan.graph import OTHER_SIDE, GraphFacts

Layout = Literal["nchw", "nhwc"]

_COLOURS = (1, 3, 4)
# Inputs that repeat the picture's size, as exporters call them, and the order of their two values.
_SIZES = {
    "orig_target_sizes": "wh",  # RT-DETR, D-FINE, DEIM
    "im_shape": "hw",  # PaddleDetection
    "image_shape": "hw",  # ONNX zoo's YOLO
    "img_size": "hw",
    "image_size": "hw",
    "target_sizes": "hw",
}
_ONES = ("scale_factor", "im_scale")  # PaddleDetection: size of the input over that of the picture
_NUMBERS = {
    "tensor(float)": "f4",
    "tensor(float16)": "f2",
    "tensor(double)": "f8",
    "tensor(int64)": "i8",
    "tensor(int32)": "i4",
    "tensor(uint8)": "u1",
}
_EXTERNAL_FOLDER = "session.model_external_initializers_file_folder_path"  # onnxruntime 1.18
# Operators whose outputs have as many entries as the picture has of something.
_COUNTED = {"NonMaxSuppression", "NonZero", "Unique", "Compress"}
_MOST_TRIED = 8  # sizes of a batch; of a larger one also its half and its whole
_FREE = "export the model with a free batch dimension, then pictures are run together"
_NO_BATCH = "has no batch dimension"  # of an output
_FREE_OUTPUT = "export the model so that every output has the batch as its first dimension"
_APART = "change the model so that each picture's answer depends on that picture alone, and export it again"
_SIZED = "export the model so that its outputs have one size for all pictures, such as by padding"
_INSIDE = "export the model with the batch left free inside it too: a node counts on a batch of one"
_TOLERANCE = 1e-3  # of the largest value: kernels differ with the batch size


@dataclass(frozen=True)
class ReadGraph:
    """A graph that is ready to be planned. ``model`` has a free batch dimension where that was proved."""

    file: OnnxFile
    model: Any
    facts: GraphFacts
    unbatched: tuple[str, ...] = ()  # outputs without a batch dimension


def read_graph(file: OnnxFile, *, side: tuple[int, int] | None = None) -> ReadGraph:
    """Reads a graph's facts and finds out whether it takes several pictures at once.

    Args:
        side: height and width that a free size is taken as.

    Raises:
        ModelSourceError: no input that takes a picture, a second one that nobody could fill, or a graph that
            onnxruntime cannot load or run.
    """
    picture, layout = _picture(file)
    fixed = picture.dims[0]
    if fixed > 1:
        file = _freed(file, picture, layout, side)
        picture, layout = _picture(file)
    constants = _constants(file, picture, layout, side)
    sides = _sides(picture, layout, side)
    model, batch, note, remedy = file.model, "free", "", ""
    answers: dict[int, list[Any]] = {}
    free = picture.dims[0] == -1
    try:
        free_model = model if free else with_free_batch(model, picture.name)
        one = _Runner(file, model, picture, sides, constants)
    except ImportError:
        batch = "free" if free else "one"
        note = "" if free else "its batch is fixed to 1, and changing that is tried with onnxruntime"
        remedy = "" if free else NEEDS_ONNX
    else:
        answers[1] = one.run(1)
        why, remedy = _fault_of_batches(file, free_model, picture, sides, constants, one)
        if why:
            batch, note = "one", why
        elif not free:
            model, batch = free_model, "rewritten"
            note = "its batch was fixed to 1; the graph was changed to take more, and tried with two pictures"
    if fixed > 1 and batch == "free":
        batch = "rewritten"
        note = (
            f"its batch was fixed to {fixed}; the graph was changed to take any, and tried with 1 to {fixed}"
        )
    own_range, own_steps = own_normalisation(
        file.model, picture.name, picture.dims[1 if layout == "nchw" else 3]
    )
    shaped = with_shapes(model, {picture.name: (1, *sides[1:])} | dict.fromkeys(constants, (1, 2)))
    outputs = _outputs(file, shaped, answers.get(1))
    unbatched = tuple(
        row.name
        for at, row in enumerate(outputs)
        if batch == "one"
        and not (_is_batched(row) and (1 not in answers or answers[1][at].shape[:1] == (1,)))
    )
    facts = GraphFacts(
        origin=file.origin,
        opset=file.opset,
        inputs=tuple(picture if row.name == picture.name else row for row in file.inputs),
        outputs=tuple(
            row.model_copy(update={"dims": (1, *row.dims)}) if row.name in unbatched else row
            for row in outputs
        ),
        metadata=dict(file.metadata),
        makers=makers(file.model),
        scored=scored(shaped),
        weights_bytes=file.weights_bytes,
        activation_bytes=live_bytes(shaped),
        picture=picture.name,
        layout=layout,
        constants=constants,
        batch=batch,  # type: ignore[arg-type]  # one of its three words
        batch_note=note,
        batch_remedy=remedy,
        own_range=own_range,
        own_steps=own_steps,
    )
    return ReadGraph(file, model, facts, unbatched)


def _picture(file: OnnxFile) -> tuple[TensorRow, Layout]:
    found: list[tuple[TensorRow, Layout]] = []
    for row in file.inputs:
        if len(row.dims) != 4:
            continue
        if row.dims[1] in _COLOURS and row.dims[3] not in _COLOURS:
            found.append((row, "nchw"))
        elif row.dims[3] in _COLOURS:
            found.append((row, "nhwc"))
        elif row.dims[1] == -1:
            found.append((row.model_copy(update={"dims": (row.dims[0], 3, *row.dims[2:])}), "nchw"))
    if len(found) == 1 and found[0][0].dtype in ("FP32", "FP16", "FP64", "UINT8"):
        return found[0]
    listed = ", ".join(f"{row.name} {row.dtype}{list(row.dims)}" for row in file.inputs)
    what = (
        f"{len(found)} inputs that could take a picture"
        if len(found) > 1
        else "no input that takes a picture"
    )
    raise ModelSourceError(
        f"{file.origin} has {what}; its inputs are {listed}",
        "export it with one input [batch, 3, height, width] or [batch, height, width, 3], a free batch, and "
        "8-bit or floating-point values",
    )


def _constants(
    file: OnnxFile, picture: TensorRow, layout: Layout, side: tuple[int, int] | None
) -> dict[str, tuple[int, int]]:
    sides = _sides(picture, layout, side)
    height, width = sides[2:] if layout == "nchw" else sides[1:3]
    found = {}
    for row in file.inputs:
        if row.name == picture.name:
            continue
        name = row.name.rpartition("/")[2].lower()
        pair = (
            len(row.dims) == 2 and row.dims[-1] in (2, -1) and row.dtype in ("INT64", "INT32", "FP32", "FP16")
        )
        if pair and name in _SIZES:
            found[row.name] = (width, height) if _SIZES[name] == "wh" else (height, width)
        elif pair and name in _ONES:
            found[row.name] = (1, 1)
        else:
            raise ModelSourceError(
                f"{file.origin} has a second input {row.name} {row.dtype}{list(row.dims)}, and a picture "
                "alone does not say what to put there",
                "export the model with the picture as its only input",
                "names that are understood as the picture's size: " + ", ".join((*_SIZES, *_ONES)),
            )
    return found


def _sides(picture: TensorRow, layout: Layout, side: tuple[int, int] | None) -> tuple[int, int, int, int]:
    """The picture input's dimensions for one picture, free ones filled in."""
    height, width = side or (OTHER_SIDE, OTHER_SIDE)
    rest = picture.dims[1:]
    wanted = (rest[0], height, width) if layout == "nchw" else (height, width, rest[2])
    filled = [dim if dim > 0 else size for dim, size in zip(rest, wanted, strict=True)]
    return (1, filled[0], filled[1], filled[2])


class _Runner:
    """A graph in onnxruntime, fed with the same made-up pictures every time."""

    def __init__(
        self,
        file: OnnxFile,
        model: Any,
        picture: TensorRow,
        sides: tuple[int, ...],
        constants: Mapping[str, tuple[int, int]],
        pictures: int = 2,
    ) -> None:
        import onnxruntime

        self._file, self._picture, self._constants = file, picture, constants
        noise = np.random.default_rng(0).random((pictures, *sides[1:]), np.float32)
        self._pictures = noise if picture.dtype != "UINT8" else (noise * 255).astype(np.uint8)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        try:
            self._session = _session(onnxruntime, file, model, options)
        except Exception as error:  # onnxruntime's exceptions share no base
            raise ModelSourceError(
                f"{file.origin} cannot be loaded by onnxruntime {onnxruntime.__version__}: {_short(error)}",
                *loadable(file),
            ) from error

    def run(self, count: int, first: int = 0) -> list[Any]:
        """All outputs for ``count`` of the pictures, from ``first`` on."""
        kinds = {item.name: _NUMBERS[item.type] for item in self._session.get_inputs()}
        pixels = self._pictures[first : first + count].astype(kinds[self._picture.name])
        feed = {self._picture.name: pixels}
        feed |= {name: np.array([row] * count).astype(kinds[name]) for name, row in self._constants.items()}
        try:
            answer: list[Any] = self._session.run(None, feed)
        except Exception as error:
            raise ModelSourceError(
                f"{self._file.origin} fails in onnxruntime for a picture of {list(pixels.shape)}: "
                f"{_short(error)}",
                "give the size that it was exported for: --size WIDTH,HEIGHT of add-vision, or in the spec "
                "preprocess: {size: [width, height]}",
            ) from error
        return answer


def _session(onnxruntime: Any, file: OnnxFile, model: Any, options: Any) -> Any:
    if file.external_files:
        options.add_session_config_entry(_EXTERNAL_FOLDER, str(file.folder))
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _freed(file: OnnxFile, picture: TensorRow, layout: Layout, side: tuple[int, int] | None) -> OnnxFile:
    """A graph of a fixed batch above 1 with a free one, after runs of sizes up to it.

    Raises:
        ModelSourceError: it cannot be changed, or gives other answers then.
    """
    count = picture.dims[0]
    constants, sides = _constants(file, picture, layout, side), _sides(picture, layout, side)
    freed = OnnxFile(with_free_batch(file.model, picture.name), file.folder, file.origin)
    found = ""
    try:
        whole = _Runner(file, file.model, picture, sides, constants, count).run(count)
        one = _Runner(freed, freed.model, picture, sides, constants, count)
        for size in dict.fromkeys((*range(1, min(count, _MOST_TRIED) + 1), count // 2, count)):
            pairs = zip(file.outputs, one.run(size), whole, strict=True)
            found = found or next((why for pair in pairs if (why := _differs(*pair, size, count))), "")
    except ImportError:
        found = f"changing that is tried with onnxruntime: {NEEDS_ONNX}"
    except ModelSourceError as error:
        found = f"changed to take any, it fails: {error.message.rpartition(': ')[2]}"
    if found:
        raise ModelSourceError(
            f"{file.origin}: its batch is fixed to {count}, and {found}",
            _FREE_OUTPUT
            if found.endswith(_NO_BATCH)
            else "export the model again with a free batch dimension",
        )
    return freed


def _differs(row: TensorRow, few: Any, whole: Any, size: int, count: int) -> str:
    if whole.shape[:1] != (count,) or few.shape != (size, *whole.shape[1:]):
        return f"its output {row.name} {_NO_BATCH}"
    return "" if _equal(few, whole[:size]) else f"{size} pictures give another {row.name} than {count}"


def _equal(found: Any, expected: Any) -> bool:
    if found.dtype.kind != "f":
        return bool(np.array_equal(found, expected))
    scale = max(1.0, float(np.nanmax(np.abs(expected), initial=0.0)))
    return bool(np.allclose(found, expected, atol=_TOLERANCE * scale, rtol=_TOLERANCE, equal_nan=True))


def _fault_of_batches(
    file: OnnxFile,
    model: Any,
    picture: TensorRow,
    sides: tuple[int, ...],
    constants: Mapping[str, tuple[int, int]],
    one: _Runner,
) -> tuple[str, str]:
    """Why two pictures cannot run at once, or nothing, and what would let them."""
    is_fixed = picture.dims[0] == 1
    fixed = "its batch is fixed to 1 and " if is_fixed else "its batch dimension is free, but "
    try:
        together = _Runner(file, model, picture, sides, constants).run(2)
    except ModelSourceError as error:
        why = f"{fixed}two pictures at once fail: {error.message.rpartition(': ')[2]}"
        return why, _FREE if is_fixed else _INSIDE
    apart = (
        [np.stack([a, b]) for a, b in zip(one.run(1), one.run(1, 1), strict=True)] if _alike(one) else None
    )
    if apart is None:
        return f"{fixed}its outputs have another size for each picture", _SIZED
    for row, both, single in zip(file.outputs, together, apart, strict=True):
        expected = single.reshape(-1, *single.shape[2:]) if single.ndim > 1 else single
        if both.shape != expected.shape or single.shape[1:2] != (1,):
            return f"{fixed}its output {row.name} {_NO_BATCH}", _FREE_OUTPUT
        if not _equal(both, expected):
            why = f"{fixed}two pictures at once give another {row.name} than each alone"
            return why, _FREE if is_fixed else _APART
    return "", ""


def _alike(one: _Runner) -> bool:
    return all(a.shape == b.shape for a, b in zip(one.run(1), one.run(1, 1), strict=True))


def _is_batched(row: TensorRow) -> bool:
    return bool(row.dims) and row.dims[0] in (-1, 1)


def _outputs(file: OnnxFile, shaped: Any, answers: list[Any] | None) -> tuple[TensorRow, ...]:
    """Outputs with every dimension that is known: from the graph, else as one run gave it."""
    inferred = {
        item.name: tuple(
            dim.dim_value if dim.dim_value > 0 else -1 for dim in item.type.tensor_type.shape.dim
        )
        for item in shaped.graph.output
    }
    if any(node.op_type in _COUNTED for node in file.model.graph.node):
        answers = None
    rows = []
    for at, row in enumerate(file.outputs):
        dims = inferred.get(row.name) or row.dims
        if answers is not None:
            ran = answers[at].shape
            dims = (
                ran
                if len(dims) != len(ran)
                else tuple(r if d == -1 else d for d, r in zip(dims, ran, strict=True))
            )
            dims = tuple(dims)
        rows.append(row.model_copy(update={"dims": (-1, *dims[1:]) if dims and dims[0] == 1 else dims}))
    return tuple(rows)


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
