"""What Triton's own validation refuses (core, model_config_utils.cc), told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.lint_repo import found, write

HEAD = 'backend: "identity"\nmax_batch_size: 8\n'


def refused(repo: Path, text: str, rule: str, head: str = HEAD) -> list[int]:
    """The lines, counted within ``text``, at which a rule speaks of a config of the two; -1: of the file."""
    write(repo, "m", head + text)
    return [line - head.count("\n") for name, _, line in found(repo) if name == rule]


@pytest.mark.parametrize(
    ("policy", "lines"),
    [
        ("priority_levels: 3", [2]),
        ("priority_levels: 3\ndefault_priority_level: 0", [3]),
        ("priority_levels: 3\ndefault_priority_level: 4", [3]),
        ("priority_levels: 3\ndefault_priority_level: 2", []),
        ("priority_levels: 2\ndefault_priority_level: 1\npreserve_ordering: true", [2]),
        ("priority_levels: 1\ndefault_priority_level: 1\npreserve_ordering: true", []),
        ("priority_levels: 2 default_priority_level: 1\npriority_queue_policy { key: 3 value { } }", [3]),
        ("priority_levels: 2 default_priority_level: 1\npriority_queue_policy { key: 0 value { } }", [3]),
        (
            "preserve_ordering: true\ndefault_queue_policy { default_timeout_microseconds: 9\n"
            "timeout_action: DELAY }",
            [4],
        ),
        (
            "preserve_ordering: true priority_levels: 1 default_priority_level: 1\npriority_queue_policy {\n"
            "key: 1 value { default_timeout_microseconds: 9\ntimeout_action: 1 } }",
            [5],
        ),
        ("preserve_ordering: true\ndefault_queue_policy { timeout_action: DELAY }", []),
        ("preserve_ordering: false\npriority_levels: 2 default_priority_level: 1", []),
        ("priority_levels: ${levels}\ndefault_priority_level: ${level}\npreserve_ordering: true", []),
    ],
)
def test_queue_settings_that_exclude_each_other(tmp_path, policy, lines):
    assert refused(tmp_path, f"dynamic_batching {{\n{policy}\n}}\n", "queue-policy") == lines


def tensor(dims: str, reshape: str) -> str:
    return f'input [ {{ name: "a" data_type: TYPE_FP32 dims: {dims}\nreshape {{ shape: {reshape} }} }} ]\n'


@pytest.mark.parametrize(
    ("dims", "reshape", "lines"),
    [
        ("[ 2, 6 ]", "[ 3, 4 ]", []),
        ("[ 2, 6 ]", "[ 3, 5 ]", [2]),
        ("[ 1 ]", "[ ]", []),
        ("[ 2 ]", "[ ]", [2]),
        ("[ -1 ]", "[ ]", [2]),
        ("[ -1, 4 ]", "[ -1, 2, 2 ]", []),
        ("[ -1, 4 ]", "[ -1, 5 ]", [2]),
        ("[ -1, 4 ]", "[ 4, -1 ]", [2]),  # the elements stand on the other side of the free dimension
        ("[ -1, 4 ]", "[ -1, -1, 4 ]", [2]),
        ("[ 4 ]", "[ -1 ]", [2]),
        ("[ 4 ]", "[ 0, 4 ]", [2]),
        ("[ ${n} ]", "[ 4 ]", []),
    ],
)
def test_reshapes(tmp_path, dims, reshape, lines):
    assert refused(tmp_path, tensor(dims, reshape), "tensor-shape") == lines


@pytest.mark.parametrize(
    ("head", "lines"),
    [
        ('backend: "identity"\nmax_batch_size: 0\n', [2]),
        ('backend: "identity"\nmax_batch_size: 1\n', []),
        ('backend: "tensorrtllm"\n', [2]),
        ('backend: "onnxruntime"\n', []),  # the backend may complete max_batch_size
        ('backend: "identity"\nmax_batch_size: ${n}\n', []),
    ],
)
def test_scalars_need_a_batch(tmp_path, head, lines):
    assert refused(tmp_path, tensor("[ 1 ]", "[ ]"), "tensor-shape", head) == lines


TENSORS = (
    HEAD + 'input [ { name: "I" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
    'output [ { name: "O" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
)
COUNT = 'batch_input [ {\nkind: BATCH_ELEMENT_COUNT target_name: "N"\n'
SCATTER = "batch_output [ {\nkind: BATCH_SCATTER_WITH_INPUT_SHAPE\n"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (COUNT + 'data_type: TYPE_FP32 source_input: "I" } ]\n', []),
        (COUNT + "data_type: TYPE_FP32 } ]\n", [1]),
        (COUNT + 'data_type: TYPE_FP32 source_input: "I"\nsource_input: "I" } ]\n', [4]),
        (COUNT + 'data_type: TYPE_FP32 source_input: "X" } ]\n', [3]),
        (COUNT + 'data_type: TYPE_INT64 source_input: "I" } ]\n', [3]),
        (SCATTER + 'source_input: "I" target_name: "O" } ]\n', []),
        (SCATTER + 'source_input: "O" target_name: "O" } ]\n', [3]),
        (SCATTER + 'source_input: "I"\ntarget_name: "I" } ]\n', [4]),
        (SCATTER + 'source_input: "I"\ntarget_name: "O"\ntarget_name: "O" } ]\n', [5]),
    ],
)
def test_batch_inputs_and_outputs(tmp_path, text, lines):
    assert refused(tmp_path, text, "batch-tensors", TENSORS) == lines


def test_batch_inputs_of_tensors_that_the_backend_declares(tmp_path):
    assert refused(tmp_path, COUNT + 'data_type: TYPE_FP32 source_input: "I" } ]\n', "batch-tensors") == []


def control(name: str, kind: str, values: str) -> str:
    return f'{{ name: "{name}"\ncontrol [ {{ kind: CONTROL_SEQUENCE_{kind} {values} }} ] }}'


START = control("S", "START", "fp32_false_true: [ 0, 1 ]")


@pytest.mark.parametrize(
    ("controls", "lines"),
    [
        ([START, control("E", "END", "int32_false_true: [ 0, 1 ]")], []),
        ([START, control("R", "READY", "bool_false_true: [ false, true ]")], []),
        ([START, control("C", "CORRID", "data_type: TYPE_UINT64")], []),
        ([START, control("T", "START", "fp32_false_true: [ 0, 1 ]")], [5]),
        ([START, control("S", "END", "fp32_false_true: [ 0, 1 ]")], [4]),
        ([control("", "START", "fp32_false_true: [ 0, 1 ]")], [2]),
        ([control("S", "START", "")], [3]),
        ([control("S", "START", "fp32_false_true: [ 0 ]")], [3]),
        ([control("S", "START", "fp32_false_true: [ 0, 1 ] int32_false_true: [ 0, 1 ]")], [3]),
        ([control("C", "CORRID", "")], [3]),
        ([control("C", "CORRID", "data_type: TYPE_FP32")], [3]),
        ([control("C", "CORRID", "data_type: TYPE_UINT64 int32_false_true: [ 0, 1 ]")], [3]),
    ],
)
def test_controls_of_a_sequence_batcher(tmp_path, controls, lines):
    text = "sequence_batching { control_input [\n" + ",\n".join(controls) + "\n] }\n"
    assert refused(tmp_path, text, "sequence-controls") == lines


STEPS = 'ensemble_scheduling { step [ { model_name: "x" } ] }\n'


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('platform: "onnxruntime_onnx"\n', []),
        ('backend: "onnxruntime"\nplatform: "onnxruntime_onnx"\n', []),
        ('backend: "python"\nplatform: "my_own"\n', []),  # backends that the core does not know have any
        ('backend: "pytorch"\nplatform: "torch_aoti"\n', []),
        ('platform: "ensemble"\n' + STEPS, []),
        ('platform: "${platform}"\n' + STEPS, []),
        ('platform: "onnx"\n', [1]),
        ('platform: "Ensemble"\n' + STEPS, [2, 1]),
        ('backend: "onnxruntime"\nplatform: "tensorrt_plan"\n', [2]),
        ('platform: "ensemble"\nbackend: "python"\n' + STEPS, [2]),
        ('platform: "ensemble"\n', [1]),
        ('backend: "ensemble"\n' + STEPS, [1]),
        ('backend: "python"\n' + STEPS, [2]),
        (STEPS, [1]),
    ],
)
def test_platforms(tmp_path, text, lines):
    assert sorted(refused(tmp_path, text, "platform-name", "")) == sorted(lines)


@pytest.mark.parametrize(
    ("runtime", "lines"),
    [
        ("libtriton_own.so", []),
        ("model.py", []),
        ("../../evil/libtriton_x.so", [1]),
        ("/opt/libtriton_x.so", [1]),
        ("sub/libtriton_x.so", [1]),
        ("here/libtriton_x.so", []),
    ],
)
def test_a_runtime_is_a_name(tmp_path, runtime, lines):
    (tmp_path / "m" / "here").mkdir(parents=True)
    (tmp_path / "m" / "here" / "libtriton_x.so").write_bytes(b"")
    assert refused(tmp_path, f'runtime: "{runtime}"\n', "runtime-name") == lines


def test_gpus_are_counted_from_0(tmp_path):
    assert refused(tmp_path, "instance_group [ { kind: KIND_GPU\ngpus: [ 0, -1 ] } ]\n", "gpus-ignored") == [
        2
    ]
    assert refused(tmp_path, "instance_group [ { kind: KIND_GPU\ngpus: [ 0, 1 ] } ]\n", "gpus-ignored") == []
