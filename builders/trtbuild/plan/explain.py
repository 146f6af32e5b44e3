"""A plan as a chain of numbers in plain words: what takes the room, and how many users that leaves."""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.catalog.gpus import find_gpu, mig_slice, mig_slices
from trtbuild.errors import CatalogError
from trtbuild.plan.constants import RESERVE_SHARE, SERVER_PROCESS_BYTES
from trtbuild.plan.draft import CHUNK_TOKENS
from trtbuild.plan.ledger import engine_in_server, plural
from trtbuild.plan.model import LlmPlan, Plan, VisionPlan
from trtbuild.spec import Target

_GIB = 1 << 30


def explain(plan: Plan) -> str:
    """The whole plan, one screen a model; ends with what is missing if it does not fit."""
    lines = list(_device(plan))
    for model in plan.models:
        lines += ["", *(_llm(model, plan) if isinstance(model, LlmPlan) else _vision(model))]
    if plan.llms and plan.visions:
        lines += ["", *_side_by_side(plan)]
    lines += ["", *_verdict(plan)]
    return "\n".join(lines)


def _gib(size: int) -> str:
    return f"{size / _GIB:.2f} GiB" if abs(size) >= _GIB // 10 else f"{size / (1 << 20):.1f} MiB"


def _device(plan: Plan) -> Iterator[str]:
    owners = {model.name for model in plan.models}
    where = "RAM" if plan.target is Target.LOCAL else f"on {plan.gpu.name}"
    yield f"{_gib(plan.gpu.memory_bytes)} {where}, of which before any model:"
    left = plan.gpu.memory_bytes
    for item in plan.ledger:
        if item.model not in owners:
            left -= item.bytes
            yield f"  - {_gib(item.bytes):>10}  {item.item}: {item.why}"
    yield f"  = {_gib(left):>10}  for models"


