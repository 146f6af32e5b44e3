"""Queue settings that do not reach the LLM.

The backend takes requests out of Triton's queue at once and keeps them in its own, so timeouts and
priorities of the queue never act (tensorrtllm_backend issues 255 and 412). Only `max_queue_size` is passed
on.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_cpp_engine

SEVERITY = "warning"
_TIMEOUT = "dynamic_batching.default_queue_policy.default_timeout_microseconds"


def check(repository: LintRepository) -> Iterator[Found]:
    """Timeouts and priorities of engine models."""
    for model in repository.readable:
        if not is_cpp_engine(model) or model.config is None:
            continue
        timeout = model.config.get(_TIMEOUT)
        if timeout is not None and timeout.is_on:
            yield Found(
                model.at(timeout),
                f"default_timeout_microseconds is {timeout.text}",
                "requests leave Triton's queue at once and wait in the executor's, where this does not act",
                "put the deadline into the client, which cancels when it passes",
            )
        levels = model.config.get("dynamic_batching.priority_levels")
        if levels is not None and levels.is_on:
            yield Found(
                model.at(levels),
                f"priority_levels is {levels.text}",
                "the priority of a request does not reach the executor",
                "remove it; separate urgent requests by model or server",
            )
