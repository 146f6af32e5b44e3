import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtbuild.catalog.gpus import all_gpus, find_gpu
from trtbuild.catalog.models import all_models
from trtbuild.catalog.versions import find_container
from trtbuild.errors import CatalogError, ModelSourceError, PlanError
from trtbuild.plan.explain import explain
from trtbuild.plan.model import LlmPlan, Plan, VisionPlan
from trtbuild.plan.planner import make_plan
from trtbuild.spec import DeploymentSpec, LlmSpec, Target, VisionSpec

GIB = 1 << 30


def plan_for(
    *models: LlmSpec,
    gpu: str = "l4",
    target: Target = Target.ENGINE,
    vision: Sequence[VisionSpec] = (),
    pinned: Sequence[LlmPlan | VisionPlan] = (),
    release: str = "25.10",
    ram_gib: int = 16,
) -> Plan:
    local = target is Target.LOCAL
    return make_plan(
        DeploymentSpec(models=models, vision=tuple(vision)),
        target=target,
        target_reason="asked",
        gpu=None if local else find_gpu(gpu).gpu,
        host_memory_bytes=ram_gib * GIB if local else None,
        container=None if local else find_container(release),
        pinned=pinned,
    )


def errors(plan: Plan) -> set[str]:
    return {finding.id for finding in plan.errors}


def check_account(plan: Plan) -> None:
    assert sum(item.bytes for item in plan.ledger) + plan.free_bytes == plan.gpu.memory_bytes
    assert plan.fits == (plan.free_bytes >= 0)
    assert all(item.bytes > 0 and item.why for item in (*plan.ledger, *plan.host_ledger))
    for llm in plan.llms:
        assert llm.kv_bytes == llm.kv_tokens * llm.kv_bytes_per_token
        assert llm.kv_tokens % llm.tokens_per_block == 0
        assert 0 <= llm.kv_free_fraction < 1
        assert llm.max_seq_len == llm.max_input_tokens + llm.max_output_tokens
        assert llm.max_batch_size <= llm.max_num_tokens
        if plan.fits:
            assert llm.max_batch_size <= llm.max_concurrency


def test_json_has_the_agreed_keys() -> None:
    plan = plan_for(LlmSpec(model="qwen-7b", quant="awq"), vision=[VisionSpec()])
    data = json.loads(plan.model_dump_json())
    assert data["gpu"] == {"name": "L4", "memory_bytes": 22 * GIB, "sm": "8.9"}
    assert {
        "name", "kind", "quant", "kv_dtype", "instances", "weights_bytes", "activation_bytes", "buffer_bytes",
        "kv_bytes_per_token", "kv_tokens", "kv_bytes", "max_batch_size", "max_num_tokens", "max_seq_len",
        "max_concurrency",
    } <= set(data["models"][0])  # fmt: skip
    assert [model["kind"] for model in data["models"]] == ["llm", "vision"]
    assert {"item", "bytes", "why"} <= set(data["ledger"][0])
    assert data["fits"] is True


def test_qwen_7b_awq_with_ocr_on_an_l4() -> None:
    plan = plan_for(LlmSpec(model="qwen-7b", quant="awq"), vision=[VisionSpec()])
    check_account(plan)
    llm = plan.llms[0]
    assert plan.fits
    assert llm.name == "qwen-7b"
    assert 5.2 < llm.weights_bytes / GIB < 5.4
    assert llm.kv_bytes_per_token == 57_344
    assert llm.max_batch_size == 32  # 32 sequences of 2560 tokens are 4.4 GiB
    assert llm.kv_tokens == 2 * 32 * 2560  # as much again for prefixes
    assert llm.dtype == "float16"
    assert {item.item for item in plan.ledger if item.model == "ocr"} >= {
        "ocr_det weights",
        "ocr_rec workspace",
    }


