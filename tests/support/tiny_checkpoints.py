"""Small model folders with safetensors files, written without the safetensors package."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_CODES = {"float32": "F32", "float16": "F16", "int32": "I32", "int8": "I8", "uint8": "U8", "int64": "I64"}

CONFIG: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "torch_dtype": "float16",
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}


def safetensors_bytes(
    tensors: Mapping[str, npt.NDArray[Any]], codes: Mapping[str, str] | None = None
) -> bytes:
    """A file's content; ``codes`` names types that numpy has not (BF16, F8_E4M3), stored as given."""
    header, parts, offset = {}, [], 0
    for name, values in tensors.items():
        raw = np.ascontiguousarray(values).tobytes()
        code = (codes or {}).get(name, _CODES.get(values.dtype.name, ""))
        header[name] = {
            "dtype": code,
            "shape": list(values.shape),
            "data_offsets": [offset, offset + len(raw)],
        }
        parts.append(raw)
        offset += len(raw)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(parts)


def write_model(
    folder: Path,
    tensors: Mapping[str, npt.NDArray[Any]] | None = None,
    *,
    codes: Mapping[str, str] | None = None,
    **config: Any,
) -> Path:
    """A folder with config.json and one safetensors file, a whole model; returns the folder.

    ``tensors`` stand in place of the 16-bit weights of the same modules.
    """
    folder.mkdir(parents=True, exist_ok=True)
    whole = {**CONFIG, **config}
    (folder / "config.json").write_text(json.dumps(whole))
    (folder / "model.safetensors").write_bytes(safetensors_bytes(whole_model(tensors or {}, whole), codes))
    return folder


def whole_model(
    tensors: Mapping[str, npt.NDArray[Any]], config: Mapping[str, Any] = CONFIG
) -> dict[str, npt.NDArray[Any]]:
    """``tensors`` and the 16-bit weights of all other modules."""
    modules = {name.rpartition(".")[0] for name in tensors}
    others = model_tensors(config).items()
    return dict(tensors) | {name: value for name, value in others if name.rpartition(".")[0] not in modules}


def model_tensors(config: Mapping[str, Any] = CONFIG) -> dict[str, npt.NDArray[Any]]:
    """Every matrix of a model with llama's names, in 16 bit, all zero."""
    hidden, ffn, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    head = hidden // config["num_attention_heads"]
    keys = head * config["num_key_value_heads"]
    sizes = {"model.embed_tokens": (vocab, hidden), "model.norm": (hidden,), "lm_head": (vocab, hidden)}
    for layer in range(config["num_hidden_layers"]):
        for name, size in {
            "self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (keys, hidden),
            "self_attn.v_proj": (keys, hidden), "self_attn.o_proj": (hidden, hidden),
            "mlp.gate_proj": (ffn, hidden), "mlp.up_proj": (ffn, hidden), "mlp.down_proj": (hidden, ffn),
        }.items():  # fmt: skip
            sizes[f"model.layers.{layer}.{name}"] = size
    return {f"{name}.weight": np.zeros(size, np.float16) for name, size in sizes.items()}


def awq_tensors(*, inputs: int = 256, outputs: int = 256, group: int = 128) -> dict[str, npt.NDArray[Any]]:
    """One layer as AutoAWQ stores it: eight 4-bit outputs an int32."""
    name = "model.layers.0.self_attn.q_proj"
    return {
        f"{name}.qweight": np.zeros((inputs, outputs // 8), np.int32),
        f"{name}.qzeros": np.zeros((inputs // group, outputs // 8), np.int32),
        f"{name}.scales": np.ones((inputs // group, outputs), np.float16),
    }


def gptq_tensors(
    *, inputs: int = 256, outputs: int = 256, group: int = 128, order: list[int] | None = None
) -> dict[str, npt.NDArray[Any]]:
    """One layer as GPTQ stores it: eight 4-bit inputs an int32, and the group of each input."""
    name = "model.layers.0.self_attn.q_proj"
    groups = np.arange(inputs, dtype=np.int32) // group if order is None else np.array(order, np.int32)
    return {
        f"{name}.qweight": np.zeros((inputs // 8, outputs), np.int32),
        f"{name}.qzeros": np.zeros((inputs // group, outputs // 8), np.int32),
        f"{name}.scales": np.ones((inputs // group, outputs), np.float16),
        f"{name}.g_idx": groups,
    }
