"""A small simulator of what servers do: each model loads weights and buffers, reads what is free, and takes
the smaller of its token cap and its fraction of that for its pool (TensorRT-LLM kvCacheManager.cpp)."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtbuild.catalog.gpus import find_gpu
from trtbuild.plan.model import LlmPlan, Plan
from trtbuild.plan.planner import make_plan
from trtbuild.spec import DeploymentSpec, LlmSpec, Target, VisionSpec

SPECS = {
    "l40s": (
        LlmSpec(model="qwen-7b", quant="awq"),
        LlmSpec(model="llama-3.1-8b", quant="fp8", concurrency=16),
        LlmSpec(model="qwen3-0.6b"),
    ),
    "a100-80g": (LlmSpec(model="qwen-7b", instances=2), LlmSpec(model="gemma-2-9b", concurrency=4)),
    "l4": (LlmSpec(model="qwen-7b", quant="awq"),),
}


def plan_on(gpu: str) -> Plan:
    return make_plan(
        DeploymentSpec(models=SPECS[gpu], vision=(VisionSpec(),)),
        target=Target.ENGINE,
        target_reason="asked",
        gpu=find_gpu(gpu).gpu,
    )


def fixed_bytes(llm: LlmPlan) -> int:
    return llm.weights_bytes + llm.engine_copy_bytes + llm.activation_bytes + llm.buffer_bytes


def simulate(plan: Plan, steps: list[tuple[str, LlmPlan]], surprise_bytes: int = 0) -> dict[str, list[int]]:
    """Runs ``weights`` and ``pool`` steps in the order given; all but the language models is there before."""
    names = {llm.name for llm in plan.llms}
    shared = sum(item.bytes for item in plan.ledger if item.model not in names and item.item != "reserve")
    free = plan.gpu.memory_bytes - shared - surprise_bytes
    pools: dict[str, list[int]] = {}
    for step, llm in steps:
        if step == "weights":
            free -= fixed_bytes(llm)
            assert free > 0, "out of memory while loading"
            continue
        block = llm.tokens_per_block * llm.kv_bytes_per_token
        by_fraction = int(llm.kv_free_fraction * free) // block
        blocks = min(llm.kv_tokens // llm.tokens_per_block, by_fraction)
        pools.setdefault(llm.name, []).append(blocks * llm.tokens_per_block)
        free -= blocks * block
    assert free >= 0
    return pools


def instances(plan: Plan) -> list[LlmPlan]:
    return [llm for llm in plan.llms for _ in range(llm.instances)]


@pytest.mark.parametrize("gpu", SPECS)
def test_the_cap_binds_in_every_load_order(gpu: str) -> None:
    plan = plan_on(gpu)
    assert plan.fits
    for order in itertools.permutations(instances(plan)):
        steps = [(step, llm) for llm in order for step in ("weights", "pool")]
        for name, pools in simulate(plan, steps).items():
            wanted = next(llm.kv_tokens for llm in plan.llms if llm.name == name)
            assert pools == [wanted] * len(pools)


@pytest.mark.parametrize("gpu", SPECS)
def test_the_cap_binds_when_all_load_at_once(gpu: str) -> None:
    plan = plan_on(gpu)
    loading = instances(plan)
    steps = [("weights", llm) for llm in loading] + [("pool", llm) for llm in loading]
    pools = simulate(plan, steps)
    assert all(pools[llm.name] == [llm.kv_tokens] * llm.instances for llm in plan.llms)


@settings(deadline=None, max_examples=40)
@given(gpu=st.sampled_from(sorted(SPECS)), data=st.data())
def test_the_cap_binds_in_any_interleaving_with_half_the_reserve_gone(gpu: str, data: st.DataObject) -> None:
    plan = plan_on(gpu)
    waiting = [[("weights", llm), ("pool", llm)] for llm in instances(plan)]
    steps = []
    while any(waiting):
        chosen = data.draw(st.sampled_from([queue for queue in waiting if queue]))
        steps.append(chosen.pop(0))
    reserve = next(item.bytes for item in plan.ledger if item.item == "reserve")
    pools = simulate(plan, steps, surprise_bytes=reserve // 2 - (1 << 20))
    assert all(pools[llm.name] == [llm.kv_tokens] * llm.instances for llm in plan.llms)


def test_the_fraction_depends_on_nothing_but_the_model_and_the_card() -> None:
    alone = make_plan(
        DeploymentSpec(models=(LlmSpec(model="qwen-7b", quant="awq", concurrency=64),)),
        target=Target.ENGINE,
        target_reason="asked",
        gpu=find_gpu("a100-80g").gpu,
    ).llms[0]
    beside = make_plan(
        DeploymentSpec(models=(LlmSpec(model="llama-3.1-8b"),)),
        target=Target.ENGINE,
        target_reason="asked",
        gpu=find_gpu("a100-80g").gpu,
        pinned=(alone,),
    ).llms[0]
    assert beside == alone


def test_fractions_alone_depend_on_the_order() -> None:
    # field report M2: 80 GiB free, two models of 15 GiB, fraction 0.9 each: the second cannot load
    free = 80.0
    free -= 15
    free -= 0.9 * free
    assert free == pytest.approx(6.5)
    assert free < 15
