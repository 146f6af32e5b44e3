from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.engine_jobs import job, limits

from trtbuild.serve.local.tensorrtllm.jobs import RequestRefused
from trtbuild.serve.local.tensorrtllm.limits import LoadRefused, read_build_config


def test_blocks_of_one_sequence_hold_prompt_and_answer() -> None:
    assert limits().blocks(job(1, 32, 32)) == 2
    assert limits().blocks(job(1, 33, 32)) == 3  # 65 tokens


def test_beams_share_the_prompts_full_blocks() -> None:
    # 70 + 30 = 100 tokens = 4 blocks; 2 full ones are shared; 3 beams x (2 own + 1 while forking) + 2 = 11
    assert limits().blocks(job(1, 70, 30, beam_width=3)) == 11


def test_an_answer_is_cut_to_the_longest_sequence() -> None:
    assert limits(max_seq_len=100).checked_new_tokens(prompt_tokens=60, new_tokens=1000) == 40


@pytest.mark.parametrize(
    ("changes", "prompt", "new", "words"),
    [
        ({}, 0, 5, "the prompt is empty"),
        ({}, 5, 0, "request_output_len is 0"),
        ({}, 5, -3, "request_output_len is -3"),
        ({"max_seq_len": 100}, 100, 1, r"Prompt length \(100\) exceeds maximum input length \(99\)"),
        ({"chunked_context": False, "max_num_tokens": 64}, 65, 1, "set enable_chunked_context"),
    ],
)
def test_lengths_are_refused_before_the_engine(
    changes: dict[str, int], prompt: int, new: int, words: str
) -> None:
    with pytest.raises(RequestRefused, match=words):
        limits(**changes).checked_new_tokens(prompt_tokens=prompt, new_tokens=new)


def test_with_chunked_context_a_prompt_may_exceed_one_iteration() -> None:
    assert limits(max_num_tokens=64).checked_new_tokens(prompt_tokens=200, new_tokens=4) == 4


def test_what_can_never_run_is_refused() -> None:
    with pytest.raises(RequestRefused, match="may need 3 KV blocks of 32 tokens, and the whole pool has 2"):
        limits(pool_blocks=2).check_fits(job(1, 60, 10))
    with pytest.raises(RequestRefused, match="beam_width 4 exceeds the engine's max_batch_size 2"):
        limits(max_sequences=2).check_fits(job(1, beam_width=4))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read"),
        ("", "is not JSON"),
        ('{"architectures": ["LlamaForCausalLM"]}', "has no build_config"),  # the Hugging Face one
        ("[]", "has no build_config"),
    ],
)
def test_an_engine_folder_without_its_config(tmp_path: Path, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(LoadRefused, match=words):
        read_build_config(tmp_path)


def test_both_parts_of_the_config_are_read(tmp_path: Path) -> None:
    config = {"build_config": {"max_seq_len": 5}, "pretrained_config": {"max_position_embeddings": 7}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_build_config(tmp_path) == ({"max_seq_len": 5}, {"max_position_embeddings": 7})
