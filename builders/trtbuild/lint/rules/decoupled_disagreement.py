"""`decoupled` differs between models that stream through each other.

The engine, NVIDIA's BLS model in front of it and the ensemble must agree: a BLS model that streams from an
engine that does not gets "Streaming is only supported if model is deployed using decoupled mode"
(tensorrtllm_backend issue 626), the other way round "doesn't support models with decoupled transaction
policy".
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_bls, is_engine

SEVERITY = "error"
_FIELD = "model_transaction_policy.decoupled"


def check(repository: LintRepository) -> Iterator[Found]:
    """BLS models against their engine, ensembles against their steps."""
    for model in repository.readable:
        if is_bls(model) and not is_engine(model):
            named = model.parameters.get("tensorrt_llm_model_name")
            target = named.value if named is not None and named.is_set else "tensorrt_llm"
            engine = repository.models.get(target)
            if engine is not None and engine.config is not None and _differ(model, engine):
                yield _found(model, engine)
        elif model.is_ensemble and model.config is not None and model.config.get(_FIELD) is not None:
            steps = [repository.models[name] for name in step_names(model) if name in repository.models]
            if steps and all(step.config is not None for step in steps):
                streaming = next((step for step in steps if step.decoupled), None)
                if not any(map(_is_open, (model, *steps))) and model.decoupled != (streaming is not None):
                    yield _found(model, streaming or steps[-1])


def _is_open(model: ModelFolder) -> bool:
    return model.is_unfilled(_FIELD)


def _differ(model: ModelFolder, engine: ModelFolder) -> bool:
    return not _is_open(model) and not _is_open(engine) and engine.decoupled != model.decoupled


def step_names(model: ModelFolder) -> list[str]:
    """Models of an ensemble's steps, in order."""
    scheduling = model.field("ensemble_scheduling")
    steps = scheduling.message.all("step") if scheduling is not None and scheduling.message else []
    names = [step.message.get("model_name") for step in steps if step.message]
    return [name.text for name in names if name is not None]


def _found(model: ModelFolder, other: ModelFolder) -> Found:
    place = model.field(_FIELD)
    return Found(
        model.at(place),
        f"decoupled is {str(model.decoupled).lower()} here, and {str(other.decoupled).lower()} in "
        f"{other.name}",
        "requests through it fail: one side streams, the other answers once",
        f"write the same in both ({other.file})",
    )
