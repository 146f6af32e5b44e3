"""Pictures in the network's size: what the plain way gives, for every size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from trtbuild_templates.vision_preprocess.fit import Fit

SIDES = st.integers(1, 400)


def fit(how: str, *, width: int = 48, height: int = 32, resample: str = "bilinear") -> Fit:
    return Fit(width, height, 3, how, 0.875, 114, resample)


def noise(width: int, height: int) -> Image.Image:
    rng = np.random.default_rng(width * 1000 + height)
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))


@given(width=SIDES, height=SIDES, resample=st.sampled_from(["bilinear", "bicubic", "lanczos"]))
@settings(deadline=None, max_examples=60)
def test_a_crop_is_the_middle_of_the_whole_picture_resized(width: int, height: int, resample: str) -> None:
    image = noise(width, height)
    pixels, _ = fit("crop", resample=resample)(image)
    shorter = (round(48 / 0.875), round(32 / 0.875))
    scale = max(shorter[0] / width, shorter[1] / height)
    size = (max(48, round(width * scale)), max(32, round(height * scale)))
    left, top = round((size[0] - 48) / 2), round((size[1] - 32) / 2)
    whole = image.resize(size, getattr(Image.Resampling, resample.upper()))
    difference = np.abs(pixels.astype(int) - np.asarray(whole.crop((left, top, left + 48, top + 32))))
    if size[0] * size[1] <= 32 * 48 * 32:
        assert difference.max() == 0
    else:  # a strip, of which the whole is not made: what lies beyond the edge counts a little
        assert difference.mean() < 4


@given(width=SIDES, height=SIDES, how=st.sampled_from(["stretch", "letterbox", "crop"]))
@settings(deadline=None, max_examples=60)
def test_the_geometry_leads_back_into_the_picture(width: int, height: int, how: str) -> None:
    pixels, (scale_x, scale_y, shift_x, shift_y) = fit(how)(noise(width, height))
    assert pixels.shape == (32, 48, 3)
    centre = (width / 2 * scale_x + shift_x, height / 2 * scale_y + shift_y)
    assert centre == pytest.approx((24, 16), abs=1)
    if how == "letterbox":
        assert shift_x >= 0
        assert width * scale_x + shift_x <= 48 + 1e-6
        assert height * scale_y + shift_y <= 32 + 1e-6


def test_a_letterbox_is_padded_on_both_sides() -> None:
    pixels, geometry = fit("letterbox")(Image.new("RGB", (32, 32), "red"))
    assert geometry == (1.0, 1.0, 8.0, 0.0)
    assert pixels[0, 7].tolist() == [114] * 3
    assert pixels[0, 8].tolist() == [255, 0, 0]
    assert pixels[31, 39].tolist() == [255, 0, 0]
    assert pixels[31, 40].tolist() == [114] * 3


@pytest.mark.parametrize(("channels", "value"), [(1, [76]), (4, [255, 0, 0, 255])])
def test_grey_and_four_channels(channels: int, value: list[int]) -> None:
    pixels, _ = Fit(4, 4, channels, "stretch", 1.0, 0, "bilinear")(Image.new("RGB", (8, 8), "red"))
    assert pixels.shape == (4, 4, channels)
    assert pixels[0, 0].tolist() == value  # 0.299 × 255
