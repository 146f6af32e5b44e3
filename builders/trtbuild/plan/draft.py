"""One language model before memory is shared out: all that is decided but its pool and concurrency."""

from __future__ import annotations

from dataclasses import dataclass

from trtbuild.catalog.formats import Format
from trtbuild.plan.activations import (
    decoder_buffers_bytes,
    execution_context_bytes,
    local_activation_bytes,
    local_buffer_bytes,
    runtime_buffers_bytes,
    torch_activation_bytes,
)
from trtbuild.plan.architecture import Architecture
from trtbuild.plan.constants import RESERVE_SHARE
from trtbuild.plan.kv import free_fraction, sequences, whole_blocks
from trtbuild.plan.model import LlmPlan
from trtbuild.spec import MeasuredSpec, Target

# With chunked context a step takes at most so many prompt tokens: a long prompt then delays the streams that
# decode beside it by one small step, and activations stay small. TensorRT-LLM's own default is 8192.
CHUNK_TOKENS = 2048
# The same where vision models share the GPU, beside one token of each sequence: a picture waits for one step
# of the language model. At so few prompt tokens reading the weights takes about as long as the arithmetic
# (8 billion parameters on an L4: 16 GB / 300 GB/s = 53 ms; 512 × 16 GFLOP / 120 TFLOPS = 68 ms), so smaller
# steps would cost more than they give.
CHUNK_TOKENS_BESIDE_VISION = 512
# Waiting requests that a model accepts, as a multiple of those it runs at once.
QUEUE_PER_SLOT = 8
_SCORE_BYTES = 2 + 4
_DEVICE_PER_RESERVE = round(1 / RESERVE_SHARE)