def test_the_worked_case_7b_int4_on_24_gb() -> None:
    plan = plan_for(
        LlmSpec(model="qwen-7b", quant="awq", max_input_tokens=1500, max_output_tokens=300, concurrency=32),
        gpu="rtx-4090",
    )
    check_account(plan)
    # 1800 tokens are 57 blocks of 32 = 1824 tokens x 57,344 B = 99.75 MiB; 32 of them 3.12 GiB
    text = explain(plan)
    assert "1500 in + 300 out = 1800 tokens = 57 blocks of 32 = 99.8 MiB" in text
    assert "32 at once: 58,368 tokens = 3.12 GiB of KV" in text
    assert "It fits" in text
    assert len(text.splitlines()) < 30


def test_two_16_bit_7b_instances_on_an_80_gb_card() -> None:
    plan = plan_for(LlmSpec(model="qwen-7b", instances=2), gpu="a100-80g")
    check_account(plan)
    assert plan.fits
    llm = plan.llms[0]
    mine = sum(item.bytes for item in plan.ledger if item.model == "qwen-7b")
    weights = next(item.bytes for item in plan.ledger if item.item == "qwen-7b weights")
    assert weights == 2 * llm.weights_bytes
    assert mine / 2 / GIB < 35  # requirements: two instances of about 35 GB each
    contexts = next(item for item in plan.ledger if item.item == "CUDA contexts of engines")
    assert "2 worker processes" in contexts.why  # orchestrator mode


def test_one_llm_is_one_process() -> None:
    plan = plan_for(LlmSpec(model="qwen-7b", quant="awq"))
    assert [item.item for item in plan.ledger if "CUDA context" in item.item] == ["CUDA context"]


def test_several_models_share_one_card() -> None:
    plan = plan_for(
        LlmSpec(model="qwen-7b", quant="awq", concurrency=8),
        LlmSpec(model="llama-3.1-8b", quant="fp8"),
        vision=[VisionSpec()],
        gpu="l40s",
    )
    check_account(plan)
    assert plan.fits
    asked, planned = plan.llms
    assert asked.max_batch_size == 8
    assert planned.max_batch_size == 32


def test_a_pool_that_is_asked_for_is_given_to_the_block() -> None:
    """70,000 tokens are 2187 whole blocks of 32; they carry 27 sequences of 2560 tokens (2048 + 512)."""
    plan = plan_for(LlmSpec(model="qwen-7b", quant="awq", kv_tokens=70_000), gpu="l4")
    (llm,) = plan.llms
    assert (llm.kv_tokens, llm.max_batch_size, llm.max_concurrency) == (69_984, 27, 27)
    more = plan_for(LlmSpec(model="qwen-7b", quant="awq", kv_tokens=70_000, concurrency=64), gpu="l4")
    assert (more.llms[0].kv_tokens, more.llms[0].max_batch_size) == (69_984, 64)  # short ones fit


def test_a_second_model_leaves_the_first_as_it_is() -> None:
    first = plan_for(LlmSpec(model="qwen-7b", quant="awq"), gpu="a100-80g")
    both = plan_for(LlmSpec(model="llama-3.1-8b"), gpu="a100-80g", pinned=first.models, vision=[VisionSpec()])
    check_account(both)
    assert both.fits
    assert both.models[0] == first.models[0]
    assert [model.name for model in both.models] == ["qwen-7b", "llama-3.1-8b", "ocr"]


def test_a_model_that_is_planned_again_replaces_itself() -> None:
    first = plan_for(LlmSpec(model="qwen-7b", quant="awq"))
    again = plan_for(LlmSpec(model="qwen-7b", quant="awq", concurrency=4), pinned=first.models)
    assert [model.name for model in again.models] == ["qwen-7b"]
    assert again.llms[0].max_batch_size == 4


def test_twins_are_refused() -> None:
    with pytest.raises(PlanError, match="two models"):
        plan_for(LlmSpec(model="qwen-7b"), LlmSpec(model="qwen-7b"))
    plan = plan_for(LlmSpec(model="qwen3-0.6b"), LlmSpec(model="qwen3-0.6b", name="second"))
    assert [llm.name for llm in plan.llms] == ["qwen3-0.6b", "second"]


