"""`platform` does not fit.

`platform` is the older way to say `backend`, and what makes a model an ensemble. Alone, Triton knows few
names; beside one of the core's own backends it must be that backend's; `ensemble_scheduling` belongs to
platform "ensemble", without a backend (core, model_config_utils.cc, `ValidateModelConfig`).
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from trtbuild.lint.findings import Edit, Found
from trtbuild.lint.model import PLATFORMS, ModelFolder
from trtbuild.lint.pbtxt import Field
from trtbuild.lint.repository import LintRepository

SEVERITY = "error"
_ENSEMBLE = "ensemble"
_WHY = "Triton refuses it, and the model does not load"


def check(repository: LintRepository) -> Iterator[Found]:
    """platform, backend and ensemble_scheduling of all models."""
    for model in repository.readable:
        platform = model.field("platform")
        backend = model.field("backend")
        if any(field is not None and "${" in field.text for field in (platform, backend)):
            continue
        yield from _ensemble(model, platform, backend)
        if platform is not None and platform.text and platform.text != _ENSEMBLE:
            yield from _known(model, platform, backend)


def _ensemble(model: ModelFolder, platform: Field | None, backend: Field | None) -> Iterator[Found]:
    scheduling = model.field("ensemble_scheduling")
    is_ensemble = platform is not None and platform.text == _ENSEMBLE
    if is_ensemble and backend is not None and backend.text:
        yield Found(
            model.at(backend),
            f"an ensemble has backend {backend.text!r}",
            f"its steps have backends, it has none: {_WHY}",
            "remove backend",
        )
    elif is_ensemble and model.config is not None and model.config.get("optimization") is not None:
        yield Found(
            model.at(model.config.get("optimization")),
            "an ensemble has optimization",
            f"its steps are optimised, it runs nothing itself: {_WHY}",
            "set it in the models of the steps",
        )
    elif is_ensemble and scheduling is None:
        yield Found(
            model.at(platform),
            "platform is 'ensemble', and there is no ensemble_scheduling",
            _WHY,
            "write the steps: ensemble_scheduling { step [ { … } ] }",
        )
    elif not is_ensemble and (scheduling is not None or (backend is not None and backend.text == _ENSEMBLE)):
        place = backend if backend is not None and backend.text == _ENSEMBLE else scheduling
        given = platform or backend
        said = f"with {given.name} {given.text!r}" if given is not None else "without a platform"
        yield Found(
            model.at(place),
            f"{place.name if place else ''} {said}",
            f"only a model of platform 'ensemble' has steps: {_WHY}",
            'write platform: "ensemble" and no backend'
            + ("" if scheduling is None else ", or remove ensemble_scheduling"),
        )


def _known(model: ModelFolder, platform: Field, backend: Field | None) -> Iterator[Found]:
    of = PLATFORMS.get(platform.text)
    own = {name for name, owner in PLATFORMS.items() if backend is not None and owner == backend.text}
    if backend is not None and backend.text:
        if own and platform.text not in own:
            yield Found(
                model.at(platform),
                f"platform {platform.text!r} beside backend {backend.text!r}",
                f"the two name different backends: {_WHY}",
                f"remove platform: backend {backend.text!r} is enough",
            )
    elif of is None and not model.text("default_model_filename"):
        near = get_close_matches(platform.text.lower(), [*PLATFORMS, _ENSEMBLE], n=1, cutoff=0.6)
        exact = near[0] if near and near[0] == platform.text.strip().lower() else None
        remedy = (
            f'did you mean platform: "{near[0]}"?' if near else f'write backend: "{platform.text}" instead'
        )
        place = model.at(platform)
        yield Found(
            place,
            f"platform is {platform.text!r}",
            f"it is none of {', '.join([*PLATFORMS, _ENSEMBLE])}: {_WHY}",
            remedy,
            edit=Edit(place, platform.text, exact) if exact else None,
        )
