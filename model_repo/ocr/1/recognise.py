"""Recognised characters: from the network's best label at each step to text and a score."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

BLANK = 0


@dataclass(frozen=True)
class Reading:
    """The text of a line and the mean probability of its characters (0 for an empty text)."""

    text: str
    score: float


def decode(labels: Any, scores: Any, characters: Sequence[str]) -> Reading:
    """CTC, greedily: repeated labels are one character, blanks are dropped (Graves et al. 2006).

    Args:
        labels: [steps], integers; 0 is the blank, i stands for ``characters[i - 1]``.
        scores: [steps], the probability of each label.
        characters: the recogniser's alphabet.
    """
    labels = np.asarray(labels)
    starts = np.concatenate([[True], labels[1:] != labels[:-1]]) & (labels != BLANK)
    if not starts.any():
        return Reading("", 0.0)
    text = "".join([characters[label - 1] for label in labels[starts].tolist()])
    return Reading(text, float(np.asarray(scores)[starts].mean()))


def joined(parts: Sequence[Reading]) -> Reading:
    """Readings of the parts of one line, from left to right; the score is weighted by length.

    Lines are cut at their widest gaps, which are spaces in scripts that write them.
    """
    text = ""
    total = 0.0
    for part in parts:
        if not part.text:
            continue
        spaced = text and not (_is_wide(text[-1]) or _is_wide(part.text[0]))
        text += (" " if spaced else "") + part.text.strip()
        total += part.score * len(part.text)
    length = sum(len(part.text) for part in parts)
    return Reading(text, total / length if length else 0.0)


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "WF"
