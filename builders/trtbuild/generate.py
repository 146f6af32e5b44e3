"""From a prepared deployment to its repository on disk: gathers what the models need beside their configs."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType

from trtbuild.build.vision_source import SingleNetwork
from trtbuild.build.vision_weights import write_single_network, write_vision_assets
from trtbuild.errors import ModelSourceError
from trtbuild.plan.model import LlmPlan, VisionPlan
from trtbuild.prepare import Prepared, vision_files
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
    leave: Collection[str] = (),
    tokenizers: Mapping[str, Path] | None = None,
) -> WriteReport | tuple[str, ...]:
    """Writes the repository of a prepared deployment.

    Args:
        output: the repository's folder.
        names: ``classic`` gives one language model NVIDIA's model names.
        dry_run: composes and checks everything, writes nothing, and returns the folders' names.
        leave: models that the repository holds already; their folders stay as they are.
        tokenizers: model → folder with its tokenizer, where it is not the weights' own.

    Raises:
        RepositoryError, ModelSourceError: see `write_repository` and `text_assets`.
    """
    with tempfile.TemporaryDirectory(prefix="trtbuild-") as scratch:
        assets, weights = gather(prepared, Path(scratch), leave, tokenizers or {})
        plan, spec = prepared.plan, prepared.spec
        if dry_run:
            repository, _ = compose(plan, spec, text_assets=assets, weights=weights, names=names, leave=leave)
            return tuple(repository.folders())
        return write_repository(
            plan, spec, output, text_assets=assets, weights=weights, names=names, leave=leave
        )


def gather(
    prepared: Prepared,
    scratch: Path,
    leave: Collection[str] = (),
    tokenizers: Mapping[str, Path] = MappingProxyType({}),
) -> tuple[dict[str, Path], dict[str, Path]]:
    """What the models need beside their configs, by model name: folders of assets, and files of weights.

    Tokenizers come out of a GGUF file or a model folder; where there is none (a catalogue model on a GPU
    target), the build script brings it.
    """
    assets, weights = {}, dict(prepared.weights)
    entries = {entry.name: entry for entry in prepared.spec.vision}
    for model in (model for model in prepared.plan.models if model.name not in leave):
        if isinstance(model, LlmPlan):
            own = tokenizers.get(model.name)
            if (folder := _tokenizer(model, own, scratch / model.name)) is not None:
                assets[model.name] = folder
        elif model.picture is not None:
            if (network := SingleNetwork.of(entries[model.name])) is not None:
                assets[model.name], served_folder = write_single_network(model, network, scratch / model.name)
                weights[model.networks[0].model] = served_folder
        elif files := _vision_files(model, weights):
            assets[model.name], served = write_vision_assets(model, files, scratch / model.name)
            weights.update(served)
    return assets, weights


def _vision_files(vision: VisionPlan, known: Mapping[str, Path]) -> dict[str, Path]:
    """The networks' files where they can be had here; a repository for another machine may go without."""
    if all(network.model in known for network in vision.networks):
        return {network.model: known[network.model] for network in vision.networks}
    try:
        return vision_files(vision)
    except ModelSourceError:
        if vision.weights_path is not None:
            raise
        return {}


def _tokenizer(llm: LlmPlan, own: Path | None, scratch: Path) -> Path | None:
    from trtbuild.build.text_assets import write_text_assets

    if own is not None:
        write_text_assets(own, scratch)
        return scratch
    for source in filter(None, (llm.weights_path, llm.source)):
        path = Path(source)
        if path.suffix == ".gguf" or (path / "tokenizer.json").is_file():
            write_text_assets(path, scratch)
            return scratch
    return None
