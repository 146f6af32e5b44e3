"""Reads the catalogue's YAML files, which ship inside the package."""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml

# libyaml's loader where the wheel has it: the pure-Python one needs 0.6 s for models.yaml.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_data(name: str) -> Any:
    """The parsed content of ``data/<name>``."""
    text = resources.files("trtbuild.catalog").joinpath("data").joinpath(name).read_text(encoding="utf-8")
    return yaml.load(text, Loader=_LOADER)
