"""How a request is carried out: the client's own settings, with what a call overrides."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from . import _checks
from .hooks import Hooks
from .options import Degrade, Retry, Timeouts

Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Settings:
    timeouts: Timeouts = field(default_factory=Timeouts)
    retry: Retry = field(default_factory=Retry)
    degrade: Sequence[Degrade] = ()
    traffic_class: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    hooks: tuple[Hooks, ...] = ()

    def with_overrides(self, params: Mapping[str, Any]) -> Settings:
        """These settings with those among the keyword arguments of a call.

        Raises:
            UsageError: for values of the wrong type.
        """
        changes: dict[str, Any] = {}
        for name, kind in (("timeouts", Timeouts), ("retry", Retry)):
            if name in params:
                _checks.instance(kind, what=f"a {kind.__name__}")(name, params[name])
                changes[name] = params[name]
        if "degrade" in params:
            _steps("degrade", params["degrade"])
            changes["degrade"] = tuple(params["degrade"])
        if params.get("traffic_class") is not None:
            _checks.label("traffic_class", params["traffic_class"])
            changes["traffic_class"] = params["traffic_class"]
        if "headers" in params:
            _checks.headers("headers", params["headers"])
            changes["headers"] = {**self.headers, **params["headers"]}
        if "deadline_s" in params:
            timeouts = changes.get("timeouts", self.timeouts)
            changes["timeouts"] = replace(timeouts, total_s=params["deadline_s"])
        return replace(self, **changes) if changes else self


_steps = _checks.sequence_of(Degrade, "a list of Degrade steps")
_numbers = itertools.count(1)
_prefix = ""


def _draw_prefix() -> None:
    """Ids are unique among all clients of a server, in this process and in forked ones."""
    global _prefix
    _prefix = os.urandom(6).hex()


_draw_prefix()
os.register_at_fork(after_in_child=_draw_prefix)


def new_request_id() -> str:
    return f"{_prefix}-{next(_numbers)}"
