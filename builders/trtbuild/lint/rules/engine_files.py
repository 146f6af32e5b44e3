"""The engine's folder lacks what the backend opens.

`gpt_model_path` must hold config.json with `pretrained_config` and `build_config`, and one rankN.engine for
each rank. It often points at Triton's empty `1/`, at the Hugging Face model (whose config.json has other
content) or at a checkpoint; the message is then "parse_error.101" or "key 'builder_config' not found"
(tensorrtllm_backend issues 61, 79, 330).
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.engines import EngineFiles
from trtbuild.lint.findings import Found, Place
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_cpp_engine

SEVERITY = "error"
_BUILD = "give the folder that trtllm-build wrote (--output_dir)"


def check(repository: LintRepository) -> Iterator[Found]:
    """Engines that are on this machine."""
    for model in repository.readable:
        files = repository.engine_files(model) if is_cpp_engine(model) else None
        if files is not None and not files.planned:
            yield from _look(model, files)


def _look(model: ModelFolder, files: EngineFiles) -> Iterator[Found]:
    parameter = model.parameters["gpt_model_path"]
    place = model.at(parameter.place)
    if files.raw is None:
        yield Found(
            place,
            f"gpt_model_path is {parameter.value!r}, which has no config.json",
            "the backend reads it first and stops",
            _BUILD,
        )
        return
    if files.config is None:
        empty = "is empty" if not files.raw.strip() else "is not JSON"
        yield Found(
            Place(files.file, 1 if files.raw else 0),
            f"the engine's config.json {empty}",
            'the backend stops with "parse error at line 1, column 1"',
            _BUILD,
        )
        return
    if "build_config" not in files.config or "pretrained_config" not in files.config:
        yield _other_config(files)
        return
    if (
        files.ranks != files.world_size
        and not list(files.folder.glob("*.gguf"))
        and not list(files.folder.glob("*.xml"))
    ):
        yield Found(
            place,
            f"the engine was built for {files.world_size} "
            f"rank{'s' if files.world_size > 1 else ''} (tp × pp), "
            f"and {files.ranks} rank*.engine are there",
            "every rank loads its own file, and the model fails without it",
            "copy all rank*.engine of the build, or build again",
        )


def _other_config(files: EngineFiles) -> Found:
    config = files.config or {}
    if "builder_config" in config:
        found = "config.json has builder_config: the engine was built by the builder before 0.8"
        why = "newer backends read pretrained_config and build_config, and stop at the missing key"
    elif "architectures" in config or "model_type" in config:
        found = "config.json is a Hugging Face model's, not an engine's"
        why = "the backend stops at the missing key"
    elif "architecture" in config:
        found = "config.json is a checkpoint's, not an engine's"
        why = "the checkpoint has to be compiled by trtllm-build first"
    else:
        found = "config.json has no pretrained_config and build_config"
        why = "the backend stops at the missing key"
    return Found(Place(files.file, 1), found, why, _BUILD)
