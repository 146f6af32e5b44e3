"""Facts of a live server: its models' configs, its metrics, its log where it is at hand."""

from __future__ import annotations

import http.client
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
_NO_HTTP = 0  # in place of a status
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
    """``metrics`` is None where the metrics port does not answer; ``log`` is empty where none is known.

    ``version`` is the server's own, such as 2.51.0; empty where it does not say it. ``index_is_closed``: the
    server does not list its models, and those that are known come from elsewhere.
    """

    ready: bool
    models: tuple[LiveModel, ...]
    metrics: Metrics | None
    log: str = ""
    version: str = ""
    index_is_closed: bool = False


def read_live(http: str, metrics: str, *, names: tuple[str, ...] = (), log: Path | None = None) -> LiveFacts:
    """Asks a server over HTTP.

    Args:
        http, metrics: ``HOST:PORT`` of the two services, or their URLs.
        names: models to ask for where the server closes its index; default: those that its metrics name.

    Raises:
        ServeError: if nothing answers at ``http``.
    """
    base = base_url(http)
    ready = _get(f"{base}/v2/health/ready")
    if ready is None:
        raise ServeError(f"no server answers at {base}", "name it: --url HOST:PORT (the HTTP port)")
    if ready[0] == _NO_HTTP:
        raise ServeError(f"what answers at {base} speaks no HTTP", "name its HTTP port, often 8000")
    if ready[0] not in (200, 400):  # what Triton answers when it is ready, and when it is not
        raise ServeError(
            f"what answers at {base} is no Triton server (status {ready[0]})",
            "name its HTTP port, often 8000",
        )
    scrape = _get(f"{base_url(metrics)}/metrics")
    samples = parse_metrics(scrape[1]) if scrape is not None and scrape[0] == 200 else None
    index = _json(f"{base}/v2/repository/index", post=True)
    listed = isinstance(index, list)
    rows = index if listed else [{"name": name} for name in names or _measured(samples)]
    about = _json(f"{base}/v2")
    return LiveFacts(
        ready=ready[0] == 200,
        models=tuple(_model(base, row) for row in rows if isinstance(row, dict) and "name" in row),
        metrics=samples,
        log=_tail(log) if log is not None else "",
        version=str(about.get("version", "")) if isinstance(about, dict) else "",
        index_is_closed=not listed,
    )


def base_url(address: str) -> str:
    """``HOST:PORT`` or a URL as ``http://HOST:PORT``, without what is behind it."""
    scheme, separator, rest = address.partition("://")
    host = (rest if separator else address).partition("/")[0]
    return f"{scheme if separator else 'http'}://{host}"


def _measured(metrics: Metrics | None) -> list[str]:
    """Models that the metrics name: every loaded one has counters."""
    found = metrics.find("nv_inference_request_success") if metrics is not None else ()
    return sorted({sample.labels["model"] for sample in found if "model" in sample.labels})


def _model(base: str, row: dict[str, Any]) -> LiveModel:
    name = str(row["name"])
    path = f"{base}/v2/models/{quote(name, safe='')}"
    config = _json(f"{path}/config")
    state = str(row.get("state", ""))
    if not state:
        answer = _get(f"{path}/ready")
        state = "READY" if answer is not None and answer[0] == 200 else "not ready"
    return LiveModel(name, config if isinstance(config, dict) else {}, state, str(row.get("reason", "")))


def _get(url: str, *, post: bool = False) -> tuple[int, str] | None:
    """Status and body; None where nothing answers, `_NO_HTTP` where something else than HTTP does."""
    request = urllib.request.Request(url, data=b"{}" if post else None)
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            return int(answer.status), answer.read().decode("utf-8", errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, ""
    except http.client.InvalidURL:
        return None
    except http.client.HTTPException:  # a gRPC port, for one
        return _NO_HTTP, ""
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
