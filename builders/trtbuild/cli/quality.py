"""``trtbuild quality``: whether a candidate answers as well as a baseline; the exit code is the gate's."""

from __future__ import annotations

import time
from pathlib import Path

import click

from trtbuild.cli.console import print_json, step
from trtbuild.cli.measured import open_store, runs_option, show_quality
from trtbuild.cli.options import NUMBER

FAILED = 1


@click.command("quality")
@click.argument("baseline")
@click.argument("candidate")
@click.option(
    "--prompts",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="Your requests, JSONL: a line each with `prompt` or `messages`.",
)
@click.option("--model", metavar="NAME", help="On both; default: the only one there is.")
@click.option("--candidate-model", metavar="NAME", help="On the candidate, where it has another name.")
@click.option(
    "--max-tokens", type=click.IntRange(min=1), default=128, show_default=True, help="Of an answer."
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Take only the first N requests.")
@click.option(
    "--repeats",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Of one prompt, to see whether it is stable.",
)
@click.option("--needles/--no-needles", default=True, help="Retrieval from long context, generated.")
@click.option("--concurrency", type=click.IntRange(min=1), default=4, show_default=True)
@click.option(
    "--gate",
    "changes",
    multiple=True,
    metavar="NAME=SHARE",
    help="Another threshold, such as next-token=0.9.",
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write an HTML page there."
)
@click.option("--label", default="", help="A name to find the comparison by.")
@runs_option
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def quality_command(
    baseline: str, candidate: str, prompts: Path, model: str | None, candidate_model: str | None,
    max_tokens: int,
    limit: int | None, repeats: int, needles: bool, concurrency: int, changes: tuple[str, ...],
    output: Path | None, label: str, runs_file: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Ask BASELINE and CANDIDATE (repositories, or HOST:PORT of servers) the same and compare the answers.

    Exit code 1 when the gate is not passed.
    """
    store = open_store(runs_file)
    from trtbuild.measure.quality.judge import check_gate
    from trtbuild.measure.quality.questions import read_questions
    from trtbuild.measure.quality.run import Side, compare
    from trtbuild.measure.records.changes import changed_since

    gate = check_gate(_shares(changes))
    asked = read_questions(prompts, max_tokens=max_tokens, limit=limit)
    begun_unix_s, begun_s = time.time(), time.monotonic()
    verdict = compare(
        Side(baseline, model), Side(candidate, candidate_model or model), asked, gate,
        times=repeats, with_needles=needles, concurrency=concurrency, on_step=step,
    )  # fmt: skip
    from trtbuild.measure.quality.page import quality_page
    from trtbuild.measure.quality.record import quality_record

    settings = {
        "prompts": str(prompts), "questions": len(asked), "max_tokens": max_tokens, "repeats": repeats,
        "needles": needles, "concurrency": concurrency, "gate": gate,
    }  # fmt: skip
    record = quality_record(
        verdict, before=baseline, after=candidate, model=candidate_model or model, settings=settings,
        label=label, begun_unix_s=begun_unix_s, duration_s=time.monotonic() - begun_s,
    )  # fmt: skip
    store.put(record)  # first: a new file has nothing to look into
    record.changed = changed_since(store, record)
    store.finish(record)
    if output is not None:
        output.write_text(quality_page(record.metrics["page"], title="Quality"), encoding="utf-8")
    if as_json:
        print_json({"run_id": record.run_id, **verdict.as_json()})
    else:
        show_quality(record)
    if not verdict.passed:
        click.get_current_context().exit(FAILED)


def _shares(changes: tuple[str, ...]) -> dict[str, float]:
    found = {}
    for change in changes:
        name, _, value = change.partition("=")
        try:
            found[name] = NUMBER.convert(value, None, None)
        except click.BadParameter as error:
            raise click.UsageError(
                f"--gate {change}: write NAME=SHARE, such as next-token=0.9 ({error.message})"
            ) from error
    return found
