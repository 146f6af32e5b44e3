"""The deployment's description: ``deployment.yaml`` or command-line flags, as frozen, validated models.

Everything that a user may state is here, with its default, and nothing that is computed: numbers that
follow from others are decided by the plan alone.
"""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator


class Target(str, Enum):
    """What serves the model; see README "Targets"."""

    ENGINE = "engine"  # TensorRT-LLM's compiled engine behind the C++ tensorrtllm backend
    LLMAPI = "llmapi"  # TensorRT-LLM's LLM API (PyTorch flow) in a Python model
    LOCAL = "local"  # OpenVINO GenAI on the CPU, behind the tensorrtllm contract


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def check_model_name(name: str) -> str:
    """Returns ``name`` if it is safe as a Triton model name and as a folder of the repository.

    Raises:
        ValueError: for an empty name, a leading dot or dash, or any of ``/ \\ : ; ,``, spaces and the like.
    """
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
    max_input_tokens: int = Field(default=2048, ge=1, description="longest prompt")
    max_output_tokens: int = Field(default=512, ge=1, description="longest answer")
    concurrency: int | None = Field(
        default=None, ge=1, le=4096, description="requests at once; default: planned"
    )
    kv_tokens: int | None = Field(
        default=None, ge=1, description="KV pool of one instance in tokens; default: planned"
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
    calibration_tokens: int = Field(default=512, ge=16, le=32_768, description="longest part of a text")
    on_cpu: bool = Field(
        default=False, description="quantise with modelopt on the CPU, not in the container on a GPU"
    )
    revision: Revision = Field(default="main", description="branch, tag or commit of the weights on the hub")
    loras: dict[ModelName, Path] = Field(
        default_factory=dict, description="LoRA adapters (PEFT folders) by name; target engine"
    )
    guided: bool = Field(default=False, description="prepare guided decoding; target engine")


class VisionSpec(_Frozen):
    """One vision pipeline."""

    name: ModelName = Field(default="ocr", description="name in the repository")
    pipeline: str = Field(default="ocr", description="kind of pipeline: ocr")
    weights: Path | None = Field(default=None, description="folder with the pipeline's ONNX files")
    instances: int | None = Field(
        default=None, ge=1, le=64, description="copies of each network; default: planned"
    )
    max_batch_size: int | None = Field(default=None, ge=1, le=256, description="largest batch of a network")


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
