"""The project's reference deployment, ``model_repo/`` in git: qwen-7b AWQ and OCR on a 24 GB card.

It shows what the tool writes, so it depends on nothing of the machine that writes it. Only
``scripts/check --write`` changes it.
"""

from __future__ import annotations

from pathlib import Path

from trtbuild.prepare import Prepared, prepare
from trtbuild.repository.writer import check_reference, write_repository
from trtbuild.spec import DeploymentSpec, LlmSpec, Target, VisionSpec
from trtbuild.targets import Host

SPEC = DeploymentSpec(
    target=Target.ENGINE,
    gpu="l4",
    models=(LlmSpec(model="qwen-7b", quant="awq"),),
    vision=(VisionSpec(name="ocr", pipeline="ocr"),),
)


def write(folder: Path) -> None:
    """Writes the reference deployment, or brings it up to date."""
    prepared = _prepared()
    write_repository(
        prepared.plan,
        SPEC,
        folder,
        text_assets={},
        weights=prepared.weights,
        drop_others=True,
        allow_reference=True,
    )


def differences(folder: Path) -> list[str]:
    """How the folder differs from what would be written now; empty when it is up to date."""
    prepared = _prepared()
    return check_reference(folder, prepared.plan, SPEC, text_assets={}, weights=prepared.weights)


def _prepared() -> Prepared:
    return prepare(SPEC, host=Host())  # as on a machine that has nothing
