"""What is read of the machine that builds."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from trtbuild.preflight import read_build_host


@pytest.mark.parametrize(
    ("script", "driver"),
    [
        ("echo 580.95.05; echo 580.95.05", "580.95.05"),  # one line a GPU
        ("exit 9", None),
        ("true", None),
        ("printf '\\377\\376\\n'", "\ufffd\ufffd"),  # no text: shown as it can be, never a traceback
    ],
)
def test_the_driver_is_what_nvidia_smi_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, driver: str | None
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert read_build_host(tmp_path, ram_bytes=None).driver == driver


def test_without_nvidia_smi_there_is_no_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_build_host(tmp_path, ram_bytes=1).driver is None


def test_disk_is_that_of_the_nearest_folder_that_exists(tmp_path: Path) -> None:
    host = read_build_host(tmp_path / "not" / "yet", ram_bytes=7)
    assert host.ram_bytes == 7
    assert host.disk_free_bytes == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.1)
