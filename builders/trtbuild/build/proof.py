"""Holds exported weights against the originals: dequantises them group by group, one layer at a time.

A format promises half a step of its grid for every weight. With w the original, s the stored scale and p the
factor that the inputs are multiplied with before the layer (AWQ, SmoothQuant), the layer computes with q·s·p:

    INT4, INT8:  |w/p − q·s| ≤ s/2
    FP8 (E4M3):  |w − q·s| ≤ max(|w|·2⁻⁴, s·2⁻¹⁰)      half of the last mantissa bit; half the smallest step

each with what the 16-bit type of w and p itself rounds away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trtbuild.build.layouts import Layer, layers_of
from trtbuild.build.tensors import TensorInfo, read_headers, read_tensor
from trtbuild.build.weights import read_config
from trtbuild.errors import BuildError

Matrix = npt.NDArray[np.float32]

# Rounding of w, p and w/p in 16 bit: three roundings of half a unit in the last place.
_ROUNDING = {"float16": 3 * 2.0**-11, "bfloat16": 3 * 2.0**-8}
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
    dtype = str(
        read_config(checkpoint).get("dtype") or read_config(checkpoint).get("torch_dtype") or "float16"
    )
    proofs = []
    for layer in layers_of(source, checkpoint):
        original = _original(layer, source_tensors)
        stored = _stored(layer)
        if stored.values.shape != original.shape:
            raise BuildError(
                f"{layer.name}: {stored.values.shape} in the checkpoint, {original.shape} in the source"
            )
        gram = (grams or {}).get(layer.sources[0].name)
        proofs.append(_prove_layer(layer, original, stored, _ROUNDING.get(dtype, 3 * 2.0**-8), gram))
    if not proofs:
        raise BuildError(f"{checkpoint}: no quantised layer was found in it")
    return Proof(tuple(proofs))


@dataclass(frozen=True)
class _Stored:
    """Weights as the layer computes with them: ``values`` × ``prequant``. ``steps`` is the grid's step."""

    values: Matrix
    steps: Matrix  # broadcasts to values
    prequant: npt.NDArray[np.float32] | None
    bits: int
    floating: bool
    groups: int


def _original(layer: Layer, tensors: Mapping[str, TensorInfo]) -> Matrix:
    parts = []
    for part in layer.sources:
        info = tensors.get(f"{part.name}.weight")
        if info is None:
            raise BuildError(f"{part.name}.weight is not in the source")
        parts.append(part.cut(read_tensor(info)).astype(np.float32))
    return np.concatenate(parts, axis=0)


def _stored(layer: Layer) -> _Stored:
    read = {name: read_tensor(info) for name, info in layer.tensors.items()}
    weight, scale = read["weight"], np.asarray(read["scale"], dtype=np.float32)
    prequant = read.get("prequant")
    if "norm" in read:
        before, after = read["source_norm"].astype(np.float32), read["norm"].astype(np.float32)
        prequant = np.divide(after, before, out=np.ones_like(after), where=before != 0)
    floating = layer.tensors["weight"].dtype == "F8_E4M3"
    if layer.packed:
        codes = unpack_int4(weight)
        group = codes.shape[1] // scale.shape[1]
        steps = np.repeat(scale, group, axis=1)
        return _Stored(codes * steps, steps, _vector(prequant), 4, False, scale.size)
    steps = scale.reshape(-1, 1) if scale.size > 1 else scale.reshape(1, 1)
    return _Stored(
        weight.astype(np.float32) * steps, steps, _vector(prequant), 8, floating, max(1, scale.size)
    )


def unpack_int4(packed: npt.NDArray[Any]) -> Matrix:
    """Two signed 4-bit numbers a byte along the outputs, the low half first: [out/2, in] → [out, in].

    modelopt, quant_utils.pack_int4_in_uint8; TensorRT-LLM, unpack_int4_packed_tensor_to_int8.
    """
    raw = packed.view(np.uint8)
    halves = np.stack([raw & 0x0F, raw >> 4], axis=1).astype(np.int8)
    codes: Matrix = ((halves ^ 8) - 8).reshape(-1, packed.shape[1]).astype(np.float32)
    return codes


def _vector(values: npt.NDArray[Any] | None) -> npt.NDArray[np.float32] | None:
    return None if values is None else values.astype(np.float32)


def _prove_layer(
    layer: Layer, original: Matrix, stored: _Stored, rounding: float, gram: npt.NDArray[np.float64] | None
) -> LayerProof:
    scaled = original if stored.prequant is None else original / stored.prequant
    promised = rounding * np.abs(scaled)
    if stored.floating:
        promised = promised + np.maximum(np.abs(scaled) * 2.0**-4, stored.steps * 2.0**-10)
    else:
        promised = promised + stored.steps / 2
    worst = float((np.abs(scaled - stored.values) / promised).max())
    effective = stored.values if stored.prequant is None else stored.values * stored.prequant
    error, naive = effective - original, _round_plainly(original, stored) - original
    weights = float(np.linalg.norm(original))
    return LayerProof(
        name=layer.name,
        groups=stored.groups,
        worst=worst,
        relative_error=float(np.linalg.norm(error)) / weights,
        naive_error=float(np.linalg.norm(naive)) / weights,
        weighted_error=None if gram is None else _weighted(error, original, gram),
        naive_weighted_error=None if gram is None else _weighted(naive, original, gram),
    )


def _round_plainly(original: Matrix, stored: _Stored) -> Matrix:
    """Rounds to the same number of bits and groups, the scale from the largest weight, nothing searched."""
    if stored.floating:
        from trtbuild.build.tensors import E4M3_VALUES

        grid = np.sort(E4M3_VALUES[np.isfinite(E4M3_VALUES)])
        scale = np.abs(original).max() / grid[-1]
        middles = (grid[1:] + grid[:-1]) / 2
        rounded: Matrix = grid[np.searchsorted(middles, original / scale)] * scale
        return rounded
    top = 2 ** (stored.bits - 1) - 1
    width = original.shape[1]
    group = width if stored.steps.shape[1] == 1 else width * original.shape[0] // stored.groups
    blocks = original.reshape(original.shape[0], width // group, group)
    steps = np.abs(blocks).max(axis=2, keepdims=True) / top
    codes = np.clip(
        np.round(np.divide(blocks, steps, out=np.zeros_like(blocks), where=steps > 0)), -top - 1, top
    )
    plain: Matrix = (codes * steps).reshape(original.shape).astype(np.float32)
    return plain


def _weighted(error: Matrix, original: Matrix, gram: npt.NDArray[np.float64]) -> float:
    """‖E·X‖² / ‖W·X‖² for inputs X with X·Xᵀ = ``gram``."""

    def energy(matrix: Matrix) -> float:
        wide = matrix.astype(np.float64)
        return float(np.sum((wide @ gram) * wide))

    return energy(error) / energy(original)


def _rms(values: list[float]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
