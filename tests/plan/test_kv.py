from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trtbuild.catalog.models import all_models, find_model
from trtbuild.plan.architecture import from_record
from trtbuild.plan.kv import (
    free_fraction,
    kv_bytes_per_token,
    local_kv_bytes_per_token,
    pool_tokens,
    sequences,
    whole_blocks,
)

GIB = 1 << 30
KNOWN = yaml.safe_load(
    (Path(__file__).parent / "data" / "kv_bytes_per_token.yaml").read_text(encoding="utf-8")
)


def test_every_model_has_a_figure() -> None:
    assert set(KNOWN) == {record.id for record in all_models()}


@pytest.mark.parametrize("hf_id", KNOWN)
def test_bytes_per_token_of_every_model(hf_id: str) -> None:
    architecture = from_record(find_model(hf_id))
    assert kv_bytes_per_token(architecture=architecture, bits=16) == KNOWN[hf_id]
    assert kv_bytes_per_token(architecture=architecture, bits=8) == KNOWN[hf_id] // 2


@pytest.mark.parametrize(
    ("model", "tp", "per_rank"),
    [
        ("llama-2-7b", 2, 262_144),  # tensorrtllm_backend issue 462
        ("mistral-7b-v0.1", 4, 32_768),  # issue 366
        ("qwen3-235b-a22b", 4, 48_128),  # vllm issue 21348
        ("qwen2.5-0.5b", 2, 6_144),
        ("qwen2.5-0.5b", 4, 6_144),  # 2 KV heads on 4 ranks: copied
        ("deepseek-v3", 8, 70_272),  # MLA: the same on every rank
        ("falcon-7b", 1, 8_192),
    ],
)
def test_ranks_divide_kv_heads_or_copy_them(model: str, tp: int, per_rank: int) -> None:
    assert kv_bytes_per_token(architecture=from_record(find_model(model)), bits=16, tp=tp) == per_rank


def test_published_pools_are_met_to_the_byte() -> None:
    # TensorRT-LLM issue 1400: 69,524,783,104 B = 132,608 tokens
    # tensorrtllm_backend issue 462: 67,108,864 B = 256 tokens (TP2)
    llama = from_record(find_model("llama-2-7b"))
    assert 132_608 * kv_bytes_per_token(architecture=llama, bits=16) == 69_524_783_104
    assert 256 * kv_bytes_per_token(architecture=llama, bits=16, tp=2) == 67_108_864


def test_triton_issue_7664() -> None:
    # Llama-3.1-8B: 1429 blocks of 64 = 91,456 tokens = 11.16 GiB
    size = kv_bytes_per_token(architecture=from_record(find_model("llama-3.1-8b")), bits=16)
    assert (
        pool_tokens(pool_bytes=91_456 * size + 64 * size - 1, bytes_per_token=size, tokens_per_block=64)
        == 91_456
    )
    assert 91_456 * size / GIB == pytest.approx(11.16, abs=0.005)


@pytest.mark.parametrize(
    ("head_dim", "per_head"),
    # read from openvino-genai's own count (kv_cache_size_in_bytes) with models made of such heads
    [(32, 80), (64, 152), (96, 224), (128, 296), (256, 584)],
)
def test_the_cpu_engines_cache_by_head_size(head_dim: int, per_head: int) -> None:
    from dataclasses import replace

    one = replace(from_record(find_model("smollm2-135m")), layers=1, kv_heads=1, head_dim=head_dim)
    assert local_kv_bytes_per_token(architecture=one) == per_head


def test_smollm2_in_the_cpu_engines_cache() -> None:
    smollm = from_record(find_model("smollm2-135m"))
    assert local_kv_bytes_per_token(architecture=smollm) == 13_680  # measured; 30 layers x 3 heads x 152
    assert kv_bytes_per_token(architecture=smollm, bits=16) == 23_040


@pytest.mark.parametrize(("block", "kept"), [(784, 0), (128, 128), (64, 192), (32, 224)])
def test_a_shared_prefix_is_kept_in_whole_blocks(block: int, kept: int) -> None:
    # field report M9: 240 shared tokens
    assert pool_tokens(pool_bytes=240, bytes_per_token=1, tokens_per_block=block) == kept


def test_sequences_take_whole_blocks() -> None:
    assert whole_blocks(tokens=1800, tokens_per_block=32) == 1824
    assert sequences(pool_tokens=2 * 1824 - 1, max_seq_len=1800, tokens_per_block=32) == 1


@given(
    kv=st.integers(0, 1 << 40),
    reserve=st.integers(1 << 20, 1 << 36),
    others=st.integers(0, 1 << 40),
)
def test_the_token_cap_binds_whatever_else_is_loaded(kv: int, reserve: int, others: int) -> None:
    """Free memory is never less than this pool and the reserve; with more free, the cap still binds."""
    if kv > 9 * reserve:
        kv = 9 * reserve  # a pool that fits a device of which a tenth is reserved
    fraction = free_fraction(kv_bytes=kv, reserve_bytes=reserve)
    assert 0 <= fraction < 1
    for free in (kv + reserve, kv + reserve - reserve // 2, kv + reserve + others):
        assert fraction * free >= kv


def test_without_a_reserve_there_is_no_fraction() -> None:
    with pytest.raises(ValueError, match="no fraction below 1"):
        free_fraction(kv_bytes=1 << 30, reserve_bytes=0)
