"""The OCR pipeline in a real server: how well it reads, what it refuses, and what it survives."""

from __future__ import annotations

import os
import shutil
import signal
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image, ImageOps
from tests.support.pages import (
    CHINESE,
    ENGLISH,
    HALVES,
    PAGE_PNG,
    draw,
    encoded,
    error_rate,
    packaged,
    page_png,
    side_by_side,
)
from tests.support.vision_client import VisionClient
from tritonclient.utils import InferenceServerException

from trtbuild.serve.server import Server, start

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]


def turned(page: Image.Image, degrees: float) -> Image.Image:
    return page.rotate(degrees, Image.Resampling.BICUBIC, expand=True, fillcolor="white")


def test_page_png(client: VisionClient) -> None:
    assert error_rate(PAGE_PNG, client.read(page_png()).text) <= 0.03


@pytest.mark.parametrize("degrees", [0, 5, -5, 90, 180, 270])
def test_turned_pages(client: VisionClient, degrees: int) -> None:
    assert error_rate(ENGLISH, client.read(encoded(turned(draw(ENGLISH), degrees))).text) <= 0.05


@pytest.mark.parametrize("degrees", [0, 3])
def test_columns_are_read_one_after_the_other(client: VisionClient, degrees: int) -> None:
    page = turned(side_by_side([draw(half, size=22) for half in HALVES]), degrees)
    assert error_rate([*HALVES[0], *HALVES[1]], client.read(encoded(page)).text) <= 0.05


def test_chinese(client: VisionClient) -> None:
    assert error_rate(CHINESE, client.read(encoded(draw(CHINESE))).text) <= 0.05


def test_the_alphabet_has_the_scripts_that_the_help_names_and_not_those_it_excludes(
    ocr_repository: Path,
) -> None:
    alphabet = (ocr_repository / "ocr/1/characters.txt").read_text("utf-8")
    assert set("éßŁ Ωλ 字國国 のカ 09 €%") <= set(alphabet)
    names = " ".join(unicodedata.name(character, "") for character in alphabet)
    assert not any(
        script in names for script in ("CYRILLIC", "HANGUL", "ARABIC", "HEBREW", "THAI", "DEVANAGARI")
    )


def test_a_line_longer_than_the_recogniser_is_wide(client: VisionClient) -> None:
    line = " ".join(ENGLISH[:4])
    assert error_rate([line], client.read(encoded(draw([line]))).text) <= 0.05


@pytest.mark.parametrize(
    ("size", "ink", "paper"),
    [(10, "black", "white"), (24, "#969696", "#bebebe"), (24, "yellow", "#b41e1e")],
    ids=["small", "pale", "coloured"],
)
def test_hard_to_read(client: VisionClient, size: int, ink: str, paper: str) -> None:
    page = draw(ENGLISH[:3], size=size, ink=ink, paper=paper)
    assert error_rate(ENGLISH[:3], client.read(encoded(page)).text) <= 0.05


@pytest.mark.parametrize("text", ["Total 42", "Single line crop 2026-11-30 ABC"])
@pytest.mark.parametrize("size", [14, 28])
def test_a_line_cut_out_without_a_margin_is_read_whole(client: VisionClient, text: str, size: int) -> None:
    page = draw([text], size=size)
    crop = page.crop(ImageOps.invert(page).getbbox())
    answer = client.read(encoded(crop))
    assert answer.text == [text]
    np.testing.assert_allclose(answer.box[0, 0], (0, 0), atol=2)
    np.testing.assert_allclose(answer.box[0, 2], crop.size, atol=2)


def test_boxes_lie_on_their_lines(client: VisionClient) -> None:
    # draw(): 24-pixel letters, rows 36 apart from 40 down, beginning 40 from the left
    answer = client.read(encoded(draw(ENGLISH[:3])))
    assert answer.box.shape == (3, 4, 2)
    for row, (top_left, top_right, bottom_right, bottom_left) in enumerate(answer.box):
        assert abs(top_left[0] - 40) < 12
        assert top_left[1] < 40 + 36 * row + 20 < bottom_left[1]
        assert top_right[0] > top_left[0]
        assert bottom_right[1] > top_right[1]
    assert (answer.score > 0.9).all()


def test_boxes_of_a_turned_page_begin_at_the_texts_own_top_left(client: VisionClient) -> None:
    page = draw(ENGLISH[:2])
    upright = client.read(encoded(page)).box
    upside_down = client.read(encoded(page.rotate(180))).box
    np.testing.assert_allclose(upside_down, np.array(page.size) - upright, atol=3)


