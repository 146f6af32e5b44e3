"""One engine's settings: what the stub read from config.pbtxt and config.json, and hands to the worker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .limits import Limits


@dataclass(frozen=True)
class Settings:
    """``stats_period_s``: how often gauges are sent. ``guided``: whether guided decoding is on."""

    weights: Path
    limits: Limits
    stats_period_s: float
    threads: int  # 0: the engine's own choice, one a core, which measured best (see the package's docstring)
    guided: bool
