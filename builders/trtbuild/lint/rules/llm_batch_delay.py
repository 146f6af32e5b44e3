"""A queue delay in front of an LLM.

TensorRT-LLM batches requests by itself at every step, so a request that waits in Triton's queue for others
only starts later: the delay is added to every time to first token. Up to a millisecond is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_bls, is_llm, is_postprocessing, is_preprocessing

SEVERITY = "warning"
_HARMLESS_US = 1000


def check(repository: LintRepository) -> Iterator[Found]:
    """max_queue_delay_microseconds of engines and of the steps around them."""
    for model in repository.readable:
        if not (is_llm(model) or is_bls(model) or is_preprocessing(model) or is_postprocessing(model)):
            continue
        delay = model.field("dynamic_batching.max_queue_delay_microseconds")
        if delay is not None and delay.number is not None and delay.number > _HARMLESS_US:
            yield Found(
                model.at(delay),
                f"max_queue_delay_microseconds is {delay.text} ({delay.number / 1000:g} ms)",
                "in-flight batching needs no waiting: every request's first token comes that much later",
                "set it to 0",
            )