def test_a_large_photograph_and_its_boxes(client: VisionClient) -> None:
    photograph = draw(ENGLISH, size=24, margin=40).resize((4000, 1320), Image.Resampling.BICUBIC)
    noise = np.random.default_rng(1).normal(0, 25, (1320, 4000, 3))
    grainy = Image.fromarray((np.asarray(photograph) + noise).clip(0, 255).astype(np.uint8))
    data = encoded(grainy, "JPEG", quality=92)
    assert len(data) > 2_000_000  # above the size from which BYTES failed through BLS (triton server #6633)
    answer = client.read(data)
    assert error_rate(ENGLISH, answer.text) <= 0.05
    assert answer.box[:, :, 0].max() > 3000


def test_exif_orientation_alpha_grey_and_cmyk_read_alike(client: VisionClient) -> None:
    page = draw(ENGLISH[:2])
    exif = Image.Exif()
    exif[0x0112] = 6
    clear = page.convert("RGBA")
    clear.putalpha(Image.eval(page.convert("L"), lambda value: 255 - value))
    variants = [
        encoded(page.transpose(Image.Transpose.ROTATE_90), "JPEG", quality=95, exif=exif.tobytes()),
        encoded(clear),
        encoded(page.convert("L")),
        encoded(page.convert("CMYK"), "JPEG", quality=95),
        encoded(page, "WEBP", quality=90),
        encoded(Image.fromarray(np.asarray(page.convert("L")).astype(np.uint16) * 257)),
    ]
    for data in variants:
        assert error_rate(ENGLISH[:2], client.read(data).text) <= 0.05


@pytest.mark.parametrize("size", [(1, 1), (1, 3000), (600, 400)])
def test_a_picture_without_text_gives_no_lines(client: VisionClient, size: tuple[int, int]) -> None:
    answer = client.read(encoded(Image.new("RGB", size, "white")))
    assert (answer.text, answer.score.shape, answer.box.shape) == ([], (0,), (0, 4, 2))


def test_a_cup_of_coffee_is_no_letter(client: VisionClient) -> None:
    assert client.read(packaged("scikit-image", "skimage/data/coffee.png").read_bytes()).text == []


def test_only_the_bad_pictures_of_many_fail(client: VisionClient) -> None:
    good = encoded(draw(ENGLISH[:2]), "JPEG", quality=95)
    bad = {
        b"": "empty",
        b"GIF89a": "begin as GIF does, but the file is damaged",
        good[: len(good) // 2]: "cannot be decoded",
        encoded(Image.new("1", (20_000, 20_000))): "20000 x 20000",
    }
    pictures = [good, *list(bad)[:2], good, *list(bad)[2:], good]

    def read(data: bytes) -> str:
        try:
            return " ".join(client.read(data).text)
        except InferenceServerException as error:
            return f"{error.status()}: {error.message()}"

    with ThreadPoolExecutor(len(pictures)) as pool:
        answers = dict(zip(map(hash, pictures), pool.map(read, pictures), strict=True))
    assert error_rate(ENGLISH[:2], [answers[hash(good)]]) <= 0.05
    for data, message in bad.items():
        assert answers[hash(data)].startswith("StatusCode.INVALID_ARGUMENT")
        assert message in answers[hash(data)]


def test_lines_of_several_pictures_are_recognised_together(client: VisionClient) -> None:
    before = client.counters("ocr_rec")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(client.read, [encoded(draw(ENGLISH, size=20))] * 4))
    after = client.counters("ocr_rec")
    requests = after["request_success"] - before["request_success"]
    assert requests >= 4 * len(ENGLISH)
    assert after["exec_count"] - before["exec_count"] < 0.9 * requests  # how many meet depends on the machine


def test_shared_memory_stays_bounded(ocr_server: Server, client: VisionClient) -> None:
    pages = [encoded(draw(ENGLISH[: 1 + i % 4], size=18 + i)) for i in range(6)]

    def in_use() -> int:
        return sum(path.stat().st_size for path in Path("/dev/shm").glob(f"{ocr_server.shm_prefix}*"))

    for data in pages * 2:
        client.read(data)
    warm = in_use()
    for data in pages * 3:
        client.read(data)
    assert in_use() <= warm * 1.25


def test_a_killed_stub_fails_its_requests_and_not_the_server(ocr_repository: Path, tmp_path: Path) -> None:
    page = encoded(draw(ENGLISH[:1]))
    with start(Path(shutil.copytree(ocr_repository, tmp_path / "repository"))) as server:
        client = VisionClient(server.grpc_address)
        try:
            assert client.read(page).text
            (recogniser,) = (
                child.pid
                for child in psutil.Process(server.pid).children(recursive=True)
                if any(argument.startswith("ocr_rec") for argument in child.cmdline())
            )
            os.kill(recogniser, signal.SIGKILL)
            with pytest.raises(InferenceServerException, match="ocr_rec"):
                client.read(page)
            with pytest.raises(InferenceServerException, match="empty"):
                client.read(b"")  # the front itself goes on
        finally:
            client.close()
