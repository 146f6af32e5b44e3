import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtbuild.catalog.formats import all_formats, find_format
from trtbuild.catalog.models import all_models, find_model
from trtbuild.plan.activations import (
    decoder_buffers_bytes,
    execution_context_bytes,
    local_activation_bytes,
    runtime_buffers_bytes,
    torch_activation_bytes,
)
from trtbuild.plan.architecture import from_record

MIB = 1 << 20
QWEN_SMALL = from_record(find_model("qwen2.5-0.5b"))  # hidden 896, MLP 4864, vocabulary 151,936


def test_execution_context_by_hand() -> None:
    # 8192 tokens x (2 x 4864 + 2 x 896) x 2 B = 180 MiB; logits 2048 x 151,936 x 2 B = 593.5 MiB
    size = execution_context_bytes(
        architecture=QWEN_SMALL, fmt=find_format("int8"), tp=1, max_num_tokens=8192, max_batch_size=2048
    )
    assert size == 8192 * 11_520 * 2 + 2048 * 151_936 * 2
    assert size / MIB == pytest.approx(773.5, abs=0.01)


def test_a_small_step_still_needs_the_gemm_workspace() -> None:
    # 512 tokens: 11.25 MiB, and 32 MiB where the logits of one sequence would be 0.3 MiB
    size = execution_context_bytes(
        architecture=QWEN_SMALL, fmt=find_format("int8"), tp=1, max_num_tokens=512, max_batch_size=1
    )
    assert size / MIB == 11.25 + 32


def test_buffers_by_hand_and_by_version() -> None:
    sizes = {"architecture": QWEN_SMALL, "max_batch_size": 2, "max_seq_len": 1000}
    # 4 B x 151,936 and 24 B a position
    assert runtime_buffers_bytes(**sizes, trtllm_version="0.17.0") == 2 * (607_744 + 24_000)
    assert runtime_buffers_bytes(**sizes, trtllm_version="1.2.1") == 2 * (607_744 + 1_000)
    assert decoder_buffers_bytes(**sizes, trtllm_version="0.13.0") == 2 * (5 * 607_744 + 48_000)
    assert decoder_buffers_bytes(**sizes, trtllm_version="1.2.1") == 2 * (4 * 607_744 + 18_000)


def test_experts_need_room_for_each_token_once_per_expert() -> None:
    # Mixtral: 2 experts x (2 x 4096 + 3 x 14,336) x 2 B a token, and no dense MLP: 7 B x 4096
    mixtral = from_record(find_model("mixtral-8x7b-v0.1"))
    size = execution_context_bytes(
        architecture=mixtral, fmt=find_format("fp16"), tp=1, max_num_tokens=1024, max_batch_size=1
    )
    assert size == 1024 * (2 * (2 * 4096 + 3 * 14_336) * 2 + 7 * 4096) + 32 * MIB


@given(
    record=st.sampled_from(all_models()),
    fmt=st.sampled_from([fmt for fmt in all_formats() if fmt.layers != "file"]),
    tp=st.sampled_from([1, 2, 4, 8]),
    tokens=st.integers(1, 32_768),
    batch=st.integers(1, 512),
    more=st.integers(0, 4096),
)
def test_more_tokens_or_sequences_never_take_less(record, fmt, tp, tokens, batch, more) -> None:  # type: ignore[no-untyped-def]
    architecture = from_record(record)

    def at(tokens: int, batch: int) -> int:
        return execution_context_bytes(
            architecture=architecture, fmt=fmt, tp=tp, max_num_tokens=tokens, max_batch_size=batch
        )

    assert 0 < at(tokens, batch) <= at(tokens + more, batch)
    assert at(tokens, batch) <= at(tokens, batch + more)
    assert local_activation_bytes(architecture=architecture, max_num_tokens=tokens) > 0
    assert torch_activation_bytes(
        architecture=architecture, tp=tp, max_num_tokens=tokens, max_batch_size=batch
    ) <= torch_activation_bytes(
        architecture=architecture, tp=tp, max_num_tokens=tokens + more, max_batch_size=batch
    )
