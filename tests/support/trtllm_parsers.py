"""trtllm-build's command line by version, as NVIDIA/TensorRT-LLM's own argument parsers declare it.

Extracted by reading ``tensorrt_llm/commands/build.py`` (``parse_arguments``) and
``tensorrt_llm/plugin/plugin.py`` (``cli_plugin_args``, ``add_plugin_argument``) at the commits named; nothing
here comes from this project's own table. Not every version's two files could be had at its tag: a snapshot
stands for the versions it lies among.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

_INT = [
    "max_batch_size",
    "max_input_len",
    "max_seq_len",
    "max_beam_width",
    "max_num_tokens",
    "opt_num_tokens",
    "workers",
    "max_draft_len",
    "max_encoder_input_len",
    "max_prompt_embedding_table_size",
    "max_lora_rank",
]
_STR = [
    "checkpoint_dir",
    "model_config",
    "build_config",
    "model_cls_file",
    "model_cls_name",
    "output_dir",
    "paged_kv_cache",
    "input_timing_cache",
    "output_timing_cache",
]
_SWITCH = [
    "strip_plan",
    "weight_sparsity",
    "weight_streaming",
    "fast_build",
    "enable_debug_output",
    "dry_run",
    "gather_context_logits",
    "gather_generation_logits",
    "gather_all_token_logits",
]
_LEVELS = ("internal_error", "error", "warning", "info", "verbose", "debug", "trace")  # logger.severity_map
_DTYPES = ("auto", "float16", "float32", "bfloat16", "int32", "disable")
_GEMM = ("auto", "float16", "float32", "bfloat16", "int32", "fp8", "disable")
_FP8 = ("fp8", "disable")
_ONOFF = ("enable", "disable")

_PLUGINS_2024_07 = {
    **dict.fromkeys(
        (
            "bert_attention_plugin",
            "gpt_attention_plugin",
            "lookup_plugin",
            "lora_plugin",
            "moe_plugin",
            "mamba_conv1d_plugin",
            "nccl_plugin",
        ),
        _DTYPES,
    ),
    "gemm_plugin": _DTYPES,  # the map of special choices was not read there: only what every plugin takes
    **dict.fromkeys(
        (
            "context_fmha",
            "context_fmha_fp32_acc",
            "remove_input_padding",
            "use_custom_all_reduce",
            "multi_block_mode",
            "enable_xqa",
            "use_paged_context_fmha",
            "use_fp8_context_fmha",
            "multiple_profiles",
            "paged_state",
            "streamingllm",
            "reduce_fusion",
        ),
        _ONOFF,
    ),
}
_PLUGINS_2024_10 = {
    **dict.fromkeys(
        (
            "bert_attention_plugin",
            "gpt_attention_plugin",
            "fp8_rowwise_gemm_plugin",
            "lookup_plugin",
            "lora_plugin",
            "moe_plugin",
            "mamba_conv1d_plugin",
            "nccl_plugin",
        ),
        _DTYPES,
    ),
    "gemm_plugin": _GEMM,
    "gemm_swiglu_plugin": _FP8,
    "low_latency_gemm_plugin": _FP8,
    **dict.fromkeys(
        (
            "context_fmha",
            "bert_context_fmha_fp32_acc",
            "remove_input_padding",
            "enable_xqa",
            "use_paged_context_fmha",
            "use_fp8_context_fmha",
            "multiple_profiles",
            "paged_state",
            "streamingllm",
            "reduce_fusion",
            "use_fused_mlp",
            "pp_reduce_scatter",
        ),
        _ONOFF,
    ),
}
_PLUGINS_2024_12 = {
    **{
        name: values
        for name, values in _PLUGINS_2024_10.items()
        if name not in ("lookup_plugin", "enable_xqa")
    },
    "low_latency_gemm_swiglu_plugin": _FP8,
    "user_buffer": _ONOFF,
}
_PLUGINS_2025_02 = {
    **_PLUGINS_2024_12,
    "gemm_plugin": (*_GEMM[:-1], "nvfp4", "disable"),
    "gemm_allreduce_plugin": ("float16", "bfloat16", "disable"),
    "dora_plugin": _ONOFF,
    "fuse_fp4_quant": _ONOFF,
}
_PLUGINS_2025_10 = {**_PLUGINS_2025_02, "norm_quant_fusion": _ONOFF}


@dataclass(frozen=True)
class Snapshot:
    """One state of the two files. ``choices`` and ``switches`` are flags beyond those of every version."""

    versions: tuple[str, ...]
    build_py: str
    plugin_py: str
    plugins: dict[str, tuple[str, ...]]
    ints: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    strings: tuple[str, ...] = ()
    log_levels: tuple[str, ...] | None = _LEVELS

    def parser(self) -> argparse.ArgumentParser:
        """An argument parser that takes and refuses what the real one does; no abbreviations."""
        parser = argparse.ArgumentParser(prog="trtllm-build", allow_abbrev=False)
        for name in (*_INT, *self.ints):
            parser.add_argument(f"--{name}", type=int)
        for name in (*_STR, *self.strings):
            parser.add_argument(f"--{name}")
        for name in (*_SWITCH, *self.switches):
            parser.add_argument(f"--{name}", action="store_true")
        parser.add_argument("--kv_cache_type", choices=("continuous", "paged", "disabled"))
        parser.add_argument("--profiling_verbosity", choices=("layer_names_only", "detailed", "none"))
        parser.add_argument("--logits_dtype", choices=("float16", "float32"))
        parser.add_argument("--lora_dir", nargs="+")
        parser.add_argument("--lora_target_modules", nargs="+")
        parser.add_argument("--lora_ckpt_source", choices=("hf", "nemo"))
        parser.add_argument("--speculative_decoding_mode")
        parser.add_argument("--log_level", choices=self.log_levels)
        parser.add_argument("--tokens_per_block", type=int)
        for name, values in self.plugins.items():
            parser.add_argument(f"--{name}", choices=values)
        return parser


_AUTO_PARALLEL = ("auto_parallel", "gpus_per_node")
_BUILDER = ("builder_opt", "builder_force_num_profiles")

SNAPSHOTS = (
    Snapshot(
        ("0.12.0",),
        "74b324f6673d1d8a836e05e506dea2234b22ccc8",
        "9dbc5b38baba399c5517685ecc5b66f57a177a4c",
        _PLUGINS_2024_07,
        ints=(*_AUTO_PARALLEL, *_BUILDER, "cp_size", "tp_size", "pp_size"),
        strings=("cluster_key",),
        switches=("visualize_network", "use_fused_mlp"),
        log_levels=None,
    ),
    Snapshot(
        ("0.13.0", "0.14.0"),
        "b8fc6633ba27550dea5f33641f5d94b6c7f02125",
        "75057cd036af25e288c004d8ac9e52fd2d6224aa",
        _PLUGINS_2024_10,
        ints=(*_AUTO_PARALLEL, *_BUILDER),
        strings=("cluster_key",),
        switches=("visualize_network",),
        log_levels=None,
    ),
    Snapshot(
        ("0.15.0", "0.16.0"),
        "42a7b0922fc9e095f173eab9a7efa0bcdceadd0d",
        "548b5b73106aaf7374955e1c37aad677678ebc7b",
        _PLUGINS_2024_12,
        ints=_AUTO_PARALLEL,
        strings=("cluster_key",),
        switches=("visualize_network", "monitor_memory"),
    ),
    Snapshot(
        ("0.17.0", "0.17.0.post1", "0.18.0", "0.18.2", "0.19.0"),
        "008b2b8d23af95e4e19fa6f354f9c5f6349b2bfc",
        "16d2467ea8e3b45d7d9555010c2ad018d006d5c1",
        _PLUGINS_2025_02,
        ints=_AUTO_PARALLEL,
        strings=("cluster_key", "visualize_network"),
        switches=("monitor_memory",),
    ),
    Snapshot(
        ("0.20.0", "0.21.0", "1.0.0", "1.0.3.2510", "1.1.0", "1.2.0", "1.2.1"),
        "65f1d1536e18aea3380e6e270e00895a709333eb",
        "c20322ffd3dc0740ca530c9fad989b22e64f6e06",
        _PLUGINS_2025_10,
        strings=("visualize_network",),
        switches=("monitor_memory",),
    ),
)


def snapshot_of(version: str) -> Snapshot:
    """The snapshot that stands for a version."""
    return next(snapshot for snapshot in SNAPSHOTS if version in snapshot.versions)


def quantize_parser() -> argparse.ArgumentParser:
    """examples/quantization/quantize.py at c8c6df08bd0ead54cd47f7973e1e425c28a174cd."""
    parser = argparse.ArgumentParser(prog="quantize.py", allow_abbrev=False)
    for name in ("model_dir", "nemo_ckpt_path", "decoder_type", "calib_dataset", "output_dir"):
        parser.add_argument(f"--{name}")
    for name in (
        "calib_tp_size",
        "calib_pp_size",
        "seed",
        "tokenizer_max_seq_length",
        "batch_size",
        "calib_size",
        "calib_max_seq_length",
        "tp_size",
        "pp_size",
        "cp_size",
        "awq_block_size",
    ):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--device", choices=("cuda", "cpu"))
    parser.add_argument("--device_map", choices=("auto", "sequential", "cpu", "gpu"))
    parser.add_argument("--dtype", choices=("auto", "float16", "bfloat16", "float32"))
    parser.add_argument(
        "--qformat",
        choices=(
            "nvfp4",
            "fp8",
            "fp8_pc_pt",
            "int8_sq",
            "int4_awq",
            "w4a8_awq",
            "int8_wo",
            "int4_wo",
            "full_prec",
        ),
    )
    parser.add_argument("--kv_cache_dtype", choices=("int8", "fp8"))
    parser.add_argument("--quantize_lm_head", action="store_true")
    return parser


def convert_parser() -> argparse.ArgumentParser:
    """What convert_checkpoint.py of qwen (05316d33, 0.11 and 0df9aaf3, 1.x) and llama (04a2cacb, 368f8f2a)
    share.
    """
    parser = argparse.ArgumentParser(prog="convert_checkpoint.py", allow_abbrev=False)
    for name in ("model_dir", "output_dir", "calib_dataset"):
        parser.add_argument(f"--{name}")
    for name in ("tp_size", "pp_size", "moe_tp_size", "moe_ep_size", "workers", "group_size"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32"))
    parser.add_argument("--weight_only_precision", choices=("int8", "int4", "int4_gptq"))
    for name in (
        "use_weight_only",
        "int8_kv_cache",
        "per_group",
        "load_model_on_cpu",
        "use_parallel_embedding",
    ):
        parser.add_argument(f"--{name}", action="store_true")
    return parser


def gemma_convert_parser(*, old: bool) -> argparse.ArgumentParser:
    """convert_checkpoint.py of gemma: examples/gemma at 201135e5, examples/models/core/gemma at 310decb9."""
    parser = argparse.ArgumentParser(prog="convert_checkpoint.py", allow_abbrev=False)
    parser.add_argument("--ckpt-type", choices=("jax", "keras", "torch", "hf"))
    parser.add_argument("--model-dir", *([] if old else ["--model_dir"]), required=True)
    parser.add_argument("--output-model-dir", *([] if old else ["--output_dir"]), required=True)
    parser.add_argument("--world-size", type=int)
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32"))
    precisions = ("int8", "int4", "w4a8_awq", "w4a16_awq")
    if old:
        parser.add_argument(
            "--use-weight-only-with-precision", dest="weight_only_precision", choices=precisions
        )
    else:
        parser.add_argument("--use_weight_only", action="store_true")
        parser.add_argument("--weight_only_precision", "--use-weight-only-with-precision", choices=precisions)
    parser.add_argument("--int8_kv_cache", "--calibrate_kv_cache", "-kv", action="store_true")
    parser.add_argument("--calib_dataset")
    return parser


def family_convert_parser(model_type: str) -> argparse.ArgumentParser:
    """convert_checkpoint.py of phi (10c1d594), gptj (25b6cdd8), falcon (323e8460), internlm2 (368f8f2a),
    glm-4-9b (10c1d594) and baichuan (25b6cdd8), as far as the plan may use it.
    """
    parser = argparse.ArgumentParser(prog="convert_checkpoint.py", allow_abbrev=False)
    for name in ("model_dir", "output_dir"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--tp_size", type=int)
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32"))
    parser.add_argument("--use_weight_only", action="store_true")
    parser.add_argument("--weight_only_precision", choices=("int8", "int4"))
    if model_type == "chatglm":
        parser.add_argument("--chatglm_version", choices=("glm4", "chatglm3", "chatglm2", "chatglm", "glm"))
    if model_type == "baichuan":
        parser.add_argument("--model_version", choices=("v1_7b", "v1_13b", "v2_7b", "v2_13b"))
        parser.add_argument("--int8_kv_cache", action="store_true")
        parser.add_argument("--calib_dataset")
    return parser


def lora_parser() -> argparse.ArgumentParser:
    """examples/hf_lora_convert.py at 05316d33."""
    parser = argparse.ArgumentParser(prog="hf_lora_convert.py", allow_abbrev=False)
    parser.add_argument("--out-dir", "-o", required=True)
    parser.add_argument("--in-file", "-i", required=True)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--storage-type", choices=("float32", "float16", "bfloat16"))
    return parser


def tokenizer_info_parser() -> argparse.ArgumentParser:
    """examples/generate_xgrammar_tokenizer_info.py at 7ed07f06."""
    parser = argparse.ArgumentParser(prog="generate_xgrammar_tokenizer_info.py", allow_abbrev=False)
    parser.add_argument("--model_dir", required=True)
    parser.add_argument("--output_dir", required=True)
    return parser
