"""``trtbuild models``, ``gpus`` and ``formats``: the catalogues, and what a GPU can serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from trtbuild.cli.console import note, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trtbuild.catalog.formats import Format, KvDtype
    from trtbuild.catalog.gpus import Gpu

_SHOWN_INSTEAD = 2
_JSON = click.option("--json", "as_json", is_flag=True, help="Everything that is known, as JSON.")


@click.command("models")
@click.argument("word", required=False)
@_JSON
def models_command(word: str | None, as_json: bool) -> None:
    """List the models of the catalogue; WORD keeps those whose name holds it."""
    from trtbuild.catalog.models import all_models
    from trtbuild.catalog.vision import entries
    from trtbuild.errors import CatalogError

    records = [r for r in all_models() if word is None or word.lower() in " ".join((r.id.lower(), *r.names))]
    vision = {name: row for name, row in entries().items() if word is None or word.lower() in name}
    if not records and not vision:
        raise CatalogError(f"no model's name holds {word!r}", "`trtbuild models` lists all")
    if as_json:
        print_json([{"names": record.names, **record.model_dump(by_alias=True)} for record in records])
        return
    rows = [
        (
            ", ".join(dict.fromkeys((record.name, *(n for n in record.names if n == "qwen-7b")))),
            f"{record.params.text / 1e9:.2f}",
            f"{record.shape.context:,}",
            "yes" if record.packaged else "",
            ", ".join(dict.fromkeys(sibling.method.split()[0] for sibling in record.siblings)),
            record.id,
        )
        for record in records
    ]
    if rows:
        print_table(("model", ">billion", ">context", "local", "quantised at", "Hugging Face"), rows)
        note("Any other model works from its folder: --model PATH with a config.json.")
    if vision:
        shown = [(name, row.task, row.title, row.package.install) for name, row in vision.items()]
        print_table(("vision", "task", "what", "comes with"), shown)
        note("Any other: trtbuild add-vision NAME FILE.onnx")


@click.command("gpus")
@_JSON
def gpus_command(as_json: bool) -> None:
    """List the GPUs of the catalogue. Rates are dense; memory is what can be planned with.

    MIG is the number of slices that a GPU can be split into; --gpu a100-80g:1g.10gb plans for one.
    """
    from trtbuild.catalog.gpus import all_gpus

    if as_json:
        print_json([{**gpu.model_dump(), "memory_bytes": gpu.memory_bytes} for gpu in all_gpus()])
        return
    rows = [
        (
            gpu.name, gpu.arch, gpu.sm, f"{gpu.memory_bytes / (1 << 30):.1f}", _figure(gpu.mem_bw_gbs),
            _figure(gpu.fp16_tflops), _figure(gpu.fp8_tflops), _figure(gpu.fp4_tflops), gpu.mig_max or "-",
        )
        for gpu in all_gpus()
    ]  # fmt: skip
    print_table(("GPU", "family", ">SM", ">GiB", ">GB/s", ">fp16", ">fp8", ">fp4", ">MIG"), rows)


@click.command("formats")
@click.option(
    "--gpu", "gpu_name", metavar="NAME", help="Say what this GPU serves, with the reason for each no."
)
@_JSON
def formats_command(gpu_name: str | None, as_json: bool) -> None:
    """List weight formats and KV types, and where they run."""
    from trtbuild.catalog.formats import all_formats, all_kv_dtypes
    from trtbuild.catalog.gpus import find_gpu

    rows: Sequence[Format | KvDtype] = (*all_formats(), *all_kv_dtypes())
    match = find_gpu(gpu_name) if gpu_name is not None else None
    if as_json:
        print_json([_row(row, match.gpu if match else None) for row in rows])
        return
    if match is not None and match.note:
        note(match.note)
    gpu = match.gpu if match else None
    for title, kind in (("weights", all_formats()), ("KV cache", all_kv_dtypes())):
        _print_support(title, kind, gpu)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _row(row: Format | KvDtype, gpu: Gpu | None) -> dict[str, object]:
    from trtbuild.catalog.formats import format_support, instead
    from trtbuild.spec import Target

    support = {}
    for target in Target:
        served, why = format_support(row, gpu, target)
        rule = row.targets.get(target)
        support[target.value] = {
            "served": served,
            "why": why,
            "only": rule.only if served and rule is not None else "",
            "instead": [] if served else list(instead(row, gpu, target)),
        }
    return {**row.model_dump(mode="json", exclude={"targets", "refused_targets"}), "support": support}


def _print_support(title: str, rows: Sequence[Format | KvDtype], gpu: Gpu | None) -> None:
    from trtbuild.catalog.formats import format_support, instead
    from trtbuild.spec import Target

    table = []
    for row in rows:
        cells: list[str] = []
        reasons: dict[str, list[str]] = {}
        for target in Target:
            served, why = format_support(row, gpu, target)
            rule = row.targets.get(target)
            only = rule.only if served and rule is not None else ""
            cells.append(("yes?" if why else "yes*" if only else "yes") if served else "no")
            if not served and rule is not None and (others := instead(row, gpu, target)[:_SHOWN_INSTEAD]):
                why += f" (instead: {', '.join(others)})"
            for text in filter(None, (why, only)):
                reasons.setdefault(text, []).append(target.value)
        told = [f"{', '.join(targets)}: {why}" for why, targets in reasons.items()]
        table.append((row.name, *cells, row.title if gpu is None else "\n".join(told)))
    last = "what it is" if gpu is None else f"why not on {gpu.name}"
    print_table((title, *(target.value for target in Target), last), table)
