"""What a repository holds when its server starts: configurations, manifest, and what can be loaded."""

from __future__ import annotations

from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from trtbuild.errors import RepositoryError, ServeError, in_shell
from trtbuild.plan.model import Plan
from trtbuild.repository.manifest import Manifest, read_manifest

_TOKENIZER = "tokenizer_dir"  # a front's parameter; an alias names another front's folder there


def folders(repository: Path) -> set[str]:
    """Names of the folders that hold a model's configuration."""
    return {path.parent.name for path in repository.glob("*/config.pbtxt")}


def configs(repository: Path) -> dict[str, model_config_pb2.ModelConfig]:
    """Each model's configuration by folder; those that do not parse are left to the server's own words."""
    found = {}
    for path in sorted(repository.glob("*/config.pbtxt")):
        config = model_config_pb2.ModelConfig()
        try:
            found[path.parent.name] = text_format.Parse(path.read_text("utf-8"), config)
        except (text_format.ParseError, UnicodeDecodeError, OSError):
            continue
    return found


def manifest_of(repository: Path) -> Manifest | None:
    """None where there is none that can be read: a server needs none."""
    try:
        return read_manifest(repository)
    except RepositoryError:
        return None


def plan_of(repository: Path) -> Plan | None:
    """The plan that a repository was written from; None where that is not known."""
    manifest = manifest_of(repository)
    try:
        return None if manifest is None else Plan.model_validate(manifest.plan)
    except ValueError:
        return None


def left_out(repository: Path) -> dict[str, str]:
    """Models that cannot be loaded for a folder of the repository is gone, each with the reason.

    One such model would keep tritonserver from starting at all. Those that need it go with it: ensembles by
    their steps, fronts and steps by their parameters.
    """
    manifest, known = manifest_of(repository), configs(repository)
    lacking = {}
    for name in manifest.folders() if manifest is not None else ():
        folder = repository / name
        for path, what in ((folder, "its folder"), (folder / "config.pbtxt", "its config.pbtxt"),
                           (folder / "1", "its folder 1")):  # fmt: skip
            if not path.exists():
                lacking[name] = f"{what} is gone"
                break
    present = folders(repository)
    while True:
        added = {
            name: f"it needs {need}"
            for name, config in known.items()
            if name not in lacking
            for need in _first_lacking(config, set(lacking), present)
        }
        if not added:
            return lacking
        lacking |= added


def _first_lacking(config: model_config_pb2.ModelConfig, lacking: set[str], present: set[str]) -> list[str]:
    for step in config.ensemble_scheduling.step:
        if step.model_name in lacking or step.model_name not in present:
            return [step.model_name]
    for key, value in sorted(config.parameters.items()):
        text = value.string_value
        if key.endswith("_model") and text in lacking:
            return [text]
        if key == _TOKENIZER and (other := text.removeprefix("../../").split("/")[0]) in lacking:
            return [other]
    return []


def loadable(repository: Path) -> list[str] | None:
    """The models to load where some are left out; None: all.

    Raises:
        ServeError: nothing is left.
    """
    without = left_out(repository)
    if not without:
        return None
    names = sorted({path.parent.name for path in repository.glob("*/config.pbtxt")} - without.keys())
    if not names:
        raise ServeError(f"{repository} holds no model that can be loaded: {_listed(without)}.")
    return names


def caution(repository: Path) -> str | None:
    """What to say of the models that are left out, and what to do."""
    without, manifest = left_out(repository), manifest_of(repository)
    if not without:
        return None
    units = manifest.models.items() if manifest is not None else ()
    hurt = [name for name, unit in units if without.keys() & unit.folders.keys()]
    folder = in_shell(repository)
    ways = [
        f"\n  → take {name} out, or that and add it again: trtbuild remove {name} {folder}" for name in hurt
    ]
    return f"not served: {_listed(without)}{''.join(ways)}"


def _listed(without: dict[str, str]) -> str:
    return ", ".join(f"{name} ({why})" for name, why in sorted(without.items()))
