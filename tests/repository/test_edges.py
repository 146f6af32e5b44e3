"""Ensembles: each kind of mistake that the core would find, or would not."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from trtbuild.repository.edges import ensemble_faults

A = """name: "a" max_batch_size: 8
input { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] }
output { name: "IDS" data_type: TYPE_INT32 dims: [ -1 ] }
output { name: "LEN" data_type: TYPE_INT32 dims: [ 1 ] }"""
B = """name: "b" max_batch_size: 8 model_transaction_policy { decoupled: true }
input { name: "ids" data_type: TYPE_INT32 dims: [ -1 ] }
input { name: "len" data_type: TYPE_INT32 dims: [ 1 ] reshape { shape: [ ] } }
input { name: "seed" data_type: TYPE_UINT64 dims: [ 1 ] optional: true }
output { name: "out" data_type: TYPE_INT32 dims: [ -1, -1 ] }"""
C = """name: "c" max_batch_size: 8
input { name: "TOKENS" data_type: TYPE_INT32 dims: [ -1, -1 ] }
input { name: "SKIP" data_type: TYPE_BOOL dims: [ 1 ] optional: true }
output { name: "OUT" data_type: TYPE_STRING dims: [ -1 ] }"""
ENSEMBLE = """name: "e" platform: "ensemble" max_batch_size: 8
input { name: "text" data_type: TYPE_STRING dims: [ 1 ] }
input { name: "seed" data_type: TYPE_UINT64 dims: [ 1 ] optional: true }
output { name: "answer" data_type: TYPE_STRING dims: [ -1 ] }
ensemble_scheduling {
  step { model_name: "a" model_version: -1
    input_map { key: "TEXT" value: "text" }
    output_map { key: "IDS" value: "_ids" } output_map { key: "LEN" value: "_len" } }
  step { model_name: "b" model_version: -1
    input_map { key: "ids" value: "_ids" } input_map { key: "len" value: "_len" }
    input_map { key: "seed" value: "seed" }
    output_map { key: "out" value: "_out" } }
  step { model_name: "c" model_version: -1
    input_map { key: "TOKENS" value: "_out" }
    output_map { key: "OUT" value: "answer" } }
}"""


def check(*changes: tuple[str, str, str]) -> list[str]:
    """The faults after textual changes (model, old, new)."""
    texts = {"a": A, "b": B, "c": C, "e": ENSEMBLE}
    for model, old, new in changes:
        assert old in texts[model]
        texts[model] = texts[model].replace(old, new)
    configs: dict[str, Any] = {name: text_format.Parse(text, ModelConfig()) for name, text in texts.items()}
    return [str(fault) for fault in ensemble_faults(configs.pop("e"), configs)]


def test_a_sound_ensemble_has_no_faults() -> None:
    assert check() == []


IDS, OUT = 'name: "ids" data_type: TYPE_INT32', 'name: "OUT" data_type: TYPE_STRING dims: [ -1'
LEN, TOKENS = 'name: "LEN" data_type: TYPE_INT32 dims: [ 1', 'key: "TOKENS" value: "_out" }'
BATCH, NO_BATCH = "max_batch_size: 8", "max_batch_size: 0"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("e", 'model_name: "b"', 'model_name: "z"'), "'z' is no model"),
        (("e", 'key: "TEXT"', 'key: "TXT"'), "a has no input 'TXT'"),
        (("e", 'key: "OUT"', 'key: "OUTS"'), "c has no output 'OUTS'"),
        (("e", 'key: "ids" value: "_ids"', 'key: "ids" value: "_id"'), "nothing produces it"),
        (("b", IDS, IDS.replace("32", "64")), "gives INT32 (IDS), b takes INT64"),
        (
            ("b", f"{IDS} dims: [ -1 ]", f"{IDS} dims: [ -1, 3 ]"),
            "b takes [-1, -1, 3]",
        ),
        (("a", LEN, LEN.replace("1", "2")), "gives shape [-1, 2]"),
        (("e", 'input_map { key: "len" value: "_len" }', ""), "b needs its input 'len'"),
        (("e", 'key: "OUT" value: "answer"', 'key: "OUT" value: "other"'), "no step writes this output"),
        (("e", 'key: "LEN" value: "_len"', 'key: "LEN" value: "_ids"'), "a writes it, and a does, too"),
        (("e", 'key: "IDS" value: "_ids"', 'key: "IDS" value: "text"'), "and e does, too"),
        (
            ("e", TOKENS, f'{TOKENS} input_map {{ key: "SKIP" value: "seed" }}'),
            "step c mixes tensors of a decoupled",
        ),
        (("e", BATCH, "max_batch_size: 9"), "max_batch_size 9 is above that of step a (8)"),
        (("c", BATCH, "max_batch_size: 4"), "max_batch_size 8 is above that of step c (4)"),
        (("e", 'input_map { key: "seed" value: "seed" }', ""), "'seed': no step reads this input"),
        (("e", 'input_map { key: "len" value: "_len" }', ""), "'_len': a writes it, and nothing reads it"),
        (("e", 'output_map { key: "out" value: "_out" }', ""), "step b has no output_map"),
        (("e", 'input_map { key: "TEXT" value: "text" }', ""), "step a has no input_map"),
        (
            ("e", 'key: "TEXT" value: "text"', 'key: "TEXT" value: "answer"'),
            "step a waits for it in a circle",
        ),
        (("c", OUT, f"{OUT}, -1"), "(OUT), e takes"),
    ],
)
def test_each_mistake_is_named(change: tuple[str, str, str], message: str) -> None:
    faults = check(change)
    assert any(message in fault for fault in faults), faults


def test_batch_in_dims_against_batch_by_the_scheduler() -> None:
    """Server issue 1682: max_batch_size 0 and the batch in dims, before a model that has it from Triton."""
    faults = check(
        ("a", BATCH, NO_BATCH),
        ("a", 'IDS" data_type: TYPE_INT32 dims: [', 'IDS" data_type: TYPE_INT32 dims: [ 2, 3,'),
    )
    assert any("gives shape [2, 3, -1] (IDS), b takes [-1, -1]" in fault for fault in faults)


def test_triton_adds_the_batch_where_only_one_side_has_it() -> None:
    """core (ensemble_utils.cc) takes equal dims, or equal dims with their batch: 2.51 loads both."""
    assert check(("a", BATCH, NO_BATCH)) == []
    assert (
        check(
            ("a", BATCH, NO_BATCH),
            ("a", 'IDS" data_type: TYPE_INT32 dims: [', 'IDS" data_type: TYPE_INT32 dims: [ 4,'),
        )
        == []
    )


def test_steps_may_stand_in_any_order() -> None:
    head, *steps = ENSEMBLE.removesuffix("\n}").split("  step {")
    turned = "  step {".join([head, *reversed([step.rstrip() + "\n" for step in steps])]) + "}"
    assert check(("e", ENSEMBLE, turned)) == []


def test_a_reshape_is_between_a_model_and_its_backend_only() -> None:
    # b sees len as a scalar and its neighbours see [1]; an output of shape [] would not fit.
    assert check(("b", "reshape { shape: [ ] }", "")) == []
    assert check(("a", 'LEN" data_type: TYPE_INT32 dims: [ 1 ]', 'LEN" data_type: TYPE_INT32 dims: [ 1, 1 ]'))


def test_an_optional_input_may_stay_unmapped() -> None:
    seed = 'input { name: "seed" data_type: TYPE_UINT64 dims: [ 1 ] optional: true }\n'
    assert check(("e", seed, ""), ("e", 'input_map { key: "seed" value: "seed" }', "")) == []
