"""What a plan that does not fit proposes is taken by its word: the flags are applied and planned again."""

import re
import shlex

import pytest

from trtbuild.catalog.gpus import find_gpu
from trtbuild.plan.model import Plan
from trtbuild.plan.planner import make_plan
from trtbuild.spec import DeploymentSpec, LlmSpec, Target

FIELDS = {
    "--concurrency": "concurrency",
    "--max-input": "max_input_tokens",
    "--kv-dtype": "kv_dtype",
    "--instances": "instances",
    "--quant": "quant",
    "--tp": "tp",
}


def plan_for(spec: DeploymentSpec, gpu: str) -> Plan:
    return make_plan(spec, target=Target.ENGINE, target_reason="asked", gpu=find_gpu(gpu).gpu)


def apply(remedy: str, spec: DeploymentSpec, gpu: str) -> Plan:
    found = re.match(r"(?:(?P<name>[\w.-]+): )?(?P<flags>--.*)", remedy)
    assert found is not None, remedy
    words = shlex.split(found["flags"])
    changes = dict(zip(words[::2], words[1::2], strict=True))
    gpu = changes.pop("--gpu", gpu)
    update = {FIELDS[flag]: int(value) if value.isdigit() else value for flag, value in changes.items()}
    models = tuple(
        model.model_copy(update=update) if found["name"] in (None, model.model) else model
        for model in spec.models
    )
    return plan_for(spec.model_copy(update={"models": models}), gpu)


CASES = [
    ("l4", [LlmSpec(model="qwen-7b", concurrency=64, max_input_tokens=16_000)]),
    ("l4", [LlmSpec(model="llama-3.1-8b", concurrency=64)]),
    ("a100-80g", [LlmSpec(model="qwen-7b", instances=5)]),
    ("h100", [LlmSpec(model="llama-3.1-70b")]),
    ("t4", [LlmSpec(model="qwen-14b", quant="int8")]),
    ("l40s", [LlmSpec(model="llama-3-70b", quant="awq", concurrency=32, max_input_tokens=7000)]),
    ("l4", [LlmSpec(model="qwen-7b"), LlmSpec(model="llama-3.1-8b")]),
]


@pytest.mark.parametrize(("gpu", "models"), CASES)
def test_every_proposal_fits_when_it_is_taken(gpu: str, models: list[LlmSpec]) -> None:
    spec = DeploymentSpec(models=tuple(models))
    plan = plan_for(spec, gpu)
    assert not plan.fits
    assert "memory" in {finding.id for finding in plan.errors}
    proposals = [finding for finding in plan.findings if finding.id.startswith("memory.")]
    assert proposals
    for proposal in proposals:
        changed = apply(proposal.remedy, spec, gpu)
        assert changed.fits, proposal
        assert not changed.errors, proposal


def test_the_numbers_are_the_largest_that_fit() -> None:
    spec = DeploymentSpec(models=(LlmSpec(model="qwen-7b", concurrency=64, max_input_tokens=16_000),))
    proposals = {finding.id: finding.remedy for finding in plan_for(spec, "l4").findings}
    count = int(proposals["memory.concurrency"].split()[-1])
    assert apply(f"--concurrency {count}", spec, "l4").fits
    assert not apply(f"--concurrency {count + 1}", spec, "l4").fits
    tokens = int(proposals["memory.length"].split()[1])
    assert not apply(f"--max-input {tokens + 32} --concurrency 64", spec, "l4").fits


def test_it_says_first_whether_weights_or_cache_take_the_room() -> None:
    cache = plan_for(
        DeploymentSpec(models=(LlmSpec(model="qwen-7b", concurrency=64, max_input_tokens=16_000),)), "l4"
    )
    assert "largest part is the KV pools" in cache.errors[0].message
    weights = plan_for(DeploymentSpec(models=(LlmSpec(model="llama-3.1-70b"),)), "l4")
    assert "largest part is the weights" in weights.errors[0].message


def test_tensor_parallelism_is_proposed_only_where_heads_divide() -> None:
    plan = plan_for(
        DeploymentSpec(models=(LlmSpec(model="qwen-7b", concurrency=64, max_input_tokens=16_000),)), "l4"
    )
    assert all("--tp 8" not in finding.remedy for finding in plan.findings)  # 28 heads


def test_eight_bit_comes_before_four() -> None:
    plan = plan_for(DeploymentSpec(models=(LlmSpec(model="llama-3.1-70b"),)), "h100")
    formats = [finding.remedy for finding in plan.findings if finding.id == "memory.format"]
    assert formats[0] in ("--quant int8", "--quant fp8")
    assert "--quant awq" in formats


def test_local_proposals_fit_too() -> None:
    def plan_in(ram_bytes: int, **changes: int) -> Plan:
        models = (LlmSpec(model="smollm2-135m", quant="int4", **changes),)  # type: ignore[arg-type]
        return make_plan(
            DeploymentSpec(models=models),
            target=Target.LOCAL,
            target_reason="asked",
            host_memory_bytes=ram_bytes,
        )

    plan = plan_in(2 << 30, concurrency=256)
    assert not plan.fits
    proposals = {finding.id: finding.remedy for finding in plan.findings}
    count = int(proposals["memory.concurrency"].split()[-1])
    assert plan_in(2 << 30, concurrency=count).fits
    assert not plan_in(2 << 30, concurrency=count + 1).fits
    assert not any("--gpu" in remedy or "--quant" in remedy for remedy in proposals.values())


def test_a_plan_that_nothing_helps_says_so() -> None:
    plan = plan_for(DeploymentSpec(models=(LlmSpec(model="llama-3.1-405b"),)), "t4")
    assert not plan.fits
    error = next(finding for finding in plan.errors if finding.id == "memory")
    proposals = [finding for finding in plan.findings if finding.id.startswith("memory.")]
    assert bool(proposals) != ("a smaller model" in error.remedy)


def test_several_changes_together_are_proposed_where_none_alone_helps() -> None:
    spec = DeploymentSpec(models=(LlmSpec(model="llama-3.1-405b"),))
    plan = plan_for(spec, "h100")
    together = [finding for finding in plan.findings if finding.id == "memory.together"]
    # 405e9 weights in 8 bit are 47 GiB on each of 8; in 4 bit they fit on fewer.
    assert any("--tp 8" in finding.remedy for finding in together)
    for finding in together:
        changed = apply(finding.remedy, spec, "h100")
        assert changed.fits
        assert not changed.errors


def test_what_no_gpu_carries_is_said_with_the_smallest_shortfall() -> None:
    spec = DeploymentSpec(models=(LlmSpec(model="llama-3.1-405b", instances=64),))
    plan = make_plan(
        spec, target=Target.ENGINE, target_reason="asked", gpu=find_gpu("t4").gpu, fixed_gpu=True
    )
    error = next(finding for finding in plan.errors if finding.id == "memory")
    found = re.search(r"the nearest is 8 × T4 in (\S+), ([0-9.]+) GiB too little on each", error.remedy)
    assert found is not None
    nearest = apply(f"--quant {found[1]} --tp 8", spec, "t4")
    assert float(found[2]) == pytest.approx(-nearest.free_bytes / (1 << 30), abs=0.1)
    assert not any("--gpu" in finding.remedy for finding in plan.findings)
