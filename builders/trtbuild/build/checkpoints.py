"""Recognises a model folder, checks that it can be used, and finds the way from it to the target.

Read are config.json, quantize_config.json, hf_quant_config.json and the headers of the safetensors files;
weights are opened for the few small tensors that tell act-order and KV scales.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from trtbuild.build.tensors import INDEX, TensorInfo, iter_matching, read_headers, read_tensor
from trtbuild.build.weights import inspect_weights, read_config
from trtbuild.build.whole import check_whole
from trtbuild.errors import ModelSourceError
from trtbuild.plan.hf_fields import classes_of
from trtbuild.plan.quant_configs import SourceQuant, parse_quant_config

# A KV scale as the quantisers name it: modelopt, compressed-tensors and TensorRT-LLM.
_KV_SCALE_SUFFIXES = (
    ".k_scale",
    ".v_scale",
    ".k_proj.output_scale",
    ".v_proj.output_scale",
    ".kv_cache_scaling_factor",
)
# What a method's tensors are called: of each row one must be there.
_QUANTISED_PARTS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "awq": ((".qweight",), (".qzeros",), (".scales",)),
    "gptq": ((".qweight",), (".scales",)),
    "fp8": (("weight_scale_inv", "weight_scale"),),
    "fbgemm_fp8": (("_scale",),),
    "compressed-tensors": (("weight_scale",),),
    "mxfp4": (("_blocks",), ("_scales",)),
    "modelopt": (("weight_scale", "weight_scale_inv"),),
}


@dataclass(frozen=True)
class Checkpoint:
    """A model folder that was read and found whole.

    Attributes:
        kind: ``hf``: a Hugging Face folder; ``trtllm``: a TensorRT-LLM checkpoint (rank files).
        dtype: of the weights that are not quantised: float16, bfloat16 or float32.
        quant: what it is quantised with; None for 16 and 32 bit.
        tp: ranks it was split for; None for a Hugging Face folder.
        kv_scales: how many KV scales it holds.
        constant_kv_scale: their value where all are the same (at least two), which no calibration gives.
    """

    folder: Path
    kind: Literal["hf", "trtllm"]
    model_type: str
    architecture: str
    dtype: str
    size_bytes: int
    quant: SourceQuant | None
    tp: int | None = None
    kv_scales: int = 0
    constant_kv_scale: float | None = None

    @property
    def group_size(self) -> int | None:
        return None if self.quant is None else self.quant.group_size

    @property
    def format(self) -> str:
        """Weight format in the words of ``trtbuild formats``."""
        if self.quant is not None:
            return self.quant.format
        return {"float16": "fp16", "bfloat16": "bf16"}.get(self.dtype, self.dtype)


def read_checkpoint(folder: Path) -> Checkpoint:
    """Reads a model folder and checks it.

    Raises:
        ModelSourceError: pickled weights only, missing or cut-off shards, an index that does not match them,
            layers or parts that are missing or of another size, a quantisation that is unknown or that
            contradicts its own tensors, act-order.
    """
    config = read_config(folder)
    if (folder / "rank0.safetensors").is_file():
        return _read_trtllm(folder, config)
    weights = inspect_weights(folder)
    if weights.kind != "safetensors":
        raise ModelSourceError(
            f"{folder}: {weights.kind} weights are for the target local, the build reads safetensors"
        )
    tensors = read_headers(folder)
    _check_index(folder, tensors)
    check_whole(folder, tensors, config)
    quant = parse_quant_config(folder, config)
    _check_packed(folder, quant, tensors)
    if quant is not None:
        _check_groups(folder, quant, tensors)
        _check_act_order(folder, quant, tensors)
    scales, constant = _kv_scales(tensors)
    return Checkpoint(
        folder=folder,
        kind="hf",
        model_type=weights.architecture,
        architecture=next(iter(classes_of(config)), "unknown"),
        dtype=_dtype(config, tensors),
        size_bytes=weights.size_bytes,
        quant=quant,
        kv_scales=scales,
        constant_kv_scale=constant,
    )


def expected_checkpoint(folder: Path) -> Checkpoint:
    """What a folder will hold by its config.json, while it has no weights yet.

    Raises:
        ModelSourceError: no readable config.json, or a quantisation that nothing here reads.
    """
    config = read_config(folder)
    return Checkpoint(
        folder=folder,
        kind="hf",
        model_type=str(config.get("model_type", "unknown")),
        architecture=next(iter(classes_of(config)), "unknown"),
        dtype=_dtype(config, {}),
        size_bytes=0,
        quant=parse_quant_config(folder, config),
    )


def _read_trtllm(folder: Path, config: Mapping[str, Any]) -> Checkpoint:
    section = config.get("quantization") or {}
    mapping = config.get("mapping") or {}
    world_size = int(mapping.get("world_size", 1))
    ranks = sorted(folder.glob("rank*.safetensors"))
    wanted = {f"rank{rank}.safetensors" for rank in range(world_size)}
    missing = sorted(wanted - {path.name for path in ranks})
    if missing:
        raise ModelSourceError(
            f"{folder}: config.json says {world_size} ranks, and {missing[0]} is missing", "convert it again"
        )
    tensors = {name: info for path in ranks for name, info in _rank_header(path).items()}
    scales, constant = _kv_scales(tensors)
    return Checkpoint(
        folder=folder,
        kind="trtllm",
        model_type=str(
            config.get("qwen_type") or config.get("model_type") or config.get("decoder", "unknown")
        ),
        architecture=str(config.get("architecture", "unknown")),
        dtype=str(config.get("dtype", "float16")),
        size_bytes=sum(path.stat().st_size for path in ranks),
        quant=SourceQuant.from_trtllm(folder, section),
        tp=int(mapping.get("tp_size", 1)),
        kv_scales=scales,
        constant_kv_scale=constant,
    )


def _rank_header(path: Path) -> dict[str, TensorInfo]:
    from trtbuild.build.tensors import read_header

    return {f"{path.stem}.{name}": info for name, info in read_header(path).items()}


def _check_index(folder: Path, tensors: Mapping[str, TensorInfo]) -> None:
    path = folder / INDEX
    if not path.is_file():
        return
    try:
        weight_map = dict(json.loads(path.read_text(encoding="utf-8"))["weight_map"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelSourceError(
            f"{path}: not JSON with a weight_map of tensors and their files", "fetch the file again"
        ) from error
    for shard in sorted(set(map(str, weight_map.values()))):
        if Path(shard).name != shard or not (folder / shard).is_file():
            raise ModelSourceError(f"{folder}: {INDEX} names {shard}, which is missing", "fetch it")
    for name, shard in weight_map.items():
        if name not in tensors or tensors[name].file.name != shard:
            raise ModelSourceError(
                f"{folder}: {INDEX} says that {shard} holds {name}, and it does not",
                "fetch index and shards of one revision",
            )


def _check_packed(folder: Path, quant: SourceQuant | None, tensors: Mapping[str, TensorInfo]) -> None:
    """The tensors are quantised where config.json says so, and only there."""
    if quant is None:
        packed = next((name for name in tensors if name.endswith((".qweight", ".weight_packed"))), None)
        narrow = next((name for name, info in tensors.items() if _narrow(name, info)), None)
        if (found := packed or narrow) is not None:
            raise ModelSourceError(
                f"{folder}: {found} is quantised ({tensors[found].dtype}), and config.json has no "
                "quantization_config that says how",
                "fetch config.json again, of the same revision as the weights",
            )
        return
    suffixes = _QUANTISED_PARTS.get(quant.method, ())
    missing = next((names for names in suffixes if not any(name.endswith(names) for name in tensors)), None)
    if missing is not None:
        raise ModelSourceError(
            f"{folder}: the quantisation config says {quant.method}, and no tensor is called *{missing[0]}",
            "fetch config.json and weights of one revision",
        )
    if quant.bits != 8:
        return
    for name, info in tensors.items():
        if _narrow(name, info) and not any(f"{name}{scale}" in tensors for scale in ("_scale", "_scale_inv")):
            raise ModelSourceError(
                f"{folder}: {name} is in 8 bits ({info.dtype}) and has no scale beside it",
                "fetch the model again",
            )


def _narrow(name: str, info: TensorInfo) -> bool:
    return name.endswith(".weight") and info.dtype in ("F8_E4M3", "F8_E5M2", "I8")


def _check_groups(folder: Path, quant: SourceQuant, tensors: Mapping[str, TensorInfo]) -> None:
    """Packed INT4 weights: the scales' rows tell the group size that the file really has."""
    if quant.method not in ("awq", "gptq"):
        return
    per_word = 32 // quant.bits
    for name, info in iter_matching(tensors, ".qweight"):
        scales = tensors.get(f"{name}.scales")
        if scales is None:
            raise ModelSourceError(
                f"{folder}: {name} has packed weights and no scales", "fetch the model again"
            )
        # AWQ packs outputs (rows are inputs); GPTQ packs inputs.
        inputs = info.shape[0] * (1 if quant.method == "awq" else per_word)
        found = inputs // max(scales.shape[0], 1)
        if quant.group_size is not None and found != quant.group_size:
            raise ModelSourceError(
                f"{folder}: the quantisation config says groups of {quant.group_size}, and {name} has "
                f"{scales.shape[0]} scales for {inputs} inputs, groups of {found}",
                f"set group_size to {found} if you know that the weights are right",
            )


