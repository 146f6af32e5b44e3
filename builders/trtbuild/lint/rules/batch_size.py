"""Batch sizes that contradict each other.

Preferred sizes above max_batch_size, a negative max_batch_size, and dynamic batching with
max_batch_size 0 (which batches nothing): Triton refuses the first two.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.pbtxt import Field, Message
from trtbuild.lint.repository import LintRepository

SEVERITY = "error"


def check(repository: LintRepository) -> Iterator[Found]:
    """max_batch_size against the batcher's settings."""
    for model in repository.readable:
        size = model.field("max_batch_size")
        if size is None or size.number is None:
            continue
        if size.number < 0:
            yield Found(
                model.at(size),
                f"max_batch_size is {size.text}",
                "Triton refuses negative sizes, and the model does not load",
                "0 means that the model takes no batches",
            )
            continue
        yield from _preferred(model, size.number)


def _preferred(model: ModelFolder, largest: int) -> Iterator[Found]:
    for path in ("sequence_batching.oldest", "dynamic_batching"):
        batching = model.field(path)
        if batching is not None and batching.message is not None:
            yield from _batcher(model, largest, batching, batching.message)


def _batcher(model: ModelFolder, largest: int, batching: Field, message: Message) -> Iterator[Found]:
    for preferred in message.all("preferred_batch_size"):
        if preferred.number is not None and not 0 < preferred.number <= max(largest, 0):
            yield Found(
                model.at(preferred),
                f"preferred_batch_size {preferred.text} with max_batch_size {largest}",
                "Triton refuses preferred sizes outside 1 to max_batch_size, and the model does not load",
                f"keep it within 1 to {largest}"
                if largest
                else f"set max_batch_size, or remove {batching.name}",
            )
            return
    if (
        largest == 0
        and batching.name == "dynamic_batching"
        and message.fields
        and model.backend != "tensorrtllm"
    ):
        yield Found(
            model.at(batching),
            "dynamic_batching with max_batch_size 0",
            "a model without a batch dimension is never batched, so the queue's delay only costs time",
            "set max_batch_size, or remove dynamic_batching",
            severity="warning",
        )
