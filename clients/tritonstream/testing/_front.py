"""What the fake of trtbuild's text front does with a request, as the front itself does it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_NOTHING = "neither text_input nor messages is given"


class Refusal(Exception):
    """A request that the front turns away; the text ends with the name of a TritonError code."""


def check_request(inputs: Mapping[str, Any]) -> None:
    """Raises Refusal for what needs no tokenizer to be refused."""
    from ..text import PromptError, check_messages, check_stops

    has_messages = "messages" in inputs
    if has_messages == ("text_input" in inputs):
        found = "text_input and messages are both given" if has_messages else _NOTHING
        raise Refusal(f"{found}; send one of them [INVALID_ARG]")
    if inputs.get("tools") and not has_messages:
        raise Refusal("tools go with messages; text_input is taken as it is [INVALID_ARG]")
    try:
        check_stops(inputs.get("stop_words", ()))
        if has_messages:
            check_messages(_parsed(inputs["messages"]))
    except PromptError as error:
        raise Refusal(f"{error} [INVALID_ARG]") from None


def _parsed(messages: str) -> Any:
    try:
        return json.loads(messages)
    except (ValueError, RecursionError) as error:
        raise Refusal(f"messages is not JSON: {error} [INVALID_ARG]") from None


def prompt_text(inputs: Mapping[str, Any]) -> str:
    """The text of a request that was checked, without any template."""
    from ..text import check_messages

    if "messages" not in inputs:
        return str(inputs.get("text_input", ""))
    return " ".join(
        message.get("content") or "" for message in check_messages(json.loads(inputs["messages"]))
    )


def until_stop(pieces: Sequence[bytes], stops: Sequence[str]) -> tuple[list[str], int, bool]:
    """Gives out pieces as the front does when it looks for stop strings.

    Returns:
        the texts, one a response; how many pieces were used; whether a stop ended them. What may begin a
        stop is held back, so that there may be fewer texts than pieces.
    """
    from ..text import StopMatcher, Utf8Stream

    matcher, utf8, texts = StopMatcher(stops), Utf8Stream(), []
    for used, piece in enumerate(pieces, 1):
        texts.append(matcher.feed(utf8.feed(piece)))
        if matcher.matched is not None:
            return [text for text in texts if text], used, True
    texts.append(matcher.feed(utf8.flush()) + matcher.flush())
    return [text for text in texts if text], len(pieces), matcher.matched is not None
