"""Guided decoding: TensorRT-LLM's guide types as xgrammar's, and a check that a guide can be compiled.

The check is needed because a guide that cannot be compiled raises out of the pipeline's ``step``, where it
leaves every running request in an undefined state (2026.4.1, sampler.cpp). So each new guide is tried on a
model of a few kilobytes in a pipeline of its own, where nobody else runs.
"""

from __future__ import annotations

import math
import re
import struct
import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

from .jobs import RequestRefused, Sampling

# As NVIDIA's Triton backend reads them (model.py, get_guided_decoding_params_from_request).
GUIDE_TYPES = ("json", "json_schema", "regex", "ebnf_grammar")
MAX_GUIDE_BYTES = 64 * 1024
_REMEMBERED = 256
# xgrammar begins its messages with the time and the place in its source.
_COMPILER_PREFIX = re.compile(r"^\[[\d:]+\] \S+:\d+: (Check failed: .*? is false: )?")


def structured_output(sampling: Sampling) -> Any:
    """``openvino_genai.StructuredOutputConfig`` of a guide; ``json`` alone means any JSON value."""
    from openvino_genai import StructuredOutputConfig

    kind, guide = sampling.guide_type, sampling.guide
    if kind == "json":
        return StructuredOutputConfig(json_schema="{}")
    return StructuredOutputConfig(**{"grammar" if kind == "ebnf_grammar" else kind: guide})


def check_guide_type(kind: str, guide: str) -> None:
    """Raises RequestRefused for an unknown type, or a guide that is missing or huge."""
    if kind not in GUIDE_TYPES:
        raise RequestRefused(
            f"guided_decoding_guide_type is {kind!r}; it must be one of {', '.join(GUIDE_TYPES)}"
        )
    if kind != "json" and not guide:
        raise RequestRefused(f"guided_decoding_guide is missing; guide type {kind} needs one")
    if len(guide.encode()) > MAX_GUIDE_BYTES:
        raise RequestRefused(f"guided_decoding_guide is longer than {MAX_GUIDE_BYTES} bytes")


class GuideCheck:
    """Tries guides on the probe model; remembers those that passed."""

    def __init__(self) -> None:
        self._passed: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._pipeline = _probe_pipeline()

    def check(self, sampling: Sampling) -> None:
        """Raises RequestRefused with the grammar compiler's own words."""
        key = (sampling.guide_type, sampling.guide)
        if key not in self._passed:
            self._try(sampling)
            if len(self._passed) >= _REMEMBERED:
                self._passed.popitem(last=False)
        self._passed[key] = None
        self._passed.move_to_end(key)

    def _try(self, sampling: Sampling) -> None:
        import numpy as np
        import openvino
        import openvino_genai

        config = openvino_genai.GenerationConfig()
        config.apply_chat_template = False
        config.max_new_tokens = 1
        config.structured_output_config = structured_output(sampling)
        prompt = openvino.Tensor(np.ones((1, 1), np.int64))
        handle = self._pipeline.add_request(0, prompt, config)
        try:
            self._pipeline.step()
        except RuntimeError as error:
            reason = _COMPILER_PREFIX.sub("", str(error).strip().splitlines()[0])
            raise RequestRefused(f"guided_decoding_guide cannot be compiled: {reason}") from error
        finally:
            handle.cancel()
            self._pipeline.step()


def _probe_pipeline() -> Any:
    import openvino_genai

    scheduler = openvino_genai.SchedulerConfig()
    scheduler.num_kv_blocks = 2
    scheduler.max_num_seqs = 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "probe.gguf"
        path.write_bytes(probe_gguf())
        properties = {"INFERENCE_PRECISION_HINT": "f32"}  # as the worker's own
        return openvino_genai.ContinuousBatchingPipeline(str(path), scheduler, "CPU", properties)


def probe_gguf() -> bytes:
    """A llama of one layer and zero weights whose vocabulary is an end token and the printable ASCII."""
    size = 32
    vocabulary = ["<end>", *map(chr, range(33, 127))]
    entries = [
        _entry("general.architecture", "llama"),
        _entry("general.file_type", 1),  # mostly float16
        _entry("llama.block_count", 1),
        _entry("llama.context_length", 64),
        _entry("llama.embedding_length", size),
        _entry("llama.feed_forward_length", size),
        _entry("llama.attention.head_count", 1),
        _entry("llama.attention.head_count_kv", 1),
        _entry("llama.attention.layer_norm_rms_epsilon", 1e-5),
        _entry("tokenizer.ggml.model", "gpt2"),
        _entry("tokenizer.ggml.pre", "smollm"),
        _entry("tokenizer.ggml.tokens", vocabulary),
        _entry("tokenizer.ggml.token_type", [3] + [1] * (len(vocabulary) - 1)),  # control, normal
        _entry("tokenizer.ggml.merges", ["! !"]),
        _entry("tokenizer.ggml.bos_token_id", 0),
        _entry("tokenizer.ggml.eos_token_id", 0),
        _entry("tokenizer.ggml.unknown_token_id", 0),
    ]
    vectors = ["output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"]
    squares = [f"blk.0.{name}" for name in (
        "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down",
    )]  # fmt: skip
    float32, float16 = (0, 4), (1, 2)  # GGML's type number, bytes of a value
    tensors = [
        ("token_embd", (size, len(vocabulary)), float16),
        *((name, (size,), float32) for name in vectors),
    ]
    tensors += [(name, (size, size), float16) for name in squares]
    infos, offset = b"", 0
    for name, shape, (kind, value_bytes) in tensors:
        dims = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        infos += _text(f"{name}.weight") + dims + struct.pack("<IQ", kind, offset)
        offset += value_bytes * math.prod(shape)  # a multiple of 32, as GGUF asks
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + b"".join(entries) + infos
    return head + bytes(-len(head) % 32) + bytes(offset)


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _entry(key: str, value: str | int | float | list[str] | list[int]) -> bytes:
    """A header entry; type numbers are gguf-py's GGUFValueType."""
    if isinstance(value, str):
        return _text(key) + struct.pack("<I", 8) + _text(value)
    if isinstance(value, float):
        return _text(key) + struct.pack("<If", 6, value)
    if isinstance(value, int):
        return _text(key) + struct.pack("<II", 4, value)
    items = [_text(item) if isinstance(item, str) else struct.pack("<i", item) for item in value]
    kind = 8 if isinstance(value[0], str) else 5
    return _text(key) + struct.pack("<IIQ", 9, kind, len(items)) + b"".join(items)
