"""Quantises a Hugging Face folder with modelopt, on the CPU if need be: AWQ, FP8, INT8 SmoothQuant.

Run as a child process, with the flags of TensorRT-LLM's own quantize.py:

    python3 -m trtbuild.build.quantise --model_dir source --output_dir checkpoint.partial --qformat int4_awq …

The result is a TensorRT-LLM checkpoint (``config.json``, ``rank<N>.safetensors``) or, with ``--export_format
hf``, modelopt's Hugging Face one. Its weights are then held against the originals, group by group, before the
process ends with 0; the figures are in ``quantisation.json``.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtbuild.build.calibration import DEFAULT_SAMPLES, FILE_NAME
from trtbuild.build.export_config import fix_hf_export, fix_trtllm_config
from trtbuild.build.flags import AWQ_CALIBRATION_LIMIT
from trtbuild.build.proof import prove
from trtbuild.build.tensors import weight_files
from trtbuild.build.weights import inspect_weights, read_config
from trtbuild.defaults import CALIBRATION_TOKENS
from trtbuild.errors import BuildError, ModelSourceError, TrtbuildError
from trtbuild.jsonl import filled_lines, parse
from trtbuild.prepare import host_memory_bytes

if TYPE_CHECKING:
    import torch

# --qformat → modelopt's configuration.
_CONFIGS = {"int4_awq": "INT4_AWQ_CFG", "fp8": "FP8_DEFAULT_CFG", "int8_sq": "INT8_SMOOTHQUANT_CFG"}
# model_type → decoder type of modelopt's TensorRT-LLM export: those that were exported and proved here.
# Without tensorrt_llm installed the export of others stops or leaves fields out.
DECODER_TYPES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen", "qwen3": "qwen"}
# INT8 KV cache: one scale each for keys and values, where modelopt's FP8_KV_CFG has its own.
_INT8_KV = [{"quantizer_name": "*[kv]_bmm_quantizer", "cfg": {"num_bits": 8, "axis": None}}]


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the child process; returns the exit code."""
    args = _parser().parse_args(argv)
    warnings.filterwarnings("ignore", category=UserWarning)
    try:
        _run(args)
    except TrtbuildError as error:
        print(f"error: {error.message}", *error.remedies, sep="\n  ", file=sys.stderr)
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trtbuild.build.quantise", description=__doc__)
    parser.add_argument("--model_dir", type=Path, required=True)
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--calib_dataset", type=Path, required=True, help=f"folder with {FILE_NAME}")
    parser.add_argument("--calib_size", type=int, default=DEFAULT_SAMPLES)
    parser.add_argument("--calib_max_seq_length", type=int, default=CALIBRATION_TOKENS)
    parser.add_argument("--qformat", choices=sorted(_CONFIGS), required=True)
    parser.add_argument("--dtype", choices=("float16", "bfloat16"), default="float16")
    parser.add_argument("--tp_size", type=int, default=1)
    parser.add_argument("--awq_block_size", type=int, default=128)
    parser.add_argument("--kv_cache_dtype", choices=("int8", "fp8"))
    parser.add_argument("--export_format", choices=("tensorrt_llm", "hf"), default="tensorrt_llm")
    return parser


