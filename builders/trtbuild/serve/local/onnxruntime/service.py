"""Triton's entry into the backend: one session an instance, every instance a process of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from .batching import Ask, answers
from .graph import ConfigError, GraphTensor, check, completed
from .options import providers, refuse_unsupported, run_options, session_options, without_effect


class TritonPythonModel:
    """One instance of an ONNX model."""

    @staticmethod
    def auto_complete_config(auto_complete_model_config: Any) -> Any:
        """Fills in tensors and batching out of the graph where the configuration names none."""
        config = auto_complete_model_config.as_dict()
        if config.get("input") and config.get("output"):
            return auto_complete_model_config
        session = _session(config, _model_file(Path(pb_utils.get_model_dir()), config))
        found = completed(_tensors(session.get_inputs()), _tensors(session.get_outputs()))
        if not config.get("max_batch_size") and found["max_batch_size"]:
            auto_complete_model_config.set_max_batch_size(found["max_batch_size"])
            auto_complete_model_config.set_dynamic_batching()
        for entry in found["input"] if not config.get("input") else ():
            auto_complete_model_config.add_input(entry)
        for entry in found["output"] if not config.get("output") else ():
            auto_complete_model_config.add_output(entry)
        return auto_complete_model_config

    def initialize(self, args: dict[str, str]) -> None:
        """Opens the session and compares the graph with the configuration.

        Raises:
            pb_utils.TritonModelException: the file, the graph or the configuration cannot be served.
        """
        config = json.loads(args["model_config"])
        folder = Path(args["model_repository"]) / args["model_version"]
        try:
            refuse_unsupported(config, args["model_instance_kind"])
            self._session = _session(config, _model_file(folder, config))
            check(config, _tensors(self._session.get_inputs()), _tensors(self._session.get_outputs()))
            self._run_options = run_options(config)
        except ConfigError as error:
            raise pb_utils.TritonModelException(f"model {args['model_name']}: {error}") from error
        self._inputs = tuple(entry["name"] for entry in config["input"])
        self._batched = int(config["max_batch_size"]) > 0
        if unused := without_effect(config):
            pb_utils.Logger.log_info(f"{args['model_name']}: without effect on a CPU: {', '.join(unused)}")

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answers all requests of a batch; one that cannot be run fails alone."""
        asks = [self._ask(request) for request in requests]
        return [_response(result) for result in answers(asks, self._run, batched=self._batched)]

    def _ask(self, request: Any) -> Ask:
        inputs = {
            name: _from_triton(pb_utils.get_input_tensor_by_name(request, name).as_numpy())
            for name in self._inputs
        }
        return Ask(inputs, tuple(request.requested_output_names()))

    def _run(self, names: Any, inputs: Any) -> Any:
        return self._session.run(names, inputs, self._run_options)


def _session(config: Any, file: Path) -> Any:
    import onnxruntime

    if not file.is_file():
        raise ConfigError(f"{file} is missing")
    try:
        return onnxruntime.InferenceSession(str(file), session_options(config), providers=providers(config))
    except ConfigError:
        raise
    except Exception as error:  # onnxruntime's own exceptions share no base
        raise ConfigError(f"{file.name} cannot be loaded: {error}") from error


def _model_file(folder: Path, config: Any) -> Path:
    path = folder / (config.get("default_model_filename") or "model.onnx")
    return path / "model.onnx" if path.is_dir() else path


def _tensors(arguments: Any) -> list[GraphTensor]:
    return [GraphTensor.of(argument) for argument in arguments]


def _from_triton(array: Any) -> Any:
    """Triton's strings are bytes, onnxruntime's are str."""
    if array.dtype != np.object_:
        return array
    return np.array([item.decode("utf-8") for item in array.ravel()], dtype=np.object_).reshape(array.shape)


def _to_triton(array: Any) -> Any:
    if array.dtype != np.object_ and array.dtype.kind != "U":
        return np.ascontiguousarray(array)
    return np.array([str(item).encode("utf-8") for item in array.ravel()], dtype=np.object_).reshape(
        array.shape
    )


def _response(result: Any) -> Any:
    if isinstance(result, Exception):
        return pb_utils.InferenceResponse(
            error=pb_utils.TritonError(str(result), pb_utils.TritonError.INVALID_ARG)
        )
    tensors = [pb_utils.Tensor(name, _to_triton(array)) for name, array in result.items()]
    return pb_utils.InferenceResponse(output_tensors=tensors)
