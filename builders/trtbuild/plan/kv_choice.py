"""The type of the KV cache: what was asked for, what a checkpoint brings, and what attention then allows."""

from __future__ import annotations

from dataclasses import dataclass

from trtbuild.catalog.formats import Format, find_kv_dtype, format_support
from trtbuild.catalog.gpus import Gpu
from trtbuild.plan.kv import kv_bytes_per_token, local_kv_bytes_per_token
from trtbuild.plan.model import Finding
from trtbuild.plan.sources import ModelSource, finding_on
from trtbuild.spec import Target

LOCAL_KV = "u8"
_FP8_FMHA_SM = 8.9
# FusedMHARunnerV2 (TensorRT-LLM's fmhaRunner.cpp) stops with "Unsupported architecture" below it, in every
# version that still runs there (issues 1515 and 2760).
FMHA_SM = 8.0


@dataclass(frozen=True)
class KvChoice:
    """The KV type and what it allows."""

    name: str
    bytes_per_token: int
    reuse: bool
    chunked: bool
    fused: bool = True


def choose_kv(
    source: ModelSource,
    fmt: Format | None,
    target: Target,
    gpu: Gpu | None,
    version: str | None,
    findings: list[Finding],
) -> KvChoice:
    """The KV type of a model and what it leaves of KV reuse and chunks; remarks go to ``findings``."""
    architecture, asked = source.architecture, source.spec.kv_dtype
    if target is Target.LOCAL and asked in ("auto", LOCAL_KV):
        return KvChoice(
            LOCAL_KV, local_kv_bytes_per_token(architecture=architecture), reuse=True, chunked=True
        )
    asked, given = _checkpoint_kv(source, asked, fmt, target, version, findings)
    dtype = find_kv_dtype(asked)
    supported, why = format_support(dtype, gpu, target)
    auto = "leave out --kv-dtype" if given is None else "weights whose quantisation leaves the KV cache alone"
    if not supported:
        findings.append(finding_on("kv.dtype", "error", source, why, auto))
    size = kv_bytes_per_token(architecture=architecture, bits=dtype.bits, tp=source.spec.tp)
    fused = target is not Target.ENGINE or gpu is None or gpu.capability >= FMHA_SM
    keeps = fused and _keeps_paged_attention(dtype.name, fmt, target, gpu)
    if dtype.name == "fp8" and architecture.qkv_bias:
        findings.append(
            finding_on(
                "kv.bias",
                "error" if target is Target.ENGINE else "warning",
                source,
                "an FP8 KV cache gives broken text with models that have query, key and value biases, as all "
                "Qwen up to 2.5 do (TensorRT-LLM issue 4218)" + ("" if given is None else f"; {given}"),
                f"{auto}; weights may be fp8",
            )
        )
    if not fused and gpu is not None:
        findings.append(
            finding_on(
                "kv.reuse",
                "warning",
                source,
                f"the compiled flow has no fused attention for SM {gpu.sm}: no KV reuse and no chunked "
                "context, so that a whole prompt is one step, and its scores take memory with the square of "
                "its length",
                "a GPU of SM 8.0 or newer has both; --max-input lower takes less",
            )
        )
    elif not keeps:
        findings.append(
            finding_on(
                "kv.reuse",
                "warning",
                source,
                f"the compiled flow switches paged context attention off with {dtype.name} KV"
                + (f" and {fmt.name} weights" if fmt is not None and dtype.name == "fp8" else "")
                + ": no KV reuse and no chunked context, so that a whole prompt is one step",
                f"{auto} to keep both",
            )
        )
    return KvChoice(dtype.name, size, reuse=keeps, chunked=keeps, fused=fused)


def _checkpoint_kv(
    source: ModelSource,
    asked: str,
    fmt: Format | None,
    target: Target,
    version: str | None,
    findings: list[Finding],
) -> tuple[str, str | None]:
    """The KV type that is in effect, and what of the checkpoint decides it; None where that decides nothing.

    An engine has the cache of its TensorRT-LLM checkpoint. The LLM API's "auto" is the checkpoint's own type
    (_torch/pyexecutor/model_loader.py, validate_and_set_kv_cache_quant), and it can be asked for FP8, but not
    for 16 bit.
    """
    algo = source.kv_algo
    if algo is None and target is Target.LLMAPI and fmt is not None:
        algo = _sibling_kv(source, fmt, version)
    if algo is None or target is Target.LOCAL:
        return asked, None
    said = f"the checkpoint is quantised for a KV cache in {algo}"
    own = algo.lower()
    if own not in ("fp8", "int8"):
        findings.append(finding_on("kv.dtype", "error", source, f"{said}, which nothing here plans for"))
        return asked, said
    if asked not in ("auto", own):
        findings.append(
            finding_on("kv.dtype", "error", source, f"{said}, not in {asked}", "leave out --kv-dtype")
        )
    return own, said


def _sibling_kv(source: ModelSource, fmt: Format, version: str | None) -> str | None:
    """The KV cache of the published checkpoint that the LLM API is given for a model of the catalogue."""
    from trtbuild.build.routes import hub_checkpoint

    if source.record is None or source.weights_path is not None:
        return None
    spec = source.spec
    calibrate = spec.calibrate or spec.calibration is not None
    checkpoint, _ = hub_checkpoint(
        source.record,
        quant=fmt.name,
        target=Target.LLMAPI,
        version=version,
        tp=spec.tp,
        calibrate=calibrate,
    )
    return None if checkpoint.quant is None else checkpoint.quant.kv_algo


def _keeps_paged_attention(kv: str, fmt: Format | None, target: Target, gpu: Gpu | None) -> bool:
    """Whether KV reuse and chunked context survive this KV type (TensorRT-LLM builder.py, plugin.py)."""
    if target is not Target.ENGINE or kv == "auto":
        return True
    new_enough = gpu is None or gpu.capability >= _FP8_FMHA_SM
    return kv == "fp8" and fmt is not None and fmt.fp8_fmha and new_enough
