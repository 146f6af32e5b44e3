"""What a checkpoint says it is quantised with: AutoAWQ, GPTQ, compressed-tensors, FP8, MXFP4, modelopt.

Each maker writes its own vocabulary; ``SourceQuant`` is the one that the rest of the build knows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trtbuild.catalog.formats import all_formats, find_format
from trtbuild.errors import CatalogError, ModelSourceError
from trtbuild.plan.lfs import refuse_pointer
from trtbuild.spec import Target

Method = Literal["awq", "gptq", "compressed-tensors", "fp8", "fbgemm_fp8", "mxfp4", "modelopt", "trtllm"]


# (who wrote it, in which format) → the target that reads it. The compiled flow's converters read AutoAWQ and
# GPTQ; tensorrt_llm/_torch/model_config.py, load_hf_quant_config reads FP8 in blocks and MXFP4, and passes
# over other methods without a word, so that loading fails on the packed weights. modelopt's exports are read
# in each format that the LLM API runs.
_READ_BY: dict[tuple[str, str], Target] = {
    ("awq", "awq"): Target.ENGINE,
    ("gptq", "gptq"): Target.ENGINE,
    ("fp8", "fp8-block"): Target.LLMAPI,
    ("mxfp4", "mxfp4"): Target.LLMAPI,
}
MODELOPT_FILE = "hf_quant_config.json"
# Ways out that the next command takes, whichever checkpoint it was.
OWN_QUANTISATION = (
    "--quant awq or fp8 of the 16-bit weights: their folder in --weights, or a name of the catalogue with "
    "--calibrate"
)
READABLE = (
    "a checkpoint in 4 bits by AutoAWQ (gemm layout) or GPTQModel (target engine), or by modelopt, in FP8 "
    "blocks of 128 or in MXFP4 (target llmapi)"
)


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

    @property
    def read_by(self) -> Target | None:
        """The target that reads the checkpoint; None: neither does."""
        if self.method != "modelopt":
            return _READ_BY.get((self.method, self.format))
        return Target.LLMAPI if Target.LLMAPI in find_format(self.format).targets else None

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
                return cls(
                    "trtllm",
                    row.name,
                    row.bits,
                    group and _group(folder, int(group)),
                    str(algo),
                    kv and str(kv),
                )
        raise ModelSourceError(
            f"{folder}: quant_algo {algo} is not a format that is known here",
            "`trtbuild formats` lists those that are",
        )


def with_modelopt(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """config.json with modelopt's own file, where there is one, as its ``quantization_config``.

    TensorRT-LLM reads that file first (_torch/model_config.py). Without ``quant_algo`` it speaks of the KV
    cache alone, and the weights are 16 bit.

    Raises:
        ModelSourceError: the file is damaged.
    """
    content = _read_json(folder / MODELOPT_FILE)
    if content is None:
        return dict(config)
    section = content.get("quantization")
    if not isinstance(section, Mapping):
        raise ModelSourceError(
            f"{folder / MODELOPT_FILE}: `quantization` is {section!r}, not an object", "fetch the file again"
        )
    quantised = section.get("quant_algo") not in (None, "NO_QUANT")
    own = {"quantization_config": {"quant_method": "modelopt", **section}} if quantised else {}
    return {key: value for key, value in config.items() if key != "quantization_config"} | own


def parse_quant_config(folder: Path, config: Mapping[str, Any]) -> SourceQuant | None:
    """Reads what quantisation a Hugging Face folder has; None for none.

    Raises:
        ModelSourceError: an unknown method, a variant that nothing here can read, or act-order.
    """
    section = with_modelopt(folder, config).get("quantization_config") or _read_json(
        folder / "quantize_config.json"
    )
    if section is not None and not isinstance(section, Mapping):
        raise ModelSourceError(
            f"{folder}: quantization_config is a {type(section).__name__}, not an object",
            "fetch config.json again",
        )
    found = None if section is None else parse_section(folder, section)
    if found is not None and found.method == "modelopt" and not (folder / MODELOPT_FILE).is_file():
        raise ModelSourceError(
            f"{folder}: config.json says {found.format} by modelopt, and {MODELOPT_FILE} is missing: "
            "TensorRT-LLM reads modelopt's quantisation from that file alone",
            "fetch the whole repository, that file with it",
            OWN_QUANTISATION,
        )
    return found


def refuse_unreadable(folder: Path, config: Mapping[str, Any]) -> None:
    """Raises where a folder is quantised with what no target reads, so that no plan shows it as 16 bit.

    Raises:
        ModelSourceError: says what it is, and what is read.
    """
    found = parse_quant_config(folder, config)
    if found is None:
        return
    try:
        find_format(found.format)
    except CatalogError as error:
        raise ModelSourceError(
            f"{folder} is {found.format} by {found.method}, which no target reads", READABLE, OWN_QUANTISATION
        ) from error


def format_in(config: Mapping[str, Any]) -> str | None:
    """The format that a config.json's ``quantization_config`` means, in the words of `trtbuild formats`; None
    where none is there, or one that nothing here reads.
    """
    section = config.get("quantization_config")
    if not isinstance(section, Mapping):
        return None
    try:
        return find_format(parse_section(Path("config.json"), section).format).name
    except (ModelSourceError, CatalogError):
        return None


def parse_section(folder: Path, section: Mapping[str, Any]) -> SourceQuant:
    """Reads a ``quantization_config``; ``folder`` is for messages.

    Raises:
        ModelSourceError: see `parse_quant_config`.
    """
    method = str(section.get("quant_method", "gptq" if "desc_act" in section else "")).lower()
    reader = _READERS.get(method)
    if reader is None:
        raise ModelSourceError(
            f"{folder}: quantised with {method or 'an unnamed method'}, which TensorRT-LLM does not read",
            READABLE,
            OWN_QUANTISATION,
        )
    try:
        return reader(folder, section)
    except (TypeError, ValueError, AttributeError) as error:
        raise ModelSourceError(
            f"{folder}: its {method} configuration cannot be understood: a value is of the wrong kind",
            "fetch config.json again",
        ) from error


def _awq(folder: Path, section: Mapping[str, Any]) -> SourceQuant:
    bits = int(section.get("bits", section.get("w_bit", 4)))
    version = str(section.get("version", "gemm")).lower()
    if bits != 4 or version != "gemm":
        raise ModelSourceError(
            f"{folder}: AWQ with {bits} bits in the layout {version!r}; the converter reads 4 bits in 'gemm'",
            "take a checkpoint in the gemm layout",
            OWN_QUANTISATION,
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
    if bits != 4 or layout != "gptq":
        raise ModelSourceError(
            f"{folder}: GPTQ with {bits} bits in the layout {layout!r}; 4 bits in 'gptq' are read",
            "take one of 4 bits, saved with checkpoint_format=gptq (GPTQModel)",
            OWN_QUANTISATION,
        )
    return SourceQuant(
        "gptq", "gptq", bits, _group(folder, int(section.get("group_size", 128))), "W4A16_GPTQ"
    )


def _compressed_tensors(folder: Path, section: Mapping[str, Any]) -> SourceQuant:
    sparsity = section.get("sparsity_config") or {}
    if sparsity.get("format", "dense") != "dense":
        raise ModelSourceError(
            f"{folder}: sparse weights ({sparsity['format']}), which TensorRT-LLM does not read",
            "take a checkpoint that is not pruned",
        )
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
        READABLE,
        OWN_QUANTISATION,
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


_LARGEST_GROUP = 1 << 20  # inputs; no layer has more


def _group(folder: Path, size: int) -> int:
    if not 0 < size <= _LARGEST_GROUP:
        raise ModelSourceError(
            f"{folder}: group_size {size} (-1: one scale a channel); the INT4 kernels need groups",
            "take a checkpoint with groups of 128 or 64",
        )
    return size


def _read_json(path: Path) -> Mapping[str, Any] | None:
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        refuse_pointer(path)
        raise ModelSourceError(f"{path}: not valid JSON: {error}", "fetch the file again") from error
    if not isinstance(content, Mapping):
        raise ModelSourceError(f"{path}: holds no mapping", "fetch the file again")
    return content
