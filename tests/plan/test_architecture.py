import contextlib
from pathlib import Path

import pytest
import yaml

from trtbuild.catalog.models import all_models, find_model
from trtbuild.errors import ModelSourceError
from trtbuild.plan.architecture import Architecture, from_gguf, from_hf_config, from_record

DATA = Path(__file__).parent / "data"
CONFIGS = yaml.safe_load((DATA / "hf_configs.yaml").read_text(encoding="utf-8"))

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
}
FLOAT8 = {"num_bits": 8, "type": "float", "strategy": "tensor"}
FP8_SCHEME = {"weights": FLOAT8, "input_activations": FLOAT8}
# a layer: q 64x64, k and v 64x32 each, o 64x64, three of 64x96, two norms of 64
LLAMA_LAYER = 64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 96 + 2 * 64
LLAMA_PARAMS = 2 * LLAMA_LAYER + 2 * 100 * 64 + 64  # and table, lm_head, last norm


@pytest.mark.parametrize("record", all_models(), ids=lambda record: record.id)
def test_shapes_give_exactly_the_counted_parameters(record) -> None:  # type: ignore[no-untyped-def]
    assert from_record(record).params == record.params.text


@pytest.mark.parametrize("row", CONFIGS, ids=lambda row: row["id"])
def test_a_config_json_says_the_same_as_the_catalogue(row) -> None:  # type: ignore[no-untyped-def]
    record = find_model(row["id"])
    read, known = from_hf_config(row["config"]), from_record(record)
    assert read.params == record.params.text
    for field in ("layers", "heads", "kv_heads", "head_dim", "context", "window", "windowed_layers", "tied"):
        assert getattr(read, field) == getattr(known, field), field
    assert read.native_quant == known.native_quant
    assert read.qkv_bias == known.qkv_bias


def test_a_small_llama_by_hand(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(yaml.safe_dump(LLAMA).replace("'", '"'), encoding="utf-8")
    with pytest.raises(ModelSourceError, match="not valid JSON"):
        from_hf_config(tmp_path)
    architecture = from_hf_config(LLAMA)
    assert architecture.params == LLAMA_PARAMS
    assert architecture.assumption == ""
    names = {linear.name: (linear.in_features, linear.out_features) for linear in architecture.linears()}
    assert names["attention.qkv"] == (64, 64 + 2 * 32)
    assert names["mlp.proj"] == (96, 64)


def test_an_unknown_family_is_taken_as_llama_like_and_says_so() -> None:
    architecture = from_hf_config({**LLAMA, "model_type": "brandnew"})
    assert architecture.params == LLAMA_PARAMS
    assert "brandnew" in architecture.assumption


# model_engine.py of TensorRT-LLM: _infer_max_seq_len_from_config takes no factor of these three
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize(
    ("scaling", "reached"),
    [
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}, 1024),
        ({"type": "yarn", "factor": 2.0}, 512),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}, None),
        ({"rope_type": "llama3", "factor": 32.0, "original_max_position_embeddings": 256}, None),
        ({"rope_type": "longrope", "factor": 32.0, "original_max_position_embeddings": 256}, None),
    ],
)
def test_no_rope_scaling_reaches_beyond_max_position_embeddings(
    key: str, scaling: dict[str, object], reached: int | None
) -> None:
    found = from_hf_config({**LLAMA, key: scaling})
    assert found.context == 256
    assert (f"write {reached} there" in found.assumption) == (reached is not None)


