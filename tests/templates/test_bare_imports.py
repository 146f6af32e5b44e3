"""What runs inside a server imports nothing that its image lacks, and reads on Python 3.10."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from tests.support.real_tokenizers import tokenizer_spec

from trtbuild.repository.llm import text_package
from trtbuild.repository.render import model_code

ALLOWED = {"numpy", "tokenizers", "jinja2", "triton_python_backend_utils"}
OF_PACKAGES = {"markupsafe", "huggingface_hub", "numpy"}  # what the allowed ones import themselves
KINDS = ("llm_front", "llm_preprocess", "llm_postprocess", "llm_llmapi", "instant_engine")


def _sources() -> dict[str, bytes]:
    files = {f"{kind}/{name}": data for kind in KINDS for name, data in model_code(kind).items()}
    return files | {f"tritontext/{name}": data for name, data in text_package().items()}


def _imports(node: ast.AST) -> set[str]:
    """Absolute imports of a module, those for type checkers left out."""
    found: set[str] = set()
    for child in ast.iter_child_nodes(node):
        if (
            isinstance(child, ast.If)
            and isinstance(child.test, ast.Name)
            and child.test.id == "TYPE_CHECKING"
        ):
            found |= set().union(*(_imports(part) | _of(part) for part in child.orelse), set())
            continue
        found |= _of(child) | _imports(child)
    return found


def _of(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return {(node.module or "").split(".")[0]}
    return set()


@pytest.mark.parametrize("name", sorted(_sources()))
def test_a_file_reads_on_310_and_imports_what_an_image_has(name: str) -> None:
    tree = ast.parse(_sources()[name], name, feature_version=(3, 10))
    assert _imports(tree) - set(sys.stdlib_module_names) <= ALLOWED


CHILD = """
import sys, types, warnings, json
allowed = set(sys.stdlib_module_names) | {allowed!r}
class Barrier:
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top not in allowed and not top.isdigit() and top != "tritontext":
            raise ModuleNotFoundError(f"No module named {{name!r}} in a server's image", name=name)
sys.meta_path.insert(0, Barrier())
utils = types.ModuleType("triton_python_backend_utils")
utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
sys.modules["triton_python_backend_utils"] = utils
sys.path[:0] = [{folder!r}]
import importlib
front = importlib.import_module("1.model")
text = importlib.import_module("1.tritontext")
assets = text.TextAssets(__import__("pathlib").Path({folder!r}) / "1" / "tokenizer")
print(assets.table.decode(assets.encoder.prompt("Grüße")))
"""


def test_the_front_loads_in_a_bare_environment(tmp_path: Path) -> None:
    folder = tmp_path / "1"
    for name, data in _sources().items():
        kind, _, file = name.partition("/")
        if kind in ("llm_front", "tritontext"):
            target = folder / (name if kind == "tritontext" else file)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer" / "tokenizer.json").write_text(json.dumps(tokenizer_spec("smollm2")))
    code = CHILD.format(allowed=ALLOWED | OF_PACKAGES, folder=str(tmp_path))
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout.strip() == "Grüße"


def test_the_fronts_need_no_rendering() -> None:
    for kind in KINDS:
        names = [entry.name for entry in resources.files("trtbuild_templates").joinpath(kind).iterdir()]
        assert not [name for name in names if name.endswith(".py.j2")]
