"""An upright picture to the size that a network takes, and where its pixels went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
_LARGEST_WHOLE = 32  # times the network's picture, up to which the whole is resized before it is cut
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


@dataclass(frozen=True)
class Fit:
    """How a picture is brought to ``width`` × ``height``.

    Attributes:
        how: ``stretch`` both sides; ``letterbox``: keep the proportions and fill up with ``pad``;
            ``crop``: keep the proportions and take the middle, ``crop_share`` of the shorter side.
        channels: 1 grey, 3 RGB, 4 RGBA.
        resample: the filter; it is widened where a picture is reduced (antialiasing).
    """

    width: int
    height: int
    channels: int
    how: str
    crop_share: float
    pad: int
    resample: str

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> Fit:
        """From the model's parameters.

        Raises:
            KeyError, ValueError: a parameter is missing or is none.
        """
        fit = cls(
            width=int(parameters["width"]),
            height=int(parameters["height"]),
            channels=int(parameters["channels"]),
            how=parameters["fit"],
            crop_share=float(parameters["crop_share"]),
            pad=int(parameters["pad"]),
            resample=parameters["resample"],
        )
        if fit.how not in ("stretch", "letterbox", "crop") or fit.resample not in _FILTERS:
            raise ValueError(f"fit {fit.how!r} and resample {fit.resample!r} are not both known")
        return fit

    def __call__(self, image: Image.Image) -> tuple[Any, tuple[float, float, float, float]]:
        """Pixels UINT8[height, width, channels] of an RGB picture, and its geometry.

        Returns:
            The pixels, and (scale_x, scale_y, shift_x, shift_y): x of the picture is at
            ``x * scale_x + shift_x`` of the pixels.
        """
        mode = _MODES[self.channels]
        image = image if image.mode == mode else image.convert(mode)
        fitted, geometry = getattr(self, f"_{self.how}")(image)
        pixels = np.asarray(fitted)
        return pixels.reshape(self.height, self.width, self.channels), geometry

    def _stretch(self, image: Image.Image) -> tuple[Image.Image, tuple[float, float, float, float]]:
        scales = self.width / image.width, self.height / image.height
        return self._resized(image, (self.width, self.height)), (*scales, 0.0, 0.0)

    def _letterbox(self, image: Image.Image) -> tuple[Image.Image, tuple[float, float, float, float]]:
        scale = min(self.width / image.width, self.height / image.height)
        size = (
            min(self.width, max(1, round(image.width * scale))),
            min(self.height, max(1, round(image.height * scale))),
        )
        left, top = (self.width - size[0]) // 2, (self.height - size[1]) // 2
        canvas = Image.new(image.mode, (self.width, self.height), (self.pad,) * self.channels)
        canvas.paste(self._resized(image, size), (left, top))
        return canvas, (size[0] / image.width, size[1] / image.height, float(left), float(top))

    def _crop(self, image: Image.Image) -> tuple[Image.Image, tuple[float, float, float, float]]:
        shorter = (round(self.width / self.crop_share), round(self.height / self.crop_share))
        scale = max(shorter[0] / image.width, shorter[1] / image.height)
        whole = max(self.width, round(image.width * scale)), max(self.height, round(image.height * scale))
        left, top = round((whole[0] - self.width) / 2), round((whole[1] - self.height) / 2)
        window = (left, top, left + self.width, top + self.height)
        scales = whole[0] / image.width, whole[1] / image.height
        if whole[0] * whole[1] <= _LARGEST_WHOLE * self.width * self.height:
            middle = self._resized(image, whole).crop(window)
        else:  # a strip: nearly the same pixels, without those that would be cut off
            right = min(window[2] / scales[0], image.width)
            bottom = min(window[3] / scales[1], image.height)
            box = (left / scales[0], top / scales[1], right, bottom)
            middle = image.resize((self.width, self.height), _FILTERS[self.resample], box=box)
        return middle, (*scales, float(-left), float(-top))

    def _resized(self, image: Image.Image, size: tuple[int, int]) -> Image.Image:
        return image if image.size == size else image.resize(size, _FILTERS[self.resample])
