"""Plans made by hand, for tests of what is written from them."""

from __future__ import annotations

from typing import Any

from trtbuild.catalog.vision import TensorRow, pipeline
from trtbuild.plan.model import (
    AnswerPlan,
    GpuPlan,
    LlmPlan,
    NetworkPlan,
    PicturePlan,
    Plan,
    StagePlan,
    VisionPlan,
)
from trtbuild.spec import DeploymentSpec, LlmSpec, Target, Task, VisionSpec


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
        row = pipeline("ocr").network(role)
        return NetworkPlan(
            inputs=row.inputs,
            outputs=row.outputs,
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
        stages=(
            StagePlan(
                role="front",
                model=name,
                instances=2,
                max_batch_size=0,
                host_bytes=200_000_000,
                scratch_bytes=536_870_912,
                shm_bytes=75_497_472,
            ),
        ),
        max_batch_size=8,
        max_picture_pixels=67_108_864,
        networks=(network("det", 1, ()), network("cls", 8, (4, 8)), network("rec", 8, (4, 8))),
    )


def detector_plan(name: str = "detector") -> VisionPlan:
    def stage(role: str) -> StagePlan:
        return StagePlan(
            role=role,
            model=f"{name}_{role}",
            instances=2 if role == "preprocess" else 1,
            max_batch_size=8,
            host_bytes=70_000_000,
            scratch_bytes=0,
            shm_bytes=10_000_000,
        )

    network = NetworkPlan(
        role="network",
        model=f"{name}_network",
        instances=1,
        max_batch_size=8,
        preferred_batch_sizes=(4, 8),
        max_queue_delay_us=2000,
        weights_bytes=40_000_000,
        workspace_bytes=200_000_000,
        inputs=(TensorRow(name="pixels", dtype="UINT8", dims=(640, 640, 3)),),
        outputs=(TensorRow(name="output0", dtype="FP32", dims=(84, 8400)),),
    )
    picture = PicturePlan(
        width=640,
        height=640,
        channels=3,
        fit="letterbox",
        crop_share=0.875,
        pad=114,
        resample="bilinear",
        swap_colours=False,
        scale=(1 / 255,) * 3,
        offset=(0.0,) * 3,
    )
    answer = AnswerPlan(
        head="yolov8",
        outputs=("output0",),
        classes=80,
        activation="none",
        anchors=(),
        top_k=5,
        score_threshold=0.25,
        iou_threshold=0.45,
        max_detections=300,
        normalise=True,
    )
    return VisionPlan(
        name=name,
        pipeline="",
        task=Task.DETECTION,
        weights_path="yolov8n.onnx",
        stages=(stage("preprocess"), stage("postprocess")),
        max_batch_size=8,
        max_picture_pixels=67_108_864,
        networks=(network,),
        picture=picture,
        answer=answer,
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
