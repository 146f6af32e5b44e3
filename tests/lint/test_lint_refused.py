"""What Triton's own validation refuses (core, model_config_utils.cc), told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.lint_repo import found, write

from trtbuild.lint.run import lint

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


@pytest.mark.parametrize(
    ("text", "rule", "lines"),
    [
        ("sequence_batching { oldest {\npreferred_batch_size: [ 4, 8 ] } }\n", "batch-size", []),
        ("sequence_batching { oldest {\npreferred_batch_size: [ 4, 16 ] } }\n", "batch-size", [2]),
        ("sequence_batching { oldest {\npreferred_batch_size: 0 } }\n", "batch-size", [2]),
        ("sequence_batching { direct { minimum_slot_utilization: 0.5 } }\n", "sequence-batching", []),
        ("sequence_batching { direct { minimum_slot_utilization: 1.5 } }\n", "sequence-batching", [1]),
        ("sequence_batching { direct { minimum_slot_utilization: -0.5f } }\n", "sequence-batching", [1]),
        ('instance_group [ {\nprofile: [ "0" ] } ]\n', "tensorrt-only", [2]),
        (
            'input [ { name: "a" data_type: TYPE_INT32 dims: 1\nis_shape_tensor: true } ]\n',
            "tensorrt-only",
            [2],
        ),
        (
            'output [ { name: "a" data_type: TYPE_INT32 dims: 1 is_shape_tensor: false } ]\n',
            "tensorrt-only",
            [],
        ),
        (
            'input [ { name: "a" data_type: TYPE_FP32 format: FORMAT_NCHW\ndims: [ 3, 8, 8 ] } ]\n',
            "tensor-shape",
            [],
        ),
        (
            'input [ { name: "a" data_type: TYPE_FP32\nformat: FORMAT_NCHW dims: [ 8, 8 ] } ]\n',
            "tensor-shape",
            [2],
        ),
        ("model_metrics { metric_control [ {\n} ] }\n", "model-metrics", [1, 1]),
        (
            'model_metrics { metric_control { metric_identifier { family: "f" } histogram_options '
            "{ buckets: [ 1, 2 ] } } }\n",
            "model-metrics",
            [],
        ),
    ],
)
def test_more_of_the_validation(tmp_path, text, rule, lines):
    assert refused(tmp_path, text, rule) == lines


@pytest.mark.parametrize(
    ("profile", "lines"), [('[ "0", "12" ]', []), ('[ "fast" ]', [1]), ('[ "-1" ]', [1]), ('[ "${p}" ]', [])]
)
def test_profiles_are_numbers(tmp_path, profile, lines):
    text = f"instance_group [ {{ profile: {profile} }} ]\n"
    assert refused(tmp_path, text, "tensorrt-only", 'platform: "tensorrt_plan"\n') == lines


STATE = (
    'sequence_batching { state [ { input_name: "i" output_name: "o" data_type: TYPE_FP32 dims: [ 2, -1 ]\n'
)


@pytest.mark.parametrize(
    ("initial", "lines"),
    [
        ("", []),
        ('name: "z" data_type: TYPE_FP32 dims: [ 2, 3 ] zero_data: true', []),
        ('name: "z" data_type: TYPE_FP32 dims: [ 2, 3 ]\ndata_file: "six"', []),
        ('name: "z" data_type: TYPE_FP32 dims: [ 2, 4 ]\ndata_file: "six"', [3]),  # 32 bytes of 24
        ('name: "z" data_type: TYPE_FP32 dims: [ 2, 3 ]\ndata_file: "none"', [3]),
        ('name: "z" data_type: TYPE_FP32 dims: [ 2, 3 ]', [2]),
        ("data_type: TYPE_FP32 dims: [ 2, 3 ] zero_data: true", [2]),
        ('name: "z"\ndata_type: TYPE_INT32 dims: [ 2, 3 ] zero_data: true', [3]),
        ('name: "z" data_type: TYPE_FP32\ndims: [ 3, 3 ] zero_data: true', [3]),
        ('name: "z" data_type: TYPE_FP32\ndims: [ 2 ] zero_data: true', [3]),
        ('name: "z" data_type: TYPE_FP32\ndims: [ 2, -1 ] zero_data: true', [3]),
        ('name: "z" data_type: TYPE_FP32 dims: [ 2, ${n} ] zero_data: true', []),
    ],
)
def test_what_a_state_begins_with(tmp_path, initial, lines):
    (tmp_path / "m" / "initial_state").mkdir(parents=True)
    (tmp_path / "m" / "initial_state" / "six").write_bytes(bytes(24))  # 2 x 3 floats
    value = f"initial_state {{ {initial} }}" if initial else ""
    assert refused(tmp_path, f"{STATE}{value} }} ] }}\n", "sequence-batching") == lines


def test_a_state_begins_with_one_value(tmp_path):
    one = 'initial_state { name: "z" data_type: TYPE_FP32 dims: [ 2, 3 ] zero_data: true }\n'
    assert refused(tmp_path, f"{STATE}{one}{one} }} ] }}\n", "sequence-batching") == [3]


@pytest.mark.parametrize(
    ("versions", "severity"), [("[ 1 ]", None), ("[ 1, 3 ]", "warning"), ("[ 3 ]", "error")]
)
def test_versions_that_are_not_there(tmp_path, versions, severity):
    """core (model_lifecycle.cc) loads those of `specific` that are there; without any, none."""
    write(tmp_path, "m", HEAD + f"version_policy {{ specific {{ versions: {versions} }} }}\n")
    assert [(item.rule, item.severity) for item in lint(tmp_path)] == (
        [("no-version", severity)] if severity else []
    )


WARM = (
    'input [ { name: "a" data_type: TYPE_FP32 dims: [ 4, -1 ] },\n'
    '{ name: "b" data_type: TYPE_STRING dims: 1 optional: true } ]\n'
    'sequence_batching { control_input { name: "S" control { fp32_false_true: [ 0, 1 ] } } }\n'
    'model_warmup { name: "w" batch_size: %s %s }\n'
)


def sample(name: str, value: str) -> str:
    return f'\ninputs {{ key: "{name}" value {{ {value} }} }}'


GOOD = sample("a", "data_type: TYPE_FP32 dims: [ 4, 2 ] zero_data: true")


@pytest.mark.parametrize(
    ("size", "given", "lines"),
    [
        (1, GOOD, []),
        (1, GOOD + sample("S", "data_type: TYPE_FP32 dims: 1 zero_data: true"), []),  # Triton's own tensor
        (0, "", []),  # left out
        (1, "", [4]),
        (1, sample("b", "data_type: TYPE_STRING dims: 1 zero_data: true"), [4]),
        (1, GOOD + sample("c", "data_type: TYPE_FP32 dims: 1 zero_data: true"), [6]),
        (1, sample("a", "data_type: TYPE_INT32 dims: [ 4, 2 ] zero_data: true"), [5]),
        (1, sample("a", "dims: [ 4, 2 ] zero_data: true"), [5]),
        (1, sample("a", "data_type: TYPE_FP32 dims: [ 3, 2 ] zero_data: true"), [5]),
        (1, sample("a", "data_type: TYPE_FP32 dims: [ 1, 4, 2 ] zero_data: true"), [5]),
        (1, sample("a", "data_type: TYPE_FP32 dims: [ 4, -1 ] zero_data: true"), [5]),
        (1, sample("a", "data_type: TYPE_FP32 dims: [ 4, 2 ]"), [5]),
        (1, sample("a", 'data_type: TYPE_FP32 dims: [ 4, 2 ] input_data_file: "32"'), []),
        (1, sample("a", 'data_type: TYPE_FP32 dims: [ 4, 3 ] input_data_file: "32"'), [5]),  # 48 bytes
        (1, GOOD + sample("b", 'data_type: TYPE_STRING dims: 1 input_data_file: "text"'), []),
        (1, GOOD + sample("b", 'data_type: TYPE_STRING dims: 1 input_data_file: "32"'), []),  # empty texts
        (1, GOOD + sample("b", 'data_type: TYPE_STRING dims: 1 input_data_file: "plain"'), [6]),
    ],
)
def test_samples_of_a_warm_up(tmp_path, size, given, lines):
    """As tritonserver 2.51 answers to such samples."""
    folder = tmp_path / "m" / "warmup"
    folder.mkdir(parents=True)
    for name, data in {"32": bytes(32), "text": b"\5\0\0\0hello", "plain": b"hello"}.items():
        (folder / name).write_bytes(data)
    assert refused(tmp_path, WARM % (size, given), "warmup") == lines


TENSOR = "input [ {{\n{} }} ]\n"


@pytest.mark.parametrize(
    ("tensor", "backend", "lines"),
    [
        ('name: "a" data_type: TYPE_FP32 dims: 1', "tensorrtllm", []),
        ('name: "a" data_type: TYPE_FP32', "tensorrtllm", [2]),
        ('name: "a" dims: 1', "tensorrtllm", [2]),
        ('name: "a" dims: 1 data_type: TYPE_INVALID', "tensorrtllm", [2]),
        ('name: "a"', "onnxruntime", []),
        ("data_type: TYPE_FP32 dims: 1", "onnxruntime", [1]),
    ],
)
def test_what_a_tensor_needs(tmp_path, tensor, backend, lines):
    assert refused(tmp_path, TENSOR.format(tensor), "tensor-declaration", f'backend: "{backend}"\n') == lines


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("", [2]),
        ("    @staticmethod\n    def auto_complete_config(c):\n        return c\n", []),  # it may add them
    ],
)
def test_a_python_model_may_complete_its_tensors(tmp_path, body, lines):
    code = "class TritonPythonModel:\n    def execute(self, requests): ...\n" + body
    write(tmp_path, "m", 'input [ {\nname: "a" } ]\nbackend: "python"\n', {"1/model.py": code})
    assert [line for rule, _, line in found(tmp_path) if rule == "tensor-declaration"] == lines


@pytest.mark.parametrize(
    ("method", "line"),
    [
        ("def initialize(self, args): ...", 0),
        ("def initialize(self, *more): ...", 0),
        ("def initialize(self, args, verbose=False): ...", 0),
        ("def initialize(self): ...", 2),
        ("def initialize(self, args, verbose): ...", 2),
        ("def auto_complete_config(config): return config", 0),
        ("def auto_complete_config(self, config): return config", 2),
        ("@staticmethod\n    def auto_complete_config(): return {}", 3),
        ("@classmethod\n    def auto_complete_config(cls, config): ...", 0),
        ("@staticmethod\n    def auto_complete_config(config): config.set_max_batch_size(4)", 3),
    ],
)
def test_methods_that_the_python_backend_cannot_call(tmp_path, method, line):
    write(tmp_path, "m", 'backend: "python"\n', {"1/model.py": f"class TritonPythonModel:\n    {method}\n"})
    assert found(tmp_path) == ([("python-model", "m/1/model.py", line)] if line else [])


@pytest.mark.parametrize(
    ("dims", "lines"), [("[ 1 ]", []), ("[ 1, 2 ]", []), ("[ 1, ]", [1]), ("[ 1 2 ]", [1]), ("[ , 1 ]", [1])]
)
def test_commas_in_a_list(tmp_path, dims, lines):
    text = f'input [ {{ name: "a" data_type: TYPE_FP32 dims: {dims} }} ]\n'
    assert refused(tmp_path, text, "syntax") == lines
    assert refused(tmp_path, text.replace(" } ]", " }, ]"), "syntax") == [1]


@pytest.mark.parametrize(
    ("version", "lines"), [("model_version: -1", []), ("model_version: 1", []), ("", [4])]
)
def test_a_step_without_a_version_asks_for_0(tmp_path, version, lines):
    write(tmp_path, "x", TENSORS, {})
    text = (
        'input [ { name: "i" data_type: TYPE_FP32 dims: 1 } ]\n'
        'output [ { name: "o" data_type: TYPE_FP32 dims: 1 } ]\n'
        "ensemble_scheduling { step [ {\n"
        f'model_name: "x" {version}\n'
        'input_map { key: "I" value: "i" } output_map { key: "O" value: "o" } } ] }\n'
    )
    assert refused(tmp_path, text, "ensemble-edge", 'platform: "ensemble" max_batch_size: 8\n') == lines


def test_the_graph_of_an_ensemble_is_told_where_steps_are_unknown(tmp_path):
    write(tmp_path, "x", 'backend: "onnxruntime"\n')  # its tensors are in its file
    text = (
        'input [ { name: "i" data_type: TYPE_FP32 dims: 1 },\n'
        '{ name: "unused" data_type: TYPE_FP32 dims: 1 } ]\n'
        'output [ { name: "o" data_type: TYPE_FP32 dims: 1 } ]\n'
        'ensemble_scheduling { step [ { model_name: "x" model_version: -1\n'
        'input_map { key: "I" value: "i" } output_map { key: "O" value: "o" }\n'
        'output_map { key: "P" value: "unread" } } ] }\n'
    )
    assert refused(tmp_path, text, "ensemble-edge", 'platform: "ensemble"\n') == [2, 6]


def test_labels_lie_in_the_model_folder(tmp_path):
    text = 'output [ { name: "o"\nlabel_filename: "labels.txt" } ]\n'
    assert refused(tmp_path, text, "model-file") == [2]
    (tmp_path / "m" / "labels.txt").write_text("cat\n")
    assert refused(tmp_path, text, "model-file") == []


@pytest.mark.parametrize(
    ("policy", "lines"),
    [
        ("latest { num_versions: 1 }", []),
        ("latest { num_versions: ${n} }", []),
        ("", []),
        ("all { }", []),
        ("latest { }", [1]),
        ("latest { num_versions: 0 }", [1]),
        ("specific { }", [1]),
    ],
)
def test_a_policy_that_loads_nothing(tmp_path, policy, lines):
    assert refused(tmp_path, f"version_policy {{ {policy} }}\n", "no-version") == lines


def test_an_ensemble_has_no_optimization(tmp_path):
    text = f"{STEPS}optimization {{ eager_batching: true }}\n"
    assert refused(tmp_path, text, "platform-name", 'platform: "ensemble"\n') == [2]


@pytest.mark.parametrize(
    ("text", "lines"), [("priority: PRIORITY_MAX,", []), ("priority: PRIORITY_MAX;,", [1]), (",", [1])]
)
def test_one_separator_behind_a_field(tmp_path, text, lines):
    assert refused(tmp_path, f"optimization {{ {text} }};\n", "syntax") == lines


def test_an_environment_in_the_model_folder(tmp_path):
    value = '"$$TRITON_MODEL_DIRECTORY/env.tar.gz"'
    text = f'parameters {{ key: "EXECUTION_ENV_PATH"\nvalue {{ string_value: {value} }} }}\n'
    assert refused(tmp_path, text, "model-file", 'backend: "python"\n') == [2]
    (tmp_path / "m" / "env.tar.gz").write_bytes(b"")
    assert refused(tmp_path, text, "model-file", 'backend: "python"\n') == []


@pytest.mark.parametrize(
    ("name", "lines"),
    [("20240101120000", []), ("9223372036854775807", []), ("9223372036854775808", [0]), ("9" * 23, [0])],
)
def test_a_version_that_64_bits_cannot_hold(tmp_path, name, lines):
    """tritonserver 2.51 ends with std::out_of_range, also where there is another version."""
    write(tmp_path, "m", HEAD)
    (tmp_path / "m" / name).mkdir()
    errors = [item for item in lint(tmp_path) if item.severity == "error"]
    assert [(item.rule, item.place.line) for item in errors] == [("version-name", line) for line in lines]
