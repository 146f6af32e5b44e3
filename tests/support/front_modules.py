"""The front's modules for tests outside a server: its text package and Triton's module stand in for."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import tritonstream.text
import trtbuild_templates.faults

_PACKAGE = "trtbuild_templates.llm_front"


def front_module(name: str) -> ModuleType:
    """One module of the front; what it knows as ``.tritontext`` is tritonstream.text."""
    sys.modules.setdefault(f"{_PACKAGE}.tritontext", tritonstream.text)
    sys.modules.setdefault(f"{_PACKAGE}.faults", trtbuild_templates.faults)
    return importlib.import_module(f"{_PACKAGE}.{name}")
