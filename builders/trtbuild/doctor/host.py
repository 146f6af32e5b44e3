"""Facts of this machine. Nothing is imported for them, and only nvidia-smi and docker are asked."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

from trtbuild.preflight.host import read_build_host
from trtbuild.targets import HostGpu, detect_gpus, installed_version

DOCKER_TIMEOUT_S = 10
PACKAGES = ("tritonclient", "tensorrt-llm", "nvidia-pytriton", "openvino-genai", "onnxruntime", "numpy")


@dataclass(frozen=True)
class HostFacts:
    """What there is; None where it cannot be told.

    Attributes:
        driver_error: what nvidia-smi says where it is there and fails.
        docker: version of the daemon; docker_error: why it does not answer.
        gpu_runtime: whether docker knows NVIDIA's runtime or its device interface.
        busy_ports: those of the asked ports on which something listens.
        open_files: soft limit of open files; memlock_bytes, stack_bytes: -1 without limit.
        packages: distribution → version, of those that are installed.
        shadowed: a folder in the working folder that hides the tensorrt_llm package.
    """

    gpus: tuple[HostGpu, ...] = ()
    driver: str | None = None
    driver_error: str = ""
    docker: str | None = None
    docker_error: str = ""
    gpu_runtime: bool | None = None
    shm_bytes: int | None = None
    shm_free_bytes: int | None = None
    ram_bytes: int | None = None
    ram_available_bytes: int | None = None
    disk_free_bytes: int | None = None
    busy_ports: tuple[int, ...] = ()
    open_files: int = 0
    memlock_bytes: int = -1
    stack_bytes: int = -1
    packages: tuple[tuple[str, str], ...] = ()
    shadowed: bool = False


def read_host(folder: Path, ports: tuple[int, ...]) -> HostFacts:
    """Reads this machine; ``folder`` is where the repository is or will be."""
    shm = shutil.disk_usage("/dev/shm") if Path("/dev/shm").is_dir() else None
    memory = _meminfo()
    docker, docker_error, runtime = _docker()
    host = read_build_host(folder, ram_bytes=None)
    found = ((name, installed_version(name)) for name in PACKAGES)
    return HostFacts(
        gpus=detect_gpus(),
        driver=host.driver,
        driver_error=_driver_error() if host.driver is None else "",
        docker=docker,
        docker_error=docker_error,
        gpu_runtime=runtime,
        shm_bytes=shm.total if shm else None,
        shm_free_bytes=shm.free if shm else None,
        ram_bytes=memory.get("MemTotal"),
        ram_available_bytes=memory.get("MemAvailable"),
        disk_free_bytes=host.disk_free_bytes,
        busy_ports=tuple(port for port in ports if _listens(port)),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        memlock_bytes=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        stack_bytes=resource.getrlimit(resource.RLIMIT_STACK)[0],
        packages=tuple((name, version) for name, version in found if version is not None),
        shadowed=Path("tensorrt_llm", "__init__.py").is_file(),
    )


def _meminfo() -> dict[str, int]:
    """Fields of /proc/meminfo in bytes; the total is the control group's where that is less."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return {}
    rows = (line.split() for line in lines)
    found = {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) >= 2 and row[1].isdigit()}
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limit = Path(path).read_text().strip()
        except OSError:
            continue
        if limit.isdigit() and int(limit) < found.get("MemTotal", 0):
            found["MemTotal"] = int(limit)
            found["MemAvailable"] = min(found.get("MemAvailable", int(limit)), int(limit))
    return found


def _driver_error() -> str:
    if shutil.which("nvidia-smi") is None:
        return ""
    _, error = _ask("nvidia-smi", "-L")
    return error


def _docker() -> tuple[str | None, str, bool | None]:
    if shutil.which("docker") is None:
        return None, "", None
    version, error = _ask("docker", "version", "--format", "{{.Server.Version}}")
    if not version:
        return None, error or "no answer", None
    runtimes, _ = _ask("docker", "info", "--format", "{{json .Runtimes}}{{json .DiscoveredDevices}}")
    return version, "", "nvidia" in runtimes


def _ask(*command: str) -> tuple[str, str]:
    """The first line of a command's output, and why it failed."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=DOCKER_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return "", str(error)
    said = (done.stdout + done.stderr).strip() or f"exit code {done.returncode}"
    return (done.stdout.strip(), "") if done.returncode == 0 else ("", said.splitlines()[0])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def is_unlimited(limit_bytes: int) -> bool:
    """Whether a resource limit means "none"."""
    return limit_bytes in (-1, resource.RLIM_INFINITY) or limit_bytes >= os.sysconf("SC_PAGE_SIZE") << 48
