"""Holds exported weights against the originals: dequantises them group by group, one layer at a time.

A format promises half a step of its grid for every weight. With w the original, s the stored scale and p the
factor that the inputs are multiplied with before the layer (AWQ, SmoothQuant), the layer computes with q·s·p:

    INT4, INT8:  |w/p − q·s| ≤ s/2
    FP8 (E4M3):  |w − q·s| ≤ max(|w|·2⁻⁴, s·2⁻¹⁰)      half of the last mantissa bit; half the smallest step

each with what the 16-bit type of w and p itself rounds away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trtbuild.build.layouts import Layer, SourcePart, layers_of
from trtbuild.build.tensors import E4M3_VALUES, TensorInfo, read_headers, read_tensor
from trtbuild.build.weights import read_config
from trtbuild.errors import BuildError

Matrix = npt.NDArray[np.float32]

# Rounding of w, p and w/p in 16 bit: three roundings of half a unit in the last place.
_ROUNDING = {"float16": 3 * 2.0**-11, "bfloat16": 3 * 2.0**-8}
_BLOCK_WEIGHTS = 4_000_000  # held at once: 16 MB in each of about ten arrays
_LARGE = ("weight", "scale")  # tensors that are not read with the small ones
_TOLERANCE = 1.01  # scales are stored in float32, computed in 16 bit


@dataclass(frozen=True)
class LayerProof:
    """One linear layer on one rank.

    Attributes:
        worst: largest error of a weight, as a part of what the format promises (1 = exactly the promise).
        relative_error: root mean square of the error over that of the weights.
        naive_error: the same for plain rounding on the same grid, without scaling the inputs.
        weighted_error, naive_weighted_error: squared error of the layer's outputs over the outputs' own
            squares, for the given inputs; None without inputs.
    """

    name: str
    groups: int
    worst: float
    relative_error: float
    naive_error: float
    weighted_error: float | None = None
    naive_weighted_error: float | None = None


@dataclass(frozen=True)
class Summary:
    """Figures over all layers."""

    layers: int
    groups: int
    worst: float
    relative_error: float
    naive_error: float

    def sentence(self) -> str:
        """The figures in words."""
        return (
            f"{self.layers} layers, {self.groups} groups: the worst weight is off by {self.worst:.2f} of "
            "what the "
            f"format promises, {self.relative_error:.2%} on average (root mean square)"
        )


@dataclass(frozen=True)
class Proof:
    """All layers of a checkpoint."""

    layers: tuple[LayerProof, ...]

    def summary(self) -> Summary:
        """Means are root mean squares over layers."""
        return Summary(
            layers=len(self.layers),
            groups=sum(layer.groups for layer in self.layers),
            worst=max(layer.worst for layer in self.layers),
            relative_error=_rms([layer.relative_error for layer in self.layers]),
            naive_error=_rms([layer.naive_error for layer in self.layers]),
        )

    def refuse_if_broken(self) -> None:
        """Raises unless every weight is within what the format promises.

        Raises:
            BuildError: names the worst layer.
        """
        worst = max(self.layers, key=lambda layer: layer.worst)
        if not worst.worst <= _TOLERANCE:
            raise BuildError(
                f"{worst.name}: a weight is off by {worst.worst:.2f} of what its format promises: the "
                "exported "
                "checkpoint does not hold the model",
                "another nvidia-modelopt (below 0.49), or quantise in TensorRT-LLM's container",
            )


def prove(
    source: Path, checkpoint: Path, *, grams: Mapping[str, npt.NDArray[np.float64]] | None = None
) -> Proof:
    """Compares every quantised layer of a checkpoint (TensorRT-LLM or modelopt's Hugging Face form) with
    ``source``.

    Args:
        grams: sum of x·xᵀ over real inputs x of a layer, [in, in], by the layer's name in ``source``
            (``model.layers.0.mlp.down_proj``); layers without one get no activation-weighted error.

    Raises:
        BuildError: a layer of the source is missing in the checkpoint, or has another shape.
        ModelSourceError: files that cannot be read.
    """
    source_tensors = read_headers(source)
    config = read_config(checkpoint)
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "float16")
    proofs = []
    for layer in layers_of(source, checkpoint):
        gram = (grams or {}).get(layer.sources[0].name)
        matrix = _Matrix(layer, source_tensors)
        proofs.append(_prove_layer(layer, matrix, _ROUNDING.get(dtype, 3 * 2.0**-8), gram))
    if not proofs:
        raise BuildError(f"{checkpoint}: no quantised layer was found in it")
    return Proof(tuple(proofs))


class _Matrix:
    """One layer's original and stored weights, read a few rows at a time.

    ``prequant``: the inputs' factor, None where there is none. ``bits`` and ``floating`` tell the grid.
    """

    def __init__(self, layer: Layer, tensors: Mapping[str, TensorInfo]) -> None:
        self.layer = layer
        self.parts = [(part, self._info(part, tensors)) for part in layer.sources]
        self.spans = [part.span(info) for part, info in self.parts]
        self.rows = sum(last - first for first, last in self.spans)
        stored = layer.tensors["weight"]
        stored_rows = stored.shape[0] * (2 if layer.packed else 1)
        columns = self.parts[0][0].columns or (0, self.parts[0][1].shape[1])
        self.inputs = columns[1] - columns[0]
        if (stored_rows, stored.shape[1]) != (self.rows, self.inputs):
            raise BuildError(
                f"{layer.name}: {stored_rows} outputs of {stored.shape[1]} inputs in the checkpoint, "
                f"{self.rows} of "
                f"{self.inputs} in the source"
            )
        self.scale = read_tensor(layer.tensors["scale"]).astype(np.float32)
        self.prequant = self._prequant()
        self.bits = 4 if layer.packed else 8
        self.floating = stored.dtype == "F8_E4M3"
        self.groups = max(1, self.scale.size)

    @staticmethod
    def _info(part: SourcePart, tensors: Mapping[str, TensorInfo]) -> TensorInfo:
        info = tensors.get(f"{part.name}.weight")
        if info is None:
            raise BuildError(f"{part.name}.weight is not in the source")
        return info

    def _prequant(self) -> npt.NDArray[np.float32] | None:
        read = {name: read_tensor(info) for name, info in self.layer.tensors.items() if name not in _LARGE}
        if "norm" in read:
            before, after = read["source_norm"].astype(np.float32), read["norm"].astype(np.float32)
            return np.divide(after, before, out=np.ones_like(after), where=before != 0)
        return read["prequant"].astype(np.float32) if "prequant" in read else None

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Ranges of rows, an even number each, of a few million weights."""
        step = max(2, _BLOCK_WEIGHTS // self.inputs // 2 * 2)
        for first in range(0, self.rows, step):
            yield first, min(first + step, self.rows)

    def original(self, first: int, last: int) -> Matrix:
        """Rows of the source's parts, stacked."""
        found, start = [], 0
        for (part, info), (begin, end) in zip(self.parts, self.spans, strict=True):
            low, high = max(first - start, 0), min(last - start, end - begin)
            if low < high:
                rows = read_tensor(info, (begin + low, begin + high))
                found.append(rows[:, slice(*part.columns)] if part.columns else rows)
            start += end - begin
        stacked: Matrix = np.concatenate(found).astype(np.float32)
        return stacked

    def stored(self, first: int, last: int) -> tuple[Matrix, Matrix]:
        """Rows as the layer computes with them before ``prequant``, and the grid's step for each weight."""
        info = self.layer.tensors["weight"]
        if self.layer.packed:
            codes = unpack_int4(read_tensor(info, (first // 2, last // 2)))
            steps = np.repeat(self.scale[first:last], self.inputs // self.scale.shape[1], axis=1)
        else:
            codes = read_tensor(info, (first, last)).astype(np.float32)
            steps = self.scale.reshape(-1, 1)[first:last] if self.scale.size > 1 else self.scale.reshape(1, 1)
        return codes * steps, steps


def unpack_int4(packed: npt.NDArray[Any]) -> Matrix:
    """Two signed 4-bit numbers a byte along the outputs, the low half first: [out/2, in] → [out, in].

    modelopt, quant_utils.pack_int4_in_uint8; TensorRT-LLM, unpack_int4_packed_tensor_to_int8.
    """
    raw = packed.view(np.uint8)
    halves = np.stack([raw & 0x0F, raw >> 4], axis=1).astype(np.int8)
    codes: Matrix = ((halves ^ 8) - 8).reshape(-1, packed.shape[1]).astype(np.float32)
    return codes


def _prove_layer(
    layer: Layer, matrix: _Matrix, rounding: float, gram: npt.NDArray[np.float64] | None
) -> LayerProof:
    plain_scale = _largest(matrix) if matrix.floating else 0.0
    worst = 0.0
    sums = np.zeros(3)  # squares of the weights, of the error, of plain rounding's error
    energies = np.zeros(3)  # the same of the outputs
    for first, last in matrix.blocks():
        original = matrix.original(first, last)
        values, steps = matrix.stored(first, last)
        scaled = original if matrix.prequant is None else original / matrix.prequant
        promised = rounding * np.abs(scaled)
        if matrix.floating:
            promised += np.maximum(np.abs(scaled) * 2.0**-4, steps * 2.0**-10)
        else:
            promised += steps / 2
        off = np.divide(np.abs(scaled - values), promised, out=np.zeros_like(promised), where=promised > 0)
        worst = max(worst, float(off.max()), np.inf if np.any((promised == 0) & (values != scaled)) else 0.0)
        effective = values if matrix.prequant is None else values * matrix.prequant
        errors = (original, effective - original, _round_plainly(original, matrix, plain_scale) - original)
        sums += [float(np.sum(np.square(part, dtype=np.float64))) for part in errors]
        if gram is not None:
            energies += [_energy(part, gram) for part in errors]
    return LayerProof(
        name=layer.name,
        groups=matrix.groups,
        worst=worst,
        relative_error=float(np.sqrt(sums[1] / sums[0])),
        naive_error=float(np.sqrt(sums[2] / sums[0])),
        weighted_error=None if gram is None else float(energies[1] / energies[0]),
        naive_weighted_error=None if gram is None else float(energies[2] / energies[0]),
    )


def _largest(matrix: _Matrix) -> float:
    return max(float(np.abs(matrix.original(first, last)).max()) for first, last in matrix.blocks())


def _round_plainly(original: Matrix, matrix: _Matrix, largest: float) -> Matrix:
    """Rounds to the same grid, its scale from the largest weight it covers, nothing searched."""
    if matrix.floating:
        grid = np.sort(E4M3_VALUES[np.isfinite(E4M3_VALUES)])
        scale = largest / grid[-1] or 1.0
        rounded: Matrix = grid[np.searchsorted((grid[1:] + grid[:-1]) / 2, original / scale)] * np.float32(
            scale
        )
        return rounded
    top = 2 ** (matrix.bits - 1) - 1
    group = matrix.inputs // matrix.scale.shape[1] if matrix.layer.packed else matrix.inputs
    blocks = original.reshape(original.shape[0], -1, group)
    steps = np.abs(blocks).max(axis=2, keepdims=True) / top
    codes = np.round(np.divide(blocks, steps, out=np.zeros_like(blocks), where=steps > 0))
    plain: Matrix = (codes * steps).reshape(original.shape)
    return plain


def _energy(matrix: Matrix, gram: npt.NDArray[np.float64]) -> float:
    """‖M·X‖² for inputs X with X·Xᵀ = ``gram``."""
    wide = matrix.astype(np.float64)
    return float(np.sum((wide @ gram) * wide))


def _rms(values: list[float]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
