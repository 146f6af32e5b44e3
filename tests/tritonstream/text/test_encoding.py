"""Prompts and word lists to ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.real_tokenizers import tokenizer, tokenizer_spec

from tritonstream.text import (
    Encoder,
    PromptError,
    TemplateError,
    TextAssets,
    TokenizerError,
    embedding_bias,
    word_list,
)


def _folder(tmp_path: Path, name: str, **files: Any) -> Path:
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer_spec(name)))
    for file, content in files.items():
        (tmp_path / f"{file}.json").write_text(json.dumps(content))
    return tmp_path


def test_bos_comes_once() -> None:
    encoder = Encoder(tokenizer("mistral-v1"), bos_id=1)  # its post-processor adds <s>, id 1
    assert encoder.prompt("Hello")[:1] == [1]
    assert encoder.prompt("Hello").count(1) == 1
    assert encoder.prompt("<s>[INST] Hello [/INST]").count(1) == 1
    assert encoder.prompt("<s>[INST] Hello [/INST]", add_special_tokens=False).count(1) == 1
    assert encoder.prompt("Hello", add_special_tokens=False).count(1) == 0
    assert encoder.prompt("<s>") == [1]


def test_tokenizer_config_decides_about_bos_for_the_classes_that_heed_it(tmp_path: Path) -> None:
    config = {"bos_token": "<|im_start|>", "tokenizer_class": "LlamaTokenizerFast", "add_bos_token": True}
    # SmolLM2's tokenizer.json adds nothing; <|im_start|> is id 1
    assert TextAssets(_folder(tmp_path, "smollm2", tokenizer_config=config)).encoder.prompt("Hi")[0] == 1
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    assert TextAssets(_folder(tmp_path, "smollm2", tokenizer_config=config)).encoder.prompt("Hi")[0] != 1
    config = {"bos_token": "<s>", "tokenizer_class": "LlamaTokenizer", "add_bos_token": False}
    assert TextAssets(_folder(tmp_path, "mistral-v1", tokenizer_config=config)).encoder.prompt("Hi")[0] != 1


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(PromptError, match="the prompt is empty"):
        Encoder(tokenizer("smollm2"), bos_id=None).prompt("")


def test_words_have_no_special_tokens() -> None:
    encoder = Encoder(tokenizer("mistral-v1"), bos_id=1)
    ids = word_list(map(encoder.word, ["quickSort", "quickSort(right)"]))
    assert 1 not in ids[0]  # field report D7: a BOS in a stop word never matches
    assert ids.shape[0] == 2


def test_word_lists_have_the_form_of_tensorrt_llm() -> None:
    # ids in a row, then the end of each word; ids padded with 0, ends with -1
    assert word_list([[5, 6], [7]]).tolist() == [[5, 6, 7], [2, 3, -1]]
    assert word_list([[9]]).tolist() == [[9], [1]]
    assert word_list([]).shape == (2, 0)
    assert word_list([[]]).tolist() == [[0], [-1]]
    assert word_list([[5], []]).tolist() == [[5], [1]]


def test_a_bias_reaches_the_words_tokens_only() -> None:
    bias = embedding_bias([[3, 4], [4]], [2.0, -0.5], vocab_size=8)
    assert bias.dtype == np.float32
    assert bias.tolist() == [0, 0, 0, 2.0, 1.5, 0, 0, 0]
    with pytest.raises(PromptError, match="2 embedding_bias_words but 1 embedding_bias_weights"):
        embedding_bias([[1], [2]], [1.0], 4)
    with pytest.raises(PromptError, match="no finite number"):
        embedding_bias([[1]], [float("nan")], 4)


def test_hopeless_prompts_are_known_without_encoding() -> None:
    encoder = Encoder(tokenizer("smollm2"), bos_id=None)
    text = "word " * 5000
    assert 0 < encoder.least_tokens(text) <= len(encoder.prompt(text))


def test_end_ids_come_from_the_generation_config_and_the_tokenizer(tmp_path: Path) -> None:
    config = {"eos_token": {"content": "<|im_end|>"}, "pad_token": "<|endoftext|>"}
    folder = _folder(tmp_path, "smollm2", tokenizer_config=config, generation_config={"eos_token_id": [0, 7]})
    assets = TextAssets(folder)
    assert assets.end_ids == (0, 7, 2)
    assert assets.pad_id == 0
    (folder / "generation_config.json").write_text('{"eos_token_id": 2}')
    assert TextAssets(folder).end_ids == (2,)
    (folder / "generation_config.json").unlink()
    assert TextAssets(folder).end_ids == (2,)


def test_special_ids_are_known_by_their_text(tmp_path: Path) -> None:
    assets = TextAssets(_folder(tmp_path, "smollm2"))
    assert assets.special_id("<|im_end|>") == 2
    assert assets.special_id("Hello") is None  # a token, but of plain text
    assert assets.vocab_size == 49152


def test_a_template_comes_from_its_own_file_or_the_config(tmp_path: Path) -> None:
    folder = _folder(
        tmp_path,
        "smollm2",
        tokenizer_config={"chat_template": "config {{ eos_token }}", "eos_token": "<|im_end|>"},
    )
    message = [{"role": "user", "content": "x"}]
    assert TextAssets(folder).template.render(message) == "config <|im_end|>"
    (folder / "chat_template.jinja").write_text("file")
    assert TextAssets(folder).template.render(message) == "file"


def test_a_model_without_a_template_says_so(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match=r"has no chat template, so it cannot take messages"):
        _ = TextAssets(_folder(tmp_path, "smollm2")).template


@pytest.mark.parametrize(
    ("name", "content"),
    [("tokenizer.json", "{}"), ("tokenizer.json", "no json"), ("tokenizer_config.json", "[]"),
     ("generation_config.json", "{")],
)  # fmt: skip
def test_broken_files_are_named(tmp_path: Path, name: str, content: str) -> None:
    folder = _folder(tmp_path, "smollm2")
    (folder / name).write_text(content)
    with pytest.raises(TokenizerError, match=name):
        TextAssets(folder)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"holds no tokenizer\.json"):
        TextAssets(tmp_path)
