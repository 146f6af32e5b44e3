"""Whether a folder's tensors are the model of its config.json: all layers, all parts, their sizes.

Only headers are read. What is not known by name is not judged: a model must not be refused for its spelling.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtbuild.build.tensors import TensorInfo
from trtbuild.errors import ModelSourceError
from trtbuild.plan.architecture import Architecture, from_hf_config

_LAYER = re.compile(r"(?:(?P<stack>.*)\.)?(?:layers|layer|h|blocks)\.(?P<layer>\d+)\.(?P<module>.+)\.[^.]+")
_EXPERT = re.compile(r"\bexperts\.\d+\b")
_OTHER_STACKS = re.compile(r"vis|image|audio|speech|tower|proj|mtp|resampler|merger")
_MLP = re.compile(r"mlp|feed_forward|block_sparse_moe|moe|ffn")
# Families whose layers carry these names, with the sizes of llama's layers.
_LLAMA_NAMES = (
    "llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "gemma", "gemma2",
    "gemma3_text", "smollm3",
)  # fmt: skip
_PLAIN = ("BF16", "F16", "F32", "F8_E4M3")
_AGAIN = "fetch the model again, index and shards of one revision"


def check_whole(folder: Path, tensors: Mapping[str, TensorInfo], config: Mapping[str, Any]) -> None:
    """Holds the tensors of a Hugging Face folder against its config.json.

    Raises:
        ModelSourceError: an adapter, layers or parts that are missing, sizes that differ.
    """
    if any(".lora_A." in name for name in tensors):
        raise ModelSourceError(
            f"{folder} holds a LoRA adapter and no model", "give the model, and the adapter with --lora"
        )
    try:
        architecture = from_hf_config(config)
    except ModelSourceError:
        return  # it tells no decoder's sizes; whoever plans with it says so
    stack = _text_stack(folder, tensors)
    if stack is None:
        return
    _check_layers(folder, stack, architecture, config)
    _check_sizes(folder, tensors, architecture)
    own_head = architecture.model_type in _LLAMA_NAMES and config.get("tie_word_embeddings") is False
    if own_head and not any("lm_head." in name for name in tensors):
        raise ModelSourceError(
            f"{folder}: config.json says that lm_head has weights of its own (tie_word_embeddings false), "
            "and no tensor is called so",
            _AGAIN,
        )


def _text_stack(folder: Path, tensors: Mapping[str, TensorInfo]) -> dict[int, set[str]] | None:
    """Layer → its modules in the language model; None where several stacks could be it."""
    stacks: dict[str, dict[int, set[str]]] = {}
    for name in tensors:
        if (match := _LAYER.fullmatch(name)) and not _OTHER_STACKS.search(match["stack"] or ""):
            module = _EXPERT.sub("experts.*", match["module"])
            stacks.setdefault(match["stack"] or "", {}).setdefault(int(match["layer"]), set()).add(module)
    if not stacks:
        raise ModelSourceError(f"{folder}: its {len(tensors)} tensors are no layers of a model", _AGAIN)
    return next(iter(stacks.values())) if len(stacks) == 1 else None


def _check_layers(
    folder: Path, stack: Mapping[int, set[str]], architecture: Architecture, config: Mapping[str, Any]
) -> None:
    count = architecture.layers
    missing = sorted(set(range(count)) - stack.keys())
    predicted = config.get("num_nextn_predict_layers")
    surplus = sorted(
        layer for layer in stack if layer >= count + (predicted if isinstance(predicted, int) else 0)
    )
    if missing or surplus:
        what = f"layer {missing[0]} is missing" if missing else f"the files hold layer {max(stack)}"
        raise ModelSourceError(
            f"{folder}: config.json says {count} layers (0 to {count - 1}), and {what}", _AGAIN
        )
    mixed = architecture.moe is not None and architecture.moe.dense_layers > 0
    seen = Counter(
        module
        for layer in range(count)
        for module in stack[layer]
        if "rotary" not in module and not (mixed and _MLP.match(module))
    )
    usual = {module for module, times in seen.items() if 2 * times >= count} | _sizes(architecture).keys()
    for layer in range(count):
        lacking = sorted(usual - stack[layer])
        if lacking:
            raise ModelSourceError(f"{folder}: layer {layer} has no {', '.join(lacking)}", _AGAIN)


def _check_sizes(folder: Path, tensors: Mapping[str, TensorInfo], architecture: Architecture) -> None:
    wanted = _sizes(architecture)
    if not wanted:
        return
    for name, info in tensors.items():
        module = name.removesuffix(".weight")
        if (
            module == name
            or len(info.shape) != 2
            or info.dtype not in _PLAIN
            or _OTHER_STACKS.search(module.partition("layers.")[0])
        ):
            continue  # of another part, or packed in a way that its shape does not tell
        rows, width = info.shape
        least = (architecture.vocab, architecture.hidden)
        size = wanted.get(".".join(module.split(".")[-2:]))
        if module.endswith("embed_tokens") and (rows < least[0] or width != least[1]):
            size = least
        elif size is None or (rows, width) == size:
            continue
        raise ModelSourceError(
            f"{folder}: {name} is {rows} × {width} (outputs × inputs), and by config.json it is "
            f"{size[0]} × {size[1]}",
            "fetch config.json and weights of one revision",
        )


def _sizes(architecture: Architecture) -> dict[str, tuple[int, int]]:
    """(outputs, inputs) of each matrix of a layer, where a family's names are known; else nothing."""
    if architecture.model_type not in _LLAMA_NAMES or architecture.mla is not None:
        return {}
    hidden, ffn = architecture.hidden, architecture.ffn
    queries = architecture.heads * architecture.head_dim
    keys = architecture.kv_heads * architecture.head_dim
    sizes = {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
    }
    if architecture.moe is None:
        sizes |= {
            "mlp.gate_proj": (ffn, hidden),
            "mlp.up_proj": (ffn, hidden),
            "mlp.down_proj": (hidden, ffn),
        }
    return sizes
