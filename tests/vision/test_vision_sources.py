"""What runs inside a server imports nothing that its image lacks, and reads on Python 3.10."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trtbuild.repository.render import model_code
from trtbuild.serve.local import onnxruntime as backend

KINDS = ("vision_ocr", "vision_preprocess", "vision_postprocess")
FRONT = {f"{kind}/{name}": data for kind in KINDS for name, data in model_code(kind).items()}
BACKEND = {f"backend/{path.name}": path.read_bytes() for path in Path(backend.__path__[0]).glob("*.py")}
ALLOWED = {**{kind: {"numpy", "PIL"} for kind in KINDS}, "backend": {"numpy", "onnxruntime"}}


@pytest.mark.parametrize("name", sorted({**FRONT, **BACKEND}))
def test_a_file_reads_on_310_and_imports_what_its_process_has(name: str) -> None:
    tree = ast.parse({**FRONT, **BACKEND}[name], name, feature_version=(3, 10))
    imported = set()
    for node in _run(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            imported.add(str(node.module).split(".")[0])
    allowed = ALLOWED[name.split("/")[0]] | {"triton_python_backend_utils"}
    assert imported - set(sys.stdlib_module_names) <= allowed


def _run(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes of a file that are run, those for type checkers left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            yield from node.orelse
        else:
            yield node
            yield from _run(node)
