"""lora.*: adapters against what the target can do with them, and the room that their cache takes."""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.build.jobs import lora_rank
from trtbuild.errors import TrtbuildError
from trtbuild.plan.architecture import Architecture
from trtbuild.plan.model import Finding
from trtbuild.preflight.base import Subject
from trtbuild.repository.engine import LORA_GPU_FRACTION, LORA_HOST_BYTES, LORA_MAX_RANK
from trtbuild.spec import Target

_ITEM_BYTES = 2
_MIB = 1 << 20


def check_lora(subject: Subject) -> Iterator[Finding]:
    """The target takes adapters, in a type that a request can carry, and its cache holds one."""
    plan, llm, spec = subject.context.plan, subject.llm, subject.spec
    if spec is None or not spec.loras:
        return
    if plan.target is not Target.ENGINE:
        yield subject.finding(
            "lora.target",
            "error",
            f"adapters are converted for compiled engines; on the target {plan.target.value} no input "
            "chooses one",
            "--target engine",
            "merge the adapter into the weights (PEFT's merge_and_unload), and give them with --weights",
        )
        return
    if llm.dtype != "float16":
        # NVIDIA's templates declare lora_weights as FP16; runtime/loraUtils.cpp compares it with the model's.
        yield subject.finding(
            "lora.dtype",
            "error",
            f"the engine computes in {llm.dtype}, its input lora_weights is FP16, and TensorRT-LLM takes "
            "adapters only in the type of the engine",
            "--quant fp16 or awq, whose engines compute in float16",
        )
        return
    try:
        rank = max(lora_rank(folder) for folder in spec.loras.values())
    except TrtbuildError:
        return  # the build's own rule says it
    if rank > LORA_MAX_RANK:
        yield subject.finding(
            "lora.rank",
            "error",
            f"an adapter has rank {rank}, and lora_cache_max_adapter_size is {LORA_MAX_RANK}",
            f"take an adapter of rank {LORA_MAX_RANK} or less",
        )
        return
    need = adapter_bytes(subject.architecture, rank, llm.tp)
    room = int(LORA_GPU_FRACTION * max(plan.free_bytes, 0))
    figures = (
        f"an adapter of rank {rank} takes up to {need / _MIB:.0f} MiB of each GPU's LoRA cache, which gets "
        f"{LORA_GPU_FRACTION:.0%} of the {plan.free_bytes / _MIB:.0f} MiB that the plan leaves free: "
        f"{room / _MIB:.0f} MiB"
    )
    if need > min(room, LORA_HOST_BYTES):
        yield subject.finding(
            "lora.cache",
            "error",
            f"{figures}; the engine does not load where not even one fits",
            "plan fewer sequences (--concurrency)",
            "take an adapter of a smaller rank, or a larger GPU",
        )
        return
    yield subject.finding(
        "lora.cache",
        "info",
        f"{figures}; {LORA_HOST_BYTES / _MIB:.0f} MiB of host RAM come on top; the accounts hold neither. "
        "A request names its adapter by lora_task_id, and the first one brings lora_weights and lora_config "
        "from the engine's folder 1/lora; names are not looked up",
    )


def adapter_bytes(architecture: Architecture, rank: int, tp: int) -> int:
    """Bytes of the largest adapter on one rank: rank × (inputs + outputs) of each matrix of each layer.

    Source: batch_manager/peftCacheManager.cpp, getPageManagerConfig, for attention and MLP as LoRA modules.
    """
    values = 0
    for linear in architecture.linears():
        if linear.part in ("attention", "mlp"):
            inputs, outputs = linear.on_rank(tp)
            parts = 3 if linear.kv_features else 1  # query, key and value each read the inputs
            values += (parts * inputs + outputs) * linear.count
    return values * rank * _ITEM_BYTES
