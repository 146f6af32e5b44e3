"""The deployment's description: ``deployment.yaml`` or command-line flags, as frozen, validated models.

Everything that a user may state is here, with its default, and nothing that is computed: numbers that
follow from others are decided by the plan alone.
"""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from trtbuild.defaults import (
    CALIBRATION_TOKENS,
    MAX_INPUT_TOKENS,
    MAX_OUTPUT_TOKENS,
    USUAL_INPUT_TOKENS,
    USUAL_OUTPUT_TOKENS,
)


class Target(str, Enum):
    """What serves the model; README.md has the table."""

    ENGINE = "engine"  # TensorRT-LLM's compiled engine behind the C++ tensorrtllm backend
    LLMAPI = "llmapi"  # TensorRT-LLM's LLM API (PyTorch flow) in a Python model
    LOCAL = "local"  # OpenVINO GenAI on the CPU, behind the tensorrtllm contract


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LONGEST_NAME = 128  # characters; with its ending it has to be a name of a folder


def check_model_name(name: str) -> str:
    """Returns ``name`` if it is safe as a Triton model name and as a folder of the repository.

    Raises:
        ValueError: for an empty name or one that is too long, a leading dot or dash, or any of
            ``/ \\ : ; ,``, spaces and the like.
    """
    if len(name) > _LONGEST_NAME:
        raise ValueError(
            f"{name[:24]!r}… cannot be a model name: it has {len(name)} characters, and {_LONGEST_NAME} are "
            "the most, because it becomes a folder of the repository"
        )
    if not _NAME.fullmatch(name) or ".." in name:
        raise ValueError(
            f"{name!r} cannot be a model name: it becomes a folder of the repository and a word in launch "
            "lines; use letters, digits, '.', '_' and '-', beginning with a letter or digit"
        )
    return name


ModelName = Annotated[str, AfterValidator(check_model_name)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


# A branch, tag or commit as git has them; it becomes a word of command lines and a part of a path.
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}")


def _check_revision(revision: str) -> str:
    if not _REVISION.fullmatch(revision) or ".." in revision or revision.endswith("/"):
        raise ValueError(f"{revision!r} cannot be a revision: give a branch, a tag or a commit")
    return revision


Revision = Annotated[str, AfterValidator(_check_revision)]


class MeasuredSpec(_Frozen):
    """What a build or load log says of one instance on one GPU; `trtbuild reconcile` writes it. Bytes that
    are not given stay estimates.
    """

    source: str = Field(min_length=1, description="the log")
    max_num_tokens: int = Field(ge=1, description="of the engine that was measured")
    max_batch_size: int = Field(ge=1, description="of the engine that was measured")
    weights_bytes: int | None = Field(default=None, ge=1)
    activation_bytes: int | None = Field(default=None, ge=1)
    buffer_bytes: int | None = Field(default=None, ge=0)