@dataclass(frozen=True)
class Draft:
    """Bytes are of one instance on one GPU (local: in host RAM)."""

    name: str
    source: str
    weights_path: str | None
    target: Target
    trtllm_version: str | None
    architecture: Architecture
    quant: str
    fmt: Format | None  # None: the local engine reads the file as it is
    kv_dtype: str
    dtype: str
    tp: int
    instances: int
    concurrency: int | None  # sequences of the full length that the pool carries, as asked; None: planned
    slots: int | None  # batch slots, as asked; None: as many as concurrency
    pool_tokens: int | None  # as asked; None: planned
    step_tokens: int | None  # as asked; None: planned
    max_input_tokens: int
    max_output_tokens: int
    tokens_per_block: int
    kv_reuse: bool
    chunked_context: bool
    context_fmha: bool
    weights_bytes: int
    engine_copy_bytes: int
    vision_tower_bytes: int
    kv_bytes_per_token: int
    guided: bool = False
    beside_vision: bool = False  # on the same GPU
    measured: MeasuredSpec | None = None  # stands for estimates; scaled to the planned shape

    @property
    def max_seq_len(self) -> int:
        return self.max_input_tokens + self.max_output_tokens

    @property
    def keeps_prefixes(self) -> bool:
        """Whether a pool beyond what the running sequences need is worth its memory."""
        return self.kv_reuse and self.target is not Target.LOCAL and self.pool_tokens is None

    @property
    def most_sequences(self) -> int | None:
        """Sequences of the full length in the pool that was asked for, at least one; None: no limit."""
        return None if self.pool_tokens is None else max(1, self.pool_tokens // self.sequence_tokens)

    @property
    def sequence_tokens(self) -> int:
        """Pool tokens of one sequence of the full length."""
        return whole_blocks(tokens=self.max_seq_len, tokens_per_block=self.tokens_per_block)

    def batch(self, concurrency: int) -> int:
        """Batch slots: at least one for each sequence that the pool carries for sure."""
        return max(concurrency, self.slots or 0)

    def max_num_tokens(self, concurrency: int) -> int:
        """Tokens of one step: as asked or a chunk; one a sequence at least, and whole prompts if uncut."""
        small = min(CHUNK_TOKENS, CHUNK_TOKENS_BESIDE_VISION + concurrency)
        asked = self.step_tokens or (small if self.beside_vision else CHUNK_TOKENS)
        prompt = asked if self.chunked_context else max(asked, self.max_input_tokens)
        most = max(concurrency * self.max_seq_len, self.tokens_per_block)  # trtllm-build clamps to it
        return min(max(prompt, concurrency), most)

    def activation_bytes(self, concurrency: int) -> int:
        """As a log says, where one is known: what it says, times the estimates' ratio of the two shapes."""
        estimate = self._activation_estimate(self.max_num_tokens(concurrency), concurrency)
        known = self.measured
        if known is None or known.activation_bytes is None:
            return estimate
        there = self._activation_estimate(known.max_num_tokens, known.max_batch_size)
        return round(known.activation_bytes * estimate / there)

    def buffer_bytes(self, concurrency: int) -> int:
        """Runtime and decoder buffers; as a log says where one is known, as for activations."""
        known = self.measured
        if known is None or known.buffer_bytes is None:
            return self._buffer_estimate(concurrency)
        return round(
            known.buffer_bytes
            * self._buffer_estimate(concurrency)
            / self._buffer_estimate(known.max_batch_size)
        )

    def _activation_estimate(self, tokens: int, concurrency: int) -> int:
        if self.target is Target.LOCAL:
            return local_activation_bytes(architecture=self.architecture, max_num_tokens=tokens)
        if self.target is Target.LLMAPI or self.fmt is None:
            return torch_activation_bytes(
                architecture=self.architecture,
                tp=self.tp,
                max_num_tokens=tokens,
                max_batch_size=concurrency,
            )
        fused = execution_context_bytes(
            architecture=self.architecture,
            fmt=self.fmt,
            tp=self.tp,
            max_num_tokens=tokens,
            max_batch_size=concurrency,
        )
        return fused if self.context_fmha else fused + self._unfused_bytes(concurrency)

    def _unfused_bytes(self, concurrency: int) -> int:
        """Scores of context attention without fused kernels: batch x heads x input² in 16 and in 32 bit.

        TensorRT-LLM gptAttentionCommon.cpp, getWorkspaceSizeForContext: qk_buf_size and qk_buf_float_size.
        """
        heads = -(-self.architecture.heads // self.tp)
        return concurrency * heads * self.max_input_tokens**2 * _SCORE_BYTES

    def _buffer_estimate(self, concurrency: int) -> int:
        if self.target is Target.LOCAL:
            return local_buffer_bytes(architecture=self.architecture, max_batch_size=concurrency)
        buffers = (runtime_buffers_bytes, decoder_buffers_bytes)
        return sum(
            size(
                architecture=self.architecture,
                max_batch_size=concurrency,
                max_seq_len=self.max_seq_len,
                trtllm_version=self.trtllm_version,
            )
            for size in buffers
        )

    def fixed_bytes(self, concurrency: int) -> int:
        """All instances without their KV pools."""
        batch = self.batch(concurrency)
        one = (
            self.weights_bytes
            + self.engine_copy_bytes
            + self.vision_tower_bytes
            + self.activation_bytes(batch)
            + self.buffer_bytes(batch)
        )
        return self.instances * one

    def kv_need_bytes(self, concurrency: int) -> int:
        """All instances' pools: as asked, else so that each carries ``concurrency`` full sequences."""
        tokens = self.pool_tokens or concurrency * self.sequence_tokens
        return self.instances * tokens * self.kv_bytes_per_token

    def planned(self, *, concurrency: int, kv_tokens: int, reserve_bytes: int) -> LlmPlan:
        """The finished row of the plan."""
        kv_bytes = kv_tokens * self.kv_bytes_per_token
        batch = self.batch(concurrency)
        return LlmPlan(
            name=self.name,
            source=self.source,
            weights_path=self.weights_path,
            quant=self.quant,
            kv_dtype=self.kv_dtype,
            dtype=self.dtype,
            tp=self.tp,
            instances=self.instances,
            weights_bytes=self.weights_bytes,
            engine_copy_bytes=self.engine_copy_bytes,
            vision_tower_bytes=self.vision_tower_bytes,
            activation_bytes=self.activation_bytes(batch),
            buffer_bytes=self.buffer_bytes(batch),
            kv_bytes_per_token=self.kv_bytes_per_token,
            tokens_per_block=self.tokens_per_block,
            kv_tokens=kv_tokens,
            kv_bytes=kv_bytes,
            kv_free_fraction=free_fraction(
                # No pool that fits is larger than the device less its reserve; others are never built.
                kv_bytes=min(kv_bytes, _DEVICE_PER_RESERVE * reserve_bytes),
                reserve_bytes=reserve_bytes,
            ),
            max_batch_size=batch,
            max_num_tokens=self.max_num_tokens(batch),
            max_seq_len=self.max_seq_len,
            max_input_tokens=self.max_input_tokens,
            max_output_tokens=self.max_output_tokens,
            max_concurrency=sequences(
                pool_tokens=kv_tokens,
                max_seq_len=self.max_seq_len,
                tokens_per_block=self.tokens_per_block,
            ),
            kv_reuse=self.kv_reuse,
            chunked_context=self.chunked_context,
            context_fmha=self.context_fmha,
            max_queue_size=batch * QUEUE_PER_SLOT,
            vocab_size=self.architecture.vocab,
            guided=self.guided,
            measured_by=self.measured.source if self.measured is not None else None,
        )
