"""Facts of a live server: its models' configs, its metrics, its log where it is at hand."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trtbuild.doctor.prometheus import Metrics, parse_metrics
from trtbuild.errors import ServeError

ANSWER_S = 5.0
LOG_BYTES = 16 << 20  # of the end of a log


@dataclass(frozen=True)
class LiveModel:
    """One model: its config as JSON; its state and why, where the server's index says it."""

    name: str
    config: dict[str, Any] = field(default_factory=dict)
    state: str = "READY"
    reason: str = ""

    @property
    def backend(self) -> str:
        return str(self.config.get("backend") or self.config.get("platform") or "")

    @property
    def decoupled(self) -> bool:
        return bool((self.config.get("model_transaction_policy") or {}).get("decoupled"))

    @property
    def instances(self) -> int:
        return sum(int(group.get("count", 1)) for group in self.config.get("instance_group") or ()) or 1

    def parameter(self, key: str) -> str:
        """A parameter's string; empty where it is missing."""
        value = (self.config.get("parameters") or {}).get(key) or {}
        return str(value.get("string_value", ""))


@dataclass(frozen=True)
class LiveFacts:
    """``metrics`` is None where the metrics port does not answer; ``log`` is empty where none is known."""

    ready: bool
    models: tuple[LiveModel, ...]
    metrics: Metrics | None
    log: str = ""


def read_live(http: str, metrics: str, *, names: tuple[str, ...] = (), log: Path | None = None) -> LiveFacts:
    """Asks a server over HTTP.

    Args:
        http, metrics: ``HOST:PORT`` of the two services.
        names: models to ask for where the server closes its index.

    Raises:
        ServeError: if nothing answers at ``http``.
    """
    ready = _get(f"http://{http}/v2/health/ready")
    if ready is None:
        raise ServeError(f"no server answers at http://{http}", "name it: --url HOST:PORT (the HTTP port)")
    index = _json(f"http://{http}/v2/repository/index", post=True)
    rows = index if isinstance(index, list) else [{"name": name} for name in names]
    models = tuple(_model(http, row) for row in rows if isinstance(row, dict) and "name" in row)
    scrape = _get(f"http://{metrics}/metrics")
    return LiveFacts(
        ready=ready[0] == 200,
        models=models,
        metrics=parse_metrics(scrape[1]) if scrape is not None and scrape[0] == 200 else None,
        log=_tail(log) if log is not None else "",
    )


def _model(http: str, row: dict[str, Any]) -> LiveModel:
    name = str(row["name"])
    config = _json(f"http://{http}/v2/models/{quote(name, safe='')}/config")
    return LiveModel(
        name,
        config if isinstance(config, dict) else {},
        str(row.get("state", "READY")),
        str(row.get("reason", "")),
    )


def _get(url: str, *, post: bool = False) -> tuple[int, str] | None:
    """Status and body; None where nothing answers."""
    request = urllib.request.Request(url, data=b"{}" if post else None)
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            return int(answer.status), answer.read().decode("utf-8", errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, ""
    except (OSError, ValueError):
        return None


def _json(url: str, *, post: bool = False) -> Any:
    answer = _get(url, post=post)
    if answer is None or answer[0] != 200:
        return None
    try:
        return json.loads(answer[1])
    except ValueError:
        return None


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - LOG_BYTES))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
