"""format.*: GPU × format × target × model, before anything is downloaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from trtbuild.build.flags import converter_path, require_class, require_int8_kv
from trtbuild.catalog.formats import find_kv_dtype, format_support, instead
from trtbuild.catalog.versions import containers, llmapi_since, version_key
from trtbuild.errors import BuildError
from trtbuild.plan.model import Finding
from trtbuild.preflight.base import Subject
from trtbuild.spec import Target

# mmha_supported in TensorRT-LLM, cpp/tensorrt_llm/kernels/decoderMaskedMultiheadAttention.cu.
_HEAD_SIZES = (32, 48, 64, 80, 96, 104, 112, 128, 144, 160, 192, 224, 256)
_LLMAPI = "--target llmapi"
_OTHER_MODEL = "choose another model: no target serves this one; `trtbuild models` lists some"


def check_target(subject: Subject) -> Iterator[Finding]:
    """The container still has the target, and runs on the GPU."""
    plan, container = subject.context.plan, subject.context.container
    if container is None:
        return
    if plan.target not in container.targets:
        fits = next((other for other in containers() if plan.target in other.targets), None)
        yield subject.finding(
            "format.target",
            "error",
            f"TensorRT-LLM {container.trtllm} in container {container.release} has no target "
            f"{plan.target.value}",
            f"container {fits.release} (TensorRT-LLM {fits.trtllm}) has it"
            if fits
            else "choose another target",
        )
    gpu = subject.context.gpu
    if gpu is not None and gpu.sm not in container.sms:
        fits = next((other for other in containers() if gpu.sm in other.sms), None)
        yield subject.finding(
            "format.gpu",
            "error",
            f"{gpu.name} has compute capability {gpu.sm}; TensorRT-LLM {container.trtllm} in container "
            f"{container.release} runs on {', '.join(container.sms)}",
            f"container {fits.release} runs on it" if fits else "no known container runs on it",
        )


def check_format(subject: Subject) -> Iterator[Finding]:
    """The target runs the weight format on the GPU; formats known for poor answers say so."""
    fmt, gpu, target = subject.format, subject.context.gpu, subject.context.plan.target
    version, experts = subject.context.plan.trtllm_version, subject.architecture.moe is not None
    runs, reason = format_support(fmt, gpu, target, version=version, experts=experts)
    if not runs:
        others = instead(fmt, gpu, target, version=version)
        where = gpu.name if gpu else "a CPU"
        yield subject.finding(
            "format.gpu",
            "error",
            f"{fmt.name} ({fmt.title}) cannot run: {reason}",
            f"on {where} the target {target.value} runs {', '.join(others)}",
        )
    elif reason:
        yield subject.finding(
            "format.gpu", "warning", reason, "try it with `trtbuild verify` before relying on it"
        )
    if fmt.quality is not None:
        yield subject.finding("format.quality", "warning", f"{fmt.name}: {fmt.quality}", "--quant awq")


def check_kv_dtype(subject: Subject) -> Iterator[Finding]:
    """The target runs the KV type on the GPU."""
    kv, gpu, target = find_kv_dtype(subject.llm.kv_dtype), subject.context.gpu, subject.context.plan.target
    runs, reason = format_support(kv, gpu, target)
    if not runs:
        yield subject.finding(
            "kv.support", "error", f"a KV cache in {kv.name} cannot run: {reason}", "leave --kv-dtype at auto"
        )


def check_model(subject: Subject) -> Iterator[Finding]:
    """TensorRT-LLM has a class for the model, and a converter where one is needed."""
    plan, arch, fmt = subject.context.plan, subject.architecture, subject.format
    if plan.trtllm_version is None:
        return
    if plan.target is Target.LLMAPI:
        yield from _check_class(subject, plan.trtllm_version)
        return
    if arch.native_quant is not None and arch.native_quant != fmt.name:
        yield subject.finding(
            "format.model",
            "error",
            f"the model is published in {arch.native_quant}, which the compiled flow cannot convert to "
            f"{fmt.name}",
            f"--target llmapi --quant {arch.native_quant}",
        )
    try:
        if fmt.calibrates and subject.checkpoint is None:
            require_class(arch.model_type, plan.trtllm_version)  # quantize.py reads the folder itself
        else:
            converter_path(arch.model_type, plan.trtllm_version, "")
            if subject.llm.kv_dtype == "int8":
                require_int8_kv(arch.model_type)
    except BuildError as error:
        remedies = [remedy for remedy in error.remedies if _LLMAPI not in remedy]
        remedies = [*_llmapi_way(arch.hf_class, plan.trtllm_version), *remedies]
        yield subject.finding("format.model", "error", error.message, *(remedies or [_OTHER_MODEL]))


def check_head_size(subject: Subject) -> Iterator[Finding]:
    """TensorRT-LLM's attention, which both GPU targets run, has a kernel for the head size."""
    size = subject.architecture.head_dim
    if subject.architecture.mla is None and size not in _HEAD_SIZES:
        yield subject.finding(
            "format.head-size",
            "error",
            f"attention heads of {size}: TensorRT-LLM has kernels for {', '.join(map(str, _HEAD_SIZES))} and "
            "refuses others",
            _OTHER_MODEL,
        )


def _llmapi_way(hf_class: str, version: str) -> list[str]:
    """The way over the LLM API, where its list of models has the class."""
    since = llmapi_since(hf_class)
    if since is None:
        return []
    if version_key(since) <= version_key(version):
        return [f"{_LLMAPI}, which loads {hf_class}"]
    return [f"{_LLMAPI} in a container with TensorRT-LLM {since} or newer, which loads {hf_class}"]


def _engine_way(model_type: str, version: str) -> str | None:
    """The way over an engine, by the converter or without it."""
    ways = (
        (lambda: converter_path(model_type, version, ""), "--target engine, whose converter takes it"),
        (
            lambda: require_class(model_type, version),
            "--target engine --quant awq or fp8: quantize.py needs no converter",
        ),
    )
    for check, way in ways:
        with suppress(BuildError):
            check()
            return way
    return None


def _check_class(subject: Subject, version: str) -> Iterator[Finding]:
    """What the LLM API does not know it refuses only when the weights are loaded."""
    name = subject.architecture.hf_class
    since = llmapi_since(name)
    if since is not None and version_key(since) <= version_key(version):
        return
    remedies = []
    if since is not None:
        fits = next(row for row in reversed(containers()) if version_key(row.trtllm) >= version_key(since))
        remedies.append(f"container {fits.release} (TensorRT-LLM {fits.trtllm}) or newer")
    engine = _engine_way(subject.architecture.model_type, version)
    if engine is not None:
        remedies.append(engine)
    known = "config.json names no architectures" if name == "unknown" else f"the LLM API has no {name}"
    yield subject.finding(
        "format.model",
        "error",
        f"{known} in TensorRT-LLM {version}: loading ends with 'Unknown architecture'",
        *(remedies or [_OTHER_MODEL]),
    )