def test_long_prompts_are_chunked_unless_the_cache_type_forbids_it() -> None:
    long = {"max_input_tokens": 16_000, "max_output_tokens": 500, "concurrency": 2}
    chunked = plan_for(LlmSpec(model="llama-3.1-8b", quant="awq", **long), gpu="a100-80g").llms[0]
    assert chunked.chunked_context
    assert chunked.max_num_tokens == 2048
    plan = plan_for(LlmSpec(model="llama-3.1-8b", quant="awq", kv_dtype="int8", **long), gpu="a100-80g")
    whole = plan.llms[0]
    assert not whole.kv_reuse
    assert not whole.chunked_context
    assert whole.max_num_tokens == 16_000
    assert whole.kv_bytes_per_token == chunked.kv_bytes_per_token // 2
    assert "kv.reuse" in {finding.id for finding in plan.findings}
    assert not plan.errors


def test_fp8_kv_keeps_reuse_only_with_fp8_attention() -> None:
    with_fp8 = plan_for(LlmSpec(model="llama-3.1-8b", quant="fp8", kv_dtype="fp8"))
    assert with_fp8.llms[0].kv_reuse
    with_awq = plan_for(LlmSpec(model="llama-3.1-8b", quant="awq", kv_dtype="fp8"))
    assert not with_awq.llms[0].kv_reuse
    on_llmapi = plan_for(LlmSpec(model="llama-3.1-8b", quant="awq", kv_dtype="fp8"), target=Target.LLMAPI)
    assert on_llmapi.llms[0].kv_reuse


def test_fp8_kv_is_refused_for_models_with_biases_on_keys() -> None:
    assert "kv.bias" in errors(plan_for(LlmSpec(model="qwen-7b", quant="fp8", kv_dtype="fp8")))
    assert not errors(plan_for(LlmSpec(model="qwen3-8b", quant="fp8", kv_dtype="fp8")))


@pytest.mark.parametrize(
    ("spec", "gpu", "id_"),
    [
        (LlmSpec(model="qwen-7b", quant="fp8"), "a100-80g", "format.gpu"),
        (LlmSpec(model="qwen-7b", quant="awq", tp=8), "a100-80g", "tp.heads"),  # 28 heads
        (LlmSpec(model="qwen2-72b", quant="awq", tp=4), "a100-80g", "tp.group-in"),  # issue 2445: 29568 / 4
        (LlmSpec(model="llama-2-7b", quant="w4a8-awq", tp=4), "h100", "tp.group-in"),  # 11008 / 4 is no 128s
        (LlmSpec(model="qwen2.5-0.5b", quant="w4a8-awq", tp=2), "l4", "tp.group-in"),  # 896 / 2 = 3.5 groups
        (LlmSpec(model="deepseek-v3"), "b200", "format.gpu"),  # FP8 blocks: not in the compiled flow
    ],
)
def test_what_cannot_be_built_is_an_error(spec: LlmSpec, gpu: str, id_: str) -> None:
    plan = plan_for(spec, gpu=gpu)
    assert id_ in errors(plan)
    assert next(finding for finding in plan.errors if finding.id == id_).remedy


def test_a_smaller_group_is_taken_where_the_larger_does_not_fit() -> None:
    # Llama-2-7B at TP4: 11008 / 4 = 2752 = 43 x 64, no multiple of 128 (issue 648)
    plan = plan_for(LlmSpec(model="llama-2-7b", quant="awq", tp=4), gpu="a100-80g")
    assert not plan.errors


def test_automatic_formats_follow_checkpoint_and_card() -> None:
    assert plan_for(LlmSpec(model="qwen3-0.6b"), gpu="l4").llms[0].quant == "bf16"
    assert plan_for(LlmSpec(model="qwen3-0.6b"), gpu="t4", release="24.10").llms[0].quant == "fp16"
    assert plan_for(LlmSpec(model="gpt-oss-20b"), gpu="b200", target=Target.LLMAPI).llms[0].quant == "mxfp4"


