"""The classic ensemble's first and last step, by NVIDIA's tensor names."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.fake_triton import Logger, Request, load_model
from tests.support.real_tokenizers import tokenizer, tokenizer_spec

from trtbuild.repository.llm import text_package
from trtbuild.repository.render import model_code

BEFORE = (
    "INPUT_ID", "REQUEST_INPUT_LEN", "DECODER_INPUT_ID", "REQUEST_DECODER_INPUT_LEN", "BAD_WORDS_IDS",
    "STOP_WORDS_IDS", "EMBEDDING_BIAS", "REQUEST_OUTPUT_LEN", "OUT_END_ID", "OUT_PAD_ID",
    "OUT_PROMPT_TABLE_EXTRA_IDS",
)  # fmt: skip


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """``steps("llm_preprocess", tokenizer, **parameters)`` gives the model."""

    def make(kind: str, name: str = "smollm2", **parameters: str) -> Any:
        files = {f"m_step/1/{file}": data for file, data in model_code(kind).items()}
        files |= {f"m/1/tritontext/{file}": data for file, data in text_package().items()}
        config = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"} if name == "smollm2" else {}
        if name.startswith("mistral"):
            config = {"bos_token": "<s>", "eos_token": "</s>"}
        files["m/1/tokenizer/tokenizer.json"] = json.dumps(tokenizer_spec(name)).encode()
        files["m/1/tokenizer/tokenizer_config.json"] = json.dumps(config).encode()
        if name == "smollm2":
            files["m/1/tokenizer/generation_config.json"] = b'{"eos_token_id": [2, 0]}'
        for path, data in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(data)
        return load_model(monkeypatch, tmp_path, "m_step", {"text_model": "m", **parameters})

    yield make
    for module in [name for name in sys.modules if name.split(".")[0] == "tritontext"]:
        del sys.modules[module]


def _one(model: Any, **inputs: Any) -> Any:
    (response,) = model.execute([Request(list(BEFORE), **inputs)])
    assert response.error is None, response.error
    return response.outputs


def test_a_batch_is_padded_and_its_lengths_are_told(steps: Any) -> None:
    out = _one(steps("llm_preprocess"), QUERY=[["one two three"], ["one"]], REQUEST_OUTPUT_LEN=[[5], [6]])
    first, second = (tokenizer("smollm2").encode(text).ids for text in ("one two three", "one"))
    assert out["INPUT_ID"].tolist() == [first, [*second, 0, 0]]  # <|endoftext|>, id 0, is the padding
    assert out["REQUEST_INPUT_LEN"].tolist() == [[3], [1]]
    assert out["REQUEST_OUTPUT_LEN"].tolist() == [[5], [6]]
    assert out["OUT_PAD_ID"].tolist() == [[0], [0]]
    dtypes = [out[name].dtype.name for name in ("INPUT_ID", "EMBEDDING_BIAS", "OUT_PROMPT_TABLE_EXTRA_IDS")]
    assert dtypes == ["int32", "float32", "uint64"]


def test_what_is_not_given_is_empty(steps: Any) -> None:
    out = _one(steps("llm_preprocess"), QUERY=[["x"]], REQUEST_OUTPUT_LEN=[[5]])
    assert out["BAD_WORDS_IDS"].shape == (1, 2, 0)
    assert out["EMBEDDING_BIAS"].shape == (1, 0)
    assert out["DECODER_INPUT_ID"].shape == (1, 0)
    assert out["REQUEST_DECODER_INPUT_LEN"].tolist() == [[0]]


def test_end_ids_beyond_the_first_are_stop_words(steps: Any) -> None:
    out = _one(steps("llm_preprocess"), QUERY=[["x"]], REQUEST_OUTPUT_LEN=[[5]])
    assert out["OUT_END_ID"].tolist() == [[2]]
    assert out["STOP_WORDS_IDS"].tolist() == [[[0], [1]]]  # the one word is id 0, <|endoftext|>
    given = _one(steps("llm_preprocess"), QUERY=[["x"]], REQUEST_OUTPUT_LEN=[[5]], END_ID=[[7]])
    assert given["OUT_END_ID"].tolist() == [[7]]
    assert given["STOP_WORDS_IDS"].shape == (1, 2, 0)


def test_words_have_no_bos_and_special_ones_are_their_id(steps: Any) -> None:
    model = steps("llm_preprocess", "mistral-v1")
    out = _one(
        model,
        QUERY=[["x"]],
        REQUEST_OUTPUT_LEN=[[5]],
        STOP_WORDS_DICT=[["quickSort", "quickSort(right)", "</s>", ""]],
        BAD_WORDS_DICT=[["bad"]],
    )
    ids, ends = out["STOP_WORDS_IDS"][0]
    assert 1 not in ids  # <s>
    assert ids[ends[1]] == 2  # the third word: </s>
    assert (ends[4 - 1 :] == -1).all()
    assert 1 not in out["BAD_WORDS_IDS"][0][0]
    assert out["INPUT_ID"][0, 0] == 1  # the prompt begins with <s>


def test_bos_can_be_left_out(steps: Any) -> None:
    model = steps("llm_preprocess", "mistral-v1", add_special_tokens="false")
    assert _one(model, QUERY=[["x"]], REQUEST_OUTPUT_LEN=[[5]])["INPUT_ID"][0, 0] != 1


def test_a_bias_has_the_engines_vocabulary(steps: Any) -> None:
    (yes,) = tokenizer("smollm2").encode("yes").ids
    out = _one(
        steps("llm_preprocess", engine_vocab_size="50000"),
        QUERY=[["x"]],
        REQUEST_OUTPUT_LEN=[[5]],
        EMBEDDING_BIAS_WORDS=[["yes"]],
        EMBEDDING_BIAS_WEIGHTS=[[5.0]],
    )
    bias = out["EMBEDDING_BIAS"]
    assert bias.shape == (1, 50000)
    assert np.flatnonzero(bias[0]).tolist() == [yes]


@pytest.mark.parametrize(
    ("inputs", "named"),
    [
        ({"QUERY": [[b"\xff"]]}, "not UTF-8"),
        ({"QUERY": [[""]]}, "the prompt is empty"),
        ({"QUERY": [["a " * 50]]}, "more than the 8 that fit"),
        ({"QUERY": [["x"]], "EMBEDDING_BIAS_WORDS": [["a"]]}, "1 embedding_bias_words but 0"),
    ],
)
def test_a_refused_request_says_why_and_spares_the_others(steps: Any, inputs: Any, named: str) -> None:
    model = steps("llm_preprocess", max_input_tokens="8")
    good = Request(["INPUT_ID"], QUERY=[["x"]], REQUEST_OUTPUT_LEN=[[1]])
    refused, served = model.execute([Request(["INPUT_ID"], REQUEST_OUTPUT_LEN=[[1]], **inputs), good])
    assert named in str(refused.error)
    assert str(refused.error).endswith(" [INVALID_ARG]")  # by which a streaming client knows the kind
    assert served.error is None


def test_texts_of_rows_and_beams(steps: Any) -> None:
    ids = tokenizer("smollm2").encode("one two three").ids
    tokens = [[[*ids], [*ids]], [[*ids], [*ids]]]
    (response,) = steps("llm_postprocess").execute(
        [Request(["OUTPUT"], TOKENS_BATCH=tokens, SEQUENCE_LENGTH=[[3, 2], [1, 0]])]
    )
    assert response.outputs["OUTPUT"].tolist() == [[b"one two three", b"one two"], [b"one", b""]]


def test_streamed_words_keep_their_spaces(steps: Any) -> None:
    model = steps("llm_postprocess", "mistral-v1")
    ids = tokenizer("mistral-v1").encode("Paris is", add_special_tokens=False).ids
    responses = model.execute(
        [Request(["OUTPUT"], TOKENS_BATCH=[[[id_]]], SEQUENCE_LENGTH=[[1]]) for id_ in ids]
    )
    assert b"".join(response.outputs["OUTPUT"][0, 0] for response in responses) == b" Paris is"


@pytest.mark.parametrize(("skips", "text"), [("true", b"a"), ("false", b"a<|im_end|>")])
def test_special_tokens_are_skipped_or_shown(steps: Any, skips: str, text: bytes) -> None:
    (a,) = tokenizer("smollm2").encode("a").ids
    model = steps("llm_postprocess", skip_special_tokens=skips)
    (response,) = model.execute([Request(["OUTPUT"], TOKENS_BATCH=[[[a, 2]]], SEQUENCE_LENGTH=[[2]])])
    assert response.outputs["OUTPUT"].tolist() == [[text]]


@pytest.mark.parametrize(
    ("kind", "output", "good"),
    [
        ("llm_preprocess", "INPUT_ID", {"QUERY": [["x"]], "REQUEST_OUTPUT_LEN": [[1]]}),
        ("llm_postprocess", "OUTPUT", {"TOKENS_BATCH": [[[5]]], "SEQUENCE_LENGTH": [[1]]}),
    ],
)
def test_a_fault_spares_the_others_and_its_detail_is_for_the_log(
    steps: Any, kind: str, output: str, good: Any
) -> None:
    class Broken(Request):
        def inputs(self) -> Any:
            raise RuntimeError("Failed to increase the shared memory pool size for key 'trtbuild-7'")

    failed, served = steps(kind).execute([Broken([output]), Request([output], **good)])
    assert "/dev/shm is full" in str(failed.error)
    assert "trtbuild-7" not in str(failed.error)
    assert "trtbuild-7" in Logger.errors[0]
    assert served.error is None
