"""Plans made by hand, for tests of what is written from them."""

from __future__ import annotations

from typing import Any

from trtbuild.plan.model import GpuPlan, LlmPlan, NetworkPlan, Plan, VisionPlan
from trtbuild.spec import DeploymentSpec, LlmSpec, Target, VisionSpec


def llm_plan(name: str = "qwen-7b", **changes: Any) -> LlmPlan:
    values: dict[str, Any] = {
        "name": name,
        "source": "Qwen/Qwen2.5-7B-Instruct",
        "weights_path": None,
        "quant": "awq",
        "kv_dtype": "auto",
        "dtype": "float16",
        "tp": 1,
        "instances": 1,
        "weights_bytes": 5_600_000_000,
        "activation_bytes": 300_000_000,
        "buffer_bytes": 100_000_000,
        "kv_bytes_per_token": 57_344,  # 2 x 28 layers x 4 heads x 128 x 2 bytes
        "tokens_per_block": 32,
        "kv_tokens": 160_000,
        "kv_bytes": 57_344 * 160_000,
        "kv_free_fraction": 0.95,
        "max_batch_size": 32,
        "max_num_tokens": 2048,
        "max_seq_len": 2560,
        "max_input_tokens": 2048,
        "max_output_tokens": 512,
        "max_concurrency": 62,
        "kv_reuse": True,
        "chunked_context": True,
        "max_queue_size": 64,
        "vocab_size": 152_064,
    }
    return LlmPlan(**{**values, **changes})


def ocr_plan(name: str = "ocr") -> VisionPlan:
    def network(role: str, max_batch_size: int, preferred: tuple[int, ...]) -> NetworkPlan:
        return NetworkPlan(
            role=role,
            model=f"{name}_{role}",
            instances=1,
            max_batch_size=max_batch_size,
            preferred_batch_sizes=preferred,
            max_queue_delay_us=1000,
            weights_bytes=10_000_000,
            workspace_bytes=200_000_000,
        )

    return VisionPlan(
        name=name,
        pipeline="ocr",
        weights_path=None,
        instances=2,
        max_batch_size=8,
        max_picture_pixels=67_108_864,
        networks=(network("det", 1, ()), network("cls", 8, (4, 8)), network("rec", 8, (4, 8))),
    )


def plan_of(
    *models: LlmPlan | VisionPlan, target: Target = Target.ENGINE, container: str | None = "26.07"
) -> Plan:
    local = target is Target.LOCAL
    return Plan(
        target=target,
        target_reason="you asked for it",
        gpu=GpuPlan(name="CPU" if local else "L4", memory_bytes=24_000_000_000, sm=None if local else "8.9"),
        container=None if local else container,
        trtllm_version=None if local else "1.2.1",
        models=models,
        ledger=(),
        free_bytes=0,
        fits=True,
        findings=(),
    )


def spec_of(*models: LlmPlan | VisionPlan) -> DeploymentSpec:
    llms = [LlmSpec(model=model.source, name=model.name) for model in models if isinstance(model, LlmPlan)]
    visions = [VisionSpec(name=model.name) for model in models if isinstance(model, VisionPlan)]
    return DeploymentSpec(models=tuple(llms), vision=tuple(visions))
