"""What the commands that measure have in common: options, tables, the live display."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trtbuild.cli.console import note, print_table
from trtbuild.cli.options import ABOVE_ZERO, GRPC_ADDRESS, NOT_NEGATIVE, Number
from trtbuild.errors import MeasureError

if TYPE_CHECKING:
    from trtbuild.measure.load.generator import Progress
    from trtbuild.measure.load.spec import Flow, LoadSpec
    from trtbuild.measure.records.record import Record
    from trtbuild.measure.records.store import Store
    from trtbuild.measure.server import MeasuredServer

_Command = TypeVar("_Command", bound=Callable[..., Any])
_BARS = " ▁▂▃▄▅▆▇█"
_SHOWN = ("p50", "p90", "p95", "p99")


def runs_option(command: _Command) -> _Command:
    """Adds ``--runs``, the file of records."""
    option = click.option(
        "--runs",
        "runs_file",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Where runs are kept; default: runs/records.sqlite.",
    )
    return option(command)


def load_options(command: _Command) -> _Command:
    """Adds what describes a load, which `read_load` reads."""
    for option in (
        click.option(
            "--slo-latency", type=ABOVE_ZERO, metavar="SECONDS", help="Longest latency that goodput counts."
        ),
        click.option(
            "--slo-tpot", type=ABOVE_ZERO, metavar="SECONDS", help="Longest TPOT that goodput counts."
        ),
        click.option(
            "--slo-ttft", type=ABOVE_ZERO, metavar="SECONDS", help="Longest TTFT that goodput counts."
        ),
        click.option(
            "--timeout",
            "timeout_s",
            type=ABOVE_ZERO,
            default=120.0,
            show_default=True,
            metavar="SECONDS",
            help="Of one request.",
        ),
        click.option("--seed", type=int, default=1, show_default=True, help="Of arrivals and classes."),
        click.option(
            "--warmup",
            "warmup_s",
            type=NOT_NEGATIVE,
            default=5.0,
            show_default=True,
            metavar="SECONDS",
            help="At the beginning, not measured.",
        ),
        click.option(
            "--duration",
            "duration_s",
            type=ABOVE_ZERO,
            default=60.0,
            show_default=True,
            metavar="SECONDS",
            help="How long requests are sent, warm-up included.",
        ),
        click.option(
            "--prefix-share",
            type=Number(0, 1),
            default=0.0,
            help="Share of each prompt that all have in common.",
        ),
        click.option(
            "--traffic",
            multiple=True,
            metavar="CLASS[=WEIGHT]",
            help="short/short, long/short, long/long, 512/128, FILE.jsonl, vision[:PICTURE]; may be several. "
            "NAME:offline: counted apart from interactive use.",
        ),
    ):
        command = option(command)
    return command


def server_choice(command: _Command) -> _Command:
    """Adds ``--repo``, ``--url`` and ``--metrics``, which `chosen_server` reads."""
    for option in (
        click.option("--metrics", metavar="HOST:PORT", help="Its metrics; default: port 8002 of that host."),
        click.option("--url", type=GRPC_ADDRESS, metavar="HOST:PORT", help="gRPC address of another server."),
        click.option("--repo", type=click.Path(path_type=Path), help="Repository whose server is meant."),
    ):
        command = option(command)
    return command


def chosen_server(repo: Path | None, url: str | None, metrics: str | None) -> MeasuredServer:
    """The server that is measured."""
    need_extra()
    from trtbuild.measure.server import find_server

    return find_server(repo, url, metrics)


def need_extra() -> None:
    """Raises unless the packages of ``trtbuild[measure]`` are there."""
    from importlib.util import find_spec

    missing = [name for name in ("scipy", "psutil") if find_spec(name) is None]
    if missing:
        raise MeasureError(f"measuring needs {' and '.join(missing)}", "pip install 'trtbuild[measure]'")


def open_store(runs_file: Path | None) -> Store:
    """The file of records."""
    need_extra()
    from trtbuild.measure.records.store import Store

    return Store(runs_file)


def the_model(server: MeasuredServer, asked: str | None, kind: str = "llm", option: str = "--model") -> str:
    """The model to call: as asked, else the only one of its kind in the repository, or on another's server.

    Args:
        option: that names one.

    Raises:
        MeasureError: none, or several.
        ServeError: a server whose repository is not known here does not answer.
    """
    if asked is not None:
        return asked
    plan = server.plan()
    if plan is None:
        names = server.models()
        if len(names) == 1:
            return names[0]
        what = (
            f"{server.address} serves {len(names)} models" if names else f"{server.address} lists no models"
        )
        raise MeasureError(
            f"{what}, and which of them takes {'pictures' if kind == 'vision' else 'text'} is not known here",
            *(f"{option} {name}" for name in names or ["NAME"]),
        )
    names = [model.name for model in (plan.llms if kind == "llm" else plan.visions)]
    if len(names) != 1:
        what = "language model" if kind == "llm" else "vision model"
        raise MeasureError(
            f"{server.repository} holds {len(names)} {what}s", *(f"{option} {name}" for name in names)
        )
    return names[0]


def text_or_vision(traffic: Sequence[str]) -> str:
    """Which kind of model a traffic goes to."""
    return "vision" if any(item.startswith("vision") for item in traffic) else "llm"


def make_flow(model: str, shape: str, traffic: Sequence[str], prefix_share: float) -> Flow:
    """One flow from the command line's words."""
    from trtbuild.measure.load.flags import parse_shape, parse_traffic
    from trtbuild.measure.load.spec import Flow

    classes = [parse_traffic(item, prefix_share=prefix_share) for item in traffic or ("short/short",)]
    return _valid(lambda: Flow(model=model, shape=parse_shape(shape), traffic=tuple(classes)))