@pytest.mark.parametrize(
    ("section", "native"),
    [
        ({"quant_method": "awq", "bits": 4}, "awq"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": FP8_SCHEME}}, "fp8"),
        ({"quant_method": "somethingelse"}, None),
    ],
)  # fmt: skip
def test_the_checkpoints_own_format_is_read(section: dict[str, object], native: str | None) -> None:
    assert from_hf_config({**LLAMA, "quantization_config": section}).native_quant == native


def test_modelopts_own_file_counts_as_the_quantisation(tmp_path: Path) -> None:
    import json

    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    (tmp_path / "hf_quant_config.json").write_text(
        json.dumps({"quantization": {"quant_algo": "FP8"}}), encoding="utf-8"
    )
    assert from_hf_config(tmp_path).native_quant == "fp8"


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_type": "t5", "d_model": 64}, "encoder-decoder"),
        ({**LLAMA, "is_encoder_decoder": True}, "encoder-decoder"),
        ({"architectures": ["BertForMaskedLM"], **LLAMA}, "an encoder"),
        ({**LLAMA, "model_type": "nemotron_h", "hybrid_override_pattern": "M-M*"}, "several kinds"),
        ({**LLAMA, "layer_types": ["linear_attention", "full_attention"]}, "several kinds"),
        ({}, "no num_attention_heads|no hidden_size"),
        ({**LLAMA, "hidden_size": "64"}, "positive whole number"),
        ({**LLAMA, "num_hidden_layers": -3}, "positive whole number"),
        ({**LLAMA, "num_attention_heads": 3}, "no multiple"),
        ({**LLAMA, "num_local_experts": 8}, "how many are active"),
        ({**LLAMA, "kv_lora_rank": 16}, "MLA"),
        ({**LLAMA, "layer_types": ["conv", "full_attention"]}, "several kinds"),
        ({**LLAMA, "block_types": ["recurrent", "attention"]}, "several kinds"),
        ({**LLAMA, "num_key_value_heads": 64}, "cannot share 64 KV heads"),
        ({**LLAMA, "num_attention_heads": 4, "num_key_value_heads": 3}, "cannot share 3 KV heads"),
        ({**LLAMA, "tie_word_embeddings": "false"}, "true or false"),
        ({**LLAMA, "torch_dtype": "float8"}, "torch_dtype is 'float8'"),
        ({**LLAMA, "model_type": "mixtral"}, "a model with experts"),
        ({**LLAMA, "num_moe_experts": 8}, r"experts \(num_moe_experts\), and how it names them is not known"),
        ({**LLAMA, "num_experts": 8, "moe_topk": [2, 1]}, "moe_topk differs from layer to layer"),
        ({**LLAMA, "attn_type_list": "10"}, r"several kinds \(attn_type_list\)"),
        ({**LLAMA, "attn_type_list": [1, 0]}, r"several kinds \(attn_type_list\)"),
        ({**LLAMA, "rope_scaling": "linear"}, "an object is needed"),
        ({**LLAMA, "rope_scaling": {"rope_type": "spiral", "factor": 2.0}}, "type 'spiral'"),
        ({**LLAMA, "rope_scaling": {"type": "yarn"}}, "the factor None"),
        ({**LLAMA, "rope_scaling": {"type": "linear", "factor": float("nan")}}, "the factor nan"),
    ],
)
def test_what_cannot_be_counted_is_refused(config: dict[str, object], says: str) -> None:
    with pytest.raises(ModelSourceError, match=says):
        from_hf_config(config)


def test_a_folder_without_config_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelSourceError, match=r"no config\.json"):
        from_hf_config(tmp_path)
    with pytest.raises(ModelSourceError, match=r"no config\.json"):
        from_hf_config(tmp_path / "nowhere")


SMOLLM_GGUF = {
    "general.architecture": "llama",
    "llama.block_count": 30,
    "llama.context_length": 8192,
    "llama.embedding_length": 576,
    "llama.feed_forward_length": 1536,
    "llama.attention.head_count": 9,
    "llama.attention.head_count_kv": 3,
    "llama.vocab_size": 49152,
}


def test_gguf_metadata_gives_the_same_sizes_as_the_catalogue() -> None:
    known, read = from_record(find_model("smollm2-135m")), from_gguf(SMOLLM_GGUF)
    for field in ("layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab", "context"):
        assert getattr(read, field) == getattr(known, field), field


def test_gguf_vocabulary_may_be_the_token_list() -> None:
    metadata = {key: value for key, value in SMOLLM_GGUF.items() if not key.endswith("vocab_size")}
    assert from_gguf({**metadata, "tokenizer.ggml.tokens": ["a", "b", "c"]}).vocab == 3
    with pytest.raises(ModelSourceError, match="vocab_size"):
        from_gguf(metadata)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"general.architecture": None}, r"general\.architecture"),
        ({"general.architecture": "bert"}, "decoder-only"),
        ({"llama.block_count": None}, "block_count"),
        ({"llama.block_count": 2.5}, "positive whole number"),
    ],
)
def test_gguf_metadata_that_is_no_model_is_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(ModelSourceError, match=says):
        from_gguf({**SMOLLM_GGUF, **change})


