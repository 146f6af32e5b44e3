"""vLLM models: what their backend (vllm_backend, src/model.py) and vLLM's AsyncEngineArgs refuse."""

from __future__ import annotations

import pytest
from tests.support.lint_repo import found, only, write

from trtbuild.lint.run import lint

CONFIG = 'backend: "vllm"\n'
ARGS = '{\n"model": "facebook/opt-125m"%s\n}\n'
FILE = "v/1/model.json"


@pytest.mark.parametrize(
    "more",
    [
        ', "gpu_memory_utilization": 0.5, "enforce_eager": true',
        ', "seed": 7, "max_logprobs": 5, "dtype": "float16", "an_argument_of_a_later_version": 1',
        ', "tensor_parallel_size": 2',
    ],
)
def test_arguments_of_the_engine_are_no_finding(tmp_path, more):
    write(tmp_path, "v", CONFIG, {"1/model.json": ARGS % more})
    assert found(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (ARGS % ',\n"temperature": 0.7', 3),
        (ARGS % ',\n"max_new_tokens": 64', 3),
        (ARGS % ',\n"gpu-memory-utilization": 0.5', 3),
        (ARGS % ',\n"gpu_memory_utilization": 90', 3),
        (ARGS % ',\n"gpu_memory_utilization": 0', 3),
        (ARGS % ',\n"dtype": "auto",', 4),  # JSON has no comma before a brace
        ("\ufeff" + ARGS % "", 1),  # Python's json refuses a byte order mark
        ("[]\n", 0),
        ("[" * 100_000, 0),
    ],
)
def test_arguments_that_end_the_load(tmp_path, text, line):
    write(tmp_path, "v", CONFIG, {"1/model.json": text})
    finding = only(tmp_path)
    assert (finding.rule, finding.severity) == ("vllm-config", "error")
    assert (finding.place.file, finding.place.line) == (FILE, line)


def test_a_model_that_is_not_named_is_the_default(tmp_path):
    write(tmp_path, "v", CONFIG, {"1/model.json": '{ "dtype": "auto" }'})
    finding = only(tmp_path)
    assert (finding.rule, finding.severity) == ("vllm-config", "warning")


@pytest.mark.parametrize(
    ("more", "lines"),
    [
        ("max_batch_size: 0\n", []),
        ("max_batch_size: 64\n", [2]),
        ("model_transaction_policy { decoupled: True }\n", []),
        ("model_transaction_policy { decoupled: false }\n", [2]),
    ],
)
def test_what_the_backend_sets_itself(tmp_path, more, lines):
    write(tmp_path, "v", CONFIG + more, {"1/model.json": ARGS % ""})
    assert [line for rule, _, line in found(tmp_path) if rule == "vllm-config"] == lines


@pytest.mark.parametrize(
    ("kind", "sizes", "lines"),
    [
        ("KIND_GPU", "", []),
        ("KIND_GPU", ', "tensor_parallel_size": 2', [2]),
        ("KIND_GPU", ', "pipeline_parallel_size": 4', [2]),
        ("KIND_MODEL", ', "tensor_parallel_size": 2', []),
    ],
)
def test_several_gpus_take_kind_model(tmp_path, kind, sizes, lines):
    text = f"{CONFIG}instance_group [ {{ count: 1 kind: {kind} }} ]\n"
    write(tmp_path, "v", text, {"1/model.json": ARGS % sizes})
    assert [line for rule, _, line in found(tmp_path) if rule == "vllm-config"] == lines


def test_a_share_counts_on_every_gpu_of_a_model(tmp_path):
    write(tmp_path, "a", CONFIG, {"1/model.json": ARGS % ', "tensor_parallel_size": 2'})
    group = "instance_group [ { kind: KIND_GPU gpus: 1 } ]\n"
    write(tmp_path, "b", CONFIG + group, {"1/model.json": ARGS % ', "gpu_memory_utilization": 0.2'})
    assert [(item.rule, item.found) for item in lint(tmp_path)] == [
        ("kv-fraction-shared", "gpu_memory_utilization of 2 vLLM models on GPU 1 adds up to 1.10")
    ]


@pytest.mark.parametrize(
    ("policy", "shared"),
    [
        ("", False),
        ("latest { num_versions: 2 }", True),
        ("all { }", True),
        ("specific { versions: 1 }", False),
    ],
)
def test_a_share_counts_for_the_versions_that_are_loaded(tmp_path, policy, shared):
    files = {f"{version}/model.json": ARGS % ', "gpu_memory_utilization": 0.6' for version in (1, 2)}
    write(tmp_path, "v", CONFIG + (f"version_policy {{ {policy} }}\n" if policy else ""), files)
    assert [rule for rule, _, _ in found(tmp_path)] == ["kv-fraction-shared"] * shared