def _llm(llm: LlmPlan, plan: Plan) -> Iterator[str]:
    copies = f", {llm.instances} instances" if llm.instances > 1 else ""
    ranks = f", one of {llm.tp} GPUs" if llm.tp > 1 else ""
    yield f"{llm.name} ({llm.source}, {llm.quant}, KV {llm.kv_dtype}{copies}{ranks})"
    items = [item for item in plan.ledger if item.model == llm.name and "KV pool" not in item.item]
    for item in items:
        yield f"  - {_gib(item.bytes):>10}  {item.item.removeprefix(llm.name + ' ')}: {item.why}"
    block = llm.tokens_per_block
    blocks = -(-llm.max_seq_len // block)
    sequence_bytes = blocks * block * llm.kv_bytes_per_token
    yield f"  one token of KV cache: {llm.kv_bytes_per_token:,} bytes"
    yield (
        f"  one sequence: {llm.max_input_tokens} in + {llm.max_output_tokens} out = {llm.max_seq_len} tokens "
        f"= {blocks} blocks of {block} = {_gib(sequence_bytes)}"
    )
    slots = min(llm.max_batch_size, max(1, llm.max_concurrency))
    needed = slots * blocks * block
    yield (
        f"  {slots} at once: {needed:,} tokens = {_gib(needed * llm.kv_bytes_per_token)} of KV"
        + ("" if llm.instances == 1 else ", for each instance")
    )
    if llm.kv_tokens > needed:
        spare = llm.kv_tokens - needed
        yield f"  + {spare:,} tokens to keep prefixes of ended requests for reuse"
    yield (
        f"  - {_gib(llm.kv_bytes * llm.instances):>10}  KV pool: {llm.kv_tokens:,} tokens; it carries "
        f"{plural(llm.max_concurrency, 'sequence')} of the full length, more of shorter ones"
    )
    if plan.target is not Target.LOCAL:
        yield (
            f"  written to the server: max_tokens_in_paged_kv_cache {llm.kv_tokens}, "
            f"kv_cache_free_gpu_mem_fraction {llm.kv_free_fraction}, which stays above the token cap "
            "whichever model loads last"
        )
    chunk = "in chunks, beside running streams" if llm.chunked_context else "whole (no chunked context)"
    yield (
        f"  a step takes up to {llm.max_num_tokens} tokens: prompts are read {chunk}; "
        f"prefixes are {'reused' if llm.kv_reuse else 'not reused'}"
    )


def _vision(vision: VisionPlan) -> Iterator[str]:
    yield f"{vision.name} ({vision.task.value}, {vision.pipeline or vision.weights_path})"
    for network in vision.networks:
        size = network.instances * (network.weights_bytes + network.workspace_bytes)
        yield (
            f"  - {_gib(size):>10}  {network.model}: {network.instances} × (weights "
            f"{_gib(network.weights_bytes)} + workspace {_gib(network.workspace_bytes)} at batch "
            f"{network.max_batch_size})"
        )


def _side_by_side(plan: Plan) -> Iterator[str]:
    """What keeps language and vision models from starving each other, and the alternative."""
    yield "side by side:"
    longest = max(plan.llms, key=lambda llm: llm.max_num_tokens)
    small = f", {CHUNK_TOKENS} without pictures" if longest.max_num_tokens < CHUNK_TOKENS else ""
    yield (
        f"  a picture waits for one step of a language model at most: {longest.max_num_tokens} tokens "
        f"({longest.name}{small}); Triton's rate limiter and priorities cannot hold one back"
    )
    if plan.target is not Target.LOCAL:
        yield from _kernels(plan)
    decoders = sum(stage.instances for vision in plan.visions for stage in vision.stages)
    yield f"  {plural(decoders, 'process', 'es')} decode and post-process on the CPU, without a CUDA context"
    yield from _mig(plan)


def _kernels(plan: Plan) -> Iterator[str]:
    """How kernels of both kinds meet: stream priorities are of one CUDA context, MPS of several processes."""
    if not engine_in_server(plan.llms, plan.target):
        yield (
            "  engines are processes of their own, and kernels of two processes take turns; with MPS they "
            "run at the same time (nvidia-cuda-mps-control -d on the host; launch.sh passes it on)"
        )
        return
    compiled = [network.model for vision in plan.visions for network in vision.networks
                if network.runtime == "tensorrt"]  # fmt: skip
    if compiled:
        yield f"  CUDA priority: the kernels of {', '.join(compiled)} go first"
    yield "  no MPS share: both run in one process, tritonserver's, and MPS divides a GPU among processes"


def _mig(plan: Plan) -> Iterator[str]:
    """Two slices instead of one shared GPU, where it can be split, and whether that holds the models."""
    try:
        gpu = find_gpu(plan.gpu.name).gpu
    except CatalogError:
        return
    sizes = mig_slices(gpu)
    if not sizes or any(llm.tp > 1 for llm in plan.llms):
        return
    large = mig_slice(gpu, sizes[-1])
    small = mig_slice(gpu, gpu.mig_max - sizes[-1])
    owners = {model.name for model in plan.models}
    pictures = {vision.name for vision in plan.visions}
    fixed = sum(item.bytes for item in plan.ledger
                if item.model not in pictures and "KV pool" not in item.item
                and (item.model in owners or item.item != "reserve"))  # fmt: skip
    needed = SERVER_PROCESS_BYTES + sum(item.bytes for item in plan.ledger if item.model in pictures)
    room = int(large.memory_bytes * (1 - RESERVE_SHARE)) - fixed
    sequence = max(llm.kv_bytes_per_token * llm.max_seq_len for llm in plan.llms)
    free = int(small.memory_bytes * (1 - RESERVE_SHARE)) - needed
    if room < sequence or free < 0:
        tight, missing = (large, sequence - room) if room < sequence else (small, -free)
        yield f"  no MIG: {tight.name} has {_gib(missing)} too little for its part"
        return
    yield (
        f"  or MIG, whose slices share nothing: language models on {large.name} ({_gib(room)} for KV), "
        f"pictures on {small.name}; a process sees one slice, so there are two repositories (--gpu "
        f"{large.name}, --gpu {small.name}) and servers (TRTBUILD_GPUS=MIG-…); clients choose by address"
    )


def _verdict(plan: Plan) -> Iterator[str]:
    if plan.fits:
        yield f"It fits; {_gib(plan.free_bytes)} stay free."
    else:
        yield f"It does not fit: {_gib(-plan.free_bytes)} are missing."
    for finding in plan.findings:
        yield f"  {finding.severity}: {finding.message}" + (f" → {finding.remedy}" if finding.remedy else "")
