"""Facts of a host against the needs of a repository."""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.doctor.base import Diagnosis, State, gib, mib
from trtbuild.doctor.host import HostFacts, is_unlimited
from trtbuild.doctor.needs import Needs
from trtbuild.preflight.machine import driver_problem
from trtbuild.spec import Target

_OPEN_FILES = 4096  # sockets of clients, shared libraries and model files
_DISK_MARGIN_BYTES = 5 << 30
_STACK_BYTES = 64 << 20  # docker run --ulimit stack=67108864, as the containers' own notes advise
# Facts that a GPU reports as memory.total are a little less than the data sheet's.
_MEMORY_TOLERANCE = 0.97


def check_host(host: HostFacts, needs: Needs) -> list[Diagnosis]:
    """All checks of a host, in the order of what depends on what."""
    return [item for check in _CHECKS for item in check(host, needs)]


def _gpu(host: HostFacts, needs: Needs) -> Iterator[Diagnosis]:
    wanted = needs.target is not Target.LOCAL
    if not host.gpus:
        needed = wanted and (needs.container is not None or needs.engines)
        if host.driver is not None:  # a card that shares the host's memory has no figure of its own
            text = f"nvidia-smi tells of a GPU with driver {host.driver}, and not how much memory it has"
            yield Diagnosis("gpu", "warning" if needed else "info", text, "see that the models fit")
            return
        why = f": nvidia-smi says {host.driver_error!r}" if host.driver_error else ""
        remedy = "mend the driver, or start the container with --gpus all"
        state: State = "error" if needed else "info"
        yield Diagnosis("gpu", state, f"no NVIDIA GPU can be used{why}", remedy if needed else "")
        return
    for number, gpu in enumerate(host.gpus):
        fits = needs.gpu_bytes is None or gpu.memory_bytes >= _MEMORY_TOLERANCE * needs.gpu_bytes
        runs = needs.container is None or not needs.engines or gpu.sm in needs.container.sms
        text = f"GPU {number}: {gpu.name}, {gib(gpu.memory_bytes)}, compute capability {gpu.sm}"
        if not runs and needs.container is not None:
            yield Diagnosis(
                "gpu",
                "error",
                f"{text}; TensorRT-LLM {needs.container.trtllm} has no engines for it",
                f"it runs on {', '.join(needs.container.sms)}; choose another container",
            )
        elif needs.engines and needs.sm is not None and gpu.sm != needs.sm:
            yield Diagnosis(
                "gpu",
                "error",
                f"{text}; the plan's engines are for {needs.sm} ({needs.gpu_name})",
                "engines run only on the compute capability that they were built on: build them here",
            )
        elif not fits and needs.gpu_bytes is not None:
            yield Diagnosis(
                "gpu",
                "error",
                f"{text}; the plan is for {gib(needs.gpu_bytes)} ({needs.gpu_name})",
                "plan again with --gpu for this one",
            )
        else:
            yield Diagnosis("gpu", "ok", text)


def _driver(host: HostFacts, needs: Needs) -> Iterator[Diagnosis]:
    if host.driver is None:
        return
    problem = driver_problem(host.driver, needs.container) if needs.container is not None else None
    if problem is None:
        home = (
            f", container {needs.container.release} (CUDA {needs.container.cuda})" if needs.container else ""
        )
        yield Diagnosis("driver", "ok", f"driver {host.driver}{home}")
    else:
        severity, message, remedies = problem
        yield Diagnosis("driver", severity, message, "; or ".join(remedies))


def _container(host: HostFacts, needs: Needs) -> Iterator[Diagnosis]:
    del host
    if needs.container is None:
        return
    row = needs.container
    yield Diagnosis(
        "container", "ok", f"{row.image}: TensorRT-LLM {row.trtllm}, TensorRT {row.tensorrt}, CUDA {row.cuda}"
    )
    for advisory in row.advisories:
        yield Diagnosis(
            "container",
            "warning",
            f"older than {advisory.below}: {', '.join(advisory.ids)}; {advisory.what}",
            f"use {advisory.below} or newer, or keep the server on 127.0.0.1",
        )


def _docker(host: HostFacts, needs: Needs) -> Iterator[Diagnosis]:
    if needs.target is Target.LOCAL:
        return
    if host.docker is None:
        error = host.docker_error
        found = f"docker does not answer: {error}" if error else "docker is not installed"
        needed = needs.container is not None
        remedy = "install or start it, unless this is inside the container already"
        yield Diagnosis("docker", "warning" if needed else "info", found, remedy if needed else "")
    elif host.gpu_runtime is False and needs.container is not None:
        yield Diagnosis(
            "docker",
            "error",
            f"docker {host.docker} knows no NVIDIA runtime",
            "install nvidia-container-toolkit and run nvidia-ctk runtime configure",
        )
    else:
        yield Diagnosis("docker", "ok", f"docker {host.docker}")


