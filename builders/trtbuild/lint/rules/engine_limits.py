"""Limits of the config and of the engine contradict each other.

A KV pool that cannot hold one longest sequence makes the server stop, or shrink the longest sequence
without a word; a max_batch_size above the engine's is never reached; a front that promises longer texts
than its engine was built for gets refusals.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.engines import EngineFiles
from trtbuild.lint.findings import Found
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_cpp_engine

SEVERITY = "error"


def check(repository: LintRepository) -> Iterator[Found]:
    """Engines that are on this machine, and the fronts before them."""
    for model in repository.readable:
        if is_cpp_engine(model):
            files = repository.engine_files(model)
            if files is not None and files.config is not None:
                yield from _engine(model, files)
        named = model.parameters.get("engine_model")
        engine = repository.models.get(named.value) if named is not None else None
        files = repository.engine_files(engine) if engine is not None else None
        if files is not None and files.config is not None:
            yield from _front(model, files)


def _engine(model: ModelFolder, files: EngineFiles) -> Iterator[Found]:
    size, built = (
        model.field("max_batch_size"),
        files.number("build_config.max_batch_size"),
    )
    if size is not None and size.number is not None and built is not None and size.number > built:
        yield Found(
            model.at(size),
            f"max_batch_size is {size.text}, and the engine was built for {built}",
            f"no more than {built} requests run at once; the others wait inside",
            f"write {built}, or build with --max_batch_size {size.text}",
            severity="warning",
        )
    pool, longest = (
        model.parameters.get("max_tokens_in_paged_kv_cache"),
        files.number("build_config.max_seq_len"),
    )
    tokens = pool.number if pool is not None else None
    if pool is not None and tokens is not None and longest is not None and 0 < tokens < longest:
        yield Found(
            model.at(pool.place),
            f"max_tokens_in_paged_kv_cache is {pool.value}, and one sequence of the engine has up "
            f"to {longest} tokens",
            "the server stops, or shortens the longest sequence without a word",
            f"give at least {longest} tokens, or build with a smaller --max_seq_len",
        )


def _front(model: ModelFolder, files: EngineFiles) -> Iterator[Found]:
    own, built = model.parameters.get("max_seq_len"), files.number("build_config.max_seq_len")
    if own is not None and own.number is not None and built is not None and own.number > built:
        yield Found(
            model.at(own.place),
            f"max_seq_len is {own.value}, and the engine was built for {built} tokens",
            "longer requests are let in and refused by the engine",
            f"write {built}, or build with --max_seq_len {own.value}",
        )
