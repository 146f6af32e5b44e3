"""A parameter that the version's backend does not read.

A typo, a key of an older or newer version, or one that was removed: it is ignored without a word. One that
has no value is left alone, as templates hold many. Without a known version only what no version has and what
looks like a typo is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache

from trtbuild.catalog.versions import containers, interface
from trtbuild.lint.findings import Found
from trtbuild.lint.parameters import BOOLEANS, FRACTIONS, FURTHER, WHOLE_NUMBERS
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_cpp_engine

SEVERITY = "warning"


def check(repository: LintRepository) -> Iterator[Found]:
    """Parameters of engine models that are not in the table."""
    versions = repository.interfaces
    known = frozenset().union(*map(_of, versions))
    for model in repository.readable:
        if not is_cpp_engine(model):
            continue
        for key, parameter in model.parameters.items():
            if versions and parameter.is_set and key in _ever() and key not in known:
                yield Found(
                    model.at(parameter.place),
                    f"TensorRT-LLM {versions[-1]} has no parameter {key}",
                    "the backend of this version does not read it",
                    "remove it, or check that the template belongs to the version",
                )
            elif key not in _ever() | FURTHER:
                near = get_close_matches(key, sorted(_ever()), n=1, cutoff=0.8)
                if near:
                    yield Found(
                        model.at(parameter.place),
                        f"no version has a parameter {key!r}",
                        "the backend ignores keys that it does not know",
                        f"did you mean {near[0]}?",
                    )


@cache
def _of(version: str) -> frozenset[str]:
    return frozenset(row.name for row in interface(version, "tensorrt_llm").parameters) | {
        "recv_poll_period_ms"
    }


@cache
def _ever() -> frozenset[str]:
    versions = {container.interface for container in containers()}
    return frozenset(BOOLEANS | WHOLE_NUMBERS | FRACTIONS.keys()).union(
        *(_of(version) for version in versions)
    )