class LlmSpec(_Frozen):
    """One language model."""

    model: str = Field(
        min_length=1, description="catalogue name, Hugging Face id, or folder with a config.json"
    )
    name: ModelName | None = Field(
        default=None, description="name in the repository; default: the catalogue name"
    )
    weights: Path | None = Field(
        default=None, description="GGUF file, OpenVINO IR folder or safetensors folder"
    )
    quant: str = Field(default="auto", description="weight format; see `trtbuild formats`")
    kv_dtype: str = Field(default="auto", description="KV cache: auto (as activations), int8, fp8")
    tp: int = Field(default=1, ge=1, le=64, description="tensor parallelism: GPUs that share one instance")
    instances: int = Field(default=1, ge=1, le=64, description="copies of the engine")
    max_input_tokens: int = Field(default=MAX_INPUT_TOKENS, ge=1, description="longest prompt")
    max_output_tokens: int = Field(default=MAX_OUTPUT_TOKENS, ge=1, description="longest answer")
    concurrency: int | None = Field(
        default=None, ge=1, le=4096, description="requests at once; default: planned"
    )
    max_batch_size: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="batch slots, more than concurrency for shorter requests, which wait or are paused where "
        "the KV pool is full; default: concurrency",
    )
    kv_tokens: int | None = Field(
        default=None, ge=1, description="KV pool of one instance in tokens; default: planned"
    )
    max_num_tokens: int | None = Field(
        default=None, ge=16, le=1 << 20, description="tokens of one engine step; default: planned"
    )
    ttft_ms: float | None = Field(
        default=None,
        gt=0,
        le=3_600_000,
        allow_inf_nan=False,
        description="budget of TTFT P95 from which limits that are not given are planned",
    )
    usual_input_tokens: int = Field(
        default=USUAL_INPUT_TOKENS, ge=1, description="of a prompt on average, for ttft_ms"
    )
    usual_output_tokens: int = Field(
        default=USUAL_OUTPUT_TOKENS, ge=1, description="of an answer on average, for ttft_ms"
    )
    chunked_context: bool = Field(
        default=True, description="cut long prompts into steps, where the engine can"
    )
    kv_reuse: bool = Field(
        default=True, description="keep the KV of finished prompts for equal prefixes, where the engine can"
    )
    calibrate: bool = Field(
        default=False, description="quantise the 16-bit weights ourselves, also where others published it"
    )
    calibration: Path | None = Field(
        default=None,
        description="JSONL or text file to calibrate on (calibrates); default: the shipped texts",
    )
    calibration_field: str | None = Field(
        default=None,
        min_length=1,
        description="field of the calibration file that holds the text; default: found",
    )
    calibration_samples: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="texts to calibrate on; default: the format's usual number",
    )
    calibration_tokens: int = Field(
        default=CALIBRATION_TOKENS, ge=16, le=32_768, description="longest part of a text"
    )
    on_cpu: bool = Field(
        default=False, description="quantise with modelopt on the CPU, not in the container on a GPU"
    )
    revision: Revision = Field(default="main", description="branch, tag or commit of the weights on the hub")
    loras: dict[ModelName, Path] = Field(
        default_factory=dict, description="LoRA adapters (PEFT folders) by name; target engine"
    )
    guided: bool = Field(default=False, description="prepare guided decoding; target engine")
    measured: MeasuredSpec | None = Field(
        default=None, description="what a log says instead of the plan's estimates"
    )

    @model_validator(mode="after")
    def _slots_for_all(self) -> LlmSpec:
        if (self.max_batch_size or 4096) < (self.concurrency or 1):
            raise ValueError(
                f"max_batch_size {self.max_batch_size} is less than concurrency {self.concurrency}: requests "
                "at once need a slot each"
            )
        return self


class Task(str, Enum):
    """What a vision model's answer is."""

    CLASSIFICATION = "classification"
    DETECTION = "detection"
    SEGMENTATION = "segmentation"
    EMBEDDING = "embedding"
    OCR = "ocr"
    RAW = "raw"  # the network's own outputs, untouched


def _number(value: object) -> object:
    """A spec's file has no floating-point numbers of its own: they come as text."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            raise ValueError(f"{value!r} is no number") from None
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _pair(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return (value, value)
    return tuple(value) if isinstance(value, list) else value


Number = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
Share = Annotated[float, BeforeValidator(_number), Field(ge=0, le=1, allow_inf_nan=False)]
Side = Annotated[int, Field(ge=1, le=16384)]
Size = Annotated[tuple[Side, Side], BeforeValidator(_pair)]


class PreprocessSpec(_Frozen):
    """How a picture becomes the network's input; what is left out follows from the task and the graph."""

    size: Size | None = Field(default=None, description="width and height; default: as the graph has it")
    fit: Literal["stretch", "letterbox", "crop"] | None = Field(
        default=None, description="stretch to the size, pad to it, or cut the middle out"
    )
    crop_share: Share | None = Field(
        default=None, gt=0, description="of the shorter side that fit: crop keeps, such as 0.875"
    )
    pad: int | None = Field(default=None, ge=0, le=255, description="value around a letterboxed picture")
    resample: Literal["nearest", "bilinear", "bicubic", "lanczos"] | None = Field(
        default=None, description="how it is resized, antialiased; default: bilinear"
    )
    colours: Literal["rgb", "bgr"] | None = Field(default=None, description="order of the channels")
    mean: tuple[Number, ...] | None = Field(
        default=None, description="taken away from values of 0 to 1; one number, or one a channel"
    )
    std: tuple[Number, ...] | None = Field(default=None, description="and what the rest is divided by")
    instances: int | None = Field(
        default=None, ge=1, le=64, description="processes that decode; default: planned"
    )


class PostprocessSpec(_Frozen):
    """How the network's output becomes the answer; what is left out follows from the graph."""

    head: Literal["yolov3", "yolov5", "yolov8", "detr", "boxes", "tf", "ssd"] | None = Field(
        default=None, description="what a detector's outputs mean"
    )
    activation: Literal["none", "softmax", "sigmoid"] | None = Field(
        default=None, description="of the scores, where the graph does not end with it"
    )
    anchors: tuple[Number, ...] | None = Field(
        default=None, description="head: yolov3: widths and heights in pixels, the finest grid's first"
    )
    top_k: int = Field(default=5, ge=1, le=1000, description="classes that are named, best first")
    score_threshold: Share = Field(default=0.25, description="detections below it are dropped")
    iou_threshold: Share = Field(default=0.45, description="overlap from which on a weaker box is dropped")
    max_detections: int = Field(default=300, ge=1, le=10000, description="the best that are kept")
    normalise: bool = Field(default=True, description="embeddings get length 1")


