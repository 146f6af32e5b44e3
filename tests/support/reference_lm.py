"""A plain numpy forward pass of a GGUF model (llama, qwen2, qwen3), to hold the engine against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


class ReferenceLm:
    """Float32 arithmetic on the file's own weights; slow and simple."""

    def __init__(self, path: Path) -> None:
        import gguf

        reader = gguf.GGUFReader(path)
        self._arch = str(reader.fields["general.architecture"].contents())
        self._fields = {
            name: field.contents() for name, field in reader.fields.items() if "tokenizer" not in name
        }
        self._weights: dict[str, Array] = {
            tensor.name: np.array(tensor.data, np.float32) for tensor in reader.tensors
        }

    def _value(self, name: str) -> Any:
        return self._fields[f"{self._arch}.{name}"]

    def _norm(self, x: Array, name: str) -> Array:
        scale = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + self._value("attention.layer_norm_rms_epsilon"))
        return x * scale * self._weights[name]

    def _rotate(self, x: Array) -> Array:
        """[positions, heads, size]. llama files hold pairs side by side, the others a half apart."""
        size = x.shape[-1]
        angle = np.arange(x.shape[0])[:, None] * self._value("rope.freq_base") ** (
            -np.arange(0, size, 2) / size
        )
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        out = np.empty_like(x)
        if self._arch == "llama":
            first, second = slice(0, None, 2), slice(1, None, 2)
        else:
            first, second = slice(0, size // 2), slice(size // 2, None)
        out[..., first] = x[..., first] * cos - x[..., second] * sin
        out[..., second] = x[..., second] * cos + x[..., first] * sin
        return out

    def _attention(self, x: Array, at: str) -> Array:
        heads, kv_heads = self._value("attention.head_count"), self._value("attention.head_count_kv")
        parts = {}
        for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            part = x @ self._weights[f"{at}attn_{name}.weight"].T
            part = part + self._weights.get(f"{at}attn_{name}.bias", np.float32(0))
            parts[name] = part.reshape(len(x), count, -1)
        q, k, v = parts["q"], parts["k"], parts["v"]
        if f"{at}attn_q_norm.weight" in self._weights:
            q, k = self._norm(q, f"{at}attn_q_norm.weight"), self._norm(k, f"{at}attn_k_norm.weight")
        q, k = self._rotate(q), self._rotate(k)
        k, v = np.repeat(k, heads // kv_heads, 1), np.repeat(v, heads // kv_heads, 1)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[-1])
        scores += np.triu(np.full((len(x), len(x)), -np.inf), 1)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return (
            np.einsum("hqk,khd->qhd", weights, v).reshape(len(x), -1)
            @ self._weights[f"{at}attn_output.weight"].T
        )

    def log_probs(self, ids: list[int]) -> Array:
        """Natural logarithms of the next token's probabilities after ``ids``; [vocabulary]."""
        x = self._weights["token_embd.weight"][ids]
        for layer in range(self._value("block_count")):
            at = f"blk.{layer}."
            x = x + self._attention(self._norm(x, f"{at}attn_norm.weight"), at)
            h = self._norm(x, f"{at}ffn_norm.weight")
            gate = h @ self._weights[f"{at}ffn_gate.weight"].T
            up = h @ self._weights[f"{at}ffn_up.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ self._weights[f"{at}ffn_down.weight"].T
        logits = self._norm(x[-1], "output_norm.weight") @ self._weights["output.weight"].T
        shifted = logits - logits.max()
        result: Array = shifted - np.log(np.exp(shifted).sum())
        return result
