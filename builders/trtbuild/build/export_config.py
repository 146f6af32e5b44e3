"""Completes the config.json that modelopt exports, from the source's own.

Without tensorrt_llm installed, modelopt fills the configuration from attributes that transformers 5 renamed:
the rotary base and scaling are then left out, TensorRT-LLM takes its default of 10,000, and every answer is
wrong while nothing fails. The fields are those of TensorRT-LLM's models/{llama,qwen}/config.py.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtbuild.build.weights import read_config

_DEFAULT_ROTARY_BASE = 10000.0
# What a folder needs beside its weights to be used alone.
_COMPANIONS = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json", "merges.txt", "chat_template.jinja", "generation_config.json",
)  # fmt: skip


def fix_trtllm_config(checkpoint: Path, *, source_config: Mapping[str, Any]) -> None:
    """Writes rotary, bias and norm fields of the source into a TensorRT-LLM checkpoint's config.json.

    Raises:
        ModelSourceError: the checkpoint has no config.json.
    """
    config = read_config(checkpoint)
    model_type = str(source_config["model_type"])
    rotary = rotary_fields(source_config)
    qwen = model_type.startswith("qwen")
    config.update(
        model_type=model_type,
        rotary_base=rotary["rope_theta"],
        rotary_scaling=rotary["rope_scaling"],
        norm_epsilon=source_config["rms_norm_eps"],
        attn_bias=model_type in ("qwen", "qwen2", "qwen2_moe") or bool(source_config.get("attention_bias")),
        mlp_bias=bool(source_config.get("mlp_bias")),
    )
    if qwen:
        config["qwen_type"] = model_type
        config["seq_length"] = source_config.get("seq_length", 8192)  # only Qwen1's logn attention reads it
    if model_type == "qwen3":
        config["qk_layernorm"] = True
    _write(checkpoint / "config.json", config)


def fix_hf_export(checkpoint: Path, *, source: Path, source_config: Mapping[str, Any]) -> None:
    """Puts the source's own config.json and tokenizer beside exported Hugging Face weights.

    The exported configuration is written in the words of the transformers that runs here, which older ones
    (TensorRT-LLM's own) read as defaults. Only its ``quantization_config`` is kept.
    """
    exported = read_config(checkpoint)
    config = {**source_config, "quantization_config": exported["quantization_config"]}
    for name, value in rotary_fields(source_config).items():
        if config.get(name) is None:
            config[name] = value
    _write(checkpoint / "config.json", config)
    for name in _COMPANIONS:
        if (source / name).is_file():
            shutil.copyfile(source / name, checkpoint / name)


def rotary_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``rope_theta`` and ``rope_scaling`` of a config.json, written by whichever transformers.

    transformers 5 writes both into ``rope_parameters``; ``rope_scaling`` is None where nothing is scaled, and
    names its kind both as ``type`` and as ``rope_type``.
    """
    parameters = dict(config.get("rope_parameters") or {})
    theta = config.get("rope_theta", parameters.pop("rope_theta", None))
    scaling = dict(config.get("rope_scaling") or parameters)
    scaling.pop("rope_theta", None)
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind in (None, "default"):
        scaling = {}
    else:
        scaling.update(type=kind, rope_type=kind)
    return {"rope_theta": float(theta or _DEFAULT_ROTARY_BASE), "rope_scaling": scaling or None}


def _write(path: Path, config: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
