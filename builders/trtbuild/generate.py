"""From a prepared deployment to its repository on disk: gathers what the models need beside their configs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from trtbuild.build.vision_weights import write_vision_assets
from trtbuild.plan.model import LlmPlan, Plan
from trtbuild.prepare import Prepared
from trtbuild.repository.compose import compose
from trtbuild.repository.names import NameScheme
from trtbuild.repository.update import WriteReport
from trtbuild.repository.writer import write_repository


def generate(
    prepared: Prepared,
    output: Path,
    *,
    names: NameScheme = "own",
    dry_run: bool = False,
    kept_assets: Mapping[str, Path] | None = None,
) -> WriteReport | tuple[str, ...]:
    """Writes the repository of a prepared deployment.

    Args:
        output: the repository's folder.
        names: ``classic`` gives one language model NVIDIA's model names.
        dry_run: composes and checks everything, writes nothing, and returns the folders' names.
        kept_assets: tokenizer folders of models that the repository holds already.

    Raises:
        RepositoryError, ModelSourceError: see `write_repository` and `text_assets`.
    """
    with tempfile.TemporaryDirectory(prefix="trtbuild-") as scratch:
        assets = {**text_assets(prepared.plan, Path(scratch)), **(kept_assets or {})}
        weights = dict(prepared.weights)
        for vision in prepared.plan.visions:
            if all(network.model in weights for network in vision.networks):
                assets[vision.name], served = write_vision_assets(
                    vision, weights, Path(scratch) / vision.name
                )
                weights.update(served)
        if dry_run:
            repository, _ = compose(
                prepared.plan, prepared.spec, text_assets=assets, weights=weights, names=names
            )
            return tuple(repository.folders())
        return write_repository(
            prepared.plan, prepared.spec, output, text_assets=assets, weights=weights, names=names
        )


def text_assets(plan: Plan, scratch: Path) -> dict[str, Path]:
    """Folder with the tokenizer's files of each language model that has them here, by model name."""
    found = {llm.name: _tokenizer(llm, scratch / llm.name) for llm in plan.llms}
    return {name: folder for name, folder in found.items() if folder is not None}


def _tokenizer(llm: LlmPlan, scratch: Path) -> Path | None:
    from trtbuild.build.text_assets import write_text_assets

    for source in filter(None, (llm.weights_path, llm.source)):
        path = Path(source)
        if path.suffix == ".gguf" or (path / "tokenizer.json").is_file():
            write_text_assets(path, scratch)
            return scratch
    return None
