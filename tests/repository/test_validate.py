"""Rules over a whole set of configurations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tritonclient.grpc.model_config_pb2 import ModelConfig

from trtbuild.errors import RepositoryError
from trtbuild.repository.compose import compose
from trtbuild.repository.contents import Repository
from trtbuild.repository.validate import check_repository


def changed(shop: Any, folder: str, change: Callable[[Any], object]) -> Repository:
    """A sound repository in which one folder's configuration was changed."""
    plan = shop.plan(shop.llm())
    repository, _ = compose(plan, shop.spec(*plan.models), text_assets={}, weights={})
    config = ModelConfig()
    config.CopyFrom(repository.folders()[folder].config)
    change(config)
    unit = repository.units[0]
    folders = tuple(replace(f, config=config) if f.name == folder else f for f in unit.folders)
    return replace(repository, units=(replace(unit, folders=folders),))


def test_what_is_composed_is_sound(shop: Any) -> None:
    check_repository(changed(shop, "qwen-7b", lambda config: None))


@pytest.mark.parametrize(
    ("folder", "change", "message"),
    [
        ("qwen-7b_postprocess", lambda c: setattr(c.instance_group[0], "count", 2), "has 2 instances, not 1"),
        ("qwen-7b_engine", lambda c: c.input.add(name="seed"), "declares input 'seed' twice"),
        ("qwen-7b_engine", lambda c: c.output.add(name="output_ids"), "declares output 'output_ids' twice"),
        ("qwen-7b_ensemble", lambda c: setattr(c, "max_batch_size", 99), "above that of step"),
        (
            "qwen-7b_ensemble",
            lambda c: c.ensemble_scheduling.step.add(model_name="gone"),
            "'gone' is no model",
        ),
    ],
)
def test_a_contradiction_is_named(
    shop: Any, folder: str, change: Callable[[Any], object], message: str
) -> None:
    with pytest.raises(RepositoryError, match="contradict") as caught:
        check_repository(changed(shop, folder, change))
    assert message in caught.value.message


def test_a_model_without_a_version_folder_is_named(shop: Any) -> None:
    sound = changed(shop, "qwen-7b", lambda config: None)
    unit = sound.units[0]
    bare = tuple(
        replace(f, files={"config.pbtxt": f.files["config.pbtxt"]}) if f.name == "qwen-7b_ensemble" else f
        for f in unit.folders
    )
    with pytest.raises(RepositoryError, match="qwen-7b_ensemble has no version folder"):
        check_repository(replace(sound, units=(replace(unit, folders=bare),)))