def _check_act_order(folder: Path, quant: SourceQuant, tensors: Mapping[str, TensorInfo]) -> None:
    """g_idx that is not 0…0 1…1 2…2 was made with act-order, whatever the config says."""
    if quant.group_size is None:
        return
    for name, info in iter_matching(tensors, ".g_idx"):
        order = read_tensor(info)
        if not np.array_equal(order, np.arange(order.size) // quant.group_size):
            raise ModelSourceError(
                f"{folder}: {name} is in act-order (its groups are permuted), for which TensorRT-LLM has "
                "no kernel",
                "take a GPTQ checkpoint made with desc_act=False",
                "use --quant awq",
            )
        return  # one layer tells: the option holds for the whole model


def _kv_scales(tensors: Mapping[str, TensorInfo]) -> tuple[int, float | None]:
    values = [
        float(read_tensor(info).reshape(-1)[0])
        for suffix in _KV_SCALE_SUFFIXES
        for _, info in iter_matching(tensors, suffix)
        if info.end - info.begin in (2, 4)  # one number
    ]
    constant = len(values) > 1 and len(set(values)) == 1
    return len(values), values[0] if constant else None


def _dtype(config: Mapping[str, Any], tensors: Mapping[str, TensorInfo]) -> str:
    named = str(config.get("torch_dtype") or config.get("dtype") or "").removeprefix("torch.")
    if named in ("float16", "bfloat16", "float32"):
        return named
    stored = {info.dtype for info in tensors.values()}
    return next(
        (
            name
            for code, name in (("BF16", "bfloat16"), ("F16", "float16"), ("F32", "float32"))
            if code in stored
        ),
        "float16",
    )
