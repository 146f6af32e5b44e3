"""Reads the text of a picture: one encoded picture in, its lines out (Triton's Python backend).

Input ``image`` STRING[1]: the bytes of a JPEG, PNG, WebP, GIF, BMP or TIFF. Outputs ``text`` STRING[n],
``score`` FP32[n] and ``box`` FP32[n, 4, 2]: n lines in reading order; a picture without text gives n = 0.
A picture that cannot be read is an error of its own request.

Parameters of the config: ``det_model``, ``cls_model``, ``rec_model`` and for each of the three ``_input``,
``_outputs`` (names, separated by commas) and ``_max_batch_size``; ``max_picture_pixels``; and, where the
networks were planned for other sizes than the defaults, ``map_pixels`` and ``line_width``. The file
``characters.txt`` beside this one is the recogniser's alphabet, one character a line.
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

from .networks import Cancelled, NetworkError, TritonNetworks
from .picture import PictureError, decode
from .reader import Line, Reader, Settings

_WORKING_PIXELS = (
    1 << 24
)  # of the picture that lines are cut from: four letters' pixels to one of the detector's


class TritonPythonModel:
    """The front of one instance; it reads one picture at a time."""

    def initialize(self, args: dict[str, str]) -> None:
        """Reads the parameters and the alphabet.

        Raises:
            pb_utils.TritonModelException: a parameter or the alphabet is missing.
        """
        config = json.loads(args["model_config"])
        parameters = {key: value["string_value"] for key, value in config["parameters"].items()}
        alphabet = Path(args["model_repository"]) / args["model_version"] / "characters.txt"
        try:
            self._max_pixels = int(parameters["max_picture_pixels"])
            self._networks = TritonNetworks(parameters)
            limits = {key: int(parameters[key]) for key in ("map_pixels", "line_width") if key in parameters}
            characters = tuple(alphabet.read_bytes().decode("utf-8").split("\n"))
        except KeyError as error:
            raise pb_utils.TritonModelException(f"config.pbtxt lacks the parameter {error}") from error
        except (OSError, ValueError) as error:
            raise pb_utils.TritonModelException(f"{args['model_name']} cannot start: {error}") from error
        self._reader = Reader(self._networks, Settings(characters, **limits))

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answers each request, or says in its place why it cannot be answered."""
        return [self._answer(request) for request in requests]

    def finalize(self) -> None:
        """Ends the threads that call the networks."""
        self._networks.close()

    def _answer(self, request: Any) -> Any:
        self._networks.cancelled = request.is_cancelled
        try:
            data = pb_utils.get_input_tensor_by_name(request, "image").as_numpy()
            picture = decode(
                data.item(), max_pixels=self._max_pixels, working_pixels=_WORKING_PIXELS, legible=True
            )
            return pb_utils.InferenceResponse(output_tensors=_tensors(self._reader.read(picture)))
        except PictureError as error:
            return _error(str(error), pb_utils.TritonError.INVALID_ARG)
        except NetworkError as error:
            return _error(str(error), pb_utils.TritonError.UNAVAILABLE)
        except Cancelled:
            return _error("the request was cancelled", pb_utils.TritonError.CANCELLED)
        except Exception as error:  # an answer to this request; the next one is read as usual
            message = told("reading the picture failed", error, pb_utils)
            return _error(message, pb_utils.TritonError.INTERNAL)


def _tensors(lines: list[Line]) -> list[Any]:
    text = np.array([line.text.encode("utf-8") for line in lines], dtype=np.object_)
    score = np.array([line.score for line in lines], dtype=np.float32)
    box = np.array([line.corners for line in lines], dtype=np.float32).reshape(len(lines), 4, 2)
    return [pb_utils.Tensor("text", text), pb_utils.Tensor("score", score), pb_utils.Tensor("box", box)]


def _error(message: str, code: int) -> Any:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, code))
