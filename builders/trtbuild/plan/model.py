"""The plan: every number of a deployment, decided once and read by all that comes after it.

Engine flags, Triton configs, the launch line, client defaults and the deployment's documentation are
derived from these objects; none of them computes a number of its own.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from trtbuild.catalog.vision import TensorRow
from trtbuild.spec import Target, Task


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
    context_fmha: bool = True  # the compiled flow's fused attention, which both rest on
    max_queue_size: int
    vocab_size: int
    guided: bool = False  # guided decoding is prepared: the engine reads the tokenizer's description
    measured_by: str | None = None  # the log that bytes are from, as far as it tells them; None: estimates


class NetworkPlan(_Frozen):
    """One network of a vision pipeline, as one Triton model.

    ``inputs`` and ``outputs`` are as its configuration declares them; the TensorRT profile, where one is
    compiled, is made of them and of the batch sizes.
    """

    role: str  # det, cls, rec, network, …
    model: str  # its name in the repository
    instances: int
    max_batch_size: int
    preferred_batch_sizes: tuple[int, ...]
    max_queue_delay_us: int
    weights_bytes: int
    workspace_bytes: int  # of one instance at its largest batch
    inputs: tuple[TensorRow, ...] = ()
    outputs: tuple[TensorRow, ...] = ()
    runtime: Literal["onnxruntime", "tensorrt"] = "onnxruntime"  # on a GPU; local is always onnxruntime
    precision: Literal["fp32", "fp16", "int8", "fp8"] = "fp32"


class StagePlan(_Frozen):
    """A Python model of a vision pipeline; the bytes are those of one instance."""

    role: str  # front, preprocess, postprocess
    model: str  # its name in the repository
    instances: int
    max_batch_size: int
    host_bytes: int  # its process
    scratch_bytes: int  # beside it while it decodes the largest picture
    shm_bytes: int  # of its region in /dev/shm, beside what one begins with


class PicturePlan(_Frozen):
    """How an encoded picture becomes UINT8[height, width, channels], and what the network makes of that.

    The network sees ``pixels * scale + offset``, a pair a channel.
    """

    width: int
    height: int
    channels: int
    fit: Literal["stretch", "letterbox", "crop"]
    crop_share: float
    pad: int
    resample: Literal["nearest", "bilinear", "bicubic", "lanczos"]
    swap_colours: bool  # the network takes BGR
    scale: tuple[float, ...]
    offset: tuple[float, ...]


class AnswerPlan(_Frozen):
    """How the network's outputs become an answer."""

    head: str  # of a detector; empty for other tasks
    outputs: tuple[str, ...]  # of the network, in the order in which the head reads them
    classes: int  # 0: not known
    activation: Literal["none", "softmax", "sigmoid"]
    anchors: tuple[float, ...]
    top_k: int
    score_threshold: float
    iou_threshold: float
    max_detections: int
    normalise: bool


class VisionPlan(_Frozen):
    """One vision pipeline: what takes encoded pictures, and the networks behind it.

    ``picture`` and ``answer`` are of a single network between a pre- and a post-processing model; a pipeline
    of several networks has a front of its own, and its catalogue's row says the rest.
    """

    name: str
    kind: Literal["vision"] = "vision"
    pipeline: str  # of the catalogue; empty: a model file
    task: Task = Task.OCR
    weights_path: str | None
    stages: tuple[StagePlan, ...]
    max_batch_size: int
    max_picture_pixels: int
    networks: tuple[NetworkPlan, ...]
    picture: PicturePlan | None = None
    answer: AnswerPlan | None = None


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
    def shm_bytes(self) -> int:
        """/dev/shm at full load."""
        return sum(item.bytes for item in (*self.ledger, *self.host_ledger) if item.where == "shm")

    @property
    def llms(self) -> tuple[LlmPlan, ...]:
        return tuple(model for model in self.models if isinstance(model, LlmPlan))

    @property
    def visions(self) -> tuple[VisionPlan, ...]:
        return tuple(model for model in self.models if isinstance(model, VisionPlan))
