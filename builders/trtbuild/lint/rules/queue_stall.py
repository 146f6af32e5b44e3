"""Queue policies that let a request wait beside an idle instance.

With `max_queue_size`, a timeout or priorities, Triton's dynamic batcher hands work over only while an
instance waits for it, and a request that comes in the wrong moment does not wake it: it looks again after
500 ms, or when the next request comes (triton core, `dynamic_batch_scheduler.cc` and `scheduler_utils.cc`,
`support_prefetching_`; 23.09 to 26.06). A language model on a CPU lost half a second in 11 of 50 bursts of
eight requests, and in none without the policy.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository

SEVERITY = "warning"
_POLICY = "dynamic_batching.default_queue_policy"
_KEYS = (
    f"{_POLICY}.max_queue_size",
    f"{_POLICY}.default_timeout_microseconds",
    f"{_POLICY}.allow_timeout_override",
    "dynamic_batching.priority_levels",
)


def check(repository: LintRepository) -> Iterator[Found]:
    """The first such setting of each model."""
    for model in repository.readable:
        if model.config is None:
            continue
        config = model.config
        found = ((key, value) for key in _KEYS if (value := config.get(key)) is not None)
        key, value = next(((k, v) for k, v in found if v.is_on), ("", None))
        if value is not None:
            yield Found(
                model.at(value),
                f"{key.rpartition('.')[2]} is {value.text}",
                "with it the batcher is not woken by a request that comes while another is handed over: that "
                "one waits up to half a second beside an idle instance",
                "leave the queue's policy out, and bound what waits in front of the model or in the client",
            )
