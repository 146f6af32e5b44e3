"""A DALI pipeline takes pictures one by one without padding.

With max_batch_size 0 and inputs of varying length the pipeline crashes (dali_backend issue 258).
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository

SEVERITY = "warning"


def check(repository: LintRepository) -> Iterator[Found]:
    """DALI models that say max_batch_size 0."""
    for model in repository.readable:
        size = model.field("max_batch_size")
        free = any(-1 in tensor.dims for tensor in model.tensors("input"))
        if model.backend == "dali" and size is not None and size.text == "0" and free:
            yield Found(
                model.at(size),
                "a DALI model with max_batch_size 0 and inputs of free length",
                "DALI works on batches; samples of different length crash the pipeline",
                "set max_batch_size to the pipeline's batch size",
            )
