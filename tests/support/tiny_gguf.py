"""Tiny random language models as GGUF files, so that a server with a real engine starts in a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
VOCAB = len(SPECIAL) + 256
EOS = 2


def byte_tokens() -> list[str]:
    """The 256 byte-level tokens of GPT-2's vocabulary, in its printable spelling."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spelled = {byte: chr(byte) for byte in printable}
    hidden = (byte for byte in range(256) if byte not in spelled)
    spelled.update({byte: chr(256 + place) for place, byte in enumerate(hidden)})
    return [spelled[byte] for byte in range(256)]


def write_tiny_gguf(
    path: Path,
    *,
    architecture: str = "llama",
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    context: int = 4096,
    seed: int = 0,
    tokenizer: str = "gpt2",
    rope_scaling: str = "",
    rope_freqs: bool = False,
    norm_type: Any = np.float32,
) -> Path:
    """A random model with a byte-level vocabulary of 259 tokens, in float16.

    ``architecture``: llama; qwen2 (biases on q, k and v); qwen3 (norms on q and k).
    """
    import gguf

    random = np.random.default_rng(seed)
    head_size, ffn = hidden // heads, hidden * 2
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(context)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head_size)
    writer.add_rope_dimension_count(head_size)
    writer.add_rope_freq_base(10000.0)
    if rope_scaling:
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope_scaling))
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(1)  # mostly float16
    writer.add_vocab_size(VOCAB)
    writer.add_tokenizer_model(tokenizer)
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([*SPECIAL, *byte_tokens()])
    writer.add_token_types([3] * len(SPECIAL) + [1] * 256)  # control, normal
    writer.add_token_merges(["Ġ t"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(EOS)
    writer.add_unk_token_id(0)

    def matrix(name: str, rows: int, columns: int, scale: float) -> None:
        writer.add_tensor(name, (random.standard_normal((rows, columns)) * scale).astype(np.float16))

    def vector(name: str, size: int, value: float) -> None:
        writer.add_tensor(name, np.full(size, value, norm_type))

    matrix("token_embd.weight", VOCAB, hidden, 1.0)
    matrix("output.weight", VOCAB, hidden, 0.3)
    vector("output_norm.weight", hidden, 1.0)
    if rope_freqs:
        vector("rope_freqs.weight", head_size // 2, 1.0)
    for layer in range(layers):
        at = f"blk.{layer}."
        vector(at + "attn_norm.weight", hidden, 1.0)
        vector(at + "ffn_norm.weight", hidden, 1.0)
        matrix(at + "attn_q.weight", heads * head_size, hidden, 0.2)
        matrix(at + "attn_k.weight", kv_heads * head_size, hidden, 0.2)
        matrix(at + "attn_v.weight", kv_heads * head_size, hidden, 0.2)
        matrix(at + "attn_output.weight", hidden, heads * head_size, 0.2)
        matrix(at + "ffn_gate.weight", ffn, hidden, 0.2)
        matrix(at + "ffn_up.weight", ffn, hidden, 0.2)
        matrix(at + "ffn_down.weight", hidden, ffn, 0.2)
        if architecture == "qwen2":
            for name, size in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
                vector(f"{at}attn_{name}.bias", size * head_size, 0.01)
        if architecture == "qwen3":
            vector(at + "attn_q_norm.weight", head_size, 1.0)
            vector(at + "attn_k_norm.weight", head_size, 1.0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
