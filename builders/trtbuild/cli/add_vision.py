"""``trtbuild add-vision NAME MODEL``: a vision model beside those of a repository, or in a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trtbuild.cli.build import write
from trtbuild.cli.options import FOLDER, output_options, repository

if TYPE_CHECKING:
    from pathlib import Path

    from trtbuild.spec import DeploymentSpec

_PREPROCESS = ("size", "fit", "colours", "mean", "std")  # of the spec's `preprocess`
_TASKS = ["classification", "detection", "segmentation", "embedding", "ocr", "raw"]


def _numbers(context: click.Context, option: click.Parameter, value: str | None) -> list[float] | None:
    """Numbers with commas between them; whole ones for --size."""
    kind, example = (int, "640,480") if option.name == "size" else (float, "0.485,0.456,0.406, or one number")
    try:
        return None if value is None else [kind(word) for word in value.split(",")]
    except ValueError:
        raise click.BadParameter(f"{value!r} is not as in {example}", context, option) from None


@output_options
@click.command("add-vision")
@click.argument("name")
@click.argument("model")
@repository
@click.option("--task", type=click.Choice(_TASKS), help="Default: as the graph's outputs tell.")
@click.option("--labels", type=FOLDER, metavar="FILE", help="Names of the classes: one a line, JSON or YAML.")
@click.option(
    "--max-batch", type=click.IntRange(1, 256), metavar="N", help="Largest batch of the network (8)."
)
@click.option("--instances", type=click.IntRange(1, 64), metavar="N", help="Copies of the network (1).")
@click.option(
    "--runtime",
    type=click.Choice(["onnxruntime", "tensorrt"]),
    help="On a GPU; tensorrt compiles a plan file.",
)
@click.option(
    "--precision", type=click.Choice(["fp32", "fp16", "int8", "fp8"]), help="Of the network (fp32)."
)
@click.option("--calibration", type=FOLDER, metavar="FOLDER", help="Pictures to calibrate int8 and fp8 on.")
@click.option(
    "--size",
    callback=_numbers,
    metavar="W,H",
    help="Width and height, where the graph leaves them free.",
)
@click.option(
    "--fit",
    type=click.Choice(["stretch", "letterbox", "crop"]),
    help="How a picture is brought to that size.",
)
@click.option("--colours", type=click.Choice(["rgb", "bgr"]), help="Order of its channels (rgb).")
@click.option(
    "--mean",
    callback=_numbers,
    metavar="A,B,C",
    help="Subtracted from values of 0 to 1; one, or one a channel.",
)
@click.option("--std", callback=_numbers, metavar="A,B,C", help="What the rest is divided by.")
@click.option("--target", type=click.Choice(["engine", "llmapi", "local"]), help="Of a new repository.")
@click.option("--gpu", metavar="NAME", help="Of a new repository.")
@click.option("--container", metavar="RELEASE", help="Of a new repository.")
def add_vision_command(
    name: str, model: str, repo: Path, build: bool | None, dry_run: bool, as_json: bool, **flags: Any
) -> None:
    """Add the vision model MODEL (an ONNX file, a catalogue name, or for OCR a folder) as NAME to REPO.

    A repository is made if there is none. A server that runs serves the model once it is started again.
    """
    spec = vision_spec(name, model, flags)
    from trtbuild.compiling import work_folder
    from trtbuild.prepare import prepare
    from trtbuild.tenants import Repository, prepare_addition

    if not repo.is_dir() or not any(repo.iterdir()):
        prepared = prepare(spec, build_dir=work_folder(repo), build=build)
        write(prepared, repo, names="own", dry_run=dry_run, as_json=as_json)
        return
    opened = Repository.open(repo)
    leave = [held.name for held in opened.plan.models]
    prepared = prepare_addition(opened, spec, build_dir=work_folder(opened.path), build=build)
    names = opened.manifest.names
    write(prepared, repo, names=names, dry_run=dry_run, as_json=as_json, leave=leave)


def vision_spec(name: str, model: str, flags: dict[str, Any]) -> DeploymentSpec:
    """The spec that the command line describes.

    Raises:
        SpecError: settings that do not go together.
    """
    from pathlib import Path

    from trtbuild.catalog.vision import entries
    from trtbuild.specfile import validate_spec

    entry: dict[str, Any] = {"name": name}
    path = Path(model).expanduser()
    if model in entries():
        entry["pipeline"] = model
    elif path.is_dir():
        entry |= {"pipeline": "ocr", "weights": str(path.absolute())}
    else:
        entry["model"] = str(path.absolute())
    keys = {"task": "task", "labels": "labels", "max_batch": "max_batch_size", "instances": "instances",
            "runtime": "runtime", "precision": "precision", "calibration": "calibration"}  # fmt: skip
    for flag, key in keys.items():
        if (value := flags.get(flag)) is not None:
            entry[key] = str(value.expanduser().absolute()) if isinstance(value, Path) else value
    prepared = {key: flags[key] for key in _PREPROCESS if flags.get(key) is not None}
    if prepared:
        entry["preprocess"] = prepared
    whole = {key: flags[key] for key in ("target", "gpu", "container") if flags.get(key) is not None}
    return validate_spec({**whole, "vision": [entry]}, where="command line")
