"""Post-training quantisation of a served graph from a folder of pictures: scales inside the graph (Q/DQ).

TensorRT takes such graphs in explicit precision, onnxruntime runs them anywhere; the implicit calibration
with a cache, which TensorRT 10.1 deprecates, is not used. Pictures go through the very code that
pre-processes requests.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trtbuild.build.onnx_file import NEEDS_ONNX
from trtbuild.errors import BuildError, ModelSourceError
from trtbuild.plan.model import PicturePlan, VisionPlan
from trtbuild.plan.vision import PIXELS

MOST_PICTURES = 256  # more change the ranges little and take their time
_FEWEST_PICTURES = 8
_WEIGHTED = ["Conv", "ConvTranspose", "MatMul", "Gemm"]
# What TensorRT asks of explicit precision: symmetric ranges, biases in floating point, and no rounding
# between a convolution and the activation behind it (it would take its range from values that are then
# clipped).
_OPTIONS = {
    "ActivationSymmetric": True,
    "WeightSymmetric": True,
    "QuantizeBias": False,
    "OpTypesToExcludeOutputQuantization": _WEIGHTED,
}
_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
_FP8_OPSET = 19  # from which on QuantizeLinear gives FLOAT8E4M3FN


def calibration_pixels(folder: Path, plan: VisionPlan) -> Iterator[Any]:
    """Pixels UINT8[1, height, width, channels] of a folder's pictures; those that cannot be read are left
    out.

    Raises:
        ModelSourceError: fewer than 8 pictures can be read.
    """
    from trtbuild_templates.vision_ocr.picture import PictureError, decode
    from trtbuild_templates.vision_preprocess.fit import Fit

    assert plan.picture is not None
    fit = Fit.of(fit_parameters(plan.picture))
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES)
    used = 0
    for path in files[:: max(1, len(files) // MOST_PICTURES)]:
        try:
            picture = decode(
                path.read_bytes(), max_pixels=plan.max_picture_pixels, working_pixels=plan.max_picture_pixels
            )
        except (PictureError, OSError):
            continue
        used += 1
        yield fit(picture.image)[0][np.newaxis]
    if used < _FEWEST_PICTURES:
        raise ModelSourceError(
            f"{folder}: {used} pictures can be read, and ranges need at least {_FEWEST_PICTURES}",
            "give a folder with some hundred pictures like those that will be sent",
        )


def fit_parameters(picture: PicturePlan) -> Mapping[str, str]:
    """What the pre-processing model's configuration says of the size and the way to it."""
    return {
        "width": str(picture.width),
        "height": str(picture.height),
        "channels": str(picture.channels),
        "fit": picture.fit,
        "crop_share": str(picture.crop_share),
        "pad": str(picture.pad),
        "resample": picture.resample,
    }


def quantised(model: bytes, plan: VisionPlan, folder: Path, opset: int) -> bytes:
    """The served graph with 8-bit weights and activations.

    Args:
        model: the graph with its input ``pixels``.
        folder: of pictures.

    Raises:
        ModelSourceError: onnxruntime is missing, or there are too few pictures.
        BuildError: the graph cannot be quantised.
    """
    try:
        from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
    except ImportError as error:
        raise ModelSourceError("quantising a network needs onnxruntime and onnx", NEEDS_ONNX) from error
    fp8 = plan.networks[0].precision == "fp8"
    if fp8 and opset < _FP8_OPSET:
        raise BuildError(
            f"{plan.name}: fp8 needs opset {_FP8_OPSET}, and its graph has {opset}",
            f"export it with opset {_FP8_OPSET}, or take int8",
        )
    kind = QuantType.QFLOAT8E4M3FN if fp8 else QuantType.QInt8
    with tempfile.TemporaryDirectory(prefix="trtbuild-") as scratch:
        source, target = Path(scratch) / "float.onnx", Path(scratch) / "quantised.onnx"
        source.write_bytes(model)
        try:
            quantize_static(
                str(source),
                str(target),
                _Reader(calibration_pixels(folder, plan)),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=_WEIGHTED,
                per_channel=not fp8,
                activation_type=kind,
                weight_type=kind,
                calibrate_method=CalibrationMethod.Distribution if fp8 else CalibrationMethod.MinMax,
                extra_options=_OPTIONS,
            )
            return target.read_bytes()
        except ModelSourceError:
            raise
        except Exception as error:  # of the quantiser, whose exceptions share no base
            raise BuildError(
                f"{plan.name}: its graph cannot be quantised: {' '.join(str(error).split())[:300]}",
                "take precision fp16",
            ) from error


class _Reader:
    """onnxruntime's CalibrationDataReader over an iterator of pixels."""

    def __init__(self, pixels: Iterator[Any]) -> None:
        self._pixels = pixels

    def get_next(self) -> dict[str, Any] | None:
        pixels = next(self._pixels, None)
        return None if pixels is None else {PIXELS: pixels}

    def __len__(self) -> int:
        return MOST_PICTURES
