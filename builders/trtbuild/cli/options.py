"""The options that describe a deployment, once, for every command that takes one."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trtbuild.defaults import (
    CALIBRATION_TOKENS,
    MAX_INPUT_TOKENS,
    MAX_OUTPUT_TOKENS,
    USUAL_INPUT_TOKENS,
    USUAL_OUTPUT_TOKENS,
)

if TYPE_CHECKING:
    from pathlib import Path

    from trtbuild.spec import DeploymentSpec

Command = TypeVar("Command", bound=click.Command)

# flag: (parameter, key of LlmSpec); these need --model and cannot stand beside --spec.
_MODEL_FLAGS = {
    "quant": "quant",
    "weights": "weights",
    "name": "name",
    "max_input": "max_input_tokens",
    "max_output": "max_output_tokens",
    "concurrency": "concurrency",
    "max_batch_size": "max_batch_size",
    "ttft_ms": "ttft_ms",
    "usual_input": "usual_input_tokens",
    "usual_output": "usual_output_tokens",
    "instances": "instances",
    "kv_dtype": "kv_dtype",
    "tp": "tp",
    "calibrate": "calibrate",
    "calibration": "calibration",
    "calibration_field": "calibration_field",
    "calibration_samples": "calibration_samples",
    "calibration_tokens": "calibration_tokens",
    "on_cpu": "on_cpu",
    "revision": "revision",
    "loras": "loras",
    "guided": "guided",
}
_OF_ONE_MODEL = ("name", "weights", "revision", "loras")


class Number(click.FloatRange):
    """A number within bounds; what is no number (nan) or endless (inf) is within none."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


NUMBER = Number()
ABOVE_ZERO = Number(min=0, min_open=True)
NOT_NEGATIVE = Number(min=0)


