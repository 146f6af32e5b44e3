"""The engine's configuration: every number of the plan, every key of the version."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtbuild.catalog.versions import containers, find_container, interface
from trtbuild.errors import RepositoryError
from trtbuild.plan.model import LlmPlan
from trtbuild.repository.engine import device_groups, engine_config, engine_key, engine_parameters, fraction
from trtbuild.repository.llm import LlmSources, llm_unit
from trtbuild.spec import Target

RELEASES = [container.release for container in containers()]


def parameters(config: Any) -> dict[str, str]:
    return {key: value.string_value for key, value in config.parameters.items()}


def engine_of(llm: LlmPlan, release: str = "26.07") -> Any:
    unit = llm_unit(
        llm, target=Target.ENGINE, container=find_container(release), sm="8.9", sources=LlmSources()
    )
    return next(folder.config for folder in unit.folders if folder.name == f"{llm.name}_engine")


@pytest.mark.parametrize("release", RELEASES)
def test_every_key_of_the_version_is_there_and_nothing_is_left_open(shop: Any, release: str) -> None:
    written = parameters(engine_of(shop.llm(), release))
    known = interface(find_container(release).interface, "tensorrt_llm").parameters
    assert set(written) == {row.name for row in known}
    assert all(written[row.name] for row in known if row.name in ("gpt_model_type", "gpt_model_path"))
    assert not any("$" in value for value in written.values())


def test_the_plan_decides_the_values(shop: Any) -> None:
    llm = shop.llm(
        kv_tokens=4096, kv_free_fraction=0.5, kv_reuse=False, chunked_context=False, max_queue_size=7
    )
    config = engine_of(llm)
    written = parameters(config)
    assert written["max_tokens_in_paged_kv_cache"] == "4096"
    assert written["kv_cache_free_gpu_mem_fraction"] == "0.5000"
    assert written["enable_kv_cache_reuse"] == "false"
    assert written["enable_chunked_context"] == "false"
    assert written["gpt_model_type"] == "inflight_fused_batching"
    assert written["batch_scheduler_policy"] == "guaranteed_no_evict"
    assert written["cancellation_check_period_ms"] == "10"
    assert written["exclude_input_in_output"] == "true"
    assert written["gpt_model_path"] == "qwen-7b_engine/1"  # relative to the repository, the working folder
    assert config.backend == "tensorrtllm"
    assert config.max_batch_size == 32
    assert not config.dynamic_batching.HasField("default_queue_policy")  # it would delay requests
    assert config.model_transaction_policy.decoupled


@pytest.mark.parametrize(
    ("tp", "instances", "groups"), [(1, 1, "0"), (2, 1, "0,1"), (1, 3, "0;0;0"), (2, 2, "0,1;0,1")]
)
def test_devices_are_grouped_by_instance(shop: Any, tp: int, instances: int, groups: str) -> None:
    assert device_groups(shop.llm(tp=tp, instances=instances)) == groups
    config = engine_of(shop.llm(tp=tp, instances=instances))
    # The backend places by gpu_device_ids: a kind or a GPU list there is ignored, or refused by the core.
    group = config.instance_group[0]
    assert (group.count, group.kind, list(group.gpus)) == (instances, group.KIND_CPU, [])


@pytest.mark.parametrize(
    ("value", "text"), [(0.5, "0.5000"), (0.12341, "0.1235"), (0.00001, "0.0001"), (0.99999, "0.9999")]
)
def test_fractions_are_rounded_up_and_stay_below_one(value: float, text: str) -> None:
    assert fraction(value) == text


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, 1.5])
def test_a_fraction_that_the_backend_refuses_is_refused(value: float) -> None:
    with pytest.raises(RepositoryError, match="between 0 and 1"):
        fraction(value)


@settings(max_examples=40, deadline=None)
@given(
    version=st.sampled_from([container.interface for container in containers()]),
    numbers=st.fixed_dictionaries(
        {
            "kv_tokens": st.integers(1, 10_000_000),
            "kv_free_fraction": st.floats(0.0002, 0.999),
            "tp": st.integers(1, 8),
            "instances": st.integers(1, 8),
        }
    ),
)
def test_numbers_survive_the_way_through_the_text(version: str, numbers: dict[str, Any]) -> None:
    llm = LlmPlan.model_construct(kv_reuse=True, chunked_context=True, name="m", **numbers)
    written = engine_parameters(llm, version, "m_engine/1", "/worker")
    assert int(written["max_tokens_in_paged_kv_cache"]) == numbers["kv_tokens"]
    read = float(written["kv_cache_free_gpu_mem_fraction"])
    assert numbers["kv_free_fraction"] <= read <= numbers["kv_free_fraction"] + 0.0001
    groups = written["gpu_device_ids"].split(";")
    assert len(groups) == numbers["instances"]
    assert all(len(group.split(",")) == numbers["tp"] for group in groups)


def test_config_json_has_the_builders_shape(shop: Any) -> None:
    config = engine_config(shop.llm(), "1.2.1")
    assert set(config) == {"version", "pretrained_config", "build_config"}
    build = config["build_config"]
    assert (build["max_batch_size"], build["max_num_tokens"], build["max_seq_len"]) == (32, 2048, 2560)
    assert build["plugin_config"] == {"tokens_per_block": 32, "use_paged_context_fmha": True}
    assert json.loads(json.dumps(config)) == config


@pytest.mark.parametrize(
    "change",
    [
        {"max_num_tokens": 4096},
        {"max_batch_size": 16},
        {"quant": "fp8"},
        {"kv_dtype": "fp8"},
        {"tp": 2},
        {"source": "Qwen/Qwen2.5-7B"},
        {"kv_reuse": False, "chunked_context": False},
    ],
)
def test_what_changes_an_engine_changes_its_key(shop: Any, change: dict[str, Any]) -> None:
    container = find_container("26.07")
    assert engine_key(shop.llm(), container, "8.9") != engine_key(shop.llm(**change), container, "8.9")


@pytest.mark.parametrize(
    "change", [{"kv_tokens": 1}, {"kv_free_fraction": 0.1}, {"instances": 2}, {"max_queue_size": 1}]
)
def test_what_is_read_at_run_time_does_not(shop: Any, change: dict[str, Any]) -> None:
    container = find_container("26.07")
    assert engine_key(shop.llm(), container, "8.9") == engine_key(shop.llm(**change), container, "8.9")


def test_another_gpu_or_container_means_another_engine(shop: Any) -> None:
    keys = {
        engine_key(shop.llm(), find_container(release), sm)
        for release, sm in (("26.07", "8.9"), ("26.07", "9.0"), ("26.03", "8.9"))
    }
    assert len(keys) == 3
    # 26.04 and 26.07 ship the same TensorRT-LLM and TensorRT.
    assert engine_key(shop.llm(), find_container("26.04"), "8.9") in keys


def test_guided_decoding_points_at_what_the_build_puts_beside_the_engine(shop: Any) -> None:
    written = parameters(engine_of(shop.llm(guided=True)))
    assert written["guided_decoding_backend"] == "xgrammar"
    assert written["xgrammar_tokenizer_info_path"] == "qwen-7b_engine/1/xgrammar_tokenizer_info.json"
    without = parameters(engine_of(shop.llm()))
    assert (without["guided_decoding_backend"], without["xgrammar_tokenizer_info_path"]) == ("", "")
