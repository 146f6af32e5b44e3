"""Generated configurations against what NVIDIA's own template of the version declares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tritonclient.grpc.model_config_pb2 import DataType

from trtbuild.catalog.versions import containers, interface
from trtbuild.repository.compose import compose
from trtbuild.spec import Target

FACTS = Path(__file__).parents[1] / "golden" / "nvidia"
NAMES = {
    "tensorrt_llm": "tensorrt_llm",
    "preprocessing": "preprocessing",
    "postprocessing": "postprocessing",
    "ensemble": "ensemble",
}
# What a placeholder for a type is filled with; each must be the type that arrives at run time.
SETTINGS = {
    "logits_datatype": "FP32",
    "encoder_input_features_data_type": "FP16",
    "prompt_embedding_table_data_type": "FP16",
}
FIXTURES = {path.stem for path in FACTS.glob("*.json")}
TESTED = [container for container in containers() if container.interface in FIXTURES]


def declared(tensor: Any) -> str:
    text = f"{tensor.name} {DataType.Name(tensor.data_type).removeprefix('TYPE_')} {list(tensor.dims)}"
    if tensor.HasField("reshape"):
        text += f" reshape {list(tensor.reshape.shape)}"
    text += " optional" if getattr(tensor, "optional", False) else ""
    return text + (" ragged" if getattr(tensor, "allow_ragged_batch", False) else "")


def filled(row: str) -> str:
    name, dtype, rest = row.split(" ", 2)
    return f"{name} {SETTINGS.get(dtype, dtype)} {rest}"


CACHE: dict[str, dict[str, Any]] = {}


@pytest.fixture
def generated(shop: Any, container: Any) -> dict[str, Any]:
    """The configurations for a container, under NVIDIA's names."""
    if container.release not in CACHE:
        plan = shop.plan(shop.llm(), container=container.release)
        repository, _ = compose(plan, shop.spec(*plan.models), text_assets={}, weights={}, names="classic")
        CACHE[container.release] = {name: folder.config for name, folder in repository.folders().items()}
    return CACHE[container.release]


@pytest.mark.parametrize("container", TESTED, ids=lambda container: container.release)
@pytest.mark.parametrize("model", NAMES)
def test_tensors_are_nvidias_but_for_those_marked_left_out(
    generated: Any, container: Any, model: str
) -> None:
    template = json.loads((FACTS / f"{container.interface}.json").read_text())["models"][model]
    rows = interface(container.interface, model)
    left_out = {row.name for side in (rows.inputs, rows.outputs) for row in side if row.left_out}
    for side, tensors in (("inputs", generated[model].input), ("outputs", generated[model].output)):
        theirs = {filled(row) for row in template[side] if row.split(" ", 1)[0] not in left_out}
        assert {declared(tensor) for tensor in tensors} == theirs


@pytest.mark.parametrize("container", TESTED, ids=lambda container: container.release)
def test_the_engines_parameters_are_nvidias(generated: Any, container: Any) -> None:
    template = json.loads((FACTS / f"{container.interface}.json").read_text())["models"]["tensorrt_llm"]
    assert sorted(generated["tensorrt_llm"].parameters) == template["parameters"]


@pytest.mark.parametrize("container", TESTED, ids=lambda container: container.release)
def test_every_ensemble_input_reaches_the_tensor_that_nvidias_ensemble_feeds_with_it(
    generated: Any, container: Any
) -> None:
    template = json.loads((FACTS / f"{container.interface}.json").read_text())["models"]["ensemble"]
    ours = {step.model_name: dict(step.input_map) for step in generated["ensemble"].ensemble_scheduling.step}
    for step in template["steps"]:
        mapped = ours[step["model"]]
        for name, tensor in step["inputs"].items():
            if name in mapped and tensor.islower():  # an ensemble input, not a tensor between steps
                assert mapped[name] == tensor or tensor == "out_prompt_embedding_table"


@pytest.mark.parametrize("release", [container.release for container in containers()])
def test_decoupled_agrees_everywhere(shop: Any, release: str) -> None:
    plan = shop.plan(shop.llm(), container=release)
    repository, _ = compose(plan, shop.spec(*plan.models), text_assets={}, weights={})
    decoupled = {
        name
        for name, folder in repository.folders().items()
        if folder.config.model_transaction_policy.decoupled
    }
    assert decoupled == {"qwen-7b", "qwen-7b_engine"}


def test_the_bls_front_takes_what_nvidias_takes_apart_from_pictures_and_drafts(shop: Any) -> None:
    plan = shop.plan(shop.llm())
    repository, _ = compose(plan, shop.spec(*plan.models), text_assets={}, weights={}, names="classic")
    ours = {tensor.name for tensor in repository.folders()["tensorrt_llm_bls"].config.input}
    theirs = {row.name for row in interface("1.2.1", "tensorrt_llm_bls").generated().inputs}
    not_taken = {
        "decoder_text_input",  # encoder-decoder models
        "num_draft_tokens", "use_draft_logits",  # speculative decoding by the BLS itself
        "prompt_embedding_table", "prompt_vocab_size", "prompt_table_extra_id",  # embeddings instead of text
    }  # fmt: skip
    assert theirs - ours == not_taken


def test_the_local_target_speaks_the_newest_interface(shop: Any) -> None:
    plan = shop.plan(shop.llm(), target=Target.LOCAL)
    repository, _ = compose(plan, shop.spec(*plan.models), **shop.sources(plan))
    names = {tensor.name for tensor in repository.folders()["qwen-7b_engine"].config.input}
    assert names == interface("1.2.1", "tensorrt_llm").input_names()
