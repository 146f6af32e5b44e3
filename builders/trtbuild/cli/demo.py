"""``trtbuild demo`` (``scripts/quickstart``): the whole path on this machine, with what it really costs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtbuild.cli.build import write
from trtbuild.cli.console import note, print_table, size, step
from trtbuild.cli.serve import show_addresses, start_detached

if TYPE_CHECKING:
    from tritonstream import Client
    from trtbuild.plan.model import Plan
    from trtbuild.serve.state import ServerRecord
    from trtbuild.tenants import Repository

MODEL = "smollm2-135m"
QUESTION = "What does an inference server do? Answer in two sentences."
_ANSWER_TOKENS = 96


@click.command("demo")
@click.option("--keep", is_flag=True, help="Leave the server running and say what to try next.")
@click.option("--folder", type=click.Path(path_type=Path), default="quickstart", show_default=True)
@click.option("--without-ocr", is_flag=True, help="The language model alone.")
def demo_command(keep: bool, folder: Path, without_ocr: bool) -> None:
    """Quickstart: build a repository, serve it, ask, read a picture, account for memory, stop."""
    from trtbuild.tenants import Repository

    path = folder / "model_repo"
    build(path, with_ocr=not without_ocr)
    repository = Repository.open(path)
    if keep and repository.plan.visions:
        add_assistant(repository)
    with serving(repository, keep=keep) as record:
        from tritonstream import Client

        with Client(f"127.0.0.1:{record.grpc_port}") as client:
            ask(client)
            if repository.plan.visions:
                read(client, folder / "page.png")
        compare(repository.plan, record)
    if keep:
        address = f"127.0.0.1:{record.grpc_port}"
        say_what_to_try(path, folder / "page.png" if repository.plan.visions else None, address)


@contextmanager
def serving(repository: Repository, *, keep: bool) -> Iterator[ServerRecord]:
    """The server while it is needed; with ``keep`` it stays, also after an error."""
    click.secho(f"\n$ trtbuild serve {_short(repository.path)}{' --detach' if keep else ''}", bold=True)
    if keep:
        record = start_detached(repository)
        show_addresses(repository, record)
        yield record
        return
    from trtbuild.serve.server import start

    with step("starting tritonserver and loading the models"):
        server = start(repository.path)
    show_addresses(repository, server.record)
    try:
        yield server.record
    finally:
        with step("stopping the server"):
            server.stop()


def add_assistant(repository: Repository) -> None:
    """Puts the page assistant beside the models: it reads a page and asks about it."""
    from trtbuild.repository.assistant import write_assistant

    (llm,), (reader,) = repository.plan.llms, repository.plan.visions
    write_assistant(repository.path, reader=reader.name, llm=llm.name, max_input_tokens=llm.max_input_tokens)


def say_what_to_try(repository: Path, page: Path | None, address: str) -> None:
    """Commands for whoever has a running server now."""
    click.echo("\nThe server runs on. Try:")
    click.echo('  trtbuild ask "Why is the sky blue?"')
    click.echo("  trtbuild chat")
    if page is not None:
        click.echo(f"  trtbuild ocr {page} --draw boxes.png")
        click.echo(f'  python clients/examples/ask_page.py {page} "What is it about?" {address}')
    click.echo("  trtbuild status")
    click.echo(f"  trtbuild stop {repository}")


def build(repository: Path, *, with_ocr: bool) -> None:
    """Writes the demonstration's repository, as `trtbuild --model smollm2-135m --quant int4 …` does."""
    words = f"trtbuild --model {MODEL} --quant int4 --target local"
    click.secho(f"$ {words}{' --with ocr' if with_ocr else ''} --output {repository}", bold=True)
    from trtbuild.prepare import prepare
    from trtbuild.spec import DeploymentSpec, LlmSpec, Target, VisionSpec

    spec = DeploymentSpec(
        target=Target.LOCAL,
        models=(LlmSpec(model=MODEL, quant="int4"),),
        vision=(VisionSpec(),) if with_ocr else (),
    )
    write(prepare(spec), repository, names="own", dry_run=False, as_json=False)


def ask(client: Client) -> None:
    """Asks one question and shows the answer as it comes, with its times."""
    click.secho(f'\n$ trtbuild ask "{QUESTION}"', bold=True)
    messages = [{"role": "user", "content": QUESTION}]
    with client.chat(MODEL, messages, stream=True, max_tokens=_ANSWER_TOKENS, temperature=0.0) as stream:
        for text in stream.text_deltas():
            click.echo(text, nl=False)
        answer = stream.completion
    click.echo()
    tokens, times = answer.usage.completion_tokens, answer.timings
    if tokens and times and times.first_token_s:
        rate = (tokens - 1) / (times.total_s - times.first_token_s) if tokens > 1 else 0.0
        note(f"({tokens} tokens, the first after {times.first_token_s:.2f} s, then {rate:.0f} a second)")


def read(client: Client, page: Path) -> None:
    """Draws a page, reads it, and shows the lines."""
    draw_page(page)
    click.secho(f"\n$ trtbuild ocr {page}", bold=True)
    for line in client.ocr("ocr", page).lines:
        click.echo(f"{line.text}   ({line.score:.2f})")


def draw_page(path: Path) -> None:
    """A picture of a page that is easy to read."""
    from trtbuild.verify.page import page_png

    path.write_bytes(page_png())


def compare(plan: Plan, record: ServerRecord) -> None:
    """The plan's account beside what the server's processes hold now."""
    from trtbuild.serve.usage import measure
    from trtbuild.verify.account import planned_by_owner

    used = measure(record.server_pid, record.shm_prefix, [model.name for model in plan.models])
    rows = [
        (name, size(planned), size(used[name]) if name in used else "fills with requests")
        for name, planned in planned_by_owner(plan).items()
    ]
    print_table(("memory of", ">planned at most", ">used now"), rows)
    note("Planned: every request as large as it may be. Used: proportional set sizes of the processes.")


def _short(path: Path) -> str:
    """A path as one would type it from here."""
    return os.path.relpath(path)