class VisionSpec(_Frozen):
    """One vision pipeline: one of the catalogue's, or a model file of one's own."""

    name: ModelName = Field(default="ocr", description="name in the repository; default: the pipeline's")
    pipeline: str = Field(default="ocr", description="of the catalogue; see `trtbuild models`")
    model: Path | None = Field(default=None, description="an ONNX file instead")
    task: Task | None = Field(default=None, description="default: as the graph's outputs tell")
    labels: Path | None = Field(
        default=None, description="names of the classes: one a line, JSON or YAML; default: those in the file"
    )
    preprocess: PreprocessSpec = PreprocessSpec()
    postprocess: PostprocessSpec = PostprocessSpec()
    weights: Path | None = Field(default=None, description="folder with the pipeline's ONNX files")
    instances: int | None = Field(
        default=None, ge=1, le=64, description="copies of each network; default: planned"
    )
    max_batch_size: int | None = Field(default=None, ge=1, le=256, description="largest batch of a network")
    max_queue_delay_us: int | None = Field(
        default=None, ge=0, le=1_000_000, description="how long a batch waits to fill; default: planned"
    )
    max_picture_pixels: int | None = Field(
        default=None, ge=1, le=1 << 30, description="larger pictures are refused before they are decoded"
    )
    runtime: Literal["onnxruntime", "tensorrt"] = Field(
        default="onnxruntime", description="what runs it on a GPU; tensorrt compiles a plan file first"
    )
    precision: Literal["fp32", "fp16", "int8", "fp8"] = Field(
        default="fp32", description="of the network's arithmetic; below fp16 it is calibrated"
    )
    calibration: Path | None = Field(default=None, description="folder of pictures for int8 and fp8")

    @model_validator(mode="after")
    def _called_after_what_it_is(self) -> VisionSpec:
        # Not before the fields are read: what a file holds would then no longer be read as JSON, lists for
        # tuples.
        if "name" not in self.model_fields_set and (self.model is not None or self.pipeline != "ocr"):
            own = (
                re.sub(r"[^A-Za-z0-9._-]+", "-", self.model.stem) if self.model is not None else self.pipeline
            )
            self.__dict__["name"] = check_model_name(own)
        return self

    @model_validator(mode="after")
    def _goes_together(self) -> VisionSpec:
        if self.model is not None and "pipeline" in self.model_fields_set and self.pipeline != "ocr":
            raise ValueError("`pipeline` and `model` are two ways to say what runs: give one of them")
        if self.precision in ("int8", "fp8") and self.calibration is None:
            raise ValueError(
                f"precision {self.precision} is calibrated on pictures like those it will see: give a folder "
                "of them as `calibration`"
            )
        if self.calibration is not None and self.precision not in ("int8", "fp8"):
            raise ValueError("`calibration` is for the precisions int8 and fp8")
        return self


class DeploymentSpec(_Frozen):
    """All that shall run on one GPU (or, target ``local``, on this CPU)."""

    target: Target | None = Field(
        default=None, description="engine, llmapi or local; default: by what is here"
    )
    gpu: str | None = Field(default=None, description="GPU name; see `trtbuild gpus`")
    container: str | None = Field(default=None, description="Triton container release, such as 25.10")
    trtllm: str | None = Field(
        default=None,
        description="instead of it: TensorRT-LLM version, such as 1.0.0, in its newest container",
    )
    models: tuple[LlmSpec, ...] = ()
    vision: tuple[VisionSpec, ...] = ()

    @model_validator(mode="after")
    def _something_to_serve(self) -> DeploymentSpec:
        if not self.models and not self.vision:
            raise ValueError("the spec names no model: give `models:` or `vision:` at least one entry")
        return self

    @model_validator(mode="after")
    def _one_version(self) -> DeploymentSpec:
        if self.container is not None and self.trtllm is not None:
            raise ValueError("`container` and `trtllm` name the same thing: give one of them")
        return self

    @model_validator(mode="after")
    def _one_owner_per_name(self) -> DeploymentSpec:
        names = [*(llm.name for llm in self.models), *(vision.name for vision in self.vision)]
        for name in names:
            if name is not None and names.count(name) > 1:
                raise ValueError(f"two entries are called {name!r}: give each a `name` of its own")
        return self
