"""Where Triton enters.

Triton loads this file alone, under the name ``model``, so it first makes a package of its folder, under a
name of our own: the folder's would hide the installed onnxruntime.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

PACKAGE = "trtbuild_local_onnxruntime"


def module(name: str) -> Any:
    """A module of this folder, as part of the package."""
    if PACKAGE not in sys.modules:
        folder = Path(__file__).parent
        spec = spec_from_file_location(
            PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"{folder} cannot be loaded as a package")
        package = module_from_spec(spec)
        sys.modules[PACKAGE] = package
        spec.loader.exec_module(package)
    return import_module(f"{PACKAGE}.{name}")


TritonPythonModel = module("service").TritonPythonModel