def make_load(flows: Sequence[Flow], options: dict[str, Any]) -> LoadSpec:
    """The load of ``flows`` with what `load_options` gave."""
    from trtbuild.measure.load.spec import LoadSpec, Slo

    def made() -> LoadSpec:
        slo = Slo(ttft_s=options["slo_ttft"], tpot_s=options["slo_tpot"], latency_s=options["slo_latency"])
        shared = {key: options[key] for key in ("duration_s", "warmup_s", "seed", "timeout_s")}
        return LoadSpec(flows=tuple(flows), slo=slo, requests=options.get("requests"), **shared)

    return _valid(made)


_Made = TypeVar("_Made")


def _valid(make: Callable[[], _Made], where: str = "") -> _Made:
    from pydantic import ValidationError

    try:
        return make()
    except ValidationError as error:
        from trtbuild.measure.load.flags import why

        raise MeasureError(f"{where}{why(error)}") from error


def load_from_file(path: Path) -> LoadSpec:
    """A load that is described in YAML; its fields are those of `LoadSpec`.

    Raises:
        MeasureError: a file that does not describe one.
    """
    import yaml

    from trtbuild.measure.load.spec import LoadSpec

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MeasureError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise MeasureError(f"{path} is not YAML: {error}") from error
    if not isinstance(data, dict):
        raise MeasureError(f"{path} describes no load: it holds no fields", "flows, duration_s, warmup_s, …")
    return _valid(lambda: LoadSpec.model_validate(data), f"{path}: ")


# Showing


@contextmanager
def live(title: str, duration_s: float) -> Iterator[Callable[[Progress], None]]:
    """A display of a run for a person; a line every ten seconds for a log."""
    if not sys.stderr.isatty():
        yield _logged(title)
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(Text(f"{title}: starting"), console=Console(stderr=True), refresh_per_second=4) as display:
        yield lambda progress: display.update(Text(_line(title, progress, duration_s)))


def _logged(title: str) -> Callable[[Progress], None]:
    last_s = [0.0]

    def log(progress: Progress) -> None:
        if progress.elapsed_s - last_s[0] >= 10:
            last_s[0] = progress.elapsed_s
            note(f"· {_line(title, progress, None)}")

    return log


def _line(title: str, progress: Progress, duration_s: float | None) -> str:
    recent = sorted(progress.recent_ttft_s)
    ttft = f", TTFT {1e3 * recent[len(recent) // 2]:.0f} ms" if recent else ""
    failed = f", {progress.failed} failed" if progress.failed else ""
    bar = ""
    if duration_s:
        eighths = min(160, int(160 * progress.elapsed_s / duration_s))
        bar = f"{'█' * (eighths // 8)}{_BARS[eighths % 8]}".strip().ljust(20) + " "
    rate = progress.tokens / max(progress.elapsed_s, 1e-9)
    return (
        f"{bar}{title} {progress.elapsed_s:.0f} s: {progress.running} running, {progress.done} done{failed}, "
        f"{rate:.0f} tokens/s{ttft}"
    )


def show_run(record: Record) -> None:
    """A run's figures, its server's, and what to know before believing them."""
    if record.kind == "quality":
        show_quality(record)
        return
    click.echo(f"run {record.run_id}{' ' + record.label if record.label else ''}: {_state(record)}")
    groups = {"all": record.metrics.get("all", {}), **record.metrics.get("traffic", {})}
    groups |= {name: record.metrics[name] for name in ("interactive", "offline") if name in record.metrics}
    for name, group in groups.items():
        if group.get("requests"):
            _show_latencies(name, group)
    _show_rates(groups)
    _show_server(record.metrics.get("server", {}))
    own = record.generator
    if own:
        from trtbuild.measure.metrics import send_error_text

        late = send_error_text(own, record.metrics.get("all", {}))
        note(f"generator: {own['cpu_share']:.0%} of a core, {late}")
    for text in record.notes:
        note(f"note: {text}")
    changes = {path: values for path, values in record.changed.items() if path != "run"}
    if changes:
        shown = ", ".join(f"{path} {old} → {new}" for path, (old, new) in list(changes.items())[:4])
        more = f" and {len(changes) - 4} more" if len(changes) > 4 else ""
        note(f"changed since {record.changed['run'][0]}: {shown}{more}")


