"""Plans made by hand, and stand-ins for the models' code: these tests are about what is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.plans import detector_plan, llm_plan, ocr_plan, plan_of, spec_of

from trtbuild.plan.model import Plan
from trtbuild.repository import llm as llm_module
from trtbuild.repository import vision as vision_module
from trtbuild.repository import writer as writer_module
from trtbuild.repository.writer import write_repository
from trtbuild.spec import DeploymentSpec, Target


@pytest.fixture(autouse=True)
def _code(monkeypatch: pytest.MonkeyPatch) -> None:
    def stand_in(kind: str) -> dict[str, bytes]:
        return {
            name: f"# {kind}\nclass TritonPythonModel: ...\n".encode()
            for name in ("model.py", "picture.py", "faults.py")
        }

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
    detector = staticmethod(detector_plan)
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
