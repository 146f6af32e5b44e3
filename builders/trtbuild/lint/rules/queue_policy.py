"""Queue settings that Triton refuses together.

Priority levels need a default within them; `preserve_ordering` allows one level only, and no policy that
delays what has waited too long (core, model_config_utils.cc, `ValidateModelConfig`).
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.pbtxt import Field, Message
from trtbuild.lint.repository import LintRepository

SEVERITY = "error"
_REFUSED = "Triton refuses it, and the model does not load"
_DELAY = ("DELAY", "1")


def check(repository: LintRepository) -> Iterator[Found]:
    """dynamic_batching of all models."""
    for model in repository.readable:
        batching = model.field("dynamic_batching")
        if batching is not None and batching.message is not None:
            yield from _levels(model, batching.message)
            yield from _ordered(model, batching.message)


def _levels(model: ModelFolder, batching: Message) -> Iterator[Found]:
    levels, default = batching.get("priority_levels"), batching.get("default_priority_level")
    if levels is None or not levels.is_on or levels.number is None:
        return
    within = f"1 to {levels.number}"
    if default is None or (default.number is not None and not 1 <= default.number <= levels.number):
        shown = "none" if default is None else default.text
        yield Found(
            model.at(default or levels),
            f"priority_levels is {levels.text}, and default_priority_level is {shown}",
            f"the default must be one of the levels: {_REFUSED}",
            f"write default_priority_level: {(levels.number + 1) // 2} (it takes {within})",
        )
    for key, _ in _policies(batching):
        if key is not None and key.number is not None and not 1 <= key.number <= levels.number:
            yield Found(
                model.at(key),
                f"priority_queue_policy is for level {key.text}, and priority_levels is {levels.text}",
                f"there is no such level: {_REFUSED}",
                f"choose {within}",
            )


def _ordered(model: ModelFolder, batching: Message) -> Iterator[Found]:
    ordering, levels = batching.get("preserve_ordering"), batching.get("priority_levels")
    if ordering is None or not ordering.is_on:
        return
    if levels is not None and (levels.number or 0) > 1:
        yield Found(
            model.at(levels),
            f"priority_levels is {levels.text} with preserve_ordering",
            f"answers in the order of arrival allow one level only: {_REFUSED}",
            "remove the levels, or preserve_ordering",
        )
    policies = [batching.get("default_queue_policy"), *(policy for _, policy in _policies(batching))]
    for policy in policies:
        action = policy.message.get("timeout_action") if policy and policy.message else None
        timeout = policy.message.get("default_timeout_microseconds") if policy and policy.message else None
        if action is not None and action.text in _DELAY and timeout is not None and timeout.is_on:
            yield Found(
                model.at(action),
                f"timeout_action is {action.text} with preserve_ordering",
                f"a delayed request would be answered out of order: {_REFUSED}",
                "write REJECT, or remove preserve_ordering",
            )


def _policies(batching: Message) -> list[tuple[Field | None, Field | None]]:
    """Key and value of each entry of priority_queue_policy."""
    entries = [entry.message for entry in batching.all("priority_queue_policy") if entry.message]
    return [(entry.get("key"), entry.get("value")) for entry in entries]
