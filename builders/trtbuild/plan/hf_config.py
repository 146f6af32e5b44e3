"""Hugging Face's config.json → `Architecture`: what is read, what is refused, and what is assumed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trtbuild.errors import ModelSourceError
from trtbuild.plan.architecture import Architecture, from_shape
from trtbuild.plan.hf_fields import (
    KNOWN_FAMILIES,
    classes_of,
    default_context,
    family_of,
    shape_of,
    stretched_context,
)
from trtbuild.plan.lfs import refuse_pointer
from trtbuild.plan.quant_configs import MODELOPT_FILE, format_in, parse_quant_config, with_modelopt

Config = Mapping[str, Any]

_OTHER_KINDS = {
    "t5": "an encoder-decoder", "mt5": "an encoder-decoder", "bart": "an encoder-decoder",
    "mbart": "an encoder-decoder", "marian": "an encoder-decoder", "whisper": "a speech encoder-decoder",
    "bert": "an encoder", "roberta": "an encoder", "xlm-roberta": "an encoder", "distilbert": "an encoder",
    "mamba": "a state-space model", "mamba2": "a state-space model", "rwkv": "a recurrent model",
    "clip": "an image-text encoder", "vit": "an image model",
}  # fmt: skip
# Keys of models whose layers are not all attention, or not all alike: neither weights nor KV follow from
# one layer's sizes.
_MIXED_LAYERS = (
    "hybrid_override_pattern", "layers_block_type", "attn_layer_period", "mamba_d_state", "ssm_state_size",
    "linear_num_key_heads", "block_configs", "cross_attention_layers", "block_types", "num_kv_shared_layers",
)  # fmt: skip
# Beside a text model's own fields (Qwen2-VL, Qwen2.5-VL).
_TOWERS = ("vision_config", "audio_config")
# What `layer_types` may hold: anything else is a layer without a paged KV cache.
_ATTENTION_LAYERS = frozenset({"full_attention", "sliding_attention", "chunked_attention", "attention"})
# transformers writes only what differs from a class default into text_config; by its model_type, or the
# whole model's where it names none.
_TEXT_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma3": {
        "vocab_size": 262_208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "max_position_embeddings": 131_072, "sliding_window": 4096, "model_type": "gemma3_text",
    },
    "llama": {
        "vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32,
        "num_attention_heads": 32,
    },
    "mistral": {
        "vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8,
    },
}  # fmt: skip


def read_hf_config(folder: Path) -> dict[str, Any]:
    """A folder's config.json, with modelopt's hf_quant_config.json as its ``quantization_config``.

    Raises:
        ModelSourceError: no such folder or file, or not a JSON object.
    """
    return with_modelopt(folder, _read_object(folder / "config.json"))


def group_size_of(folder: Path) -> int | None:
    """Weights that share a scale, of a folder's quantised weights; None where the config does not say."""
    if not (folder / "config.json").is_file():
        return None
    try:
        found = parse_quant_config(folder, read_hf_config(folder))
    except ModelSourceError:
        return None  # whoever takes the weights says what is wrong with them
    return None if found is None else found.group_size


def kv_algo_of(folder: Path) -> str | None:
    """The type of the KV cache that a folder's quantisation was made for, such as FP8; None for 16 bit.

    TensorRT-LLM and modelopt call it ``kv_cache_quant_algo``. compressed-tensors' ``kv_cache_scheme`` is left
    out: no target reads it.
    """
    for name in (MODELOPT_FILE, "config.json"):
        section = _read_object(folder / name).get("quantization") if (folder / name).is_file() else None
        if isinstance(section, dict) and section.get("kv_cache_quant_algo"):
            return str(section["kv_cache_quant_algo"])
    return None


