"""The plan: every number of a deployment, decided once and read by all that comes after it.

Engine flags, Triton configs, the launch line, client defaults and the deployment's documentation are
derived from these objects; none of them computes a number of its own.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from trtbuild.spec import Target


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class Finding(_Frozen):
    """One thing that a rule noticed.

    ``message`` says what was found and why it matters; ``remedy`` what would work, with its numbers.
    """

    id: str
    severity: Literal["error", "warning", "info"]
    message: str
    remedy: str = ""


class GpuPlan(_Frozen):
    """The device. ``memory_bytes`` is what tools report as usable; for ``local`` it is host RAM."""

    name: str
    memory_bytes: int
    sm: str | None  # compute capability such as "8.9"; None for a CPU


class LedgerItem(_Frozen):
    """One line of the memory account. ``where`` tells device memory, host RAM and /dev/shm apart."""

    item: str
    bytes: int
    why: str
    where: Literal["gpu", "host", "shm"] = "gpu"
    model: str | None = None  # the repository name of the model that causes it; None: shared


class LlmPlan(_Frozen):
    """One language model. All bytes are those of one instance on one GPU unless the name says otherwise."""

    name: str  # in the repository
    kind: Literal["llm"] = "llm"
    source: str  # Hugging Face id or folder
    weights_path: str | None  # local weights, where they are known
    quant: str
    kv_dtype: str
    dtype: str  # activations: float16 or bfloat16
    tp: int
    instances: int
    weights_bytes: int  # text tower
    engine_copy_bytes: int = 0  # held beside the weights: a tied table again as lm_head, rope tables
    vision_tower_bytes: int = 0  # of a multimodal checkpoint, where the target loads it
    activation_bytes: int
    buffer_bytes: int
    kv_bytes_per_token: int
    tokens_per_block: int
    kv_tokens: int  # pool, rounded down to whole blocks
    kv_bytes: int
    kv_free_fraction: float  # chosen so that the token cap binds, whichever model loads last
    max_batch_size: int
    max_num_tokens: int
    max_seq_len: int
    max_input_tokens: int
    max_output_tokens: int
    max_concurrency: int  # sequences of max_seq_len that fit the pool at once
    kv_reuse: bool
    chunked_context: bool
    max_queue_size: int
    vocab_size: int


class NetworkPlan(_Frozen):
    """One network of a vision pipeline, as one Triton model."""

    role: str  # det, cls, rec, …
    model: str  # its name in the repository
    instances: int
    max_batch_size: int
    preferred_batch_sizes: tuple[int, ...]
    max_queue_delay_us: int
    weights_bytes: int
    workspace_bytes: int  # of one instance at its largest batch


class VisionPlan(_Frozen):
    """One vision pipeline: a front that takes encoded pictures, and the networks behind it."""

    name: str
    kind: Literal["vision"] = "vision"
    pipeline: str
    weights_path: str | None
    instances: int  # of the front
    max_batch_size: int
    max_picture_pixels: int
    networks: tuple[NetworkPlan, ...]


class Plan(_Frozen):
    """A whole deployment on one GPU, or on this CPU for the target ``local``."""

    target: Target
    target_reason: str
    gpu: GpuPlan
    container: str | None  # Triton container release; None for local
    trtllm_version: str | None
    models: tuple[LlmPlan | VisionPlan, ...]
    ledger: tuple[LedgerItem, ...]  # of the device: its sum and free_bytes make memory_bytes
    host_ledger: tuple[LedgerItem, ...] = ()  # host RAM and /dev/shm; for local they are in `ledger`
    free_bytes: int
    fits: bool
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings for which nothing may be built or written."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def llms(self) -> tuple[LlmPlan, ...]:
        return tuple(model for model in self.models if isinstance(model, LlmPlan))

    @property
    def visions(self) -> tuple[VisionPlan, ...]:
        return tuple(model for model in self.models if isinstance(model, VisionPlan))
