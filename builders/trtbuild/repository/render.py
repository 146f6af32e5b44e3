"""Templates to text, and text to parsed configurations: nothing is written that protobuf does not read."""

from __future__ import annotations

import shlex
from functools import lru_cache
from importlib import resources
from typing import Any

from google.protobuf import text_format
from jinja2 import Environment, PackageLoader, StrictUndefined
from tritonclient.grpc import model_config_pb2

from trtbuild.errors import RepositoryError

TEMPLATES = "trtbuild_templates"

# What C-like string literals of the text format cannot hold as they are.
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\000"})


def quoted(value: str) -> str:
    """``value`` as a string of protobuf's text format."""
    return f'"{value.translate(_ESCAPES)}"'


def comment(value: str) -> str:
    """``value`` on one line, so that it cannot end the comment that it stands in."""
    return " ".join(value.split())


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The one Jinja environment; an undefined name is an error."""
    env = Environment(
        loader=PackageLoader(TEMPLATES, ""),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.filters |= {"quoted": quoted, "sh": shlex.quote, "sh_join": shlex.join, "comment": comment}
    return env


def render(template: str, **context: Any) -> str:
    """The text of a template of ``trtbuild_templates``."""
    return environment().get_template(template).render(**context)


def render_config(template: str, **context: Any) -> tuple[str, model_config_pb2.ModelConfig]:
    """The text of ``<template>/config.pbtxt.j2`` and what protobuf reads in it.

    Raises:
        RepositoryError: if the text is no model configuration, or a placeholder was left in it.
    """
    text = render(f"{template}/config.pbtxt.j2", **context)
    return text, parse_config(text, context["name"])


def parse_config(text: str, name: str) -> model_config_pb2.ModelConfig:
    """Parses ``config.pbtxt``.

    Raises:
        RepositoryError: if it does not parse, carries another name, or has an unfilled ``${…}``.
    """
    config = model_config_pb2.ModelConfig()
    try:
        text_format.Parse(text, config)
    except text_format.ParseError as exc:
        raise RepositoryError(f"the configuration of {name} does not parse: {exc}") from exc
    if config.name != name:
        raise RepositoryError(f"the configuration in the folder {name} is called {config.name!r}")
    if "${" in text:
        raise RepositoryError(f"the configuration of {name} has an unfilled placeholder")
    return config


def model_code(kind: str) -> dict[str, bytes]:
    """File name → bytes of the static Python files of one kind of model: its own, ``model.py`` among them,
    and what every model has.

    Raises:
        RepositoryError: if the package does not carry them.
    """
    folder = resources.files(TEMPLATES).joinpath(kind)
    files = {entry.name: entry.read_bytes() for entry in folder.iterdir() if entry.name.endswith(".py")}
    if "model.py" not in files:
        raise RepositoryError(f"the installed package lacks the code of {kind}", "install trtbuild again")
    return files | shared_code()


def shared_code() -> dict[str, bytes]:
    """File name → bytes of what every model in Python has beside its own code."""
    return {"faults.py": resources.files(TEMPLATES).joinpath("faults.py").read_bytes()}
