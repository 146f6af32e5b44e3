"""Keys of steps: what changes them, and what does not."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.plans import llm_plan

from trtbuild.build import cache as cache_module
from trtbuild.build.cache import container_tools, folder_identity, step_keys
from trtbuild.build.calibration import Calibration
from trtbuild.build.commands import Recipe, llm_commands
from trtbuild.build.jobs import Job
from trtbuild.catalog.versions import find_container
from trtbuild.spec import Target

COMMIT = "0123456789abcdef0123456789abcdef01234567"
STEPS = ("fetch", "quantise", "compile")


def keys(
    *,
    source: str = f"Qwen/Qwen2.5-7B-Instruct@{COMMIT}",
    texts: tuple[str, ...] = ("a text",),
    container: str = "26.07",
    sm: str = "8.9",
    group: int = 128,
    **changes: Any,
) -> tuple[str, ...]:
    recipe = Recipe("quantise", "awq", group, revision=COMMIT, calibration_samples=len(texts))
    row = find_container(container)
    llm = llm_plan(**changes)
    commands = llm_commands(llm, target=Target.ENGINE, version=row.trtllm, model_type="qwen2", recipe=recipe)
    job = Job(llm, commands, recipe, calibration=Calibration(texts, "test"))
    return step_keys(job, tools=container_tools(row, sm), source=source)


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        ({}, ()),
        ({"source": "Qwen/Qwen2.5-7B-Instruct@other"}, STEPS),
        ({"texts": ("another text",)}, ("quantise", "compile")),
        ({"group": 64}, ("quantise", "compile")),
        ({"kv_dtype": "fp8"}, ("quantise", "compile")),
        ({"tp": 2}, ("quantise", "compile")),
        ({"max_batch_size": 16}, ("compile",)),
        ({"max_num_tokens": 4096}, ("compile",)),
        ({"sm": "9.0"}, ("compile",)),  # the engine holds kernels of one GPU, the checkpoint none
        ({"container": "26.04"}, ()),  # the same TensorRT-LLM, TensorRT and CUDA
        ({"container": "25.12"}, ("quantise", "compile")),
        ({"kv_tokens": 1}, ()),  # decided when the engine is loaded
    ],
)
def test_a_key_changes_with_what_changes_its_product_and_with_nothing_else(
    change: dict[str, Any], changed: tuple[str, ...]
) -> None:
    pairs = zip(STEPS, keys(), keys(**change), strict=True)
    assert tuple(step for step, before, after in pairs if before != after) == changed


def test_two_containers_of_one_tensorrt_llm_differ_by_tensorrt() -> None:
    """tsbk's cache had no TensorRT version in its key, so that a container upgrade reused a stale plan."""
    before = container_tools(find_container("25.10"), "8.9")
    after = {**before, "tensorrt": "10.12.0.1"}
    job = Job(llm_plan(), (), Recipe("ready", "awq"))
    commands = llm_commands(
        job.llm, target=Target.ENGINE, version="1.0.0", model_type="qwen2", recipe=job.recipe
    )
    made = replace(job, commands=commands)
    assert step_keys(made, tools=before, source="s") != step_keys(made, tools=after, source="s")


def test_quantising_here_depends_on_the_packages_here_and_not_on_the_container(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = Recipe("quantise", "awq", 128, calibration_samples=1, quantiser="cpu")
    llm = llm_plan()
    commands = llm_commands(llm, target=Target.ENGINE, version="1.2.1", model_type="qwen2", recipe=recipe)
    job = Job(llm, commands, recipe, calibration=Calibration(("a text",), "test"))

    def first(version: str, container: str) -> str:
        monkeypatch.setattr(cache_module, "_installed", lambda _: version)
        return step_keys(job, tools=container_tools(find_container(container), "8.9"), source="s")[0]

    assert first("0.47.0", "26.07") == first("0.47.0", "25.10")
    assert first("0.47.0", "26.07") != first("0.48.0", "26.07")


def test_a_folder_is_known_by_content_and_hashed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, memo = tmp_path / "weights", tmp_path / "work"
    folder.mkdir()
    (folder / "a.safetensors").write_bytes(b"one")
    (folder / "config.json").write_text("{}")
    read: list[str] = []
    real = cache_module.file_sha256
    monkeypatch.setattr(cache_module, "file_sha256", lambda path: read.append(path.name) or real(path))
    before = folder_identity(folder, memo)
    assert read == ["a.safetensors", "config.json"]
    assert folder_identity(folder, memo) == before
    assert read == ["a.safetensors", "config.json"]
    stat = (folder / "a.safetensors").stat()
    (folder / "a.safetensors").write_bytes(b"two")
    os.utime(folder / "a.safetensors", ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert folder_identity(folder, memo) != before
    (memo / ".hashes.json").write_text("broken")
    (folder / "a.safetensors").write_bytes(b"one")
    assert folder_identity(folder, memo) == before
