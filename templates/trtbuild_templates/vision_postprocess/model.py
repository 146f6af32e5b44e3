"""A network's outputs to the pipeline's answers, a batch at a time (Triton's Python backend).

Inputs: ``raw_0``, ``raw_1``, …: the network's outputs in the order in which the plan names them;
``geometry`` and ``error`` as pre-processing gave them. Outputs: those of the task, ``picture_size`` INT32[2]
(width and height of the upright picture) and ``error`` STRING[1]. A request without one good answer is an
error.

Parameters of the config: see ``settings.py``. ``labels.txt`` beside this file names the classes, one a line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import triton_python_backend_utils as pb_utils

if TYPE_CHECKING:
    from trtbuild_templates.faults import told
else:
    from .faults import told

from .answers import answers
from .settings import Settings


class TritonPythonModel:
    """One instance."""

    def initialize(self, args: dict[str, str]) -> None:
        """Reads the parameters and the labels.

        Raises:
            pb_utils.TritonModelException: one is missing or is none.
        """
        config = json.loads(args["model_config"])
        parameters = {key: value["string_value"] for key, value in config["parameters"].items()}
        file = Path(args["model_repository"]) / args["model_version"] / "labels.txt"
        try:
            labels = file.read_bytes().splitlines() if file.is_file() else ()
            self._settings = Settings.of(parameters, labels)
        except KeyError as error:
            raise pb_utils.TritonModelException(f"config.pbtxt lacks the parameter {error}") from error
        except (OSError, ValueError) as error:
            raise pb_utils.TritonModelException(f"{args['model_name']} cannot start: {error}") from error
        inputs = {entry["name"] for entry in config["input"]}
        self._raw = [f"raw_{i}" for i in range(len(inputs)) if f"raw_{i}" in inputs]

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answers all requests of a batch together where their shapes allow it; a bad one spoils no other."""
        inputs = [self._inputs(request) for request in requests]
        groups: dict[Any, list[int]] = {}
        for i, arrays in enumerate(inputs):
            groups.setdefault(tuple(array.shape[1:] for array in arrays), []).append(i)
        responses: list[Any] = [None] * len(requests)
        for members in groups.values():
            joined = [np.concatenate(column) for column in zip(*(inputs[i] for i in members), strict=True)]
            stops = np.cumsum([len(inputs[i][-1]) for i in members]).tolist()
            try:
                made = answers(joined[:-2], joined[-2], joined[-1], self._settings)
            except Exception as error:  # of these requests; others of the batch may have other shapes
                message = told("post-processing failed", error, pb_utils)
                for i in members:
                    responses[i] = _error(message, pb_utils.TritonError.INTERNAL)
                continue
            for i, stop in zip(members, stops, strict=True):
                start = stop - len(inputs[i][-1])
                responses[i] = _response({name: array[start:stop] for name, array in made.items()})
        return responses

    def _inputs(self, request: Any) -> list[Any]:
        names = [*self._raw, "geometry", "error"]
        return [pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in names]


def _response(arrays: dict[str, Any]) -> Any:
    errors = arrays["error"][:, 0]
    if len(errors) and all(errors):
        return _error(errors[0].decode("utf-8"), pb_utils.TritonError.INTERNAL)
    if "count" in arrays:  # as many rows as this request's fullest picture has
        most = int(arrays["count"].max(initial=0))
        rows = ("box", "score", "class_id", "label", "mask")
        arrays = {name: array[:, :most] if name in rows else array for name, array in arrays.items()}
    tensors = [pb_utils.Tensor(name, np.ascontiguousarray(array)) for name, array in arrays.items()]
    return pb_utils.InferenceResponse(output_tensors=tensors)


def _error(message: str, code: int) -> Any:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, code))
