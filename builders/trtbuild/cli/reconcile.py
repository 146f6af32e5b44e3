"""``trtbuild reconcile LOG``: what a build or load log says takes the place of the plan's estimates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from trtbuild.cli.console import note, print_json, print_table, size
from trtbuild.cli.options import DEFAULT_OUTPUT, FOLDER
from trtbuild.cli.servers import tell_if_served
from trtbuild.errors import ModelSourceError

_MAX_LOG_BYTES = 256 << 20


@click.command("reconcile")
@click.argument("log", type=FOLDER)
@click.argument("repo", type=FOLDER, default=DEFAULT_OUTPUT)
@click.option("--model", metavar="NAME", help="Which model the log is about; default: told by its weights.")
@click.option("--dry-run", is_flag=True, help="Compare and plan, write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Differences and the new plan as JSON.")
def reconcile_command(log: Path, repo: Path, model: str | None, dry_run: bool, as_json: bool) -> None:
    """Plan REPO anew with what LOG says of memory, and write it.

    LOG: of trtllm-build (build/…/logs/compile.log), of a server's start (trtbuild logs), or the file that
    trtbuild verify wrote. Compiled engines stay.
    """
    text = _read(log)
    from trtbuild.cli.plan_view import refuse_unless_it_fits
    from trtbuild.generate import generate
    from trtbuild.reconcile import reconcile
    from trtbuild.tenants import Repository

    repository = Repository.open(repo)
    result = reconcile(repository, text, source=log.name, model=model)
    answer: dict[str, Any] = {
        "differences": [vars(row) for row in result.differences],
        "notes": list(result.notes),
        "plan": result.prepared.plan.model_dump(mode="json"),
        "written": [],
    }
    try:
        if not as_json:
            rows = [
                (row.model, row.item, size(row.planned), size(row.said), size(row.now))
                for row in result.differences
            ]
            print_table(("model", "item", ">planned", ">the log says", ">now planned"), rows)
            for line in result.notes:
                note(line)
        refuse_unless_it_fits(result.prepared.plan)
        report = generate(result.prepared, repository.path, names=repository.manifest.names, dry_run=dry_run)
        answer["written"] = [] if isinstance(report, tuple) else list(report.written)
        if not as_json:
            done = "nothing" if dry_run or not answer["written"] else ", ".join(answer["written"])
            click.echo(f"repository {repository.path}: {done} written")
        if answer["written"]:
            tell_if_served(repository.path)
    finally:
        if as_json:
            print_json(answer)


def _read(path: Path) -> str:
    """A log's text; of a file of ``trtbuild verify``, the lines that it carries."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_LOG_BYTES)
    except OSError as error:
        raise ModelSourceError(f"{path}: cannot be read: {error.strerror}") from error
    text = data.decode("utf-8", errors="replace")
    if text.lstrip().startswith("{"):
        import json

        try:
            return "\n".join(json.loads(text)["log"])
        except (ValueError, KeyError, TypeError):
            return text
    return text
