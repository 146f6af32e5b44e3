import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtbuild.catalog.formats import all_formats, find_format
from trtbuild.catalog.models import all_models, find_model
from trtbuild.plan.architecture import from_record
from trtbuild.plan.weights import engine_copy_bytes, weights

GIB = 1 << 30
MIB = 1 << 20
QWEN = from_record(find_model("qwen-7b"))
GPU_FORMATS = [fmt for fmt in all_formats() if fmt.layers in ("none", "blocks")]


@pytest.mark.parametrize("record", all_models(), ids=lambda record: record.id)
def test_16_bit_weights_are_two_bytes_a_parameter(record) -> None:  # type: ignore[no-untyped-def]
    found = weights(architecture=from_record(record), fmt=find_format("bf16"))
    assert found.total_bytes == 2 * record.params.text


def test_awq_of_qwen_7b_by_hand() -> None:
    # layers: 28 x (3584 x (3584 + 2 x 512) + 3584 x 3584 + 3 x 3584 x 18944) = 6,525,288,448 weights
    # 4 bits each: 3,262,644,224; scale and zero of 2 B each per 128: 203,915,264
    # tables: 2 x 152,064 x 3584 x 2 B = 2,179,989,504; norms 57 x 3584, biases 28 x 4608, 2 B each
    found = weights(architecture=QWEN, fmt=find_format("awq"))
    assert found.quantised_bytes == 3_262_644_224
    assert found.scale_bytes == 203_915_264
    assert found.embedding_bytes + found.lm_head_bytes == 2_179_989_504
    assert found.other_bytes == (57 * 3584 + 28 * 4608) * 2
    assert 5.2 < found.total_bytes / GIB < 5.4


def test_dividing_by_bits_alone_would_be_wrong() -> None:
    # field report M5: the two tables alone are 2.03 GiB
    found = weights(architecture=QWEN, fmt=find_format("int4"))
    assert found.total_bytes > QWEN.params * 4 // 8 + 1.5 * GIB


def test_small_groups_hold_more_scales() -> None:
    awq = find_format("awq")
    at_128 = weights(architecture=QWEN, fmt=awq, group_size=128)
    at_64 = weights(architecture=QWEN, fmt=awq, group_size=64)
    assert at_64.scale_bytes == 2 * at_128.scale_bytes
    assert at_64.quantised_bytes == at_128.quantised_bytes


def test_a_rank_of_the_compiled_flow_holds_the_whole_table() -> None:
    # Llama-2-7B, TP4, FP16: 3404 MiB a rank (triton-inference-server/tensorrtllm_backend issue 396)
    llama = from_record(find_model("llama-2-7b"))
    rank = weights(architecture=llama, fmt=find_format("fp16"), tp=4)
    assert rank.embedding_bytes == 32_000 * 4096 * 2
    assert rank.lm_head_bytes == 8_000 * 4096 * 2
    assert (rank.total_bytes + engine_copy_bytes(architecture=llama, tp=4)) / MIB == pytest.approx(
        3404, rel=0.002
    )


def test_a_tied_table_is_counted_once_and_the_engines_copy_apart() -> None:
    # Falcon-7B: the engine is 13,768 MiB, the weights 13,202 MiB (issue 274 of the backend)
    falcon = from_record(find_model("falcon-7b"))
    found = weights(architecture=falcon, fmt=find_format("fp16"))
    assert found.lm_head_bytes == 0
    engine = found.total_bytes + engine_copy_bytes(architecture=falcon)
    assert engine / MIB == pytest.approx(13_768, rel=0.001)


def test_native_formats_keep_what_their_checkpoints_keep() -> None:
    gpt_oss = from_record(find_model("gpt-oss-20b"))
    found = weights(architecture=gpt_oss, fmt=find_format("mxfp4"))
    # 24 layers x 32 experts x 3 x 2880 x 2880 weights, 4 bits and 8 bits per 32
    assert found.quantised_bytes == 24 * 32 * 3 * 2880 * 2880 // 2
    assert found.scale_bytes == 24 * 32 * 3 * 2880 * 2880 // 32
    deepseek = from_record(find_model("deepseek-v3"))
    fp8 = weights(architecture=deepseek, fmt=find_format("fp8-block"))
    assert fp8.total_bytes == pytest.approx(deepseek.params, rel=0.01)  # about a byte a parameter


def test_routers_stay_16_bit() -> None:
    mixtral = from_record(find_model("mixtral-8x7b-v0.1"))
    assert weights(architecture=mixtral, fmt=find_format("awq")).linear_bytes == 32 * 4096 * 8 * 2


@given(
    record=st.sampled_from(all_models()),
    fmt=st.sampled_from(GPU_FORMATS),
    tp=st.sampled_from([1, 2, 4, 8]),
)
def test_fewer_bits_and_more_ranks_never_take_more(record, fmt, tp) -> None:  # type: ignore[no-untyped-def]
    architecture = from_record(record)
    one = weights(architecture=architecture, fmt=fmt, tp=tp).total_bytes
    assert one <= weights(architecture=architecture, fmt=find_format("bf16"), tp=tp).total_bytes
    assert one <= weights(architecture=architecture, fmt=fmt, tp=1).total_bytes
    # the ranks together hold the model at least once
    assert one * tp >= weights(architecture=architecture, fmt=fmt, tp=1).quantised_bytes