def show_quality(record: Record) -> None:
    """A comparison of answers: scores by group, and the gate."""
    data = record.metrics["page"]
    click.echo(
        f"run {record.run_id}{' ' + record.label if record.label else ''}: "
        f"{data['after']} against {data['before']}"
    )
    print_table(("group", "score", ">value (95 % interval)"), data["groups"])
    print_table(("gate", ">figure (95 % interval)", ">limit", ""), data["gate"])
    click.echo("passed" if data["passed"] else "NOT passed")


def _state(record: Record) -> str:
    return record.state if not record.why else f"{record.state} ({record.why})"


def _show_latencies(name: str, group: dict[str, Any]) -> None:
    from trtbuild.measure.metrics import LATENCIES

    rows = []
    for metric in LATENCIES:
        data = group.get(metric.name)
        if data and data["n"] and metric.name != "send_error_s":
            rows.append(
                (
                    metric.title,
                    _count(data),
                    bounded(data["mean"]),
                    *(_interval(data[part]) for part in _SHOWN),
                )
            )
    if rows:
        title = "all requests" if name == "all" else name
        columns = (f"{title}, ms", ">n", ">mean", *(f">{part.upper()} (95 %)" for part in _SHOWN))
        print_table(columns, rows)


def _interval(data: dict[str, Any]) -> str:
    if data["value"] is None:
        return "too few"
    return f"{bounded(data)} ({interval(data['low'], data['high'])})"


def _count(data: dict[str, Any]) -> str:
    return f"{data['n']}, {data['cut']} cut" if data.get("cut") else str(data["n"])


def bounded(data: dict[str, Any]) -> str:
    """An estimate's value in milliseconds; ≥ where the true one is larger."""
    return ("≥" if data.get("at_least") else "") + milliseconds(data["value"])


def interval(low_s: float | None, high_s: float | None) -> str:
    """Both ends in milliseconds; the upper one unknown where values were not waited for."""
    if low_s is None:
        return "–"
    return f"{milliseconds(low_s)}–{'?' if high_s is None else milliseconds(high_s)}"


def milliseconds(value_s: float | None) -> str:
    """Three digits or so."""
    if value_s is None:
        return "–"
    value = 1e3 * value_s
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _show_rates(groups: dict[str, dict[str, Any]]) -> None:
    from trtbuild.measure.metrics import RATES, SHARES

    rows = []
    for name, group in groups.items():
        cells = [_rate(group.get(key)) for key in RATES]
        failed = {
            title: group[key]["value"]
            for key, (title, _) in SHARES.items()
            if (group.get(key) or {}).get("value")
        }
        if (group.get("degrade_rate") or {}).get("value"):
            failed["degraded"] = group["degrade_rate"]["value"]
        rows.append(
            (name, *cells, ", ".join(f"{share:.1%} {title}" for title, share in failed.items()) or "none")
        )
    print_table(("a second", *(f">{title}" for title, _, _ in RATES.values()), "failures"), rows)


def _rate(data: dict[str, Any] | None) -> str:
    if not data or data["value"] is None:
        return "–"
    if data.get("why"):
        return "too short"
    value, half = data["value"], (data["high"] - data["low"]) / 2
    return f"{value:.1f} ±{half:.1f}" if value >= 10 else f"{value:.2f} ±{half:.2f}"


_SERVER: dict[str, tuple[str, Callable[[float], str]]] = {
    "queue_wait_s": ("in Triton", lambda v: f"{1e3 * v:.1f} ms"),
    "engine_wait_s": ("for a place", lambda v: f"{1e3 * v:.1f} ms"),
    "generation_mean": ("running", lambda v: f"{v:.1f}"),
    "waiting_max": ("waiting", lambda v: f"{v:.0f}"),
    "kv_share_max": ("KV", lambda v: f"{v:.0%}"),
    "batch": ("batch", lambda v: f"{v:.1f}"),
    "cpu_cores_mean": ("cores", lambda v: f"{v:.2f}"),
    "gpu_busy_mean": ("GPU", lambda v: f"{v:.0%}"),
}


def _show_server(server: dict[str, dict[str, float]]) -> None:
    rows = []
    for model, row in server.items():
        cells = [shown(row[key]) if key in row else "" for key, (_, shown) in _SERVER.items()]
        if any(
            row.get(key, 0.0) >= 0.05
            for key in ("cpu_cores_mean", "generation_mean", "gpu_busy_mean", "batch")
        ):
            rows.append((model, *cells))
    if rows:
        print_table(("server", *(f">{title}" for title, _ in _SERVER.values())), rows)
