"""An engine model declares tensors of another version.

`min_length` and `random_seed` became `min_tokens` and `seed` with 0.20 (and in the 25.05 container); a
required input that is missing, or one of another type, makes every request fail. A name that the backend
still looks for is told as a warning.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from trtbuild.catalog.versions import containers, interface
from trtbuild.lint.findings import Found
from trtbuild.lint.model import ModelFolder, Tensor
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_cpp_engine
from trtbuild.lint.versions import agreed

SEVERITY = "error"
# Old names that later backends look for only to log that they are deprecated: model_instance_state.cc at
# v0.19.0, r25.04 and r25.05, and in TensorRT-LLM's own triton_backend since.
_DEPRECATED = frozenset({"return_kv_cache_reuse_stats"})
_LOGITS = ("TYPE_FP32", "TYPE_FP16")


def check(repository: LintRepository) -> Iterator[Found]:
    """Engine models against the interface of the known version."""
    for model in repository.readable:
        if not is_cpp_engine(model) or not model.tensors("input"):
            continue
        yield from _settings(model)
        yield from agreed(repository.interfaces, partial(_inputs, model))


def _settings(model: ModelFolder) -> Iterator[Found]:
    for tensor in (*model.tensors("input"), *model.tensors("output")):
        named = tensor.name in ("context_logits", "generation_logits", "draft_logits")
        if named and tensor.dtype.startswith("TYPE_") and tensor.dtype not in _LOGITS:
            yield Found(
                model.at(tensor.place),
                f"{tensor.name} is {tensor.dtype}",
                "logits are FP32 or FP16; requests that return them fail",
                "write TYPE_FP32",
            )


def _inputs(model: ModelFolder, version: str) -> Iterator[Found]:
    rows = interface(version, "tensorrt_llm")
    declared = {tensor.name: tensor for tensor in model.tensors("input")}
    known = {row.name: row for row in rows.inputs}
    for row in rows.inputs:
        if row.was is not None and row.was in declared and row.name not in declared:
            if row.was in _DEPRECATED:
                yield _deprecated(model, declared[row.was], row.name, rows.version)
                continue
            yield Found(
                model.at(declared[row.was].place),
                f"input {row.was} is called {row.name} in TensorRT-LLM {rows.version}",
                "the backend looks for the new name, so the value of every request is ignored",
                f"rename it to {row.name}, and in the ensemble, too",
            )
        elif not row.optional and row.name not in declared:
            yield Found(
                model.at(None),
                f"input {row.name} is missing",
                f"TensorRT-LLM {rows.version} needs it in every request",
                f"declare it: TYPE_{row.dtype}, dims {list(row.dims)}",
            )
    for name, tensor in declared.items():
        if (
            name in known
            and known[name].setting is None
            and "${" not in tensor.dtype
            and tensor.dtype != f"TYPE_{known[name].dtype}"
        ):
            yield _type(model, tensor, known[name].dtype, rows.version)
        elif (
            name not in known
            and (new := _renamed_from(name, rows.version)) is not None
            and new not in declared
        ):
            yield Found(
                model.at(tensor.place),
                f"input {name} is called {new} in TensorRT-LLM {rows.version}",
                "the backend looks for the version's own name, so the value of every request is ignored",
                f"rename it to {new}, and in the ensemble, too",
            )


def _deprecated(model: ModelFolder, tensor: Tensor, new: str, version: str) -> Found:
    return Found(
        model.at(tensor.place),
        f"input {tensor.name} is deprecated in TensorRT-LLM {version}: it is called {new}",
        "the backend reads the old name only to log a warning for each request that sets it; what it asked "
        f"for comes with {new}",
        f"rename it to {new}, and in the ensemble, too",
        severity="warning",
    )


def _type(model: ModelFolder, tensor: Tensor, dtype: str, version: str) -> Found:
    return Found(
        model.at(tensor.place),
        f"input {tensor.name} is {tensor.dtype}",
        f"TensorRT-LLM {version} reads it as {dtype}",
        f"write TYPE_{dtype}",
    )


def _renamed_from(name: str, version: str) -> str | None:
    """The older name, where the config is newer than the version."""
    newest = interface(containers()[0].interface, "tensorrt_llm")
    older = next((row.was for row in newest.inputs if row.name == name and row.was is not None), None)
    return older if older in interface(version, "tensorrt_llm").input_names() else None
