from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtbuild_templates.vision_ocr.recognise import Reading, decode, joined

ALPHABET = tuple("abcdé字 ")


@given(st.data(), st.text(alphabet=ALPHABET, max_size=20))
def test_any_alignment_of_a_text_decodes_to_it(data: st.DataObject, text: str) -> None:
    labels: list[int] = []
    for character in text:
        label = ALPHABET.index(character) + 1
        blanks = data.draw(st.integers(1 if labels and labels[-1] == label else 0, 3))
        labels += [0] * blanks + [label] * data.draw(st.integers(1, 4))
    labels += [0] * data.draw(st.integers(0, 3))
    reading = decode(np.array(labels, np.int64), np.full(len(labels), 0.5, np.float32), ALPHABET)
    assert reading.text == text
    assert reading.score == (0.5 if text else 0.0)


def test_the_score_is_the_mean_of_the_characters_first_steps() -> None:
    # a (0.9) a (0.1, repeated: not counted), blank (0.2: not counted), b (0.7): (0.9 + 0.7) / 2
    reading = decode([1, 1, 0, 2], [0.9, 0.1, 0.2, 0.7], ALPHABET)
    assert reading.text == "ab"
    assert reading.score == pytest.approx(0.8)


def test_parts_are_joined_by_a_space_in_scripts_that_write_one() -> None:
    assert joined([Reading("one", 1.0), Reading("two", 1.0)]).text == "one two"
    assert joined([Reading("中文", 1.0), Reading("识别", 1.0)]).text == "中文识别"
    assert joined([Reading("one ", 1.0), Reading("", 0.0), Reading("two", 1.0)]).text == "one two"


def test_the_score_of_parts_is_weighted_by_length() -> None:
    # 3 characters at 1.0 and 1 at 0.6: (3 × 1.0 + 0.6) / 4
    assert joined([Reading("abc", 1.0), Reading("d", 0.6)]).score == pytest.approx(0.9)
    assert joined([]) == Reading("", 0.0)
