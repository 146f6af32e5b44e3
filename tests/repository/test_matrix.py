"""Every container, combination of models and way to quantise: parsed, the same twice, and lint is silent."""

from __future__ import annotations

from typing import Any

import pytest

from trtbuild.catalog.versions import containers
from trtbuild.lint.run import lint
from trtbuild.repository.compose import compose
from trtbuild.repository.manifest import MANIFEST
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
        _, manifest = compose(plan, shop.spec(*models), text_assets={}, weights={})
        repo = shop.folder / str(len(models)) / models[-1].name
        shop.write(plan, output=repo)  # composes it again
        assert (repo / MANIFEST).read_text("utf-8") == manifest.text()  # with the SHA-256 of every file
        # What a release's own vulnerabilities are is not the repository's doing.
        assert [found for found in lint(repo) if found.rule != "container-cve"] == []
