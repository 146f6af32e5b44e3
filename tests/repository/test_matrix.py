"""Every container, every combination of models, every way to quantise: composed, valid, the same twice."""

from __future__ import annotations

from typing import Any

import pytest

from trtbuild.catalog.versions import containers
from trtbuild.repository.compose import compose


@pytest.mark.slow
@pytest.mark.parametrize("quant", ["awq", "fp8", "int8-sq", "fp16"])
@pytest.mark.parametrize("release", [container.release for container in containers()])
def test_every_version_and_combination_is_composed(shop: Any, release: str, quant: str) -> None:
    llm = shop.llm(quant=quant)
    other = shop.llm("llama-3.1-8b", source="meta-llama/Llama-3.1-8B-Instruct", quant=quant, dtype="bfloat16")
    for models in ((llm,), (llm, other), (llm, shop.ocr())):
        plan = shop.plan(*models, container=release)
        first, manifest = compose(plan, shop.spec(*models), text_assets={}, weights={})
        again, repeated = compose(plan, shop.spec(*models), text_assets={}, weights={})
        assert manifest.text() == repeated.text()
        assert {name: folder.files for name, folder in first.folders().items()} == {
            name: folder.files for name, folder in again.folders().items()
        }
        assert first.files == again.files
