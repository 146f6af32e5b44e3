"""From a model of the spec to a `Draft`: format, KV type, lengths, and the findings on each choice."""

from __future__ import annotations

from contextlib import suppress

from trtbuild.catalog.formats import Format, all_formats, find_format, format_support, instead
from trtbuild.catalog.gpus import Gpu
from trtbuild.errors import CatalogError, ModelSourceError, PlanError
from trtbuild.plan import constants
from trtbuild.plan.architecture import Architecture
from trtbuild.plan.draft import Draft
from trtbuild.plan.groups import TPS, choose_group, heads_fit, misfit_in, quantised_linears, ways_out
from trtbuild.plan.kv import LOCAL_TOKENS_PER_BLOCK
from trtbuild.plan.kv_choice import choose_kv
from trtbuild.plan.model import Finding
from trtbuild.plan.sources import ModelSource, finding_on
from trtbuild.plan.weights import engine_copy_bytes, weights
from trtbuild.spec import Target

# A power of two; small blocks reuse more of a shared prefix (240 tokens: 224 with 32, 192 with 64). The
# default of TensorRT-LLM from 0.19 on, and the only size of the CPU engine.
TOKENS_PER_BLOCK = LOCAL_TOKENS_PER_BLOCK
# A tied table that is stored twice, or vision weights that are not counted, stay below it in most models.
_FILE_SIZE_TOLERANCE = 0.1


def make_draft(
    source: ModelSource,
    *,
    target: Target,
    gpu: Gpu | None,
    trtllm_version: str | None,
    beside_vision: bool = False,
) -> tuple[Draft, tuple[Finding, ...]]:
    """The draft of one model, with findings; errors among them mean that it cannot be built.

    Args:
        beside_vision: vision models share its GPU.

    Raises:
        CatalogError: an unknown format or KV type.
        ModelSourceError: target local without weights that it can run.
        PlanError: lengths that the model cannot take.
    """
    findings: list[Finding] = []
    spec, architecture = source.spec, source.architecture
    quant, fmt = _format(source, target, gpu, trtllm_version, findings)
    kv = choose_kv(source, fmt, target, gpu, trtllm_version, findings)
    max_input, max_output = _lengths(source, findings)
    if fmt is not None:
        _check_shapes(source, fmt, findings)
    _check_file_size(source, findings)
    if architecture.assumption:
        findings.append(finding_on("model.assumed", "warning", source, architecture.assumption))
    local = target is Target.LOCAL
    if local and spec.tp > 1:
        raise PlanError(
            f"{source.name}: the local engine runs on one CPU, not with tp {spec.tp}", "leave out --tp"
        )
    measured = None if local else spec.measured
    weights_bytes = _weights_bytes(source, fmt, target)
    copy_bytes = engine_copy_bytes(architecture=architecture, tp=spec.tp) if target is Target.ENGINE else 0
    # 2 bytes a parameter; a text-only engine is built without it
    tower_bytes = 2 * architecture.vision_params if target is Target.LLMAPI else 0
    if measured is not None and measured.weights_bytes is not None:
        # What a log calls weights is all that the engine holds of the model.
        weights_bytes, copy_bytes, tower_bytes = measured.weights_bytes, 0, 0
    draft = Draft(
        name=source.name,
        source=source.source,
        weights_path=str(source.weights_path) if source.weights_path else None,
        target=target,
        trtllm_version=trtllm_version,
        architecture=architecture,
        quant=quant,
        fmt=fmt,
        kv_dtype=kv.name,
        dtype=_dtype(architecture, fmt, target, gpu),
        tp=spec.tp,
        instances=spec.instances,
        concurrency=spec.concurrency,
        slots=spec.max_batch_size,
        pool_tokens=spec.kv_tokens,
        step_tokens=spec.max_num_tokens,
        max_input_tokens=max_input,
        max_output_tokens=max_output,
        tokens_per_block=TOKENS_PER_BLOCK,
        kv_reuse=kv.reuse and spec.kv_reuse,
        chunked_context=kv.chunked and spec.chunked_context,
        context_fmha=kv.fused,
        weights_bytes=weights_bytes,
        engine_copy_bytes=copy_bytes,
        vision_tower_bytes=tower_bytes,
        kv_bytes_per_token=kv.bytes_per_token,
        guided=spec.guided and target is Target.ENGINE,
        beside_vision=beside_vision and not local,
        measured=measured,
    )
    return draft, tuple(findings)


def _format(
    source: ModelSource, target: Target, gpu: Gpu | None, version: str | None, findings: list[Finding]
) -> tuple[str, Format | None]:
    if target is Target.LOCAL:
        return _local_format(source), None
    if source.weights_format and source.weights_path and source.weights_format.startswith(("gguf-", "ir-")):
        findings.append(
            finding_on(
                "checkpoint.route",
                "error",
                source,
                f"{source.weights_path} is {source.weights_format}, which only the target local reads",
                "--target local, or a safetensors folder",
            )
        )
    fmt = find_format(source.spec.quant) if source.spec.quant != "auto" else _auto_format(source, gpu)
    experts = source.architecture.moe is not None
    supported, why = format_support(fmt, gpu, target, version=version, experts=experts)
    if why:
        severity = "warning" if supported else "error"
        remedy = "try it with `trtbuild verify` before relying on it"
        if not supported:
            others = ", ".join(instead(fmt, gpu, target, version=version))
            there = Target.LLMAPI if target is Target.ENGINE else Target.ENGINE
            serves, _ = format_support(fmt, gpu, there, experts=experts)
            ways = ([f"--target {there.value}"] if serves else []) + ([f"--quant {others}"] if others else [])
            remedy = "; or ".join(ways)
        findings.append(finding_on("format.gpu", severity, source, why, remedy))
    return fmt.name, fmt


