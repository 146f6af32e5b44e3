"""What runs inside a server imports nothing that its image lacks, and reads on Python 3.10."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from trtbuild.repository.render import model_code
from trtbuild.serve.local import onnxruntime as backend

FRONT = {f"vision_ocr/{name}": data for name, data in model_code("vision_ocr").items()}
BACKEND = {f"backend/{path.name}": path.read_bytes() for path in Path(backend.__path__[0]).glob("*.py")}
ALLOWED = {"vision_ocr": {"numpy", "PIL"}, "backend": {"numpy", "onnxruntime"}}


@pytest.mark.parametrize("name", sorted({**FRONT, **BACKEND}))
def test_a_file_reads_on_310_and_imports_what_its_process_has(name: str) -> None:
    tree = ast.parse({**FRONT, **BACKEND}[name], name, feature_version=(3, 10))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            imported.add(str(node.module).split(".")[0])
    allowed = ALLOWED[name.split("/")[0]] | {"triton_python_backend_utils"}
    assert imported - set(sys.stdlib_module_names) <= allowed