def _shm(host: HostFacts, needs: Needs) -> Iterator[Diagnosis]:
    if host.shm_bytes is None or host.shm_free_bytes is None:
        return
    text = f"/dev/shm has {mib(host.shm_free_bytes)} free of {mib(host.shm_bytes)}"
    wanted = (
        f"; {needs.python_instances} Python instances take {mib(needs.shm_bytes)}" if needs.shm_bytes else ""
    )
    if host.shm_free_bytes < needs.shm_bytes:
        yield Diagnosis(
            "shm",
            "error",
            text + wanted,
            f"docker run --shm-size {needs.shm_bytes // (1 << 20) + 256}m; remove what crashed "
            "servers left there",
        )
    else:
        yield Diagnosis("shm", "ok", text + wanted)


def _ram(host: HostFacts, needs: Needs) -> Iterator[Diagnosis]:
    if host.ram_bytes is None or host.ram_available_bytes is None:
        return
    text = f"{gib(host.ram_available_bytes)} RAM available of {gib(host.ram_bytes)}"
    if host.ram_available_bytes < needs.ram_bytes:
        yield Diagnosis(
            "ram",
            "error",
            f"{text}; the plan needs {gib(needs.ram_bytes)}",
            "end other programs, or plan with fewer models or instances",
        )
    else:
        yield Diagnosis("ram", "ok", text)


def _disk(host: HostFacts, needs: Needs) -> Iterator[Diagnosis]:
    if host.disk_free_bytes is None:
        return
    image_bytes = needs.container.image_bytes if needs.container is not None and host.docker else 0
    text = f"{gib(host.disk_free_bytes)} of disk are free"
    if host.disk_free_bytes < image_bytes + _DISK_MARGIN_BYTES and image_bytes:
        yield Diagnosis(
            "disk",
            "warning",
            f"{text}; the image alone is {gib(image_bytes)} compressed, about twice that unpacked",
            "free space, or move docker's data folder",
        )
    elif host.disk_free_bytes < _DISK_MARGIN_BYTES:
        yield Diagnosis("disk", "warning", text, "logs, engines and caches need some GiB")
    else:
        yield Diagnosis("disk", "ok", text)


def _ports(host: HostFacts, needs: Needs) -> Iterator[Diagnosis]:
    del needs
    for port in host.busy_ports:
        yield Diagnosis(
            "ports",
            "warning",
            f"something listens on port {port}",
            "end it, or start the server with other ports (--http-port, --grpc-port, --metrics-port)",
        )


def _limits(host: HostFacts, needs: Needs) -> Iterator[Diagnosis]:
    if host.open_files < _OPEN_FILES:
        yield Diagnosis(
            "ulimits",
            "warning",
            f"{host.open_files} open files are allowed",
            f"ulimit -n 65536: every client and every library takes some (at least {_OPEN_FILES})",
        )
    if needs.engines and not is_unlimited(host.memlock_bytes):
        yield Diagnosis(
            "ulimits",
            "warning",
            f"{mib(host.memlock_bytes)} of memory may be locked",
            "docker run --ulimit memlock=-1: pinned pools and several GPUs need it",
        )
    if needs.engines and not is_unlimited(host.stack_bytes) and host.stack_bytes < _STACK_BYTES:
        yield Diagnosis(
            "ulimits",
            "info",
            f"the stack is limited to {mib(host.stack_bytes)}",
            f"docker run --ulimit stack={_STACK_BYTES}, as the container's own notes advise",
        )


def _packages(host: HostFacts, needs: Needs) -> Iterator[Diagnosis]:
    packages = dict(host.packages)
    installed = packages.get("tensorrt-llm")
    if (
        installed is not None
        and needs.container is not None
        and not installed.startswith(needs.container.trtllm)
    ):
        yield Diagnosis(
            "packages",
            "error",
            f"tensorrt-llm {installed} is installed, and the repository is for {needs.container.trtllm}",
            f"run it in container {needs.container.release}, or install "
            f"tensorrt-llm=={needs.container.trtllm}",
        )
    if installed is not None and host.shadowed:
        yield Diagnosis(
            "packages",
            "error",
            "the working folder holds a folder tensorrt_llm, which hides the package",
            "start from another folder; else: No module named 'tensorrt_llm.bindings'",
        )
    if needs.target is Target.LOCAL:
        missing = [name for name in ("nvidia-pytriton", "openvino-genai") if name not in packages]
        if missing:
            yield Diagnosis(
                "packages",
                "error",
                f"{' and '.join(missing)} not installed: the local target runs on them",
                "pip install 'trtbuild[local]'",
            )
        if int(packages.get("numpy", "1").split(".")[0]) > 1:
            yield Diagnosis(
                "packages",
                "error",
                f"numpy {packages['numpy']}: the wheel's Python stub is built against numpy 1",
                "pip install 'numpy<2'",
            )
    if packages:
        yield Diagnosis(
            "packages", "ok", ", ".join(f"{name} {version}" for name, version in packages.items())
        )


_CHECKS = (_gpu, _driver, _container, _docker, _shm, _ram, _disk, _ports, _limits, _packages)