def _run(args: argparse.Namespace) -> None:
    # Everything that can be refused is refused before torch is imported and weights are read.
    weights = inspect_weights(args.model_dir)
    config = read_config(args.model_dir)
    hf_export = args.export_format == "hf"
    if weights.kind != "safetensors" or config.get("quantization_config"):
        raise ModelSourceError(
            f"{args.model_dir}: {weights.format} cannot be quantised; give 16-bit safetensors"
        )
    if not hf_export and weights.architecture not in DECODER_TYPES:
        raise ModelSourceError(
            f"{args.model_dir}: a TensorRT-LLM checkpoint of model_type {weights.architecture!r} cannot be "
            f"exported without tensorrt_llm; known: {', '.join(sorted(DECODER_TYPES))}",
            "quantise in TensorRT-LLM's container, whose modelopt has its configurations",
            "--target llmapi, for which modelopt exports a Hugging Face checkpoint",
        )
    limit = min(args.calib_size, AWQ_CALIBRATION_LIMIT) if "awq" in args.qformat else args.calib_size
    texts = _texts(args.calib_dataset, limit)
    started = time.monotonic()
    model, tokens = _load(args.model_dir, args.dtype, texts, args.calib_max_seq_length)
    count = sum(map(len, tokens))
    _say(f"calibrating {args.qformat} on {len(texts)} texts, {count} tokens in {len(tokens)} sequences")
    quantised = _quantise(model, args.qformat, args.awq_block_size, args.kv_cache_dtype, _forward(tokens))
    _say(f"exporting to {args.output_dir}")
    _export(quantised, args, weights.architecture, hf_export)
    if hf_export:
        fix_hf_export(args.output_dir, source=args.model_dir, source_config=config)
    else:
        fix_trtllm_config(args.output_dir, source_config=config)
    proof = prove(args.model_dir, args.output_dir)
    report = {
        "qformat": args.qformat,
        "group_size": args.awq_block_size if "awq" in args.qformat else None,
        "kv_cache_dtype": args.kv_cache_dtype,
        "calibration": {"texts": len(texts), "tokens": count},
        "proof": asdict(proof.summary()),
    }
    (args.output_dir / "quantisation.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    proof.refuse_if_broken()
    _say(f"done in {time.monotonic() - started:.0f} s; {proof.summary().sentence()}")


def _texts(folder: Path, limit: int) -> list[str]:
    path = folder / FILE_NAME
    if not path.is_file():
        raise ModelSourceError(f"{folder}: no {FILE_NAME} with calibration text", "run the build again")
    rows = [parse(line) for _, line in filled_lines(path.read_text(encoding="utf-8"))]
    return [row["text"] for row in rows[:limit]]


def _load(folder: Path, dtype: str, texts: Sequence[str], max_tokens: int) -> tuple[Any, list[torch.Tensor]]:
    """Returns the model, and int64 tensors of token ids, each of one or more whole texts."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    sequences = pack((tokenizer(text).input_ids for text in texts), max_tokens)
    encoded = [torch.tensor(ids, dtype=torch.int64) for ids in sequences]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and _fits_in_float32(folder):
        dtype = "float32"
    model = AutoModelForCausalLM.from_pretrained(
        folder, torch_dtype=getattr(torch, dtype), local_files_only=True, use_safetensors=True
    )
    return model.to(device).eval(), [ids.to(device) for ids in encoded]


def _fits_in_float32(folder: Path) -> bool:
    """Whether the free memory holds the weights twice in 32 bits.

    A CPU without 16-bit arithmetic multiplies those six times faster: 77 against 12 GFLOPS with AVX2.
    """
    free = min(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), host_memory_bytes())
    weights = 2 * sum(path.stat().st_size for path in weight_files(folder))
    return 2 * weights <= free


def pack(texts: Iterable[Sequence[int]], max_tokens: int) -> list[list[int]]:
    """Returns the texts, each cut to max_tokens, put one after the other while a sequence holds them.

    AWQ's search quantises every weight again for each sequence and each candidate, so that on a CPU its time
    follows the number of sequences, not that of tokens.
    """
    sequences: list[list[int]] = []
    for text in texts:
        ids = list(text[:max_tokens])
        if sequences and len(sequences[-1]) + len(ids) <= max_tokens:
            sequences[-1] += ids
        elif ids:
            sequences.append(ids)
    return sequences


def _forward(tokens: Sequence[torch.Tensor]) -> Callable[[Any], None]:
    def run(model: Any) -> None:
        import torch

        with torch.no_grad():
            for ids in tokens:
                model(input_ids=ids.unsqueeze(0), use_cache=False)

    return run


def _quantise(
    model: Any, qformat: str, group_size: int, kv_dtype: str | None, forward: Callable[[Any], None]
) -> Any:
    import modelopt.torch.quantization as mtq

    config = copy.deepcopy(getattr(mtq, _CONFIGS[qformat]))
    entries = config["quant_cfg"]
    if "awq" in qformat:
        for quantizer in _weight_quantizers(entries):
            quantizer["block_sizes"][-1] = group_size
    if kv_dtype is not None:
        _extend(entries, mtq.FP8_KV_CFG["quant_cfg"] if kv_dtype == "fp8" else _INT8_KV)
    return mtq.quantize(model, config, forward_loop=forward)


def _weight_quantizers(entries: Any) -> Iterator[dict[str, Any]]:
    """The weight quantizers of a configuration: a list of entries since modelopt 0.46, a mapping before."""
    pairs = (
        entries.items()
        if isinstance(entries, dict)
        else ((entry.get("quantizer_name"), entry.get("cfg")) for entry in entries)
    )
    for name, cfg in pairs:
        if name == "*weight_quantizer" and cfg is not None:
            yield cfg[0] if isinstance(cfg, list) else cfg


def _extend(entries: Any, more: Any) -> None:
    if isinstance(entries, list):
        entries.extend(more)
    else:
        rows = (
            more.items() if isinstance(more, dict) else ((row["quantizer_name"], row["cfg"]) for row in more)
        )
        entries.update({name: {**cfg, "enable": True} for name, cfg in rows})


def _export(model: Any, args: argparse.Namespace, model_type: str, hf_export: bool) -> None:
    import torch
    from modelopt.torch import export

    # Not the other buffers: the quantizers' ranges stay as exact as they were measured.
    dtype = getattr(torch, args.dtype)
    scales = [buffer for name, buffer in model.named_buffers() if name.endswith("pre_quant_scale")]
    for tensor in (*model.parameters(), *scales):
        tensor.data = tensor.data.to(dtype)
    with torch.inference_mode():
        if hf_export:
            export.export_hf_checkpoint(model, export_dir=args.output_dir)
            return
        if not hasattr(export, "export_tensorrt_llm_checkpoint"):
            raise BuildError(
                "this modelopt has no TensorRT-LLM export; it was removed in 0.49",
                "pip install 'nvidia-modelopt<0.49'",
            )
        export.export_tensorrt_llm_checkpoint(
            model,
            DECODER_TYPES[model_type],
            dtype,
            export_dir=args.output_dir,
            inference_tensor_parallel=args.tp_size,
        )


def _say(message: str) -> None:
    print(message, flush=True)


if __name__ == "__main__":
    sys.exit(main())
