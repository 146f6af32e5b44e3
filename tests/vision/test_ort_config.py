"""The local onnxruntime backend's reading of a configuration, against a graph's tensors."""

from __future__ import annotations

from typing import Any

import pytest

from trtbuild.serve.local.onnxruntime.graph import ConfigError, GraphTensor, check, completed
from trtbuild.serve.local.onnxruntime.options import (
    providers,
    refuse_unsupported,
    run_options,
    session_options,
    without_effect,
)

IMAGE = GraphTensor("image", "TYPE_FP32", (-1, 3, -1, 224))
LOGITS = GraphTensor("logits", "TYPE_FP32", (-1, 1000))
FEATURES = GraphTensor("features", "TYPE_FP32", (-1, 64))


def tensor(name: str, data_type: str, *dims: int) -> dict[str, Any]:
    return {"name": name, "data_type": data_type, "dims": [str(dim) for dim in dims]}


def config(**changes: Any) -> dict[str, Any]:
    return {
        "max_batch_size": 8,
        "input": [tensor("image", "TYPE_FP32", 3, -1, 224)],
        "output": [tensor("logits", "TYPE_FP32", 1000)],
        **changes,
    }


def test_a_fitting_configuration_may_leave_outputs_out() -> None:
    check(config(), [IMAGE], [LOGITS, FEATURES])
    check(
        config(
            max_batch_size=0,
            input=[tensor("image", "TYPE_FP32", -1, 3, -1, 224)],
            output=[tensor("logits", "TYPE_FP32", -1, 1000)],
        ),
        [IMAGE],
        [LOGITS],
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input": [tensor("picture", "TYPE_FP32", 3, -1, 224)]}, "no input 'picture'; its inputs are image"),
        ({"output": [tensor("classes", "TYPE_FP32", 1000)]}, "no output 'classes'"),
        ({"input": [tensor("image", "TYPE_UINT8", 3, -1, 224)]}, "TYPE_UINT8 in config.pbtxt and TYPE_FP32"),
        ({"input": [tensor("image", "TYPE_FP32", 3, -1, 256)]}, r"dims \[3, -1, 256\]"),
        ({"input": [tensor("image", "TYPE_FP32", 224)]}, "dims"),
        ({"max_batch_size": 0}, "dims"),
        ({"input": []}, r"also needs the input\(s\) image"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(config(**changes), [IMAGE], [LOGITS])


def test_a_fixed_batch_of_1_is_explained() -> None:
    fixed = GraphTensor("image", "TYPE_FP32", (1, 3, 224, 224))
    with pytest.raises(
        ConfigError, match=r"fixed first dimension of 1 .* free batch dimension, or set max_batch_size"
    ):
        check(config(), [fixed], [LOGITS])


def test_reshape_is_what_the_graph_sees() -> None:
    entry = {**tensor("image", "TYPE_FP32", 1), "reshape": {"shape": []}}
    check(config(input=[entry]), [GraphTensor("image", "TYPE_FP32", (-1,))], [LOGITS])


def test_completion_batches_where_every_tensor_has_a_free_first_dimension() -> None:
    assert completed([IMAGE], [LOGITS]) == {
        "max_batch_size": 4,
        "input": [{"name": "image", "data_type": "TYPE_FP32", "dims": [3, -1, 224]}],
        "output": [{"name": "logits", "data_type": "TYPE_FP32", "dims": [1000]}],
    }
    whole = completed([IMAGE], [GraphTensor("sum", "TYPE_FP32", (1,))])
    assert (whole["max_batch_size"], whole["input"][0]["dims"]) == (0, [-1, 3, -1, 224])


def parameters(**values: str) -> dict[str, Any]:
    return config(parameters={key: {"string_value": value} for key, value in values.items()})


def test_thread_parameters_reach_the_session() -> None:
    options = session_options(
        parameters(intra_op_thread_count="3", inter_op_thread_count="2", execution_mode="1")
    )
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (3, 2)
    assert options.execution_mode.name == "ORT_PARALLEL"


def test_memory_parameters_and_graph_level_reach_the_session() -> None:
    given = parameters(enable_mem_arena="0", enable_mem_pattern="false")
    options = session_options({**given, "optimization": {"graph": {"level": 2}}})
    assert (options.enable_cpu_mem_arena, options.enable_mem_pattern) == (False, False)
    assert options.graph_optimization_level.name == "ORT_DISABLE_ALL"
    assert session_options(config()).graph_optimization_level.name == "ORT_ENABLE_ALL"


def test_arena_shrinkage_is_a_run_option() -> None:
    key = "memory.enable_memory_arena_shrinkage"
    assert run_options(config()) is None
    assert run_options(parameters(**{key: "cpu:0"})).get_run_config_entry(key) == "cpu:0"


@pytest.mark.parametrize(
    ("name", "value"),
    [("intra_op_thread_count", "many"), ("execution_mode", "2"), ("enable_mem_arena", "maybe")],
)
def test_a_value_that_means_nothing_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        session_options(parameters(**{name: value}))


def test_gpu_settings_are_accepted_and_named() -> None:
    accelerated = parameters(gpu_mem_limit="1000", arena_extend_strategy="1")
    accelerated["optimization"] = {
        "execution_accelerators": {"gpu_execution_accelerator": [{"name": "tensorrt"}]}
    }
    assert without_effect(accelerated) == [
        "gpu_mem_limit",
        "arena_extend_strategy",
        "gpu_execution_accelerator tensorrt",
    ]
    assert providers(accelerated) == ["CPUExecutionProvider"]


@pytest.mark.parametrize("name", ["openvino", "magic"])
def test_a_cpu_accelerator_that_is_not_there_is_refused(name: str) -> None:
    accelerators = {"cpu_execution_accelerator": [{"name": name}]}
    with pytest.raises(ConfigError, match=name):
        providers(config(optimization={"execution_accelerators": accelerators}))


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({}, "GPU", "KIND_GPU"),
        ({"sequence_batching": {"direct": {}}}, "CPU", "sequence_batching"),
        ({"batch_input": [{"kind": "BATCH_ELEMENT_COUNT"}]}, "CPU", "batch_input"),
        ({"model_operations": {"op_library_filename": ["ops.so"]}}, "CPU", "custom operator"),
        ({"input": [{**tensor("image", "TYPE_FP32", -1), "allow_ragged_batch": True}]}, "CPU", "ragged"),
    ],
)
def test_what_the_local_backend_cannot_do_is_refused(
    changes: dict[str, Any], kind: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        refuse_unsupported(config(**changes), kind)
    refuse_unsupported(config(), "CPU")
