"""Names: derived from one name a model, never two of the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtbuild.errors import RepositoryError
from trtbuild.repository.names import check_names, llm_names
from trtbuild.spec import check_model_name

SAFE = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,12}", fullmatch=True)


def test_a_model_gets_five_folders_of_its_own() -> None:
    assert llm_names("qwen-7b").all() == (
        "qwen-7b", "qwen-7b_preprocess", "qwen-7b_engine", "qwen-7b_postprocess", "qwen-7b_ensemble",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["plan.json", "trtbuild.json", "readme.MD", "launch.sh", "Dockerfile"])
def test_a_model_cannot_be_called_like_a_file_of_the_root(shop: Any, name: str) -> None:
    with pytest.raises(RepositoryError, match="a file of that name"):
        check_names(shop.plan(shop.llm(name)))


def test_classic_names_are_nvidias_and_the_model_keeps_its_own() -> None:
    names = llm_names("qwen-7b", "classic")
    assert set(names.all()) == {
        "qwen-7b", "preprocessing", "tensorrt_llm", "postprocessing", "ensemble", "tensorrt_llm_bls",
    }  # fmt: skip
    assert names.front == "qwen-7b"


def test_a_model_may_be_called_like_nvidias_front() -> None:
    assert llm_names("tensorrt_llm_bls", "classic").all().count("tensorrt_llm_bls") == 1


@pytest.mark.parametrize(
    "other", ["a_engine", "a_preprocess", "a_postprocess", "a_ensemble", "a", "A", "A_Engine"]
)
def test_a_model_whose_folder_another_needs_is_refused(shop: Any, other: str) -> None:
    with pytest.raises(RepositoryError, match="two models would be called"):
        check_names(shop.plan(shop.llm("a"), shop.llm(other)))


def test_vision_networks_take_part_in_the_clash(shop: Any) -> None:
    with pytest.raises(RepositoryError, match="'ocr_rec'"):
        check_names(shop.plan(shop.ocr("ocr"), shop.llm("ocr_rec")))


def test_the_error_names_both_models_and_what_would_work(shop: Any) -> None:
    with pytest.raises(RepositoryError) as caught:
        check_names(shop.plan(shop.llm("a"), shop.llm("a_engine")))
    assert "'a'" in caught.value.message
    assert "another name" in caught.value.remedies[0]


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", "a b", "", "a..b", "-x", "a\n"])
def test_a_name_that_cannot_be_a_folder_is_refused(shop: Any, name: str) -> None:
    with pytest.raises(RepositoryError, match="cannot be a model name"):
        check_names(shop.plan(shop.llm(name)))


def test_a_name_whose_derived_names_grow_too_long_is_refused(shop: Any) -> None:
    check_model_name("x" * 128)
    with pytest.raises(RepositoryError, match="cannot be a model name"):
        check_names(shop.plan(shop.llm("x" * 128)))


def test_classic_names_need_exactly_one_language_model(shop: Any) -> None:
    with pytest.raises(RepositoryError, match="has 2"):
        check_names(shop.plan(shop.llm("a"), shop.llm("b")), "classic")


@given(st.lists(SAFE, min_size=2, max_size=4))
def test_accepted_names_never_share_a_folder(names: list[str]) -> None:
    from trtbuild.plan.model import Plan  # the fixture cannot be used under @given

    plan = Plan.model_construct(models=tuple(_llm(name) for name in names))
    try:
        check_names(plan)
    except RepositoryError:
        return
    folders = [folder.casefold() for name in names for folder in llm_names(name).all()]
    assert len(folders) == len(set(folders))


def _llm(name: str) -> Any:
    from trtbuild.plan.model import LlmPlan

    return LlmPlan.model_construct(name=name)
