"""What the caller wants generated, whichever model does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from . import _checks
from ._params import as_strings, check
from .errors import UsageError

Prompt = str | Sequence[int]
Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Wish:
    """A prompt or chat messages, and parameters.

    Raises:
        UsageError: for what no model can do.
    """

    prompt: Prompt | None
    messages: Messages | None
    params: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[Mapping[str, Any]] | None = None
    client_template: bool = False  # render messages here although the model could
    at_once: bool = False  # nobody reads the text before it is whole

    def __post_init__(self) -> None:
        check(self.params)
        if self.messages is not None:
            _checks.messages("messages", self.messages)
        elif isinstance(self.prompt, str):
            if not self.prompt:
                raise UsageError("the prompt is empty")
            _checks.text("the prompt", self.prompt)
        elif isinstance(self.prompt, (bytes, bytearray)):
            raise UsageError("the prompt is bytes; decode it to str first")
        elif self.prompt is None or not isinstance(self.prompt, Sequence):
            ids = "a list of token ids (its tolist())" if hasattr(self.prompt, "tolist") else "token ids"
            raise UsageError(f"the prompt is {type(self.prompt).__name__}; give text, or {ids} for an engine")
        else:
            _checks.token_ids("the prompt", self.prompt)
        if self.tools is not None:
            _checks.sequence_of(Mapping, "a list of mappings")("tools", self.tools)
        _checks.flag("client_template", self.client_template)

    def shortened(self, max_tokens: int) -> Wish:
        """The same with at most ``max_tokens``."""
        smaller = min(max_tokens, self.params.get("max_tokens", max_tokens))
        return replace(self, params={**self.params, "max_tokens": smaller})

    @property
    def stops(self) -> list[str]:
        return as_strings(self.params.get("stop") or ())
