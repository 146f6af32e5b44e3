"""A parameter without which the model does not load.

`gpt_model_type` and `gpt_model_path` in every version; from 0.19 on the backend reads `tokenizer_dir`,
`guided_decoding_backend` and `xgrammar_tokenizer_info_path` without asking whether they are there, so the
keys must exist even when they are empty. Pre- and post-processing need `tokenizer_dir`, and from 0.19 on
pre-processing needs `multimodal_model_path`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from trtbuild.catalog.versions import interface
from trtbuild.lint.findings import Edit, Found, Place
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_cpp_engine, is_postprocessing, is_preprocessing
from trtbuild.lint.versions import agreed

SEVERITY = "error"
_ENTRY = 'parameters {{\n  key: "{key}"\n  value {{ string_value: "" }}\n}}\n'


def check(repository: LintRepository) -> Iterator[Found]:
    """Keys that must exist, and values that must be given."""
    for model in repository.readable:
        if is_cpp_engine(model):
            yield from _engine(model, repository.interfaces)
        elif is_preprocessing(model):
            yield from _given(model, "tokenizer_dir", "the tokenizer is loaded from it")
            yield from _keys(model, repository.interfaces, "preprocessing")
        elif is_postprocessing(model):
            yield from _given(model, "tokenizer_dir", "the tokenizer is loaded from it")


def _engine(model: ModelFolder, versions: tuple[str, ...]) -> Iterator[Found]:
    yield from _given(model, "gpt_model_type", 'the backend stops with "Invalid gpt_model_type"')
    encoder = model.parameters.get("encoder_model_path")
    if encoder is None or not encoder.is_set:
        yield from _given(
            model, "gpt_model_path", 'the backend stops with "Both encoder and decoder model paths are empty"'
        )
    yield from _keys(model, versions, "tensorrt_llm")


def _given(model: ModelFolder, key: str, why: str) -> Iterator[Found]:
    parameter = model.parameters.get(key)
    if parameter is None or not parameter.value.strip():
        yield Found(
            model.at(parameter.place if parameter else None),
            f"parameter {key} is {'empty' if parameter else 'missing'}",
            f"{why}; the model does not load",
            f"give {key} a value",
        )


def _keys(model: ModelFolder, versions: tuple[str, ...], kind: str) -> Iterator[Found]:
    yield from agreed(versions, partial(_missing, model, kind))


def _missing(model: ModelFolder, kind: str, version: str) -> Iterator[Found]:
    for row in interface(version, kind).parameters:
        if row.must_exist and row.name not in model.parameters and row.name not in _TOLD:
            yield Found(
                model.at(None),
                f"parameter {row.name} is missing",
                f'{kind} of TensorRT-LLM {version} stops with "Cannot find parameter with name: {row.name}", '
                "even where it is not used",
                f'add the key with string_value: ""; NVIDIA\'s template of {version} has it',
                edit=Edit(Place(model.file), "", _ENTRY.format(key=row.name)),
            )


_TOLD = frozenset({"gpt_model_type", "gpt_model_path"})