class PathType(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.2 on
    """A path, as `pathlib.Path`; pathlib is imported when there is one, not for --help."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        from pathlib import Path

        if not str(value).strip():
            self.fail("the path is empty", param, ctx)
        return Path(value)


class GrpcAddress(click.ParamType):  # type: ignore[type-arg]  # as above
    """``HOST:PORT``, as the client takes it."""

    name = "host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from tritonstream import UsageError
        from tritonstream.options import check_address

        try:
            return check_address(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


class NamedFolder(click.ParamType):  # type: ignore[type-arg]  # as above
    """``NAME=FOLDER``, as a pair."""

    name = "name=folder"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        from pathlib import Path

        name, equals, folder = str(value).partition("=")
        if not name or not equals or not folder:
            self.fail(f"{value!r} is not NAME=FOLDER", param, ctx)
        return name, str(Path(folder).expanduser().absolute())


POSITIVE = click.IntRange(min=1)
NAMED_FOLDER = NamedFolder()
FOLDER = PathType()
GRPC_ADDRESS = GrpcAddress()
DEFAULT_OUTPUT = "model_repo"


def repository(function: Callable[..., None]) -> Callable[..., None]:
    """Gives a command its repository ``repo``: the last argument, or --repo; else `DEFAULT_OUTPUT`."""

    @click.argument("repo_argument", metavar="[REPO]", type=FOLDER, required=False)
    @click.option(
        "--repo", "repo_option", type=FOLDER, metavar="REPO", help=f"The same as REPO ({DEFAULT_OUTPUT})."
    )
    @functools.wraps(function)
    def command(*args: Any, repo_argument: Path | None, repo_option: Path | None, **others: Any) -> None:
        if repo_argument is not None and repo_option is not None and repo_argument != repo_option:
            raise click.UsageError(f"two repositories are named: {repo_argument} and {repo_option}.")
        repo = repo_argument or repo_option or FOLDER.convert(DEFAULT_OUTPUT, None, None)
        function(*args, repo=repo, **others)

    return command


def _option(*names: str, **attributes: Any) -> click.Option:
    return click.Option(names, **attributes)


SPEC_OPTIONS: dict[str, list[click.Option]] = {
    "what": [
        _option(
            "--model",
            "models",
            multiple=True,
            metavar="NAME",
            help="Catalogue name or Hugging Face id; any other model: a folder with its config.json.",
        ),
        _option(
            "--quant", metavar="FORMAT", help="Weight format, such as awq, fp8, int4; see `trtbuild formats`."
        ),
        _option(
            "--with",
            "pipelines",
            multiple=True,
            type=click.Choice(["ocr", "efficientnet-lite0", "yolov3-tiny"]),
            help="A vision pipeline to serve as well.",
        ),
        _option("--spec", type=FOLDER, metavar="FILE", help="All of this from a YAML file."),
        _option("--name", help="Name in the repository; default: that of the model."),
        _option("--weights", type=FOLDER, help="GGUF file, OpenVINO IR or safetensors folder."),
        _option(
            "--calibrate",
            is_flag=True,
            default=None,
            help="Quantise the 16-bit weights ourselves, also where others published the format.",
        ),
        _option(
            "--calibration",
            type=FOLDER,
            metavar="FILE",
            help="JSONL or text to calibrate on (implies --calibrate); default: the shipped texts.",
        ),
        _option(
            "--calibration-field", metavar="NAME", help="Its field that holds the text; default: detected."
        ),
        _option(
            "--calibration-samples",
            type=POSITIVE,
            metavar="N",
            help="Texts to calibrate on; TensorRT-LLM takes 32 for AWQ.",
        ),
        _option(
            "--calibration-tokens",
            type=POSITIVE,
            metavar="N",
            help=f"Tokens used of each text ({CALIBRATION_TOKENS}).",
        ),
        _option(
            "--on-cpu",
            is_flag=True,
            default=None,
            help="Quantise with modelopt on this CPU (extra build), not in the container.",
        ),
        _option("--revision", metavar="REV", help="Branch, tag or commit of the weights on the hub (main)."),
        _option(
            "--lora",
            "loras",
            type=NAMED_FOLDER,
            multiple=True,
            metavar="NAME=FOLDER",
            help="A LoRA adapter (PEFT) to convert; target engine.",
        ),
        _option(
            "--guided",
            is_flag=True,
            default=None,
            help="Prepare guided decoding; target engine, 0.19 and later.",
        ),
    ],
    "where": [
        _option("--gpu", metavar="NAME", help="GPU to plan for; default: the one here, else l4."),
        _option(
            "--target",
            type=click.Choice(["engine", "llmapi", "local"]),
            help="Default: chosen by what this machine has.",
        ),
        _option(
            "--container", metavar="RELEASE", help="Triton release such as 25.10; default: newest that fits."
        ),
        _option("--trtllm", metavar="VERSION", help="A TensorRT-LLM version instead, such as 1.0.0."),
    ],
    "size": [
        _option(
            "--max-input",
            type=POSITIVE,
            metavar="TOKENS",
            help=f"Longest prompt ({MAX_INPUT_TOKENS}).",
        ),
        _option(
            "--max-output",
            type=POSITIVE,
            metavar="TOKENS",
            help=f"Longest answer ({MAX_OUTPUT_TOKENS}).",
        ),
        _option(
            "--concurrency",
            type=click.IntRange(1, 4096),
            metavar="N",
            help="Requests at once; default: planned.",
        ),
        _option(
            "--max-batch-size",
            type=click.IntRange(1, 4096),
            metavar="N",
            help="Batch slots; beyond --concurrency they share the KV pool.",
        ),
        _option(
            "--ttft-ms",
            type=Number(min=0, min_open=True, max=3_600_000),
            metavar="MS",
            help="Budget for TTFT P95; sets the limits that are not given.",
        ),
        _option(
            "--usual-input",
            type=POSITIVE,
            metavar="TOKENS",
            help=f"Average prompt, for --ttft-ms ({USUAL_INPUT_TOKENS}).",
        ),
        _option(
            "--usual-output",
            type=POSITIVE,
            metavar="TOKENS",
            help=f"Average answer, for --ttft-ms ({USUAL_OUTPUT_TOKENS}).",
        ),
        _option("--instances", type=click.IntRange(1, 64), metavar="N", help="Copies of the engine (1)."),
        _option("--tp", type=click.IntRange(1, 64), metavar="N", help="GPUs that share one instance (1)."),
        _option("--kv-dtype", metavar="DTYPE", help="KV cache: auto, int8, fp8."),
    ],
}


def spec_options(command: Command) -> Command:
    """Adds every option of `SPEC_OPTIONS` to a command, in the order of the help, but those that it has."""
    own = {param.name for param in command.params}
    command.params[:0] = [
        option for options in SPEC_OPTIONS.values() for option in options if option.name not in own
    ]
    return command


def output_options(command: Command) -> Command:
    """Adds what every command that writes a repository takes."""
    command.params += [
        _option(
            "--build/--no-build",
            "build",
            default=None,
            help="Run the build's steps that this machine can; default: where the planned GPU is.",
        ),
        _option("--dry-run", is_flag=True, help="Plan and check, print the build's commands, write nothing."),
        _option("--json", "as_json", is_flag=True, help="The plan and what was written, as JSON."),
    ]
    return command


def read_spec(flags: dict[str, Any]) -> DeploymentSpec:
    """The spec that the flags of `spec_options` describe; removes them from ``flags``.

    Raises:
        click.UsageError: for flags that contradict each other.
        SpecError: for a spec that cannot be read or is wrong.
    """
    taken = {
        option.name: flags.pop(option.name, None)
        for group in SPEC_OPTIONS.values()
        for option in group
        if option.name
    }
    taken["loras"] = dict(taken["loras"]) or None
    whole = {key: taken[key] for key in ("gpu", "target", "container", "trtllm") if taken[key] is not None}
    per_model = {key: taken[flag] for flag, key in _MODEL_FLAGS.items() if taken[flag] is not None}
    stray = [flag for flag in _MODEL_FLAGS if taken[flag] is not None]

    if taken["spec"] is not None:
        if taken["models"] or taken["pipelines"] or stray:
            used = (["model"] if taken["models"] else []) + (["with"] if taken["pipelines"] else []) + stray
            raise click.UsageError(
                f"--spec describes every model; write {_flags(used)} into the file instead."
            )
        return _override(taken["spec"], whole)
    if not taken["models"] and stray:
        raise click.UsageError(f"{_flags(stray)} describes a model: give --model NAME too.")
    if not taken["models"] and not taken["pipelines"]:
        raise click.UsageError("say what shall run: --model NAME (see `trtbuild models`), or --spec FILE.")
    if len(taken["models"]) > 1 and (alone := [flag for flag in _OF_ONE_MODEL if flag in per_model]):
        raise click.UsageError(f"{_flags(alone)} belongs to one --model; describe several in a --spec file.")
    from pathlib import Path

    from trtbuild.errors import SpecError
    from trtbuild.specfile import validate_spec

    per_model = {
        key: str(value.expanduser().absolute()) if isinstance(value, Path) else value
        for key, value in per_model.items()
    }
    data = {
        **whole,
        "models": [{"model": model, **per_model} for model in taken["models"]],
        "vision": [
            {"name": pipeline, "pipeline": pipeline} for pipeline in dict.fromkeys(taken["pipelines"])
        ],
    }
    try:
        return validate_spec(data, where="command line")
    except SpecError as error:
        raise SpecError(_in_flags(error.message), *error.remedies) from error


def _in_flags(message: str) -> str:
    """A message about the spec in the words of the command line: ``--name`` for ``models[0].name``."""
    flags = {key: flag for flag, key in _MODEL_FLAGS.items()} | {"model": "model", "loras": "lora"}

    def flag(path: re.Match[str]) -> str:
        return "--" + flags[path[1]].replace("_", "-")

    return re.sub(r"`models\[\d+\]\.(\w+)`", flag, message.removeprefix("command line: "))


def _override(path: Path, whole: dict[str, str]) -> DeploymentSpec:
    from trtbuild.spec import DeploymentSpec
    from trtbuild.specfile import load_spec

    spec = load_spec(path)
    if {"container", "trtllm"} & whole.keys():  # one of them takes the place of the other
        spec = spec.model_copy(update={"container": None, "trtllm": None})
    return DeploymentSpec.model_validate({**dict(spec), **whole}) if whole else spec


def _flags(names: list[str]) -> str:
    return ", ".join("--" + name.replace("_", "-").replace("loras", "lora") for name in names)
