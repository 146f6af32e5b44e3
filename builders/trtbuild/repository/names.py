"""Names of the models in a repository: derived from one name a model, and never two of the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trtbuild.errors import RepositoryError
from trtbuild.plan.model import LlmPlan, Plan, VisionPlan
from trtbuild.spec import check_model_name

NameScheme = Literal["own", "classic"]


# Files of the repository's root; a model's folder of that name could not be put beside them.
RESERVED = frozenset(
    {
        "trtbuild.json", "plan.json", "deployment.yaml", "readme.md", "launch.sh", "build_engines.sh",
        "dockerfile", "compose.yaml",
    }
)  # fmt: skip


@dataclass(frozen=True)
class LlmNames:
    """The folders of one language model. ``aliases`` are further fronts under other names."""

    front: str
    preprocess: str
    engine: str
    postprocess: str
    ensemble: str
    aliases: tuple[str, ...] = ()

    def all(self) -> tuple[str, ...]:
        return (self.front, self.preprocess, self.engine, self.postprocess, self.ensemble, *self.aliases)


# What NVIDIA's example clients and launchers expect.
_CLASSIC = {
    "preprocess": "preprocessing",
    "engine": "tensorrt_llm",
    "postprocess": "postprocessing",
    "ensemble": "ensemble",
}
_CLASSIC_FRONT = "tensorrt_llm_bls"


def llm_names(name: str, scheme: NameScheme = "own") -> LlmNames:
    """The names of the models behind the text front ``name``."""
    if scheme == "classic":
        return LlmNames(front=name, **_CLASSIC, aliases=(_CLASSIC_FRONT,) if name != _CLASSIC_FRONT else ())
    return LlmNames(name, f"{name}_preprocess", f"{name}_engine", f"{name}_postprocess", f"{name}_ensemble")


def unit_names(model: LlmPlan | VisionPlan, scheme: NameScheme = "own") -> tuple[str, ...]:
    """Every folder that a model of the plan gets."""
    if isinstance(model, VisionPlan):
        others = (*(stage.model for stage in model.stages), *(network.model for network in model.networks))
        return (model.name, *(name for name in others if name != model.name))
    return llm_names(model.name, scheme).all()


def check_names(plan: Plan, scheme: NameScheme = "own") -> None:
    """Checks that every name can be a folder and belongs to one model only.

    Raises:
        RepositoryError: naming the first clash or the first name that cannot be used.
    """
    if scheme == "classic" and len(plan.llms) != 1:
        raise RepositoryError(
            f"NVIDIA's model names can be given to one language model only; this plan has {len(plan.llms)}",
            "leave out --names classic: each model then gets names of its own",
        )
    owners: dict[str, tuple[str, str]] = {}
    for model in plan.models:
        for name in unit_names(model, scheme):
            try:
                check_model_name(name)
            except ValueError as exc:
                raise RepositoryError(str(exc)) from None
            if name.casefold() in RESERVED:
                raise RepositoryError(
                    f"no model can be called {name!r}: the repository has a file of that name in its root",
                    "give it another name (`name:` in the spec, or --name)",
                )
            # File systems may fold case; two names must differ by more than that.
            if name.casefold() in owners:
                owner, taken = owners[name.casefold()]
                raise RepositoryError(
                    f"two models would be called {name!r}: one of {model.name!r}, and {taken!r} of {owner!r}",
                    f"give one of them another name (`name:` in the spec, or --name); {model.name!r} uses "
                    + ", ".join(unit_names(model, scheme)),
                )
            owners[name.casefold()] = (model.name, name)
