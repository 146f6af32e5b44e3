"""``trtbuild ask``: one question, the answer as it comes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from trtbuild.cli.connection import (
    check_utf8,
    connect,
    generation,
    generation_options,
    raw_stdin,
    server_options,
)
from trtbuild.cli.console import note, print_json


@click.command("ask")
@click.argument("question", required=False)
@server_options
@click.option("--system", metavar="TEXT", help="What the model is told before the question.")
@generation_options
@click.option("--json", "as_json", is_flag=True, help="The whole answer with its counts, as JSON.")
def ask_command(
    question: str | None,
    model: str | None,
    repo: Path | None,
    url: str | None,
    system: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Ask a served model QUESTION (or what comes on stdin) and stream the answer."""
    source = "the question"
    if question is None:
        if sys.stdin.isatty():
            raise click.UsageError("give a question, or pipe one in.")
        raw_stdin()
        source, question = "stdin", sys.stdin.read()
    check_utf8(source, question)
    check_utf8("--system", system or "")
    if not question.strip():
        raise click.UsageError("the question is empty.")
    params = generation(flags)
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": question})
    with connect(repo, url) as server:
        name = server.model(model, "llm")
        with server.client.chat(name, messages, stream=True, **params) as stream:
            for text in stream.text_deltas():
                if not as_json:
                    click.echo(text, nl=False)
            answer = stream.completion
    if as_json:
        timings = answer.timings
        print_json(
            {
                "model": name,
                "text": answer.text,
                "finish_reason": answer.finish_reason,
                "prompt_tokens": answer.usage.prompt_tokens,
                "completion_tokens": answer.usage.completion_tokens,
                "first_token_s": timings.first_token_s if timings else None,
                "total_s": timings.total_s if timings else None,
            }
        )
        return
    click.echo()
    if answer.finish_reason == "length":
        note("(cut off at the longest answer: --max-tokens)")
