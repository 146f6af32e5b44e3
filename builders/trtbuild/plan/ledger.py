"""The memory account: one line for each thing that takes room, with why, in bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from trtbuild.catalog.vision import pipeline
from trtbuild.plan import constants
from trtbuild.plan.model import LedgerItem, LlmPlan, NetworkPlan, VisionPlan
from trtbuild.plan.vision import network_shm_bytes
from trtbuild.spec import Target


def plural(count: int, word: str, ending: str = "s") -> str:
    """``3 sequences``, ``1 sequence``."""
    return f"{count:,} {word}" + ("" if count == 1 else ending)


def model_items(plan: LlmPlan, target: Target) -> Iterator[LedgerItem]:
    """One language model on the device: what one instance takes × its instances."""
    where = _device(target)
    times = f"{plan.instances} × " if plan.instances > 1 else ""
    share = f" of 1 of {plan.tp} GPUs" if plan.tp > 1 else ""
    copies = "rope table, and lm_head again where it is tied: the engine keeps them beside the weights"
    tower = "vision tower and projector in 16 bit, which the LLM API loads"
    said = f"; by {plan.measured_by}" if plan.measured_by is not None else ""
    rows = (
        ("weights", plan.weights_bytes, f"{plan.quant} weights{share}{said}"),
        ("engine tables", plan.engine_copy_bytes, copies),
        ("vision tower", plan.vision_tower_bytes, tower),
        (
            "activations",
            plan.activation_bytes,
            f"a step of {plan.max_num_tokens} tokens, {plural(plan.max_batch_size, 'sequence')}{said}",
        ),
        (
            "buffers",
            plan.buffer_bytes,
            "inputs, logits and sampling of "
            f"{plural(plan.max_batch_size, 'sequence')} of {plan.max_seq_len} tokens",
        ),
        (
            "KV pool",
            plan.kv_bytes,
            f"{plan.kv_tokens} tokens × {plan.kv_bytes_per_token} B, "
            f"{plural(plan.max_concurrency, 'sequence')} of {plan.max_seq_len} tokens",
        ),
    )
    for item, size, why in rows:
        if size:
            yield LedgerItem(
                item=f"{plan.name} {item}",
                bytes=size * plan.instances,
                why=times + why,
                where=where,
                model=plan.name,
            )


def vision_items(plan: VisionPlan, target: Target) -> Iterator[LedgerItem]:
    """A vision pipeline's networks on the device."""
    where = _device(target)
    for network in plan.networks:
        times = f"{network.instances} × " if network.instances > 1 else ""
        yield LedgerItem(
            item=f"{network.model} weights",
            bytes=network.weights_bytes * network.instances,
            why=f"{times}network file",
            where=where,
            model=plan.name,
        )
        yield LedgerItem(
            item=f"{network.model} workspace",
            bytes=network.workspace_bytes * network.instances,
            why=f"{times}session and activations at batch {network.max_batch_size}",
            where=where,
            model=plan.name,
        )


def engine_in_server(llms: Sequence[LlmPlan], target: Target) -> bool:
    """Whether the engine, if there is any, runs in tritonserver's own process (leader mode)."""
    return target is Target.ENGINE and sum(llm.instances for llm in llms) <= 1


def gpu_process_items(llms: Sequence[LlmPlan], target: Target, *, has_vision: bool) -> Iterator[LedgerItem]:
    """CUDA contexts and Triton's pool. One engine runs inside the server (leader mode); two or more, or the
    LLM API, have a process each beside it."""
    engines = sum(llm.instances for llm in llms)
    if engine_in_server(llms, target):
        size = constants.ENGINE_PROCESS_BYTES if engines else constants.SERVER_PROCESS_BYTES
        why = (
            "one process: CUDA context, libraries and kernels (leader mode)"
            if engines
            else "tritonserver's own context, vision models included"
        )
        yield LedgerItem(item="CUDA context", bytes=size, why=why)
    else:
        graphs = target is Target.LLMAPI
        one = constants.TORCH_PROCESS_BYTES if graphs else constants.ENGINE_PROCESS_BYTES
        yield LedgerItem(
            item="CUDA contexts of engines",
            bytes=engines * one,
            why=f"{plural(engines, 'worker process', 'es')}, one for each engine, with a context each"
            + (" and its CUDA graphs" if graphs else ""),
        )
        why = "tritonserver's own context" + (", vision models included" if has_vision else "")
        yield LedgerItem(item="CUDA context of the server", bytes=constants.SERVER_PROCESS_BYTES, why=why)
    for llm in llms:
        if llm.tp > 1:
            yield LedgerItem(
                item=f"{llm.name} communication",
                bytes=constants.TP_COMMUNICATION_BYTES * llm.instances,
                why=f"NCCL and all-reduce buffers of {llm.tp} ranks",
                model=llm.name,
            )
    yield LedgerItem(
        item="Triton CUDA pool",
        bytes=constants.CUDA_POOL_BYTES,
        why="--cuda-memory-pool-byte-size, its default",
    )


