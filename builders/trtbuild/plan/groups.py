"""Which group sizes and TPs the layers of a model fit: whole groups of inputs, whole tiles of packed weights.

modelopt does not look at shapes, so a checkpoint that cannot be compiled is only noticed after hours of
calibration (TensorRT-LLM issues 1833, 2445, 776, 648).
"""

from __future__ import annotations

from trtbuild.catalog.formats import Format
from trtbuild.plan.architecture import Architecture, Linear

TPS = (1, 2, 4, 8, 16)  # what is tried for a remedy: powers of two, as NVLink boxes come
# Packed rows and columns on a rank are multiples of 32 bytes; the assertion is quoted in issue 2445.
_PACKED_BYTES = 32
# Rows (inputs) of a tile beside 16-bit activations, whatever the weights' bits: 128 bytes of them
# (preprocess_weights_for_mixed_gemm; "The number of rows must be a multiple of 64", issue 1833).
_TILE_ROWS = 64
_QUANTISED_PARTS = {"blocks": ("attention", "mlp", "expert", "shared_expert"), "experts": ("expert",)}
# Formats whose weights are not packed into the tiles of a mixed-type kernel.
_UNPACKED = ("FP8", "NVFP4", "W8A8_SQ_PER_CHANNEL")


def quantised_linears(architecture: Architecture, fmt: Format) -> tuple[Linear, ...]:
    """The layers that a format stores narrow and whose widths must divide; none where the loader pads."""
    parts = () if fmt.pads else _QUANTISED_PARTS.get(fmt.layers, ())
    return tuple(linear for linear in architecture.linears() if linear.part in parts)


def heads_fit(architecture: Architecture, tp: int) -> bool:
    """Whether heads are divided whole, and KV heads divided or copied evenly."""
    kv_heads = architecture.kv_heads
    kv_fits = kv_heads % tp == 0 or tp % kv_heads == 0 or architecture.mla is not None
    return architecture.heads % tp == 0 and kv_fits


def misfit_in(linear: Linear, tp: int, group_size: int | None) -> str:
    """Why a rank's inputs are not whole groups; empty if they are."""
    ranks = tp if linear.split == "in" else 1
    if group_size is None or linear.in_features % (ranks * group_size) == 0:
        return ""
    width = linear.in_features / ranks
    on_rank = f", {width:g} on each of TP {tp}" if ranks > 1 else ""
    return (
        f"{linear.name} reads {linear.in_features} inputs{on_rank} = {width / group_size:g} groups of "
        f"{group_size}; a rank needs whole groups"
    )


def misfit_out(linear: Linear, tp: int, fmt: Format) -> str:
    """Why a rank's packed weights are not whole tiles; empty if they are.

    Of blocks in two dimensions only a cut matters: an uncut side may end in a part of a block, as DeepSeek's
    own 576 = 4.5 × 128 latent does (one scale for each begun block).
    """
    if fmt.block is not None:
        if linear.split == "none" or tp == 1:
            return ""
        multiple, unit = fmt.block, f"blocks of {fmt.block}"
    elif fmt.algo in _UNPACKED:
        return ""
    else:
        multiple = _PACKED_BYTES * 8 // fmt.bits
        unit = f"{_PACKED_BYTES}-byte tiles of {multiple} {fmt.bits}-bit weights"
    width_in, width_out = linear.on_rank(tp)
    sides = (("outputs", width_out, linear.out_features), ("inputs", width_in, linear.in_features))
    for side, width, total in sides:
        if side == "inputs" and fmt.block is None and multiple < _TILE_ROWS:
            multiple, unit = _TILE_ROWS, f"tiles of {_TILE_ROWS} rows"
        uncut = fmt.block is not None and not side.startswith(linear.split)
        if width % multiple and not uncut:
            return (
                f"{linear.name} has {total} {side}, {width} on each of TP {tp} = {width / multiple:g} "
                f"{unit}; "
                "the kernels need whole ones"
            )
    return ""


def fits(architecture: Architecture, fmt: Format, tp: int, group_size: int | None) -> bool:
    """Whether heads and every quantised layer fit a TP and a group size."""
    return heads_fit(architecture, tp) and not any(
        misfit_in(linear, tp, group_size) or misfit_out(linear, tp, fmt)
        for linear in quantised_linears(architecture, fmt)
    )


def choose_group(architecture: Architecture, fmt: Format, tp: int) -> int | None:
    """The largest group size of a format that fits, its default where none does; None: it has no groups."""
    return next((group for group in fmt.groups if fits(architecture, fmt, tp, group)), fmt.group_size)


def ways_out(
    architecture: Architecture, fmt: Format, misfit: Linear, *, tp: int, group_size: int | None, fixed: bool
) -> list[str]:
    """What would fit instead of ``tp`` and ``group_size``, where ``misfit`` is the first to break.

    Args:
        fixed: the checkpoint has its groups already, so that only a TP can be chosen.
    """
    remedies = []
    for group in (group_size,) if fixed else fmt.groups or (None,):
        tps = ", ".join(str(other) for other in TPS if fits(architecture, fmt, other, group))
        if tps:
            remedies.append(f"--tp {tps} fits with groups of {group}" if group else f"--tp {tps} fits")
    if misfit.split == "in" and misfit.part == "mlp" and group_size:
        step = tp * group_size
        padded = -(-misfit.in_features // step) * step
        remedies.append(f"a checkpoint padded to intermediate_size {padded} fits TP {tp}")
    if architecture.native_quant is None:
        remedies.append("fp8 has no groups (SM 8.9 and newer), 16 bit fits every TP that the heads allow")
    return remedies
