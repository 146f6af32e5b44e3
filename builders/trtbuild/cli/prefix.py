"""``trtbuild prefix FILE.jsonl``: what a prefix cache reuses of a log of prompts, and what hinders it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trtbuild.cli.console import note, print_json, print_table
from trtbuild.errors import SpecError
from trtbuild.jsonl import PROMPT_KEYS, filled_lines, parse

if TYPE_CHECKING:
    from tritonstream.prefix import Encode, PrefixReport
    from tritonstream.text.assets import TextAssets
    from trtbuild.simulate import Deployment
    from trtbuild.tenants import Repository

_SHOWN_CHARS = 24
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command("prefix")
@click.argument("log", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--repo", type=_FOLDER, help="Take tokenizer, template and block size from this repository.")
@click.option("--model", metavar="NAME", help="Which model of the repository; default: its only one.")
@click.option("--tokenizer", type=_FOLDER, help="Folder with a tokenizer.json.")
@click.option(
    "--block",
    "block_tokens",
    type=click.IntRange(min=1),
    metavar="TOKENS",
    help="Tokens a KV block; default: the repository's, else 32.",
)
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
def prefix_command(
    log: Path,
    repo: Path | None,
    model: str | None,
    tokenizer: Path | None,
    block_tokens: int | None,
    as_json: bool,
) -> None:
    """Compare the prompts of LOG: where they part, why, and the KV blocks that are reused now and could be.

    LOG has one JSON value a line: a string, {"prompt": …} or {"messages": […], "tools": […]}, also as
    the "body" of a batch file of OpenAI's. "-" reads the log from stdin.
    """
    from tritonstream.prefix import analyse, rough_tokens

    planned_block = 32
    served: tuple[Repository, str] | None = None
    if repo is not None:
        served = _from_repository(repo, model)
        found, name = served
        tokenizer = tokenizer or repo / name / "1" / "tokenizer"
        planned_block = next(llm.tokens_per_block for llm in found.plan.llms if llm.name == name)
    assets = _assets(tokenizer) if tokenizer is not None else None
    prompts = read_log(log, assets)
    encode: Encode = rough_tokens if assets is None else _encode(assets)
    report = analyse(prompts, encode=encode, block_tokens=block_tokens or planned_block)
    planned = None if served is None else _planned(*served)
    if as_json:
        times = {} if planned is None else _ttft_s(report, planned)
        print_json({**asdict(report), "tokens_are": "exact" if assets else "rough", **times})
        return
    if assets is None:
        note("no tokenizer given (--repo or --tokenizer): tokens are rough pieces of text")
    _show(report)
    if planned is not None:
        now_s, mended_s = _ttft_s(report, planned).values()
        click.echo(
            f"TTFT of a prompt of {report.tokens / report.prompts:.0f} tokens alone, by the plan's model: "
            f"{1e3 * now_s:.0f} ms now, {1e3 * mended_s:.0f} ms once mended"
        )


def _ttft_s(report: PrefixReport, planned: Deployment) -> dict[str, float]:
    """TTFT in seconds of the log's mean prompt with the mean reuse, as it is and with every slot moved."""
    from trtbuild.simulate import ttft_alone_s

    def alone_s(blocks: int) -> float:
        reused_tokens = blocks * report.block_tokens / report.prompts
        return ttft_alone_s(planned, report.tokens / report.prompts, reused_tokens)

    return {"ttft_s": alone_s(report.reused_blocks), "ttft_moved_s": alone_s(report.reused_blocks_moved)}


def _encode(assets: TextAssets) -> Encode:
    def ids(text: str) -> list[int]:
        return list(assets.tokenizer.encode(text, add_special_tokens=False).ids)

    return ids


def _from_repository(repo: Path, model: str | None) -> tuple[Repository, str]:
    """The repository, and the name of the model that is meant."""
    from trtbuild.tenants import Repository

    found = Repository.open(repo)
    llms = [llm.name for llm in found.plan.llms]
    if model is None and len(llms) == 1:
        model = llms[0]
    if model is None or model not in llms:
        raise SpecError(
            f"{repo} holds {', '.join(llms) or 'no language model'}", *(f"--model {name}" for name in llms)
        )
    return found, model


