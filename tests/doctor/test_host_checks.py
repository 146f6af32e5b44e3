"""Hosts that are fit and unfit, by facts made by hand; and what is read from tools that fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.lint_repo import nvidia

from trtbuild.catalog.versions import find_container
from trtbuild.doctor.host import HostFacts, read_host
from trtbuild.doctor.host_checks import check_host
from trtbuild.doctor.needs import Needs, read_needs
from trtbuild.spec import Target
from trtbuild.targets import HostGpu

GIB = 1 << 30
L4 = HostGpu("NVIDIA L4", 23034 << 20, "8.9")
FIT = HostFacts(
    gpus=(L4,), driver="590.44.01", docker="28.0", gpu_runtime=True, shm_bytes=8 * GIB,
    shm_free_bytes=8 * GIB,
    ram_bytes=64 * GIB, ram_available_bytes=60 * GIB, disk_free_bytes=200 * GIB, open_files=65536,
    packages=(("tritonclient", "2.60.0"),),
)  # fmt: skip
NEEDS = Needs(
    container=find_container("26.07"), target=Target.ENGINE, gpu_bytes=23034 << 20, gpu_name="L4", sm="8.9",
    python_instances=6, shm_bytes=6 << 20, ram_bytes=10 * GIB, engines=True,
)  # fmt: skip


def states(host: HostFacts, needs: Needs = NEEDS) -> dict[str, str]:
    """Check → its worst state."""
    order = ("ok", "info", "warning", "error")
    found: dict[str, str] = {}
    for item in check_host(host, needs):
        found[item.check] = max(found.get(item.check, "ok"), item.state, key=order.index)
        assert (item.state in ("warning", "error")) <= bool(item.remedy)
    return found


def but(**changes: object) -> HostFacts:
    return HostFacts(**{**FIT.__dict__, **changes})


def test_a_fit_host_has_nothing_to_complain_about():
    assert set(states(FIT).values()) == {"ok"}


@pytest.mark.parametrize(
    ("changes", "check", "state"),
    [
        ({"gpus": (), "driver": None}, "gpu", "error"),
        ({"gpus": ()}, "gpu", "warning"),  # nvidia-smi gives no memory of its own: a GB10 shares the host's
        ({"gpus": (HostGpu("Tesla T4", 15360 << 20, "7.5"),)}, "gpu", "error"),
        ({"gpus": (HostGpu("NVIDIA H100", 81559 << 20, "9.0"),)}, "gpu", "error"),  # engines for 8.9
        ({"gpus": (HostGpu("NVIDIA L4", 12000 << 20, "8.9"),)}, "gpu", "error"),
        ({"driver": "470.82.01"}, "driver", "error"),
        ({"driver": "580.95.05"}, "driver", "warning"),  # CUDA 13 by minor-version compatibility
        ({"docker": None, "docker_error": "permission denied"}, "docker", "warning"),
        ({"gpu_runtime": False}, "docker", "error"),
        ({"shm_free_bytes": 5 << 20}, "shm", "error"),  # 6 instances of 1 MiB
        ({"ram_available_bytes": 9 * GIB}, "ram", "error"),
        ({"disk_free_bytes": 10 * GIB}, "disk", "warning"),  # the image is 14.2 GB
        ({"busy_ports": (8000,)}, "ports", "warning"),
        ({"open_files": 1024}, "ulimits", "warning"),
        ({"memlock_bytes": 8 << 20}, "ulimits", "warning"),
        ({"packages": (("tensorrt-llm", "1.0.0"),)}, "packages", "error"),
        ({"packages": (("tensorrt-llm", "1.2.1"),), "shadowed": True}, "packages", "error"),
    ],
)
def test_each_thing_that_is_unfit_is_told(changes, check, state):
    found = states(but(**changes))
    assert found.pop(check) == state
    assert set(found.values()) <= {"ok"}


def test_the_local_target_needs_no_gpu_but_its_packages():
    needs = Needs(target=Target.LOCAL, python_instances=5, shm_bytes=5 << 20, ram_bytes=2 * GIB)
    packages = (("nvidia-pytriton", "0.7.0"), ("openvino-genai", "2026.4"), ("numpy", "1.26.4"))
    assert "error" not in states(but(gpus=(), driver=None, packages=packages), needs).values()
    assert states(but(gpus=(), packages=packages[:1]), needs)["packages"] == "error"
    assert states(but(gpus=(), packages=(*packages[:2], ("numpy", "2.1"))), needs)["packages"] == "error"


def test_any_repository_says_what_it_needs(tmp_path):
    """NVIDIA's five: 2 + 1 + 8 Python instances."""
    needs = read_needs(nvidia(tmp_path, "0.19.0"), "25.05")
    assert (needs.python_instances, needs.shm_bytes, needs.engines) == (11, 11 << 20, True)
    assert needs.container == find_container("25.05")
    assert needs.target is None


def test_tools_that_fail_are_facts_not_tracebacks(tmp_path, monkeypatch):
    for name in ("nvidia-smi", "docker"):
        tool = tmp_path / name
        tool.write_text("#!/bin/sh\necho 'no permission for this' >&2\nexit 9\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    facts = read_host(Path(), ())
    assert (facts.gpus, facts.driver, facts.docker) == ((), None, None)
    assert facts.driver_error == facts.docker_error == "no permission for this"
    assert facts.ram_bytes
    assert facts.ram_bytes >= facts.ram_available_bytes > 0
