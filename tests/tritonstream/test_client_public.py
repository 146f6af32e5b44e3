"""The public surface: what is exported, what an import costs, and that the drawings are true."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import tritonstream
from tritonstream import errors


def test_the_public_list_is_complete_and_true() -> None:
    for name in tritonstream.__all__:
        value = getattr(tritonstream, name)
        assert value.__doc__ or (not inspect.isroutine(value) and not inspect.isclass(value)), name
    assert sorted(tritonstream.__all__) == list(tritonstream.__all__)
    tree = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, Exception)
    }
    assert tree <= set(tritonstream.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(tritonstream, "Clinet")


def test_the_tree_of_errors_is_as_drawn() -> None:
    drawn: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"([│ ├└─]*)(\w+Error|\w+)(?: \((\w+)\))?(?:  |$)", line)
        if not found or (not found[1] and path) or not hasattr(errors, found[2]):
            continue
        depth = len(found[1]) // 4
        path[depth:] = [found[2]]
        if depth:
            drawn[found[2]] = path[depth - 1]
        if found[3]:
            assert issubclass(getattr(errors, found[2]), getattr(__import__("builtins"), found[3]))
    real = {
        name: value.__bases__[0].__name__
        for name, value in vars(errors).items()
        if inspect.isclass(value)
        and issubclass(value, errors.TritonStreamError)
        and name != "TritonStreamError"
    }
    assert drawn == real


def modules_after(statement: str) -> set[str]:
    script = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(result.stdout))


def test_importing_it_brings_in_nothing_heavy() -> None:
    loaded = modules_after("import tritonstream")
    heavy = {
        "grpc",
        "numpy",
        "google.protobuf",
        "tritonclient",
        "tokenizers",
        "jinja2",
        "asyncio",
        "trtbuild",
        "PIL",
    }
    assert not heavy & loaded


def test_a_client_needs_grpc_protobuf_and_numpy_and_nothing_of_trtbuild() -> None:
    loaded = modules_after(
        "import tritonstream; tritonstream.Client('127.0.0.1:1').close(); tritonstream.AsyncClient"
    )
    assert "grpc" in loaded
    assert (
        not {"trtbuild", "trtbuild_templates", "tokenizers", "jinja2", "PIL", "pydantic", "click", "yaml"}
        & loaded
    )


def test_no_module_imports_trtbuild() -> None:
    folder = Path(tritonstream.__file__).parent
    for path in folder.rglob("*.py"):
        assert not re.search(r"^\s*(from|import) trtbuild", path.read_text(), re.MULTILINE), path


def test_both_clients_have_the_same_surface() -> None:
    def surface(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(member).parameters)
            for name, member in inspect.getmembers(kind, callable)
            if not name.startswith("_")
        }

    assert surface(tritonstream.Client) == surface(tritonstream.AsyncClient)
    assert surface(tritonstream.Stream).keys() - {"due", "expire"} == surface(tritonstream.AsyncStream).keys()


def test_it_is_typed() -> None:
    assert (Path(tritonstream.__file__).parent / "py.typed").exists()
