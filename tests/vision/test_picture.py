from __future__ import annotations

import base64
import io
import random

import numpy as np
import pytest
from PIL import Image
from tests.support.pages import encoded

from trtbuild_templates.vision_ocr.picture import Picture, PictureError, _rgb, decode, framed

LIMIT = 1_000_000


def read(data: bytes, *, working_pixels: int = LIMIT) -> Picture:
    return decode(data, max_pixels=LIMIT, working_pixels=working_pixels)


def quarters() -> Image.Image:
    """Red, green over blue, white: 40 × 20."""
    image = Image.new("RGB", (40, 20), "white")
    for box, colour in (((0, 0, 20, 10), "red"), ((20, 0, 40, 10), "lime"), ((0, 10, 20, 20), "blue")):
        image.paste(colour, box)
    return image


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_formats(kind: str) -> None:
    picture = read(encoded(Image.new("RGB", (60, 30), "red"), kind))
    assert (picture.width, picture.height, picture.image.mode) == (60, 30, "RGB")
    np.testing.assert_allclose(picture.image.getpixel((30, 15)), (255, 0, 0), atol=4)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_undone(kind: str, orientation: int) -> None:
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }  # what a camera does to an upright scene before it writes the tag
    upright = quarters()
    stored = upright.transpose(undo[orientation]) if orientation in undo else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if kind == "WEBP" else {"quality": 95} if kind == "JPEG" else {}
    picture = read(encoded(stored, kind, exif=exif.tobytes(), **options))
    assert (picture.width, picture.height) == picture.image.size == (40, 20)
    for at in ((5, 3), (35, 3), (5, 17), (35, 17)):
        np.testing.assert_allclose(picture.image.getpixel(at), upright.getpixel(at), atol=60)


def test_transparent_is_white() -> None:
    image = Image.new("RGBA", (10, 10), (0, 0, 0, 0))
    image.paste((0, 0, 0, 255), (0, 0, 5, 10))
    for data in (encoded(image), encoded(image.convert("LA")), encoded(image, "WEBP", lossless=True)):
        picture = read(data).image
        assert (picture.getpixel((2, 5)), picture.getpixel((8, 5))) == ((0, 0, 0), (255, 255, 255))


def test_a_transparent_palette_colour_is_white() -> None:
    image = Image.new("P", (10, 10), 0)
    image.putpalette([0, 0, 0, 255, 0, 0])
    image.paste(1, (0, 0, 5, 10))
    picture = read(encoded(image, "GIF", transparency=0)).image
    assert (picture.getpixel((2, 5)), picture.getpixel((8, 5))) == ((255, 0, 0), (255, 255, 255))


@pytest.mark.parametrize("mode", ["1", "L", "P", "CMYK", "YCbCr", "LAB"])
def test_colour_modes(mode: str) -> None:
    plain = Image.new("RGB", (16, 16), "white")
    image = Image.new("LAB", (16, 16), (255, 128, 128)) if mode == "LAB" else plain.convert(mode)
    kind = "TIFF" if mode in ("LAB", "YCbCr") else "JPEG" if mode == "CMYK" else "PNG"
    picture = read(encoded(image, kind)).image
    np.testing.assert_allclose(picture.getpixel((8, 8)), (255, 255, 255), atol=4)


def test_16_bit_grey_keeps_its_shades() -> None:
    shades = np.linspace(0, 65535, 256, dtype=np.uint16).reshape(16, 16)
    picture = read(encoded(Image.fromarray(shades), "PNG")).image
    np.testing.assert_allclose(np.asarray(picture)[..., 0].ravel(), np.arange(256), atol=1)


def test_16_bits_are_cut_to_the_upper_eight_or_stretched_to_be_legible() -> None:
    dark = encoded(Image.fromarray(np.array([[0, 256, 4096]], np.uint16)))
    plain = decode(dark, max_pixels=LIMIT, working_pixels=LIMIT).image
    legible = decode(dark, max_pixels=LIMIT, working_pixels=LIMIT, legible=True).image
    assert np.asarray(plain)[0, :, 0].tolist() == [0, 1, 16]
    assert np.asarray(legible)[0, :, 0].tolist() == [0, 15, 255]  # 256 / 4096 × 255 = 15.9


def test_float_samples_with_nan() -> None:
    samples = np.linspace(0, 1, 256, dtype=np.float32).reshape(16, 16)
    samples[0, 0] = np.nan
    picture = read(encoded(Image.fromarray(samples), "TIFF")).image
    assert picture.getpixel((15, 15)) == (255, 255, 255)


def test_animations_show_their_first_frame() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    for kind in ("GIF", "WEBP", "PNG"):
        data = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
        np.testing.assert_allclose(read(data).image.getpixel((4, 4)), (255, 0, 0), atol=12)