def test_a_vision_tower_is_an_item_of_its_own() -> None:
    plan = plan_for(LlmSpec(model="gemma-3-4b"), target=Target.LLMAPI)
    tower = next(item for item in plan.ledger if item.item == "gemma-3-4b vision tower")
    assert tower.bytes == 2 * 419_816_304
    assert plan.llms[0].weights_bytes == 2 * 3_880_263_168


def test_lengths_beyond_the_context() -> None:
    with pytest.raises(PlanError, match="context is 8192") as caught:
        plan_for(LlmSpec(model="llama-3-8b", max_input_tokens=9000))
    assert "--max-input 7680" in caught.value.remedies[0]
    plan = plan_for(LlmSpec(model="tinyllama-1.1b-v1.0"))  # 2048 in + 512 out were not asked for
    assert plan.llms[0].max_input_tokens == 2048 - 512
    assert "length.context" in {finding.id for finding in plan.findings}


def test_unknown_words_are_refused() -> None:
    for spec in (
        LlmSpec(model="qwen-9000b"),
        LlmSpec(model="qwen-7b", quant="int5"),
        LlmSpec(model="qwen-7b", kv_dtype="fp4"),
    ):
        with pytest.raises(CatalogError):
            plan_for(spec)


def test_local_plans_with_ram_and_the_cpu_engines_cache() -> None:
    plan = plan_for(LlmSpec(model="smollm2-135m", quant="int4"), target=Target.LOCAL, vision=[VisionSpec()])
    check_account(plan)
    llm = plan.llms[0]
    assert plan.gpu.sm is None
    assert (llm.quant, llm.kv_dtype) == ("gguf-q4_1", "u8")
    assert llm.kv_bytes_per_token == 13_680
    assert llm.tokens_per_block == 32
    assert llm.kv_tokens == 32 * 2560  # 32 sequences, no more: it is everybody's RAM
    assert not plan.host_ledger
    assert {item.where for item in plan.ledger} == {"host", "shm"}


def test_local_without_weights_says_how_to_get_them() -> None:
    with pytest.raises(ModelSourceError, match="no local weights"):
        plan_for(LlmSpec(model="qwen-7b"), target=Target.LOCAL)
    with pytest.raises(ModelSourceError, match=r"gguf-q4_1|no local weights"):
        plan_for(LlmSpec(model="smollm2-135m", quant="awq"), target=Target.LOCAL)


def test_a_pool_that_is_far_too_large_is_still_planned() -> None:
    plan = plan_for(
        LlmSpec(model="llama-3.1-405b", concurrency=4096, max_input_tokens=100_000, max_output_tokens=20_000)
    )
    check_account(plan)
    assert not plan.fits
    assert plan.free_bytes < 0


def test_old_containers_take_more_shared_memory_when_they_say_so() -> None:
    plan = plan_for(LlmSpec(model="qwen-7b", quant="awq"))
    shm = next(item for item in plan.host_ledger if item.where == "shm")
    assert shm.bytes == 4 * find_container("25.10").python_shm_bytes


MODELS = st.sampled_from([record.name for record in all_models()])


@settings(deadline=None, max_examples=50)
@given(
    model=MODELS,
    gpu=st.sampled_from([gpu.name for gpu in all_gpus()]),
    quant=st.sampled_from(["auto", "awq", "int8", "fp8", "bf16"]),
    max_input=st.integers(1, 1500),
    max_output=st.integers(1, 500),
    concurrency=st.one_of(st.none(), st.integers(1, 256)),
    instances=st.integers(1, 3),
    target=st.sampled_from([Target.ENGINE, Target.LLMAPI]),
)
def test_the_account_always_adds_up(  # type: ignore[no-untyped-def]
    model, gpu, quant, max_input, max_output, concurrency, instances, target
) -> None:
    spec = LlmSpec(
        model=model,
        quant=quant,
        max_input_tokens=max_input,
        max_output_tokens=max_output,
        concurrency=concurrency,
        instances=instances,
    )
    plan = plan_for(spec, gpu=gpu, target=target)
    check_account(plan)
    if plan.fits and concurrency is not None:
        assert plan.llms[0].max_batch_size == concurrency