def test_ranks_share_layers_and_copy_kv_heads() -> None:
    architecture: Architecture = from_record(find_model("qwen2.5-7b"))  # 28 heads, 4 KV heads of 128
    qkv = next(linear for linear in architecture.linears() if linear.name == "attention.qkv")
    assert qkv.on_rank(1) == (3584, 3584 + 2 * 512)
    assert qkv.on_rank(4) == (3584, 896 + 2 * 128)
    assert qkv.on_rank(7) == (3584, 512 + 2 * 128)  # 4 KV heads on 7 ranks: one each, copied
    proj = next(linear for linear in architecture.linears() if linear.name == "mlp.proj")
    assert proj.on_rank(4) == (18944 // 4, 3584)


def test_a_config_without_a_longest_context_gets_transformers_default_and_says_so() -> None:
    """Falcon's own config.json leaves it out; FalconConfig says 2048."""
    falcon = {
        "model_type": "falcon", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
        "vocab_size": 32,
    }  # fmt: skip
    found = from_hf_config(falcon)
    assert found.context == 2048
    assert "2048 is transformers' default for falcon" in found.assumption
    with pytest.raises(ModelSourceError, match="no max_position_embeddings"):
        from_hf_config({**falcon, "model_type": "new", "intermediate_size": 128})


# 2 layers with 8 experts of 3 x 64 x 32, a shared one, and a router; attention and norms as in a dense layer
MOE_LAYER = LLAMA_LAYER - 3 * 64 * 96 + 9 * 3 * 64 * 32 + 8 * 64


@pytest.mark.parametrize(
    ("names", "moe_layers"),
    [
        # HunYuan: a number for each layer
        (
            {
                "num_experts": 8, "moe_topk": [2, 2], "moe_intermediate_size": [32, 32],
                "num_shared_expert": [1, 1],
            },
            2,
        ),
        # ERNIE 4.5
        ({"moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 32, "moe_num_shared_experts": 1}, 2),
        # EXAONE: its first layer is dense
        (
            {
                "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
                "num_shared_experts": 1, "is_moe_layer": [False, True],
            },
            1,
        ),
    ],
)  # fmt: skip
def test_experts_count_by_whichever_name_they_have(names: dict[str, object], moe_layers: int) -> None:
    dense = (2 - moe_layers) * LLAMA_LAYER
    found = from_hf_config({**LLAMA, **names})
    assert found.params == moe_layers * MOE_LAYER + dense + 2 * 100 * 64 + 64


def test_a_list_that_says_attention_for_every_layer_is_no_mixture() -> None:
    assert from_hf_config({**LLAMA, "attn_type_list": [1, 1]}).params == LLAMA_PARAMS  # MiniMax-M2


ODD_VALUES = (None, [], {}, "x", 1.5, True, [[1]], [None], {"a": {}}, -1, 0, 10**400, float("nan"))
ODD_FIELDS = (
    *LLAMA, "architectures", "layer_types", "attn_type_list", "text_config", "rope_parameters", "head_dim",
    "num_experts", "sliding_window", "kv_lora_rank", "torch_dtype", "quantization_config",
)  # fmt: skip


@pytest.mark.parametrize("field", ODD_FIELDS)
def test_no_odd_value_ends_otherwise_than_in_a_refusal(field: str) -> None:
    for value in ODD_VALUES:
        with contextlib.suppress(ModelSourceError):
            assert from_hf_config({**LLAMA, field: value}).params > 0


@pytest.mark.parametrize("key", ["rope_type", "factor", "original_max_position_embeddings"])
def test_no_odd_value_of_rope_scaling_does_either(key: str) -> None:
    for value in ODD_VALUES:
        scaling = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64, key: value}
        with contextlib.suppress(ModelSourceError):
            assert from_hf_config({**LLAMA, "rope_scaling": scaling}).context == 256


@pytest.mark.parametrize("classes", ["LlamaForCausalLM", 3, [3], {"a": 1}])
def test_architectures_that_are_no_list_of_names_are_refused(classes: object) -> None:
    with pytest.raises(ModelSourceError, match=r"architectures is .*; a list of class names is needed"):
        from_hf_config({**LLAMA, "architectures": classes})


def test_a_text_config_that_leaves_out_its_class_defaults_is_completed() -> None:
    # llava-hf/llava-v1.6-mistral-7b-hf: its text model is Mistral-7B, 7,241,732,096 parameters, with 64 more
    # words than its 32,000 in table and lm_head
    text = {
        "model_type": "mistral", "intermediate_size": 14_336, "max_position_embeddings": 32_768,
        "num_key_value_heads": 8, "sliding_window": None, "vocab_size": 32_064,
    }  # fmt: skip
    found = from_hf_config({"model_type": "llava_next", "text_config": text, "tie_word_embeddings": False})
    assert found.params == 7_241_732_096 + 2 * 64 * 4096
    assert (found.layers, found.kv_heads, found.head_dim) == (32, 8, 128)


def test_an_unknown_family_without_a_gate_is_told_as_such() -> None:
    assert "(plain MLP" in from_hf_config({**LLAMA, "model_type": "nemotron"}).assumption


def test_a_multimodal_config_with_its_text_model_on_top_says_what_is_left_out() -> None:
    flat = {**LLAMA, "model_type": "qwen2_5_vl", "vision_config": {"depth": 32}}
    assert "only its text tower is planned" in (from_hf_config(flat).assumption or "")
