"""The root command: finds a command's module only when it runs; ``trtbuild --model …`` means ``build``."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import click

DEFAULT_COMMAND = "build"

# command: (module, line for the listing); help is shown without importing any of them.
COMMANDS = {
    "build": ("build", "Write a model repository; the default: `trtbuild --model NAME …`."),
    "plan": ("plan", "Show the plan: every byte and limit, and whether it fits."),
    "simulate": ("simulate", "Predict TTFT, TPOT and throughput under load, before there is a server."),
    "models": ("catalogue", "List the models of the catalogue."),
    "gpus": ("catalogue", "List the GPUs of the catalogue."),
    "formats": ("catalogue", "List weight formats, and what a GPU can serve."),
    "add": ("tenants", "Add a model to a repository."),
    "add-vision": ("add_vision", "Add a vision model: an ONNX file, or one of the catalogue."),
    "remove": ("tenants", "Remove a model from a repository."),
    "list": ("tenants", "List what a repository holds."),
    "lint": ("lint", "Say what is wrong with any Triton model repository."),
    "rules": ("lint", "List the rules of lint, or explain one."),
    "migrate": ("migrate", "Rewrite a repository of NVIDIA's templates for another target or container."),
    "doctor": ("doctor", "Check this host, and a live server."),
    "serve": ("serve", "Start a repository's server on this machine."),
    "verify": ("verify", "Prove on this machine that a repository does what its plan says."),
    "reconcile": ("reconcile", "Replace the plan's estimates with what a log says."),
    "status": ("servers", "Show the servers that run here."),
    "logs": ("servers", "Show a server's log."),
    "stop": ("servers", "Stop a server."),
    "ask": ("ask", "Ask a served model one question and stream the answer."),
    "chat": ("chat", "Talk with a served model."),
    "see": ("see", "Classify, detect, segment, embed or read pictures."),
    "ocr": ("ocr", "Read the text of pictures."),
    "prefix": ("prefix", "Find what keeps a log of prompts from sharing its prefix."),
    "bench": ("bench", "Put load on a server, and record what it does."),
    "runs": ("runs", "List the runs that were recorded, or show one."),
    "compare": ("runs", "Compare two runs, and say whether they differ."),
    "sweep": ("sweep", "Find the most load that a server can carry within a latency budget."),
    "tune": ("tune", "Find a better configuration for a load and a budget, by trial."),
    "diagnose": ("diagnose", "Say what limits a server, and the next change to try."),
    "quality": ("quality", "Compare the answers of two models, with a gate."),
    "report": ("report", "Write runs as one HTML page."),
    "demo": ("demo", "Quickstart: build, serve, ask, read a picture, compare the ledger, stop."),
}


class LazyGroup(click.Group):
    """Commands by name from `COMMANDS`; options before any command belong to the default command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"trtbuild.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {name for parameter in self.get_params(ctx) for name in parameter.opts}
        if args and args[0].startswith("-") and args[0] not in own:
            args = [DEFAULT_COMMAND, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS:
            import difflib

            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"Did you mean '{close[0]}'?" if close else f"The commands are {', '.join(COMMANDS)}."
            ctx.fail(f"No such command '{args[0]}'. {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])
        from trtbuild.cli.build import build_command
        from trtbuild.cli.options import SPEC_OPTIONS

        shared = {option for options in SPEC_OPTIONS.values() for option in options}
        own = [option for option in build_command.params if option not in shared]
        groups: list[tuple[str, Sequence[click.Parameter]]] = [
            *SPEC_OPTIONS.items(),
            ("what is written", own),
        ]
        for title, options in groups:
            records = [option.get_help_record(ctx) for option in options]
            with formatter.section(f"Options of build: {title}"):
                formatter.write_dl([record for record in records if record])


def _version(ctx: click.Context, _: click.Parameter, value: Any) -> None:
    if value and not ctx.resilient_parsing:
        from trtbuild import __version__

        click.echo(f"trtbuild {__version__}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Start with `trtbuild --model qwen-7b --quant awq`, then `trtbuild serve`.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version."
)
def root() -> None:
    """From one description to a Triton model repository that starts the first time.

    LLMs and vision models on one GPU, every byte planned; the same repository also runs without a GPU.
    """