@settings(deadline=None, max_examples=15)
@given(model=MODELS, tokens=st.integers(1, 1400), more=st.integers(0, 100), concurrency=st.integers(1, 64))
def test_asking_for_more_never_leaves_more(model, tokens, more, concurrency) -> None:  # type: ignore[no-untyped-def]
    def need(tokens: int, concurrency: int, instances: int = 1) -> int:
        spec = LlmSpec(
            model=model,
            max_input_tokens=tokens,
            concurrency=concurrency,
            max_output_tokens=100,
            instances=instances,
        )
        plan = plan_for(spec, gpu="t4", release="24.10")  # nearly nothing fits: pools are not enlarged
        return plan.gpu.memory_bytes - plan.free_bytes if not plan.fits else 0

    assert need(tokens, concurrency) <= max(need(tokens + more, concurrency), need(tokens, concurrency))
    if need(tokens, concurrency):
        assert need(tokens, concurrency) <= need(tokens + more, concurrency)
        assert need(tokens, concurrency) <= need(tokens, concurrency + more)
        assert need(tokens, concurrency) < need(tokens, concurrency, instances=2)


def test_steps_are_small_where_pictures_wait_for_them() -> None:
    asked = LlmSpec(model="qwen-7b", quant="awq", concurrency=16)
    alone, beside = plan_for(asked), plan_for(asked, vision=[VisionSpec()])
    assert alone.llms[0].max_num_tokens == 2048
    assert beside.llms[0].max_num_tokens == 512 + 16  # a chunk, and a token of each running sequence
    assert "528 tokens (qwen-7b, 2048 without pictures)" in explain(beside)
    own = asked.model_copy(update={"max_num_tokens": 1024})
    assert plan_for(own, vision=[VisionSpec()]).llms[0].max_num_tokens == 1024
    whole = asked.model_copy(update={"chunked_context": False})
    assert plan_for(whole, vision=[VisionSpec()]).llms[0].max_num_tokens == 2048  # the longest prompt


def test_pictures_that_come_later_leave_the_steps_and_say_so() -> None:
    first = plan_for(LlmSpec(model="qwen-7b", quant="awq", concurrency=16))
    later = plan_for(pinned=first.models, vision=[VisionSpec()])
    assert later.llms[0].max_num_tokens == 2048
    (told,) = (finding for finding in later.findings if finding.id == "vision.steps")
    assert "steps of up to 2048 tokens" in told.message
    assert "max_num_tokens: 528" in told.remedy


def test_more_batch_slots_than_the_pool_carries() -> None:
    """The pool takes what is left, and the plan says how many whole sequences that is."""
    asked = {"model": "qwen-7b", "quant": "awq", "max_input_tokens": 1500, "max_output_tokens": 500}
    few = plan_for(LlmSpec(**asked))
    many = plan_for(LlmSpec(**asked, max_batch_size=512))
    (row,) = many.llms
    assert many.fits
    assert row.max_batch_size == 512
    assert 32 <= row.max_concurrency < 512
    assert row.buffer_bytes > few.llms[0].buffer_bytes  # 512 slots are paid for
    (found,) = [finding for finding in many.findings if finding.id == "kv.slots"]
    assert f"carries {row.max_concurrency} sequences" in found.message
    assert not [finding for finding in few.findings if finding.id == "kv.slots"]
    named = plan_for(LlmSpec(**asked, concurrency=8, max_batch_size=64))
    assert (named.llms[0].max_batch_size, named.llms[0].max_queue_size) == (64, 512)
    assert named.llms[0].max_concurrency >= 8
    assert f"  {named.llms[0].max_concurrency} at once" in explain(named)
    assert "  512 at once" not in explain(many)
