"""A clone whose large files Git LFS has not fetched."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from trtbuild.build.onnx_file import load_onnx
from trtbuild.build.tensors import read_header
from trtbuild.build.weights import gguf_header, read_config
from trtbuild.errors import ModelSourceError
from trtbuild.plan.architecture import from_hf_config

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 1606052\n"


@pytest.mark.parametrize("name", ["model.safetensors", "model.onnx", "model.gguf", "config.json"])
def test_a_pointer_is_called_so_wherever_a_file_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(POINTER)
    readers: dict[str, list[Callable[[], object]]] = {
        "model.safetensors": [lambda: read_header(tmp_path / name)],
        "model.onnx": [lambda: load_onnx(tmp_path / name)],
        "model.gguf": [lambda: gguf_header(tmp_path / name)],
        "config.json": [lambda: read_config(tmp_path), lambda: from_hf_config(tmp_path)],
    }
    for read in readers[name]:
        with pytest.raises(ModelSourceError, match="Git LFS pointer") as caught:
            read()
        assert "git lfs pull" in caught.value.remedies[0]


def test_other_faulty_files_are_not(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({})[:1])
    with pytest.raises(ModelSourceError, match="not valid JSON"):
        read_config(tmp_path)
