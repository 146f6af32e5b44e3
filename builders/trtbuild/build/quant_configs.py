"""What a checkpoint says it is quantised with: AutoAWQ, GPTQ, compressed-tensors, FP8, MXFP4, modelopt.

Each maker writes its own vocabulary; ``SourceQuant`` is the one that the rest of the build knows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trtbuild.catalog.formats import all_formats
from trtbuild.errors import ModelSourceError

Method = Literal["awq", "gptq", "compressed-tensors", "fp8", "fbgemm_fp8", "mxfp4", "modelopt", "trtllm"]


@dataclass(frozen=True)
class SourceQuant:
    """Quantisation of a checkpoint.

    Attributes:
        method: who wrote it, which decides who can read it.
        format: weight format in the words of ``trtbuild formats``.
        algo: TensorRT-LLM's quant_algo, where its converter gives another than the format's own.
        bits: of one weight.
        group_size: inputs that share a scale; None: per channel or tensor.
        kv_algo: KV cache quantisation that the checkpoint holds scales for.
    """

    method: Method
    format: str
    bits: int
    group_size: int | None = None
    algo: str | None = None
    kv_algo: str | None = None

    @classmethod
    def from_trtllm(cls, folder: Path, section: Mapping[str, Any]) -> SourceQuant | None:
        """Reads ``quantization`` of a TensorRT-LLM or modelopt config.

        Raises:
            ModelSourceError: a quant_algo that no known format has.
        """
        algo = section.get("quant_algo")
        if algo in (None, "NO_QUANT"):
            return None
        for row in all_formats():
            if row.algo == algo:
                group = section.get("group_size") if row.groups else None
                kv = section.get("kv_cache_quant_algo")
                return cls("trtllm", row.name, row.bits, group and int(group), str(algo), kv and str(kv))
        raise ModelSourceError(
            f"{folder}: quant_algo {algo} is not a format that is known here",
            "`trtbuild formats` lists those that are",
        )


def parse_quant_config(folder: Path, config: Mapping[str, Any]) -> SourceQuant | None:
    """Reads what quantisation a Hugging Face folder has; None for none.

    Raises:
        ModelSourceError: an unknown method, a variant that nothing here can read, or act-order.
    """
    modelopt = _read_json(folder / "hf_quant_config.json")
    if modelopt is not None:
        return _modelopt(folder, modelopt.get("quantization") or {})
    section = config.get("quantization_config") or _read_json(folder / "quantize_config.json")
    if not isinstance(section, Mapping):
        return None
    method = str(section.get("quant_method", "gptq" if "desc_act" in section else "")).lower()
    reader = _READERS.get(method)
    if reader is None:
        raise ModelSourceError(
            f"{folder}: quantised with {method or 'an unnamed method'}, which TensorRT-LLM does not read",
            f"take a checkpoint made with one of {', '.join(sorted(_READERS))}",
            "take the 16-bit weights and --calibrate",
        )
    try:
        return reader(folder, section)
    except (TypeError, ValueError, AttributeError) as error:
        raise ModelSourceError(
            f"{folder}: its {method} configuration cannot be understood: {error}", "fetch config.json again"
        ) from error


def _awq(folder: Path, section: Mapping[str, Any]) -> SourceQuant:
    bits = int(section.get("bits", section.get("w_bit", 4)))
    version = str(section.get("version", "gemm")).lower()
    if bits != 4 or version != "gemm":
        raise ModelSourceError(
            f"{folder}: AWQ with {bits} bits in the layout {version!r}; the converter reads 4 bits in 'gemm'",
            "take a checkpoint in the gemm layout, or --calibrate from the 16-bit weights",
        )
    group = int(section.get("group_size", section.get("q_group_size", 128)))
    return SourceQuant("awq", "awq", bits, _group(folder, group), "W4A16_GPTQ")


def _gptq(folder: Path, section: Mapping[str, Any]) -> SourceQuant:
    bits = int(section.get("bits", 4))
    if section.get("desc_act"):
        raise ModelSourceError(
            f"{folder}: GPTQ with act-order (desc_act true), for which TensorRT-LLM has no kernel",
            "take a GPTQ checkpoint made with desc_act=False",
            "use --quant awq",
        )
    layout = str(section.get("checkpoint_format", "gptq")).lower()
    if bits not in (4, 8) or layout != "gptq":
        raise ModelSourceError(
            f"{folder}: GPTQ with {bits} bits in the layout {layout!r}; the converter reads 4 or 8 bits in "
            "'gptq'",
            "save it again with checkpoint_format=gptq (GPTQModel)",
        )
    name, algo = ("gptq", "W4A16_GPTQ") if bits == 4 else ("gptq-int8", "W8A16_GPTQ")
    return SourceQuant("gptq", name, bits, _group(folder, int(section.get("group_size", 128))), algo)


def _compressed_tensors(folder: Path, section: Mapping[str, Any]) -> SourceQuant:
    groups = section.get("config_groups") or {}
    schemes = [group for group in groups.values() if isinstance(group, Mapping)]
    if len(schemes) != 1:
        raise ModelSourceError(
            f"{folder}: compressed-tensors with {len(schemes)} groups of layers; one scheme for all is "
            "read here"
        )
    weights, inputs = schemes[0].get("weights") or {}, schemes[0].get("input_activations")
    bits, kind = int(weights.get("num_bits", 0)), str(weights.get("type", "int"))
    strategy = str(weights.get("strategy", ""))
    if weights.get("actorder") not in (None, False, "weight", "static"):
        raise ModelSourceError(
            f"{folder}: compressed-tensors with act-order {weights['actorder']!r}, which has no kernel",
            "quantise again with actorder='weight' or none",
        )
    kv = "FP8" if section.get("kv_cache_scheme") else None
    group = weights.get("group_size")
    if kind == "float" and bits == 8 and inputs:
        name = {"tensor": "fp8", "channel": "fp8-rowwise", "block": "fp8-block"}.get(strategy, "")
        if name:
            return SourceQuant("compressed-tensors", name, 8, None, kv_algo=kv)
    if kind == "int" and bits == 4 and not inputs and strategy == "group":
        return SourceQuant("compressed-tensors", "awq", 4, _group(folder, int(group or 0)), kv_algo=kv)
    raise ModelSourceError(
        f"{folder}: compressed-tensors with {bits}-bit {kind} weights per {strategy or 'nothing'}"
        f"{' and quantised inputs' if inputs else ''}: TensorRT-LLM does not read that",
        "take FP8 (per tensor, channel or block), or --calibrate from the 16-bit weights",
    )


def _fp8(folder: Path, section: Mapping[str, Any]) -> SourceQuant:
    block = section.get("weight_block_size")
    if block is None:
        return SourceQuant("fp8", "fp8", 8)
    if list(block) != [128, 128]:
        raise ModelSourceError(f"{folder}: FP8 in blocks of {block}; the kernels are for [128, 128]")
    return SourceQuant("fp8", "fp8-block", 8)


def _fbgemm(folder: Path, section: Mapping[str, Any]) -> SourceQuant:
    return SourceQuant("fbgemm_fp8", "fp8-rowwise", 8, algo="FP8_PER_CHANNEL_PER_TOKEN")


def _mxfp4(folder: Path, section: Mapping[str, Any]) -> SourceQuant:
    return SourceQuant("mxfp4", "mxfp4", 4, 32)


def _modelopt(folder: Path, section: Mapping[str, Any]) -> SourceQuant:
    found = SourceQuant.from_trtllm(folder, section)
    if found is None:
        raise ModelSourceError(f"{folder}: a modelopt configuration without quant_algo")
    return SourceQuant("modelopt", found.format, found.bits, found.group_size, found.algo, found.kv_algo)


_READERS = {
    "awq": _awq,
    "gptq": _gptq,
    "compressed-tensors": _compressed_tensors,
    "fp8": _fp8,
    "fbgemm_fp8": _fbgemm,
    "mxfp4": _mxfp4,
    "modelopt": _modelopt,
}


def _group(folder: Path, size: int) -> int:
    if size <= 0:
        raise ModelSourceError(
            f"{folder}: group_size {size} (one scale a channel); the INT4 kernels need groups",
            "take a checkpoint with groups of 128 or 64",
        )
    return size


def _read_json(path: Path) -> Mapping[str, Any] | None:
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelSourceError(f"{path}: not valid JSON: {error}", "fetch the file again") from error
    if not isinstance(content, Mapping):
        raise ModelSourceError(f"{path}: holds no mapping", "fetch the file again")
    return content