def _read_object(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise ModelSourceError(
            f"{path.parent} has no {path.name} that can be read, so nothing is known of the model",
            "give the folder that transformers' save_pretrained wrote, or a catalogue name",
        ) from None
    except (ValueError, RecursionError) as error:
        refuse_pointer(path)
        raise ModelSourceError(f"{path} is not valid JSON: {error}", "fetch the file again") from None
    if not isinstance(data, dict):
        raise ModelSourceError(f"{path} holds a {type(data).__name__}, not an object", "fetch the file again")
    return data


def parse_hf_config(config: Config) -> Architecture:
    """The architecture that a config.json describes.

    Raises:
        ModelSourceError: not a decoder-only language model, a field missing or senseless.
    """
    model_type = str(config.get("model_type") or "").lower()
    _refuse_other_kinds(config, model_type)
    text = config.get("text_config") or config.get("llm_config")
    if isinstance(text, Mapping):
        return _text_tower(config, text, model_type)
    architecture = replace(from_shape(shape_of(config, model_type)), native_quant=format_in(config))
    if any(isinstance(config.get(key), Mapping) for key in _TOWERS):
        architecture = replace(architecture, assumption=_text_only(model_type))
    if (context := default_context(config, model_type)) is not None:
        note = f"config.json names no longest context; {context} is transformers' default for {model_type}"
        architecture = _assuming(architecture, note)
    if (reached := stretched_context(config, model_type)) is not None:
        note = (
            f"config.json's YaRN scaling reaches {reached} tokens, and TensorRT-LLM goes no further than "
            f"max_position_embeddings, {architecture.context}; write {reached} there for the longer context"
        )
        architecture = _assuming(architecture, note)
    if family_of(model_type) in KNOWN_FAMILIES:
        return architecture
    shown = model_type or "(none)"
    return _assuming(
        architecture,
        f"config.json's model_type {shown} is not a known family; it is taken as llama-like "
        f"({'gated' if architecture.gated_mlp else 'plain'} MLP, two norms a layer), so compare the weights "
        "with the size of its files",
    )


def _assuming(architecture: Architecture, note: str) -> Architecture:
    return replace(architecture, assumption="; ".join(filter(None, (architecture.assumption, note))))


def _text_only(model_type: str) -> str:
    return f"config.json is of a multimodal model ({model_type}); only its text tower is planned"


def _text_tower(config: Config, text: Config, model_type: str) -> Architecture:
    defaults = _TEXT_DEFAULTS.get(str(text.get("model_type"))) or _TEXT_DEFAULTS.get(model_type, {})
    inner = {**defaults, **text}
    for key in ("torch_dtype", "dtype", "quantization_config"):
        if inner.get(key) is None and config.get(key) is not None:
            inner[key] = config[key]
    inner.setdefault("tie_word_embeddings", config.get("tie_word_embeddings", model_type.startswith("gemma")))
    inner["model_type"] = inner.get("model_type") or model_type
    inner["architectures"] = config.get("architectures")  # what is loaded is the whole model
    architecture = parse_hf_config(inner)
    return _assuming(architecture, _text_only(model_type))


def _refuse_other_kinds(config: Config, model_type: str) -> None:
    kind = _OTHER_KINDS.get(model_type)
    if kind is None and config.get("is_encoder_decoder"):
        kind = "an encoder-decoder"
    if kind is None and any(name.endswith("ForMaskedLM") for name in classes_of(config)):
        kind = "an encoder"
    if kind is not None:
        raise ModelSourceError(
            f"config.json describes {kind} ({model_type or 'no model_type'}); "
            "only decoder-only language models are served",
            "choose a chat or completion model; `trtbuild models` lists some",
        )
    mixed = next((key for key in _MIXED_LAYERS if config.get(key)), None)
    numbered = config.get("attn_type_list")  # MiniMax: 1 is softmax attention
    if numbered and not (isinstance(numbered, list) and all(kind == 1 for kind in numbered)):
        mixed = "attn_type_list"
    kinds = config.get("layer_types")
    if mixed is None and isinstance(kinds, list):
        mixed = next((str(kind) for kind in kinds if str(kind) not in _ATTENTION_LAYERS), None)
    if mixed is not None:
        raise ModelSourceError(
            f"config.json describes a model ({model_type}) whose layers are of several kinds ({mixed}); "
            "its weights and its cache cannot be counted from one layer",
            "choose a model in which every layer is attention; `trtbuild models` lists some",
        )
