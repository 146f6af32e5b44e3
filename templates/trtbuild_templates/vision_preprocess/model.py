"""Encoded pictures to a network's pixels, a batch at a time (Triton's Python backend).

Input ``image`` STRING[1]: the bytes of a JPEG, PNG, WebP, GIF (its first frame), BMP or TIFF. Outputs:
``pixels`` UINT8[height, width, channels]; ``geometry`` FP32[6]: scale_x, scale_y, shift_x, shift_y, width and
height of the upright picture (x of the picture is at x * scale_x + shift_x of the pixels); ``error``
STRING[1]: why a picture of a batch cannot be read, else empty. A request with no picture that can be read is
an error.

Parameters of the config: ``width``, ``height``, ``channels``, ``fit``, ``crop_share``, ``pad``, ``resample``
and ``max_picture_pixels``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import triton_python_backend_utils as pb_utils

if TYPE_CHECKING:
    from trtbuild_templates.faults import told
    from trtbuild_templates.vision_ocr.picture import PictureError, decode
else:
    from .faults import told
    from .picture import PictureError, decode

from .fit import Fit


class TritonPythonModel:
    """One instance: a process that decodes one picture after the other."""

    def initialize(self, args: dict[str, str]) -> None:
        """Reads the parameters.

        Raises:
            pb_utils.TritonModelException: one is missing or is none.
        """
        config = json.loads(args["model_config"])
        parameters = {key: value["string_value"] for key, value in config["parameters"].items()}
        try:
            self._fit = Fit.of(parameters)
            self._max_pixels = int(parameters["max_picture_pixels"])
        except KeyError as error:
            raise pb_utils.TritonModelException(f"config.pbtxt lacks the parameter {error}") from error
        except ValueError as error:
            raise pb_utils.TritonModelException(f"{args['model_name']} cannot start: {error}") from error

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answers each request; a bad picture spoils no other."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        try:
            return self._pixels_of(request)
        except Exception as error:  # memory, most likely: of this request alone
            message = told("preparing the pictures failed", error, pb_utils)
            return pb_utils.InferenceResponse(
                error=pb_utils.TritonError(message, pb_utils.TritonError.INTERNAL)
            )

    def _pixels_of(self, request: Any) -> Any:
        pictures = pb_utils.get_input_tensor_by_name(request, "image").as_numpy().ravel()
        count = len(pictures)
        pixels = np.zeros((count, self._fit.height, self._fit.width, self._fit.channels), np.uint8)
        geometry = np.ones((count, 6), np.float32)
        errors = np.full((count, 1), b"", np.object_)
        for i, data in enumerate(pictures):
            try:
                pixels[i], geometry[i] = self._pixels(data)
            except PictureError as error:  # noqa: PERF203 - each picture is its own affair
                errors[i, 0] = str(error).encode("utf-8")
        if count and all(errors[:, 0]):
            message = errors[0, 0].decode("utf-8")
            return pb_utils.InferenceResponse(
                error=pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG)
            )
        tensors = [
            pb_utils.Tensor("pixels", pixels),
            pb_utils.Tensor("geometry", geometry),
            pb_utils.Tensor("error", errors),
        ]
        return pb_utils.InferenceResponse(output_tensors=tensors)

    def _pixels(self, data: bytes) -> tuple[Any, tuple[float, ...]]:
        picture = decode(data, max_pixels=self._max_pixels, working_pixels=self._max_pixels)
        try:
            pixels, geometry = self._fit(picture.image)
        except Exception as error:  # memory, or a mode that Pillow cannot resize: this picture's fault alone
            raise PictureError(told("the picture cannot be resized", error, pb_utils)) from error
        return pixels, (*geometry, float(picture.width), float(picture.height))
