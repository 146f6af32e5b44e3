"""The short forms of the command line: ``closed:8``, ``short/long=0.3``, ``512/128``, ``prompts.jsonl``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trtbuild.errors import MeasureError
from trtbuild.measure.load.spec import (
    Bursts,
    Closed,
    Constant,
    FileTraffic,
    Poisson,
    Ramp,
    Replay,
    Shape,
    TextTraffic,
    Traffic,
    VisionTraffic,
)

# Lengths in tokens of the classes in the field's reports: chat turns, summaries, long answers to long texts.
CLASSES = {
    "short/short": (128, 64),
    "long/short": (1024, 64),
    "long/long": (1024, 256),
    "short/long": (128, 256),
}
_SHAPES = (
    "closed:USERS", "poisson:RATE", "constant:RATE", "bursts:REQUESTS@SECONDS", "ramp:FROM-TO",
    "trace:FILE[@SPEED]",
)  # fmt: skip


def parse_shape(text: str) -> Shape:
    """``closed:8`` and the like.

    Raises:
        MeasureError: none of the forms.
    """
    kind, _, rest = text.partition(":")
    try:
        if kind == "closed":
            return Closed(users=int(rest))
        if kind == "poisson":
            return Poisson(rate_per_s=float(rest))
        if kind == "constant":
            return Constant(rate_per_s=float(rest))
        if kind == "bursts":
            requests, _, every = rest.partition("@")
            return Bursts(requests=int(requests), every_s=float(every or "1"))
        if kind == "ramp":
            begin, _, end = rest.partition("-")
            return Ramp(from_per_s=float(begin), to_per_s=float(end))
        if kind == "trace" and rest:
            path, _, speed = rest.rpartition("@") if re.search(r"@[\d.]+$", rest) else (rest, "", "1")
            return Replay(path=Path(path), speed=float(speed))
    except (ValueError, ValidationError) as error:
        raise MeasureError(
            f"{text!r} is no load: {why(error)}", *(f"--shape {form}" for form in _SHAPES)
        ) from error
    raise MeasureError(f"{text!r} is no load", *(f"--shape {form}" for form in _SHAPES))


def parse_traffic(text: str, *, prefix_share: float = 0.0) -> Traffic:
    """``NAME_OR_LENGTHS_OR_FILE[=WEIGHT]``; ``:offline`` after the name counts it apart from interactive use.

    Raises:
        MeasureError: neither a class, nor lengths ``INPUT/OUTPUT``, nor a file.
    """
    name, weight = _split_weight(text)
    base = name.removesuffix(":offline")
    common: dict[str, Any] = {"name": base, "weight": weight, "interactive": base == name}
    lengths = CLASSES.get(base)
    match = re.fullmatch(r"(\d+)/(\d+)", base)
    if match:
        lengths = (int(match[1]), int(match[2]))
    try:
        if lengths:
            return TextTraffic(
                input_tokens=lengths[0], output_tokens=lengths[1], prefix_share=prefix_share, **common
            )
        if base == "vision" or base.startswith("vision:"):
            picture = base.partition(":")[2]
            return VisionTraffic(picture=Path(picture) if picture else None, **common)
        path, _, tokens = base.partition("@")
        if Path(path).suffix in (".jsonl", ".json", ".txt"):
            return FileTraffic(path=Path(path), output_tokens=int(tokens) if tokens else None, **common)
    except (ValueError, ValidationError) as error:
        raise MeasureError(f"{text!r} is no traffic: {why(error)}") from error
    raise MeasureError(
        f"{text!r} is no traffic",
        f"a class: {', '.join(CLASSES)}",
        "lengths in tokens: 512/128",
        "a file of prompts, and the longest answer: prompts.jsonl@128",
        "vision, or vision:PICTURE",
    )


def _split_weight(text: str) -> tuple[str, float]:
    match = re.fullmatch(r"(.+)=(-?[\d.]+)", text)
    try:
        return (match[1], float(match[2])) if match else (text, 1.0)
    except ValueError:
        return text, 1.0


def why(error: Exception) -> str:
    """What is wrong, with the field's path."""
    if not isinstance(error, ValidationError):
        return str(error)
    errors = error.errors()
    # A list whose only item is wrong counts as empty: that follows from what is told of the item.
    wrong = [item["loc"] for item in errors if item["type"] != "too_short"]
    told = [
        item
        for item in errors
        if item["type"] != "too_short" or not any(loc[: len(item["loc"])] == item["loc"] for loc in wrong)
    ]
    return "; ".join(": ".join(filter(None, (".".join(map(str, item["loc"])), _said(item)))) for item in told)


def _said(item: Any) -> str:
    if item["type"] == "extra_forbidden":
        return "there is no such field"
    return str(item["msg"]).removeprefix("Value error, ")
