"""One run of all checks on a repository, and the file that tells of it."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trtbuild import __version__
from trtbuild.build.engine_log import parse_log
from trtbuild.errors import ServeError
from trtbuild.repository.names import llm_names
from trtbuild.serve import registry
from trtbuild.serve.server import start
from trtbuild.serve.state import ServerRecord
from trtbuild.tenants import Repository
from trtbuild.verify.account import Line, account, read_gpus, read_server_gpu_bytes
from trtbuild.verify.checks import Bench, Check, check_llm, check_vision

SCHEMA = 1
_LOG_BYTES = 64 << 20
# Lines of a log that tell of memory or of trouble; prompts and answers are in none of them.
_TELLING = (
    "MemUsage", "Loaded engine size", "paged kv cache", "KV cache", "k/v cache", "TRTGptModel max",
    "memory usage profiling", "max_num_tokens=", "tokens per block", "reduced to", "Total Activation",
    "Total Weights", "TensorRT-LLM version", "failed to load", "[ERROR]", "out of memory",
)  # fmt: skip


@dataclass(frozen=True)
class Report:
    """What was found. ``log``: the telling lines of the server's log, which `trtbuild reconcile` reads."""

    repository: Repository
    record: ServerRecord
    checks: tuple[Check, ...]
    account: tuple[Line, ...]
    gpus: tuple[dict[str, Any], ...]
    log: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing failed; checks that could not be made here do not count."""
        return all(check.state != "failed" for check in self.checks)

    def document(self) -> dict[str, Any]:
        """The file to send back; no prompt, answer, path of a user or secret is in it."""
        manifest = self.repository.manifest
        return {
            "schema": SCHEMA,
            "generator": f"trtbuild {__version__}",
            "made_unix_s": round(time.time()),
            "passed": self.passed,
            "plan_sha256": manifest.plan_sha256,
            "interface": manifest.interface,
            "plan": manifest.plan,
            "machine": {"system": platform.platform(), "python": platform.python_version()},
            "gpus": list(self.gpus),
            "checks": [asdict(check) for check in self.checks],
            "account": [{**asdict(line), "holds": line.holds} for line in self.account],
            "log": list(self.log),
        }


def verify(repository: Repository, *, on_check: Callable[[Check], None] = lambda check: None) -> Report:
    """Tries a repository: on its running server, or on one that is started for it and stopped again.

    Raises:
        ServeError: no server can be started here. One that starts and does not load is a failed check.
    """
    try:
        record = registry.find(repository.path)
    except ServeError:
        started_s = time.monotonic()
        with start(repository.path) as server:
            seconds = time.monotonic() - started_s
            load = Check("load", "", "passed", f"ready after {seconds:.0f} s", {"ready_s": round(seconds, 1)})
            return _on_server(repository, server.record, load, on_check)
    unready = [name for name, ready in registry.status(repository.path).models.items() if not ready]
    load = Check(
        "load",
        "",
        "failed" if unready else "passed",
        f"not ready: {', '.join(unready)}" if unready else "every model of the running server is ready",
    )
    return _on_server(repository, record, load, on_check)


def _on_server(
    repository: Repository, record: ServerRecord, load: Check, on_check: Callable[[Check], None]
) -> Report:
    from tritonstream import Client

    checks = [load]
    on_check(load)
    scheme = repository.manifest.names
    with Client(f"127.0.0.1:{record.grpc_port}") as client:
        bench = Bench(client, f"127.0.0.1:{record.metrics_port}")
        for llm in repository.plan.llms:
            for check in check_llm(bench, llm, llm_names(llm.name, scheme).engine):
                checks.append(check)
                on_check(check)
        for vision in repository.plan.visions:
            for check in check_vision(bench, vision):
                checks.append(check)
                on_check(check)
    text = _log_text(Path(record.log))
    gpus = tuple(read_gpus())
    lines = account(
        repository.plan,
        server_pid=record.server_pid,
        shm_prefix=record.shm_prefix,
        log=parse_log(text),
        gpu=gpus if record.on_gpu else (),
        server_gpu_bytes=read_server_gpu_bytes() if record.on_gpu else None,
    )
    broken = [line for line in lines if not line.holds]
    held = Check(
        "account",
        "",
        ("failed" if broken else "passed") if lines else "skipped",
        "; ".join(
            f"{line.item} takes {line.found_bytes} bytes, {line.planned_bytes} were planned"
            for line in broken
        )
        or (f"{len(lines)} items, none above its plan" if lines else "nothing here tells of memory"),
    )  # fmt: skip
    checks.append(held)
    on_check(held)
    telling = tuple(line for line in text.splitlines() if any(word in line for word in _TELLING))
    return Report(repository, record, tuple(checks), tuple(lines), gpus, telling)


def _log_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LOG_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""
