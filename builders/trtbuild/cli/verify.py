"""``trtbuild verify``: proves on the machine that serves it that a repository does what its plan says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtbuild.cli.console import note, print_table, size, step
from trtbuild.cli.options import DEFAULT_OUTPUT, FOLDER
from trtbuild.errors import in_shell

if TYPE_CHECKING:
    from trtbuild.verify.checks import Check

_MARKS = {"passed": "ok", "failed": "FAILED", "skipped": "–"}


@click.command("verify")
@click.argument("repo", type=FOLDER, default=DEFAULT_OUTPUT)
@click.option("--output", type=FOLDER, default="verified.json", show_default=True, help="File to send back.")
def verify_command(repo: Path, output: Path) -> None:
    """Load REPO, stream, cancel, repeat a prefix, read a page, and hold memory against the plan.

    A server that runs is used, else one is started and stopped. What was found goes into one file, which
    trtbuild reconcile reads, too. Exit code 1 when something failed.
    """
    from trtbuild.tenants import Repository
    from trtbuild.verify.run import verify

    def on_check(check: Check) -> None:
        name = f"{check.model}: {check.name}" if check.model else check.name
        click.echo(f"{_MARKS[check.state]:>6}  {name}: {check.detail}")

    repository = Repository.open(repo)
    with step(f"verifying {repository.path.name}"):
        report = verify(repository, on_check=on_check)
    rows = [
        (line.item, size(line.planned_bytes), size(line.found_bytes), line.source) for line in report.account
    ]
    if rows:
        print_table(("memory of", ">planned at most", ">found", "by"), rows)
    output.write_text(json.dumps(report.document(), indent=2) + "\n", encoding="utf-8")
    note(f"all of it is in {output}; it holds no prompts and no answers")
    if report.record.on_gpu:
        files = f"{in_shell(output)} {in_shell(repo)}"
        note(f"next: trtbuild reconcile {files} puts what the log says into the plan")
    if not report.passed:
        click.get_current_context().exit(1)
