"""Generated configurations against what NVIDIA's own template of the version declares."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import parity
from tritonclient.grpc.model_config_pb2 import ModelInstanceGroup

from trtbuild.catalog.versions import containers, interface
from trtbuild.repository.compose import compose
from trtbuild.spec import Target


@pytest.mark.parametrize("version", sorted(parity.VERSIONS))
def test_every_key_is_nvidias_or_differs_for_a_reason(version: str) -> None:
    found = list(parity.keys(version))
    assert [key for key in found if key.fault] == []
    # All tensors of the engine, the ensemble's and the steps' are among them.
    assert len(found) > 700
    assert {key.model for key in found} == set(parity.MODELS)


def test_a_reason_is_given_only_for_what_our_models_leave_out_or_do_otherwise() -> None:
    told = {key.reason for version in parity.VERSIONS for key in parity.keys(version) if not key.equal}
    rows = [row for model in parity.MODELS for row in interface("1.2.1", model).inputs]
    assert {row.left_out for row in rows if row.left_out} <= told
    assert len(told) == 6  # two of the table's, four of how our own steps and queues work


@pytest.mark.parametrize(
    ("model", "path", "change"),
    [
        ("tensorrt_llm", "inputs.seed.dtype", lambda config: setattr(_input(config, "seed"), "data_type", 8)),
        ("tensorrt_llm", "inputs.stop.reshape", lambda config: _input(config, "stop").ClearField("reshape")),
        ("ensemble", "inputs.stream", lambda config: config.input.remove(_input(config, "stream"))),
        ("tensorrt_llm", "parameters.num_nodes", lambda config: config.parameters.pop("num_nodes")),
        ("tensorrt_llm", "instance_group.count", lambda config: config.instance_group[0].MergeFrom(_two())),
    ],
)
def test_a_key_that_differs_is_found(
    monkeypatch: pytest.MonkeyPatch, model: str, path: str, change: Any
) -> None:
    changed = {name: _copy(config) for name, config in parity.generated("1.2.1").items()}
    change(changed[model])
    monkeypatch.setattr(parity, "generated", lambda version: changed)
    assert path in {key.path for key in parity.keys("1.2.1") if key.fault and key.model == model}


def _input(config: Any, name: str) -> Any:
    return next(tensor for tensor in config.input if tensor.name == name)


def _copy(config: Any) -> Any:
    copied = type(config)()
    copied.CopyFrom(config)
    return copied


def _two() -> Any:
    return ModelInstanceGroup(count=2)


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
