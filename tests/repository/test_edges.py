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
input { name: "skip" data_type: TYPE_BOOL dims: [ 1 ] optional: true }
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
            ("e", TOKENS, f'{TOKENS} input_map {{ key: "SKIP" value: "skip" }}'),
            "step c mixes tensors of a decoupled",
        ),
        (("e", BATCH, "max_batch_size: 9"), "max_batch_size 9 is above that of step a (8)"),
        (("c", BATCH, "max_batch_size: 4"), "max_batch_size 8 is above that of step c (4)"),
        (("a", BATCH, NO_BATCH), "e gives shape [-1, 1] (text), a takes [1] (TEXT)"),
        (("c", OUT, f"{OUT}, -1"), "(OUT), e takes"),
    ],
)
def test_each_mistake_is_named(change: tuple[str, str, str], message: str) -> None:
    faults = check(change)
    assert any(message in fault for fault in faults), faults


def test_batch_in_dims_against_batch_by_the_scheduler() -> None:
    # server issue 1682: one model has max_batch_size 0 and its batch in dims, the other has it from Triton.
    faults = check(
        ("a", "max_batch_size: 8", "max_batch_size: 0"),
        ("e", "max_batch_size: 8", "max_batch_size: 0"),
    )
    assert any("gives shape [-1] (IDS), b takes [-1, -1]" in fault for fault in faults)


def test_a_reshape_is_between_a_model_and_its_backend_only() -> None:
    # b sees len as a scalar and its neighbours see [1]; an output of shape [] would not fit.
    assert check(("b", "reshape { shape: [ ] }", "")) == []
    assert check(("a", 'LEN" data_type: TYPE_INT32 dims: [ 1 ]', 'LEN" data_type: TYPE_INT32 dims: [ 1, 1 ]'))


def test_an_optional_input_may_stay_unmapped() -> None:
    assert check(("e", 'input_map { key: "seed" value: "seed" }', "")) == []