def _auto_format(source: ModelSource, gpu: Gpu | None) -> Format:
    """The checkpoint's own format, else 16 bit."""
    at_hand = source.weights_format if source.weights_path else None  # else a package's, for the CPU
    for own in filter(None, (at_hand, source.architecture.native_quant)):
        with suppress(CatalogError):  # a word without a row, such as fp32 or compressed-tensors
            return find_format(own)
    bf16 = source.architecture.dtype == "bfloat16" and (gpu is None or gpu.capability >= 8.0)
    return find_format("bf16" if bf16 else "fp16")


def _local_format(source: ModelSource) -> str:
    asked, found = source.spec.quant, source.weights_format
    if found is None:
        raise ModelSourceError(
            f"{source.name}: no local weights are known for {source.source} as {asked}",
            "--weights PATH with a GGUF file or an OpenVINO IR folder",
            "--target engine to plan for a GPU",
        )
    if asked == "auto":
        return found
    wanted = find_format(asked)
    packaged = source.record.packaged_for(asked) if source.record else None
    if (
        wanted.name != found
        and (packaged is None or packaged.format != found)
        and not _same_width(asked, found)
    ):
        raise ModelSourceError(
            f"{source.name}: --quant {asked} was asked for, but the weights are {found}",
            f"leave out --quant, or --quant {found}",
        )
    return found


def _same_width(asked: str, found: str) -> bool:
    """Whether a plain width (int4, int8, fp16) names what a file holds."""
    try:
        return asked in ("int4", "int8", "fp16") and find_format(asked).bits == find_format(found).bits
    except CatalogError:
        return False


def _lengths(source: ModelSource, findings: list[Finding]) -> tuple[int, int]:
    spec, context = source.spec, source.architecture.context
    max_input, max_output = spec.max_input_tokens, spec.max_output_tokens
    if max_input + max_output <= context:
        return max_input, max_output
    if "max_input_tokens" in spec.model_fields_set or max_output >= context:
        raise PlanError(
            f"{source.name}: {max_input} tokens in and {max_output} out are {max_input + max_output}, "
            f"and the model's context is {context}",
            f"--max-input {max(1, context - max_output)}"
            if max_output < context
            else f"--max-input {context // 2} --max-output {context - context // 2}",
        )
    shorter = context - max_output
    findings.append(
        finding_on(
            "length.context",
            "info",
            source,
            f"the longest input is {shorter} tokens: the context of {context} less {max_output} out",
            "--max-input N for another",
        )
    )
    return shorter, max_output


def _check_shapes(source: ModelSource, fmt: Format, findings: list[Finding]) -> None:
    """Heads and groups against TP; preflight has the same rules with every remedy."""
    architecture, tp = source.architecture, source.spec.tp
    if not heads_fit(architecture, tp):
        others = ", ".join(str(other) for other in TPS if heads_fit(architecture, other))
        heads = f"{architecture.heads} attention heads and {architecture.kv_heads} KV heads"
        message = f"{heads} cannot be divided over {tp} GPUs"
        findings.append(finding_on("tp.heads", "error", source, message, f"--tp {others}"))
        return
    group = source.group_size or choose_group(architecture, fmt, tp)
    misfits = ((linear, misfit_in(linear, tp, group)) for linear in quantised_linears(architecture, fmt))
    first = next(((linear, why) for linear, why in misfits if why), None)
    if first is not None:
        fixed = source.group_size is not None
        remedies = ways_out(architecture, fmt, first[0], tp=tp, group_size=group, fixed=fixed)
        found = f"{fmt.name}: {first[1]}"
        findings.append(finding_on("tp.group-in", "error", source, found, "; or ".join(remedies)))


def _dtype(architecture: Architecture, fmt: Format | None, target: Target, gpu: Gpu | None) -> str:
    if target is Target.LOCAL:
        return "float32"
    if gpu is not None and gpu.capability < 8.0:
        return "float16"
    if fmt is not None and fmt.name in ("fp16", "awq", "gptq"):
        return "float16"  # what their published checkpoints carry
    return "bfloat16" if architecture.dtype == "bfloat16" or (fmt and fmt.name == "bf16") else "float16"


def _weights_bytes(source: ModelSource, fmt: Format | None, target: Target) -> int:
    if fmt is None:
        return int((source.weights_file_bytes or 0) * constants.LOCAL_WEIGHTS_EXPANSION)
    return weights(
        architecture=source.architecture,
        fmt=fmt,
        tp=source.spec.tp,
        group_size=source.group_size or choose_group(source.architecture, fmt, source.spec.tp),
        embedding_split=target is Target.LLMAPI,
    ).total_bytes


def _check_file_size(source: ModelSource, findings: list[Finding]) -> None:
    """A checkpoint's files against the bytes that follow from its shapes and format.

    Layers that were left out of the quantisation show there, and a family that is not what it was taken for.
    """
    held = source.weights_file_bytes
    fmt = next((row for row in all_formats() if row.name == source.weights_format), None)
    if not held or fmt is None or set(fmt.targets) == {Target.LOCAL}:
        return  # the CPU engine's plan is made from the file itself
    architecture = source.architecture
    text = weights(architecture=architecture, fmt=fmt, group_size=source.group_size).total_bytes
    counted = text + 2 * architecture.vision_params
    if abs(held / counted - 1) > _FILE_SIZE_TOLERANCE:
        message = f"the weight files hold {held} bytes, the shapes give {counted} in {fmt.name}"
        remedy = "if the model is not plain llama-like, keep the difference free"
        if fmt.layers != "none" and held > counted:
            remedy = "keep the difference free: some layers are stored wider than the format says"
        findings.append(finding_on("weights.size", "warning", source, message, remedy))