def test_large_pictures_are_reduced_and_keep_their_size_in_name() -> None:
    for kind in ("JPEG", "PNG"):
        picture = read(encoded(Image.new("RGB", (1000, 500), "red"), kind), working_pixels=125_000)
        assert (picture.width, picture.height) == (1000, 500)
        assert picture.image.size == (500, 250)


def test_one_pixel_is_a_picture() -> None:
    assert read(encoded(Image.new("RGB", (1, 1)))).image.size == (1, 1)


def bomb(side: int) -> bytes:
    """A PNG that claims to be ``side`` × ``side``: the header alone decides."""
    data = bytearray(encoded(Image.new("1", (8, 8))))
    data[16:24] = side.to_bytes(4, "big") * 2
    import zlib

    data[29:33] = zlib.crc32(bytes(data[12:29])).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"not a picture at all", "no picture of a known format .* but text: 'not a picture at all'"),
        (b"\xef\xbb\xbf<!DOCTYPE html>\n<html>", "but text: '<!DOCTYPE html> <html>'"),
        (b'{"error": "\xe2\x80\xa6' + b" " * 2000 + b"x", 'but text: \'{"error": "\u2026\''),
        ("привет ".encode() * 200, "but text: 'привет привет"),  # the look ends within a character
        (bytes(100), r"no picture of a known format \([A-Z, ]+\)$"),
        ("text".encode("utf-16"), r"no picture of a known format \([A-Z, ]+\)$"),
        (b"\0\0\0\x18ftypisom" + bytes(40), "are a video;"),
        (b"PK\x03\x04" + bytes(40), "are a ZIP archive;"),
        (b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "are SVG;"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "no picture of a known format"),
        (b"\xff\xd8\xff\xe0" + bytes(40), "begin as JPEG does, but the file is damaged or cut short"),
        (
            encoded(Image.new("RGB", (9, 9)), "WEBP")[:20],
            "begin as WEBP does, but the file is damaged or cut",
        ),
        (b"\0\0\0\x18ftypheic" + bytes(40), "are HEIC; this model reads the bytes of JPEG, PNG"),
        (b"\0\0\0\x20ftypavif" + bytes(40), "are AVIF;"),
        (b"%PDF-1.7\n", "are PDF;"),
        (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "are SVG;"),
        (base64.b64encode(encoded(Image.new("RGB", (9, 9)), "JPEG")), "are base64 text;"),
        (base64.b64encode(encoded(Image.new("RGB", (9, 9)))), "are base64 text;"),
        (b"data:image/png;base64,iVBORw0KGgo=", "are a data URL;"),
        (bomb(20_000), "20000 x 20000 = 400,000,000 pixels"),
        (bomb(2**31 - 1), "pixels"),
    ],
)
def test_what_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(PictureError, match=message):
        read(data)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "TIFF"])
def test_a_truncated_file_is_an_error_and_nothing_else(kind: str) -> None:
    noise = Image.fromarray(np.random.default_rng(3).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    data = encoded(noise, kind)
    for cut in range(0, len(data) * 3 // 4, max(1, len(data) // 40)):
        with pytest.raises(PictureError):
            read(data[:cut])


def test_damaged_bytes_never_raise_anything_else() -> None:
    random_bytes = random.Random(5)
    for kind in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"):
        data = encoded(quarters(), kind)
        for _ in range(60):
            damaged = bytearray(data)
            for _ in range(random_bytes.randint(1, 6)):
                damaged[random_bytes.randrange(len(damaged))] = random_bytes.randrange(256)
            try:
                picture = read(bytes(damaged))
            except PictureError:
                continue
            assert picture.image.mode == "RGB"


def test_broken_exif_does_not_hide_the_picture() -> None:
    buffer = io.BytesIO()
    quarters().save(buffer, "JPEG", exif=b"Exif\x00\x00MM\x00*\x00\x00\xff\xff garbage")
    assert read(buffer.getvalue()).image.size == (40, 20)


@pytest.mark.parametrize(("ink", "paper"), [("white", 0), ("black", 255)])
def test_ink_on_nothing_is_laid_on_paper_that_shows_it(ink: str, paper: int) -> None:
    clear = Image.new("RGBA", (64, 32), (0, 0, 0, 0))
    clear.paste(Image.new("RGBA", (20, 10), ink), (10, 10))
    assert np.asarray(_rgb(clear, legible=True))[0, 0].tolist() == [paper] * 3


def test_a_frame_has_the_colour_of_the_edge() -> None:
    line = Image.new("RGB", (9, 5), (20, 40, 200))
    line.paste("white", (0, 2, 6, 4))  # letters that touch the left edge
    pixels = np.asarray(framed(line, 3))
    np.testing.assert_array_equal(pixels[3:-3, 3:-3], np.asarray(line))
    pixels = pixels.copy()
    pixels[3:-3, 3:-3] = (20, 40, 200)
    assert (pixels == (20, 40, 200)).all()
    assert pixels.shape == (11, 15, 3)