def _planned(repository: Repository, model: str) -> Deployment | None:
    """What simulates the model, where figures exist for its hardware."""
    from trtbuild.errors import TrtbuildError
    from trtbuild.plan.sources import name_of
    from trtbuild.simulate import deployment

    models = tuple(llm for llm in repository.spec.models if name_of(llm) == model)
    try:
        return deployment(repository.spec.model_copy(update={"models": models}))
    except TrtbuildError as error:
        note(f"no TTFT is given: {error}")
        return None


def _assets(folder: Path) -> TextAssets:
    from tritonstream.text.assets import TextAssets
    from tritonstream.text.errors import TextError

    try:
        return TextAssets(folder)
    except TextError as error:
        raise SpecError(str(error), "name a folder with the model's tokenizer.json") from error


def read_log(log: Path, assets: TextAssets | None) -> list[str]:
    """The prompts of a log; chat messages through the model's template, or as ``role: content`` without one.

    Raises:
        SpecError: an empty log, or a line that is none of the forms, named by its number.
    """
    try:
        raw = sys.stdin.buffer.read() if log == Path("-") else log.read_bytes()
        lines = filled_lines(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise SpecError(f"{log} is not UTF-8 at byte {error.start}", "save the log as UTF-8") from error
    prompts = [_checked(line, f"{log}:{number}", assets) for number, line in lines]
    if not prompts:
        raise SpecError(f"{log} holds no prompt", 'write one JSON value a line, such as {"prompt": "…"}')
    return prompts


def _checked(line: str, place: str, assets: TextAssets | None) -> str:
    prompt = _prompt(line, place, assets)
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise SpecError(f"{place} holds half of a surrogate pair, which is no text") from error
    return prompt


def _prompt(line: str, place: str, assets: TextAssets | None) -> str:
    try:
        row = parse(line)
    except ValueError as error:
        raise SpecError(
            f"{place} is not JSON ({error})", 'write {"prompt": "…"} or {"messages": […]}'
        ) from error
    if isinstance(row, str):
        return row
    if isinstance(row, dict):
        row = row["body"] if isinstance(row.get("body"), dict) else row
        for key in PROMPT_KEYS:
            if isinstance(row.get(key), str):
                return str(row[key])
        if isinstance(row.get("messages"), list):
            return _chat(row["messages"], row.get("tools"), place, assets)
    raise SpecError(f"{place} holds no prompt", 'write {"prompt": "…"} or {"messages": […]}')


def _chat(messages: list[Any], tools: Any, place: str, assets: TextAssets | None) -> str:
    if assets is not None:
        from tritonstream.text.errors import TextError

        try:
            return assets.template.render(messages, tools=tools)
        except TextError as error:
            raise SpecError(f"{place}: {error}") from error
    if not all(isinstance(message, dict) for message in messages):
        raise SpecError(f"{place}: a message is an object with role and content")
    head = f"{json.dumps(tools, ensure_ascii=False)}\n" if tools else ""
    return head + "\n".join(f"{message.get('role')}: {message.get('content')}" for message in messages)


def _show(report: PrefixReport) -> None:
    share = report.reused_blocks / max(1, report.blocks)
    moved = report.reused_blocks_moved / max(1, report.blocks)
    rows = [
        ("prompts", f"{report.prompts} of {report.templates} templates, {report.tokens:,} tokens"),
        (
            "begin alike",
            f"{report.common_tokens} tokens, {report.common_blocks} blocks of {report.block_tokens}",
        ),
        ("reused now", f"{report.reused_blocks:,} of {report.blocks:,} blocks ({share:.0%})"),
        ("reused once mended", f"{report.reused_blocks_moved:,} blocks ({moved:.0%})"),
        ("prefill saved", f"{report.tokens_saved_per_prompt:,.0f} tokens a prompt, in the mean"),
    ]
    print_table(("of the log", ""), rows)
    if report.parts:
        print_table(
            ("parted by", ">prompts", ">token", "for example", "do"),
            [
                (part.kind, part.prompts, part.token, _shown(part.example), part.advice)
                for part in report.parts
            ],
        )


def _shown(example: tuple[str, str]) -> str:
    first, second = (
        text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…" for text in example
    )
    return f"{first!r} / {second!r}"
