"""``trtbuild --model NAME …`` (``trtbuild build``): from a description to a repository on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from trtbuild.cli.console import note, print_json
from trtbuild.cli.options import DEFAULT_OUTPUT, FOLDER, output_options, read_spec, spec_options
from trtbuild.cli.servers import tell_if_served
from trtbuild.errors import in_shell

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from trtbuild.prepare import Prepared
    from trtbuild.repository.names import NameScheme
    from trtbuild.repository.update import WriteReport


@spec_options
@output_options
@click.command("build")
@click.option("--output", type=FOLDER, default=DEFAULT_OUTPUT, show_default=True, help="Where to write.")
@click.option(
    "--names", type=click.Choice(["own", "classic"]), default="own", help="classic: NVIDIA's model names."
)
def build_command(
    output: Path, names: str, build: bool | None, dry_run: bool, as_json: bool, **flags: Any
) -> None:
    """Write the model repository of a deployment, and compile its engines where the GPU is here.

    The default command: `trtbuild --model NAME …`.
    """
    spec = read_spec(flags)
    from trtbuild.compiling import work_folder
    from trtbuild.prepare import prepare

    prepared = prepare(spec, names=cast("NameScheme", names), build_dir=work_folder(output), build=build)
    write(prepared, output, names=names, dry_run=dry_run, as_json=as_json)


def write(
    prepared: Prepared,
    output: Path,
    *,
    names: Any,
    dry_run: bool,
    as_json: bool,
    leave: Collection[str] = (),
) -> None:
    """Shows a prepared deployment, refuses it or writes and builds it, and says what comes next."""
    from trtbuild.cli.engines import build_here, show_commands
    from trtbuild.cli.plan_view import print_plan, refuse_unless_it_fits
    from trtbuild.generate import generate

    plan = prepared.plan
    answer: dict[str, Any] = {"repository": None, "plan": plan.model_dump(mode="json")}
    try:
        if not as_json:
            print_plan(plan, prepared.notes, beside=leave)
        refuse_unless_it_fits(plan)
        report = generate(prepared, output, names=names, dry_run=dry_run, leave=leave)
        if isinstance(report, tuple):
            answer |= {"dry_run": True, "would_write": report}
            if not as_json:
                click.echo(f"would write {output}: {', '.join(report)}")
            answer["commands"] = show_commands(prepared, output, as_json=as_json)
            return
        answer |= {"repository": str(report.repo), "written": report.written, "unchanged": report.unchanged}
        if not as_json:
            _say_what_was_done(report)
        if report.written or report.removed:
            tell_if_served(report.repo)
        if prepared.builds:
            answer["build"] = []
            build_here(prepared, report.repo, names=names, answer=answer["build"], as_json=as_json)
        elif not as_json:
            _say_what_comes_next(prepared, output)
    finally:
        if as_json:
            print_json(answer)


def _say_what_was_done(report: WriteReport) -> None:
    done = [f"{len(names)} {what}" for names, what in (
        (report.written, "written"), (report.unchanged, "unchanged"), (report.removed, "removed")
    ) if names]  # fmt: skip
    click.echo(f"repository {report.repo}: {', '.join(done) or 'nothing to do'}")
    for name in report.written:
        click.echo(f"  {name}")
    for folder, place in report.moved_engines.items():
        note(f"{folder}: engines of another build were moved to {place}")


def _say_what_comes_next(prepared: Prepared, output: Path) -> None:
    from trtbuild.spec import Target

    if prepared.plan.target is Target.LOCAL:
        click.echo(f"next: trtbuild serve {in_shell(output)}")
        return
    scripts = [name for name in ("build_engines.sh", "launch.sh") if (output / name).is_file()]
    click.echo(f"next, on the machine with the GPU: {', then '.join(f'{output}/{name}' for name in scripts)}")
