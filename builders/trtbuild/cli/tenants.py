"""``trtbuild add``, ``remove`` and ``list``: the models of one repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from trtbuild.cli.build import write
from trtbuild.cli.console import print_json, print_table, size
from trtbuild.cli.options import output_options, read_spec, repository, spec_options
from trtbuild.cli.servers import tell_if_served


@spec_options
@output_options
@click.command("add")
@repository
def add_command(repo: Path, build: bool | None, dry_run: bool, as_json: bool, **flags: Any) -> None:
    """Add models to the repository REPO; what it holds already stays byte for byte.

    Prints what they add to the plan; `trtbuild list` shows what each model takes, --json the whole plan. A
    server that runs serves them once it is started again.
    """
    spec = read_spec(flags)
    from trtbuild.compiling import work_folder
    from trtbuild.tenants import Repository, prepare_addition

    opened = Repository.open(repo)
    prepared = prepare_addition(opened, spec, build_dir=work_folder(opened.path), build=build)
    names = opened.manifest.names
    leave = [model.name for model in opened.plan.models]
    write(prepared, repo, names=names, dry_run=dry_run, as_json=as_json, leave=leave)


@click.command("remove")
@click.argument("name")
@repository
def remove_command(name: str, repo: Path) -> None:
    """Remove the model NAME from the repository REPO, and nothing else.

    A server that runs keeps serving it until it is started again.
    """
    from trtbuild.tenants import Repository, remove

    report = remove(Repository.open(repo), name)
    click.echo(f"removed {', '.join(report.removed)} from {report.repo}")
    tell_if_served(report.repo)


@click.command("list")
@repository
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def list_command(repo: Path, as_json: bool) -> None:
    """List the models that a repository holds, and what was changed in it since it was written."""
    from trtbuild.repository.manifest import verify_manifest
    from trtbuild.tenants import Repository

    opened = Repository.open(repo)
    plan, drift = opened.plan, verify_manifest(opened.path)
    units = opened.manifest.models
    if as_json:
        models = {name: {"kind": unit.kind, "folders": sorted(unit.folders)} for name, unit in units.items()}
        head = {"repository": str(opened.path), "target": plan.target.value}
        print_json({**head, "models": models, "changed": drift})
        return
    held = {item.model: 0 for item in plan.ledger}
    for item in plan.ledger:
        held[item.model] += item.bytes
    kinds = {llm.name: f"{llm.quant} of {llm.source}" for llm in plan.llms}
    kinds |= {
        vision.name: f"{vision.task.value} by {vision.pipeline or vision.weights_path}"
        for vision in plan.visions
    }
    rows = [
        (name, unit.kind, kinds.get(name, ""), size(held.get(name, 0)), _folders(name, sorted(unit.folders)))
        for name, unit in units.items()
    ]
    print_table(("model", "kind", "what", ">planned", "folders"), rows)
    for line in drift:
        click.echo(f"changed: {line}")


def _folders(name: str, folders: list[str]) -> str:
    """The folders of a model, those that share its name by their ending alone."""
    return ", ".join(folder.removeprefix(name) or name for folder in folders)
