"""A tensor of an ensemble does not fit.

Steps and tensors that do not exist, inputs that nothing feeds or reads, outputs that nothing reads, types and
shapes that differ, tensors of a decoupled step mixed with others, a max_batch_size above a step's, a step
without model_version (which means version 0): the core refuses the ensemble when it loads ("inconsistent
shape", "is unused in ensemble", "required version 0 is not loaded").
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.pbtxt import Field, Message
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.rules.decoupled_disagreement import step_names

SEVERITY = "error"
_WHY = "Triton checks every tensor of an ensemble when it loads, and refuses this one"


def check(repository: LintRepository) -> Iterator[Found]:
    """Ensembles whose steps all declare their tensors."""
    for ensemble in repository.readable:
        if not ensemble.is_ensemble:
            continue
        names = step_names(ensemble)
        missing = [name for name in names if name not in repository.models and "${" not in name]
        for name in dict.fromkeys(missing):
            yield Found(
                ensemble.at(_step(ensemble, name)),
                f"step {name!r} is no model of this repository",
                _WHY,
                "add the model, or mend model_name",
            )
        if ensemble.name in _reached(repository, names):
            yield Found(
                ensemble.at(ensemble.field("ensemble_scheduling")),
                "the ensemble is a step of itself",
                _WHY,
                "break the circle",
            )
            continue
        yield from _versions(repository, ensemble)
        steps = [repository.models.get(name) for name in names]
        if _is_complete(ensemble):
            known = all(step is not None and _is_complete(step) for step in steps)
            yield from _edges(repository, ensemble, set(names) if known else None)


def _reached(repository: LintRepository, names: list[str]) -> set[str]:
    """All models that the steps call, ensembles among them followed."""
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in seen and name in repository.models:
            seen.add(name)
            waiting += step_names(repository.models[name])
    return seen


def _versions(repository: LintRepository, ensemble: ModelFolder) -> Iterator[Found]:
    scheduling = ensemble.field("ensemble_scheduling")
    for step in scheduling.message.all("step") if scheduling is not None and scheduling.message else ():
        name = step.message.get("model_name") if step.message else None
        wanted = step.message.get("model_version") if step.message else None
        model = repository.models.get(name.text) if name is not None else None
        if (
            model is not None
            and (wanted is None or wanted.text.isdecimal())
            and model.numbered
            and (wanted.text if wanted else "0") not in model.numbered
        ):
            asks = (
                f"asks for version {wanted.text}" if wanted else "has no model_version, which means version 0"
            )
            yield Found(
                ensemble.at(wanted or name),
                f"step {model.name} {asks}, and there is no folder of it",
                _WHY,
                "write model_version: -1 for the newest",
            )


def _is_complete(model: ModelFolder) -> bool:
    """Whether all its tensors are declared: what Triton completes itself is not known here."""
    sides = (*model.tensors("input"), *model.tensors("output"))
    return (
        bool(model.tensors("input") and model.tensors("output"))
        and not model.misfits
        and all(tensor.name and tensor.dtype and tensor.dims for tensor in sides)
    )


def _edges(repository: LintRepository, ensemble: ModelFolder, names: set[str] | None) -> Iterator[Found]:
    """Faults of the ensemble beside its steps, or of its own config alone where ``names`` is None."""
    from trtbuild.lint.protobuf import model_config
    from trtbuild.repository.edges import ensemble_faults, graph_faults

    config = model_config(ensemble)
    configs = {name: model_config(repository.models[name]) for name in names or ()}
    for fault in graph_faults(config) if names is None else ensemble_faults(config, configs):
        named = f"tensor {fault.tensor!r}: " if fault.tensor else ""
        yield Found(
            ensemble.at(_line(ensemble, fault.tensor, fault.message)),
            f"{named}{fault.message}",
            "Triton loads it, and the later of the two counts" if fault.loads else _WHY,
            "make both ends the same, or map another tensor",
            severity="warning" if fault.loads else None,
        )


def _step(ensemble: ModelFolder, name: str) -> Field | None:
    for path, item in ensemble.config.walk() if ensemble.config else ():
        if path.endswith("step.model_name") and item.text == name:
            return item
    return None


def _line(ensemble: ModelFolder, tensor: str, message: str) -> Field | None:
    """Where the tensor is mapped, preferring the step that the message names."""
    config = ensemble.config or Message()
    scheduling = config.get("ensemble_scheduling")
    steps = scheduling.message.all("step") if scheduling and scheduling.message else []
    named = [
        step
        for step in steps
        if step.message and (name := step.message.get("model_name")) and name.text in message
    ]
    for step in (*reversed(named), *steps):
        for _, item in step.message.walk() if step.message else ():
            if tensor and item.text == tensor:
                return item
    for side in ("output", "input"):
        for declared in ensemble.tensors(side):
            if tensor and declared.name == tensor:
                return declared.place
    return (named[0].message.get("model_name") if named and named[0].message else None) or config.get(
        "max_batch_size"
    )