def reserve_item(memory_bytes: int, target: Target) -> LedgerItem:
    """The safety margin. It depends on the device alone, so that no model changes another's numbers."""
    return LedgerItem(
        item="reserve",
        bytes=reserve_bytes(memory_bytes),
        why=f"{constants.RESERVE_SHARE:.0%} for fragmentation and what no record shows",
        where=_device(target),
    )


def reserve_bytes(memory_bytes: int) -> int:
    """Bytes of the safety margin."""
    return int(memory_bytes * constants.RESERVE_SHARE)


def host_items(
    llms: Sequence[LlmPlan], visions: Sequence[VisionPlan], target: Target, *, shm_bytes: int
) -> Iterator[LedgerItem]:
    """Host RAM and /dev/shm. ``shm_bytes`` is what one Python instance takes when it starts."""
    if target is Target.LOCAL:
        yield _host("tritonserver", constants.LOCAL_SERVER_HOST_BYTES, "the server process")
    else:
        yield from _gpu_host_items(llms, target)
    for llm in llms:
        stubs = constants.STUBS_PER_LLM
        yield _host(
            f"{llm.name} Python",
            stubs * constants.STUB_HOST_BYTES,
            "front, pre- and post-processing",
            llm.name,
        )
        if target is Target.LOCAL:
            stubs += llm.instances
            engine = constants.LOCAL_ENGINE_HOST_BYTES * llm.instances
            yield _host(
                f"{llm.name} engine process", engine, "OpenVINO and Python beside the weights", llm.name
            )
        yield _shm(llm.name, stubs, stubs * shm_bytes)
    for vision in visions:
        yield from _vision_stages(vision)
        stubs = sum(stage.instances for stage in vision.stages)
        calls = sum(stage.instances * stage.shm_bytes for stage in vision.stages)
        if target is Target.LOCAL:
            stubs += sum(network.instances for network in vision.networks)
            calls += sum(network.instances * network_shm(vision, network) for network in vision.networks)
        yield _shm(vision.name, stubs, stubs * shm_bytes + calls)


def _gpu_host_items(llms: Sequence[LlmPlan], target: Target) -> Iterator[LedgerItem]:
    """Server and worker processes, one a rank, and the files that they read while a model loads.

    Leader mode is a tritonserver a GPU; several engines (orchestrator mode) and the LLM API have workers.
    """
    ranks = sum(llm.instances * llm.tp for llm in llms)
    leader = target is Target.ENGINE and sum(llm.instances for llm in llms) <= 1
    servers = max(ranks, 1) if leader else 1
    many = f"{servers} server processes, one a GPU (leader mode)"
    why = "the server process with CUDA libraries" if servers == 1 else many
    yield _host("tritonserver", servers * constants.SERVER_HOST_BYTES, why)
    if leader or target is Target.LLMAPI:
        each = "--pinned-memory-pool-byte-size, its default" + (
            f", of {servers} servers" if servers > 1 else ""
        )
        yield _host("pinned pool", servers * constants.PINNED_POOL_BYTES, each)
    if not leader:
        one = constants.TORCH_HOST_BYTES if target is Target.LLMAPI else constants.SERVER_HOST_BYTES
        why = f"{plural(ranks, 'process', 'es')}, one for each rank of each engine"
        yield _host("engine workers", ranks * one, why)
    if llms:
        largest = max(llms, key=lambda llm: llm.weights_bytes * llm.tp)
        files = "checkpoint files" if target is Target.LLMAPI else "engine files"
        of = f" on {largest.tp} ranks" if largest.tp > 1 else ""
        size = largest.weights_bytes * largest.tp
        yield _host(files, size, f"page cache while {largest.name} loads{of}", largest.name)


def _vision_stages(vision: VisionPlan) -> Iterator[LedgerItem]:
    for stage in vision.stages:
        decodes = stage.role != "postprocess"
        scratch = f"scratch to decode {vision.max_picture_pixels} pixels" if decodes else "scratch"
        why = f"{stage.instances} × process and {scratch}"
        size = (stage.host_bytes + stage.scratch_bytes) * stage.instances
        yield _host(f"{vision.name} {stage.role}", size, why, vision.name)


def network_shm(vision: VisionPlan, network: NetworkPlan) -> int:
    """/dev/shm of one instance of a network that is a Python process: measured, else by its tensors."""
    if vision.picture is None:
        return pipeline(vision.pipeline).network(network.role).shm_bytes
    return network_shm_bytes(network)


def _device(target: Target) -> Literal["gpu", "host"]:
    return "host" if target is Target.LOCAL else "gpu"


def _host(item: str, size: int, why: str, model: str | None = None) -> LedgerItem:
    return LedgerItem(item=item, bytes=size, why=why, where="host", model=model)


def _shm(name: str, stubs: int, size: int) -> LedgerItem:
    return LedgerItem(
        item=f"{name} /dev/shm", bytes=size, why=f"{stubs} Python instances", where="shm", model=name
    )
