"""Plans made by hand, and stand-ins for the models' code: these tests are about what is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trtbuild.plan.model import GpuPlan, LlmPlan, NetworkPlan, Plan, VisionPlan
from trtbuild.repository import llm as llm_module
from trtbuild.repository import vision as vision_module
from trtbuild.repository import writer as writer_module
from trtbuild.repository.writer import write_repository
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


@pytest.fixture(autouse=True)
def _code(monkeypatch: pytest.MonkeyPatch) -> None:
    def stand_in(kind: str) -> dict[str, bytes]:
        return {"model.py": f"# {kind}\n".encode()}

    for module in (llm_module, vision_module):
        monkeypatch.setattr(module, "model_code", stand_in)
    monkeypatch.setattr(llm_module, "text_package", lambda: {"__init__.py": b"# text\n"})


@pytest.fixture
def composed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that write the same plan many times: composing it again would give the same."""
    real, known = writer_module.compose, {}

    def compose(plan: Plan, spec: DeploymentSpec, **options: Any) -> Any:
        key = (id(plan), *map(repr, options.items()))
        if key not in known:
            known[key] = (real(plan, spec, **options), plan)
        return known[key][0]

    monkeypatch.setattr(writer_module, "compose", compose)


class Workshop:
    """Everything that a written repository needs, in one temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repo = folder / "model_repo"
        self.tokenizer = folder / "tokenizer"
        self.tokenizer.mkdir()
        (self.tokenizer / "tokenizer.json").write_text("{}")
        (self.tokenizer / "pytorch_model.bin").write_bytes(b"no weights, no pickles")
        self.gguf = folder / "weights.gguf"
        self.gguf.write_bytes(b"GGUF" + bytes(60))
        self.onnx = folder / "network.onnx"
        self.onnx.write_bytes(b"onnx" + bytes(60))

    llm = staticmethod(llm_plan)
    ocr = staticmethod(ocr_plan)
    plan = staticmethod(plan_of)
    spec = staticmethod(spec_of)

    def sources(self, plan: Plan) -> dict[str, dict[str, Path]]:
        """Assets and weights for every model of a local plan; an engine's come with its build."""
        if plan.target is not Target.LOCAL:
            return {"text_assets": {}, "weights": {}}
        weights = {llm.name: self.gguf for llm in plan.llms}
        weights |= {network.model: self.onnx for vision in plan.visions for network in vision.networks}
        return {"text_assets": {llm.name: self.tokenizer for llm in plan.llms}, "weights": weights}

    def write(self, plan: Plan, **options: Any) -> Any:
        spec = options.pop("spec", None) or spec_of(*plan.models)
        output = options.pop("output", self.repo)
        return write_repository(plan, spec, output, **{**self.sources(plan), **options})

    def files(self, *folders: str) -> dict[str, tuple[bytes, int, int]]:
        """Path → content, modification time in ns and inode of every file in some model folders (or all)."""
        roots = [self.repo / name for name in folders] or [self.repo]
        found = sorted(path for root in roots for path in root.rglob("*") if path.is_file())
        return {
            path.relative_to(self.repo).as_posix(): (
                path.read_bytes(),
                path.stat().st_mtime_ns,
                path.stat().st_ino,
            )
            for path in found
        }


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)
