"""Every container, every combination of models, every way to quantise: composed, valid, the same twice."""

from __future__ import annotations

from typing import Any

import pytest

from trtbuild.catalog.versions import containers
from trtbuild.repository.compose import compose
from trtbuild.spec import Target

ENGINE = [(Target.ENGINE, quant) for quant in ("awq", "fp8", "int8-sq", "fp16")]
# The PyTorch flow has no SmoothQuant (support matrix), and reads AWQ in modelopt's form, which is calibrated.
LLMAPI = [(Target.LLMAPI, quant) for quant in ("awq", "fp8", "fp16")]
CASES = [
    (container.release, target, quant)
    for container in containers()
    for target, quant in [*ENGINE, *LLMAPI]
    if target in container.targets
]


@pytest.mark.slow
@pytest.mark.parametrize(("release", "target", "quant"), CASES)
def test_every_version_and_combination_is_composed(
    shop: Any, release: str, target: Target, quant: str
) -> None:
    llm = shop.llm(quant=quant)
    other = shop.llm("llama-3.1-8b", source="meta-llama/Llama-3.1-8B-Instruct", quant=quant, dtype="bfloat16")
    for models in ((llm,), (llm, other), (llm, shop.ocr())):
        plan = shop.plan(*models, container=release, target=target)
        first, manifest = compose(plan, shop.spec(*models), text_assets={}, weights={})
        again, repeated = compose(plan, shop.spec(*models), text_assets={}, weights={})
        assert manifest.text() == repeated.text()
        assert {name: folder.files for name, folder in first.folders().items()} == {
            name: folder.files for name, folder in again.folders().items()
        }
        assert first.files == again.files
