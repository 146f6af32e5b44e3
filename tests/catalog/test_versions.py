"""Containers and interfaces, against facts read from NVIDIA's repositories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtbuild.catalog import versions
from trtbuild.errors import CatalogError
from trtbuild.spec import Target

FACTS = sorted((Path(__file__).parents[1] / "golden" / "nvidia").glob("*.json"), key=lambda path: path.name)
MODELS = ("tensorrt_llm", "preprocessing", "postprocessing", "ensemble", "tensorrt_llm_bls")


def facts(version: str) -> dict[str, Any]:
    path = Path(__file__).parents[1] / "golden" / "nvidia" / f"{version}.json"
    return json.loads(path.read_text())


def row_text(tensor: versions.Tensor) -> str:
    """A row as the fixtures write it: a placeholder's name stands for the dtype that it leaves open."""
    text = f"{tensor.name} {tensor.setting or tensor.dtype} {list(tensor.dims)}"
    if tensor.reshape is not None:
        text += f" reshape {list(tensor.reshape)}"
    return text + (" optional" if tensor.optional else "") + (" ragged" if tensor.ragged else "")


@pytest.mark.parametrize("path", FACTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("model", MODELS)
def test_rows_are_what_nvidias_template_declares(path: Path, model: str) -> None:
    template = json.loads(path.read_text())["models"][model]
    ours = versions.interface(path.stem, model)
    assert sorted(map(row_text, ours.inputs)) == sorted(template["inputs"])
    assert sorted(map(row_text, ours.outputs)) == sorted(template["outputs"])
    assert sorted(row.name for row in ours.parameters) == template["parameters"]


@pytest.mark.parametrize("path", FACTS, ids=lambda path: path.stem)
def test_wiring_is_that_of_nvidias_ensemble_where_both_have_the_tensor(path: Path) -> None:
    for step in json.loads(path.read_text())["models"]["ensemble"]["steps"]:
        ours = versions.interface(path.stem, step["model"]).generated()
        for side, rows in (("inputs", ours.inputs), ("outputs", ours.outputs)):
            wires = versions.wiring(path.stem, step["model"], side)
            for row in rows:
                theirs = step[side].get(row.name, row.name)
                if theirs in wired_past_our_models(path.stem):
                    continue
                assert wires.get(row.name, row.name) == theirs


def wired_past_our_models(version: str) -> set[str]:
    """Up to 0.13 the engine's log probs and logits made a detour through post-processing, the prompt table
    of 0.12 through pre-processing; ours go straight, under the ensemble's own names."""
    if versions.version_key(version) >= versions.version_key("0.14.0"):
        return set()
    names = ("CUM_LOG_PROBS", "OUTPUT_LOG_PROBS", "CONTEXT_LOGITS", "GENERATION_LOGITS", "BATCH_INDEX")
    return {f"_{name}" for name in names} | {"out_prompt_embedding_table"}


def test_the_25_05_container_has_the_new_names_and_the_tag_of_its_version_the_old_ones() -> None:
    # tensorrtllm_backend c2e65b88 renamed them on the branch that 25.05 was built from, before 0.20.
    container = versions.find_container("25.05")
    assert container.trtllm == "0.19.0"
    built = versions.interface(container.interface, "tensorrt_llm").input_names()
    tagged = versions.interface("0.19.0", "tensorrt_llm").input_names()
    assert {"min_tokens", "seed"} <= built
    assert not {"min_length", "random_seed"} & built
    assert {"min_length", "random_seed"} <= tagged


def test_later_patch_releases_keep_the_interface_of_their_series() -> None:
    assert (
        versions.interface("1.0.3.2510", "ensemble").inputs == versions.interface("1.0.0", "ensemble").inputs
    )
    assert (
        versions.interface("0.21.0", "tensorrt_llm").inputs
        == versions.interface("0.20.0", "tensorrt_llm").inputs
    )


@pytest.mark.parametrize("version", ["0.11.0", "1.3.0", "2.0"])
def test_versions_outside_the_table_are_refused_with_its_bounds(version: str) -> None:
    with pytest.raises(CatalogError, match="outside the versions") as caught:
        versions.interface(version, "ensemble")
    assert "0.12.0 to 1.2.1" in caught.value.remedies[0]


@pytest.mark.parametrize("version", ["1.2.0rc1", "latest", "", "1..2", "v1.2.1"])
def test_what_is_no_released_version_is_refused(version: str) -> None:
    with pytest.raises(CatalogError):
        versions.version_key(version)


def test_versions_are_ordered_by_numbers_and_by_their_side_of_the_tag() -> None:
    ordered = [
        "0.9.0",
        "0.17.0",
        "0.17.0.post1",
        "0.19.0-25.04",
        "0.19.0",
        "0.19.0+25.05",
        "0.20",
        "1.0.0",
        "1.0.3.2510",
    ]
    assert sorted(set(ordered), key=versions.version_key) == ordered


@given(
    st.lists(st.integers(0, 99), min_size=3, max_size=3), st.lists(st.integers(0, 99), min_size=3, max_size=3)
)
def test_order_is_that_of_the_numbers(one: list[int], other: list[int]) -> None:
    keys = [versions.version_key(".".join(map(str, numbers))) for numbers in (one, other)]
    assert (keys[0] < keys[1]) == (one < other)


def test_every_month_from_24_08_to_26_07_is_known_newest_first() -> None:
    months = [f"{year}.{month:02}" for year in (24, 25, 26) for month in range(1, 13)]
    expected = months[months.index("24.08") : months.index("26.07") + 1]
    assert [container.release for container in versions.containers()] == expected[::-1]


@pytest.mark.parametrize(
    ("release", "trtllm", "tensorrt", "driver", "python"),
    [  # triton-inference-server/server docs/introduction/compatibility.md
        ("24.08", "0.12.0", "10.3.0", "555.42.06", "3.10"),
        ("24.12", "0.16.0", "10.7.0", "560.35.05", "3.12"),
        ("25.10", "1.0.0", "10.11.0.33", "575.57.08", "3.12"),
        ("26.07", "1.2.1", "10.14.1.48", "590.44.01", "3.12"),
    ],
)
def test_containers_hold_what_the_compatibility_matrix_says(
    release: str, trtllm: str, tensorrt: str, driver: str, python: str
) -> None:
    found = versions.find_container(release)
    assert (found.trtllm, found.tensorrt, found.driver, found.python) == (trtllm, tensorrt, driver, python)
    assert found.image == f"nvcr.io/nvidia/tritonserver:{release}-trtllm-python-py3"


@pytest.mark.parametrize(
    ("feature", "last_without", "first_with"),
    [  # server src/command_line_parser.cc and common protobuf/model_config.proto on the branches r*
        ("grpc_max_response_pool_size", "25.02", "25.03"),
        ("http_max_input_size", "25.05", "25.06"),
        ("max_inflight_requests", "25.10", "25.11"),
        ("allow_client_shm", "26.03", "26.04"),
    ],
)
def test_a_flag_is_used_from_the_release_that_has_it(
    feature: str, last_without: str, first_with: str
) -> None:
    assert feature not in versions.find_container(last_without).features
    assert feature in versions.find_container(first_with).features


def test_llmapi_starts_with_1_0_and_engine_is_in_all() -> None:
    assert versions.find_container("25.08").targets == {Target.ENGINE}
    assert all(Target.ENGINE in container.targets for container in versions.containers())
    assert {Target.ENGINE, Target.LLMAPI} == versions.find_container("25.09").targets


def test_vision_backends_come_from_an_image_of_the_same_cuda_and_tensorrt_that_is_not_newer() -> None:
    rows = versions.read_data("containers.yaml")["containers"]
    for row in rows:
        assert row["cuda"].split(".")[0] == row["vision_cuda"].split(".")[0]
        assert versions.release_key(row["vision_release"]) <= versions.release_key(row["release"])
        # trtexec's --fp16, --int8 and --fp8 went with TensorRT 11, to which the -py3 images went with 26.06.
        assert row["tensorrt"].split(".")[0] == "10"
        assert versions.release_key(row["vision_release"]) < versions.release_key("26.06")
    # The -py3 images went to CUDA 13 with 25.08, two releases before the TensorRT-LLM ones.
    assert versions.find_container("25.10").vision_image == "nvcr.io/nvidia/tritonserver:25.07-py3"


def test_the_default_is_the_newest_that_runs_on_the_gpu_and_says_why() -> None:
    newest, why = versions.default_container(target=Target.ENGINE, sm="8.9")
    assert newest.release == "26.07"
    assert "newest" in why
    turing, why = versions.default_container(target=Target.ENGINE, sm="7.5")  # left the matrix with 0.18
    assert turing.trtllm == "0.17.0.post1"
    assert "26.07: TensorRT-LLM 1.2.1 does not run on compute capability 7.5" in why


def test_the_default_honours_a_further_condition() -> None:
    def takes(container: versions.Container) -> str | None:
        return None if container.trtllm.startswith("0.") else "the format was removed in 1.0"

    chosen, why = versions.default_container(target=Target.ENGINE, sm=None, takes=takes)
    assert chosen.release == "25.08"
    assert "the format was removed in 1.0" in why


def test_no_container_for_a_gpu_is_an_error_that_names_the_reason() -> None:
    with pytest.raises(CatalogError, match=r"compute capability 6\.1"):
        versions.default_container(target=Target.ENGINE, sm="6.1")


def test_containers_are_found_by_trtllm_version() -> None:
    assert versions.container_of_trtllm("1.0.0").release == "25.10"
    assert versions.container_of_trtllm("1.0").release == "25.11"  # the newest 1.0.x
    with pytest.raises(CatalogError, match=r"no container ships TensorRT-LLM 0\.19\.1"):
        versions.container_of_trtllm("0.19.1")


def test_an_unknown_release_is_refused_with_the_known_range() -> None:
    with pytest.raises(CatalogError, match=r"26\.09") as caught:
        versions.find_container("26.09")
    assert "24.08 to 26.07" in caught.value.remedies[-1]


def test_releases_below_a_security_floor_say_so() -> None:
    old = {cve for advisory in versions.find_container("25.06").advisories for cve in advisory.ids}
    assert "CVE-2025-23319" in old
    assert versions.find_container("26.07").advisories == ()


def test_keys_that_must_exist_are_marked_from_the_version_that_reads_them_unguarded() -> None:
    def required(version: str) -> set[str]:
        return {row.name for row in versions.interface(version, "tensorrt_llm").parameters if row.must_exist}

    unguarded = {"tokenizer_dir", "guided_decoding_backend", "xgrammar_tokenizer_info_path"}
    assert required("0.18.2") == {"gpt_model_type", "gpt_model_path"}
    assert required("0.19.0") == {"gpt_model_type", "gpt_model_path"} | unguarded


@pytest.mark.parametrize(
    "name", ["25.10", "25.10-trtllm-python-py3", "nvcr.io/nvidia/tritonserver:25.10-trtllm-python-py3"]
)
def test_a_container_is_found_by_its_image(name: str) -> None:
    assert versions.find_container(name).release == "25.10"


def test_a_version_may_be_written_as_its_tag() -> None:
    assert versions.container_of_trtllm("v1.0.0") == versions.container_of_trtllm("1.0.0")
