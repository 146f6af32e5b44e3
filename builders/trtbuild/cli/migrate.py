"""``trtbuild migrate``: a repository of NVIDIA's templates, written anew."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from trtbuild.cli.console import print_json
from trtbuild.cli.options import FOLDER, POSITIVE

if TYPE_CHECKING:
    from trtbuild.migrate.migrate import Migration
    from trtbuild.migrate.notes import Fate, Note
    from trtbuild.repository.names import NameScheme


@click.command("migrate")
@click.argument("old", metavar="OLD_REPO", type=FOLDER)
@click.option(
    "--target", type=click.Choice(["engine", "llmapi"]), required=True, help="What the new one is for."
)
@click.option(
    "--container", metavar="RELEASE", help="Triton release such as 25.10; default: newest that fits."
)
@click.option("--output", type=FOLDER, required=True, help="Where to write the new one.")
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="[ENGINE=]NAME",
    help="The model that an engine was built from: catalogue name, Hugging Face id or folder.",
)
@click.option(
    "--engine",
    "engines",
    multiple=True,
    metavar="[ENGINE=]FOLDER",
    help="Where an engine lies, if gpt_model_path is of another machine.",
)
@click.option("--gpu", metavar="NAME", help="GPU to plan for; default: the one here, else l4.")
@click.option("--quant", metavar="FORMAT", help="Weight format; default: the old one.")
@click.option("--max-input", type=POSITIVE, metavar="TOKENS", help="Longest prompt; default: the old one.")
@click.option("--max-output", type=POSITIVE, metavar="TOKENS", help="Longest answer; default: the old one.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 4096),
    metavar="N",
    help="Requests at once; default: as the old one.",
)
@click.option(
    "--instances",
    type=click.IntRange(1, 64),
    metavar="N",
    help="Copies of the engine; default: as the old one.",
)
@click.option(
    "--tp",
    type=click.IntRange(1, 64),
    metavar="N",
    help="GPUs that share one instance; default: the old number.",
)
@click.option(
    "--names",
    type=click.Choice(["own", "classic"]),
    help="classic: NVIDIA's model names; default: where the old one has them.",
)
@click.option("--dry-run", is_flag=True, help="Read and plan everything, write nothing.")
@click.option("--json", "as_json", is_flag=True, help="The plan, what was written and every note, as JSON.")
def migrate_command(
    old: Path,
    target: str,
    container: str | None,
    output: Path,
    models: tuple[str, ...],
    engines: tuple[str, ...],
    gpu: str | None,
    names: str | None,
    dry_run: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Write the repository OLD_REPO anew, for the LLM API or for another container.

    Reads NVIDIA's templates of TensorRT-LLM 0.12 to 1.2.1 and what people made of them, filled or not, with
    the engine's config.json and the tokenizer where they are here. The old repository stays as it is; what
    could not be carried over is listed, with the reason.
    """
    from trtbuild.migrate.migrate import Request, plan_migration
    from trtbuild.spec import Target

    _refuse_overlap(old, output)
    keys = {"quant": "quant", "max_input": "max_input_tokens", "max_output": "max_output_tokens",
            "concurrency": "concurrency", "tp": "tp", "instances": "instances"}  # fmt: skip
    request = Request(
        target=Target(target),
        container=container,
        gpu=gpu,
        models=_assigned(models),
        engines={key: Path(value) for key, value in _assigned(engines).items()},
        names=cast("NameScheme | None", names),
        said={keys[flag]: value for flag, value in flags.items() if value is not None},
    )
    _write(plan_migration(old, request), old, output, dry_run=dry_run, as_json=as_json)


def _write(migration: Migration, old: Path, output: Path, *, dry_run: bool, as_json: bool) -> None:
    from trtbuild.cli.plan_view import print_plan, refuse_unless_it_fits
    from trtbuild.generate import generate

    prepared = migration.prepared
    answer: dict[str, Any] = {
        "repository": None,
        "from": str(old),
        "models": dict(migration.folders),
        "notes": [item.as_json() for item in migration.notes],
        "plan": prepared.plan.model_dump(mode="json"),
    }
    try:
        if not as_json:
            _print_behaviour(migration)
            print_plan(prepared.plan, prepared.notes)
            _print_notes(migration)
        refuse_unless_it_fits(prepared.plan)
        done = generate(
            prepared, output, names=migration.names, dry_run=dry_run, tokenizers=migration.tokenizers
        )
        if isinstance(done, tuple):
            answer |= {"dry_run": True, "would_write": done}
            said = f"would write {output}: {', '.join(done)}"
        else:
            answer |= {"repository": str(done.repo), "written": done.written, "unchanged": done.unchanged}
            said = f"repository {done.repo}: {', '.join(done.written) or 'nothing to do'}"
            said += f"\nnext, on the machine with the GPU: {output}/build_engines.sh, then {output}/launch.sh"
        if not as_json:
            click.echo(f"\n{said}")
    finally:
        if as_json:
            print_json(answer)


def _refuse_overlap(old: Path, output: Path) -> None:
    """The old repository is never touched, so the new one cannot be it, be in it, or hold it."""
    from trtbuild.errors import RepositoryError

    source, new = old.resolve(), output.expanduser().resolve()
    if source == new or source in new.parents or new in source.parents:
        raise RepositoryError(
            f"{output} and {old} are not beside each other, and the old repository must stay as it is",
            f"write to another folder: --output {source.name}_new",
        )


def _assigned(values: tuple[str, ...]) -> dict[str, str]:
    """``ENGINE=VALUE`` by engine; a value alone belongs to the only engine, whose key is ""."""
    pairs = [value.partition("=") if "=" in value else ("", "", value) for value in values]
    for key, _, value in pairs:
        if not value or [pair[0] for pair in pairs].count(key) > 1:
            raise click.UsageError(f"give one value for each engine: {', '.join(values)}")
    return {key: value for key, _, value in pairs}


def _print_behaviour(migration: Migration) -> None:
    """Before everything else: what clients will notice."""
    found = [item for item in migration.notes if item.behaviour]
    if found:
        click.echo("ATTENTION: the new repository behaves differently from the old one:")
        for item in found:
            click.echo(_shown(item, item.fate))
        click.echo()


def _print_notes(migration: Migration) -> None:
    renamed = [f"{old} → {new}" for old, new in migration.folders.items() if old != new]
    if renamed:
        click.echo(f"\nmodels: {', '.join(renamed)}")
    for fate, title in (
        ("carried", "carried over"),
        ("changed", "carried over, and different"),
        ("left", "not carried over"),
    ):
        found = [item for item in migration.notes if item.fate == fate and not item.behaviour]
        if found:
            click.echo(f"\n{title}:")
        for item in found:
            click.echo(_shown(item, cast("Fate", fate)))


def _shown(item: Note, fate: Fate) -> str:
    now = f" → {item.now}" if item.now else ""
    why = f": {item.why}" if item.why and fate == "left" else f" ({item.why})" if item.why else ""
    line = f"  {item.place}: {item.item}{now}{why}"
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in line)
