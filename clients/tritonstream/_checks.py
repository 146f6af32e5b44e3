"""What a value given by the caller may be: a checker for each kind. Pure; all raise ``UsageError``."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from numbers import Integral
from typing import Any, Final

from .errors import UsageError

Check = Callable[[str, Any], None]

INT32_MAX: Final = 2**31 - 1
UINT64_MAX: Final = 2**64 - 1
FLOAT32_MAX: Final = 3.4e38
LONGEST_S: Final = 1e9  # 31 years; gRPC's own clock overflows not far above
_NAME_CHARS: Final = 1024
_LABEL: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,64}")  # as the front takes it
_HEADER_KEY: Final = re.compile(r"[0-9a-z_.-]+\Z")  # gRPC: "PROTOCOL-HTTP2.md", Custom-Metadata
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e]*\Z")


def _refused(name: str, value: Any, what: str) -> UsageError:
    shown = repr(value)
    return UsageError(f"{name} is {shown if len(shown) <= 80 else shown[:77] + '...'}; it must be {what}")


def whole(low: int, high: int, what: str) -> Check:
    """A whole number; ``what`` says which."""

    def check(name: str, value: Any) -> None:
        # not int alone: numpy's integers are counts as good
        if isinstance(value, bool) or not isinstance(value, Integral) or not low <= int(value) <= high:
            raise _refused(name, value, f"a whole number {what}")

    return check


def number(low: float, high: float, what: str, *, above: bool = False) -> Check:
    """A finite number from ``low`` (``above``: not equal to it) to ``high``."""

    def check(name: str, value: Any) -> None:
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not math.isfinite(value)
            or not low <= value <= high
            or (above and value == low)
        ):
            raise _refused(name, value, what)

    return check


seconds: Final = number(0.0, LONGEST_S, "seconds above 0 and at most 1e9, or None for none", above=True)


def flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise _refused(name, value, "True or False")


def text(name: str, value: Any) -> None:
    """Text that UTF-8 can carry."""
    if not isinstance(value, str):
        raise UsageError(f"{name} takes text; {value!r} is {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as exc:
        raise UsageError(f"{name} holds a lone surrogate at character {exc.start}: not text") from None


def name_of(name: str, value: Any) -> None:
    """A name or id. Servers handle these as C strings and print them in logs."""
    if not isinstance(value, str) or not value:
        raise _refused(name, value, "a text that is not empty")
    text(name, value)
    if len(value) > _NAME_CHARS:
        raise UsageError(f"{name} has {len(value)} characters; at most {_NAME_CHARS} are taken")
    if not value.isprintable():
        raise _refused(name, value, "printable: no NUL, line end or other control character")


def label(name: str, value: Any) -> None:
    """A name by which metrics are told apart."""
    if not isinstance(value, str) or _LABEL.fullmatch(value) is None:
        raise _refused(name, value, "1 to 64 of the ASCII letters, digits, '_', '.', ':', '/' and '-'")


def texts(name: str, value: Any) -> None:
    """One string or several, none of them empty."""
    if isinstance(value, (bytes, bytearray, Mapping)) or not isinstance(value, Collection):
        raise UsageError(f"{name} takes strings; {value!r} is {type(value).__name__}")
    for item in [value] if isinstance(value, str) else value:
        if not isinstance(item, str):
            raise UsageError(f"{name} takes strings; {item!r} is {type(item).__name__}")
        if not item:
            raise UsageError(f"{name} holds an empty string, which is found everywhere; leave it out")
        text(name, item)


def weights(name: str, value: Any) -> None:
    """Word → finite number."""
    if not isinstance(value, Mapping) or not value:
        raise _refused(name, value, "a mapping from words to numbers, not empty")
    for word, weight in value.items():
        texts(name, [word])
        _finite(f"{name}[{word!r}]", weight)


_finite: Final = number(-FLOAT32_MAX, FLOAT32_MAX, "a finite number")


def adapter(name: str, value: Any) -> None:
    """A LoRA adapter's name or task id."""
    (name_of if isinstance(value, str) else _task_id)(name, value)


_task_id: Final = whole(0, UINT64_MAX, "from 0 to 2^64 - 1, or a name")


def headers(name: str, value: Any) -> None:
    """gRPC metadata."""
    if not isinstance(value, Mapping):
        raise _refused(name, value, "a mapping from names to text")
    for key, item in value.items():
        if not isinstance(key, str) or not _HEADER_KEY.match(key.lower()) or key.lower().startswith("grpc-"):
            raise UsageError(
                f"{name} has the name {key!r}; gRPC takes ASCII letters, digits, '_', '-' and '.', and keeps "
                "grpc-* to itself"
            )
        if key.lower().endswith("-bin"):
            raise UsageError(f"{name} has the name {key!r}; in gRPC -bin marks bytes, and headers carry text")
        if not isinstance(item, str) or not _HEADER_VALUE.match(item):
            raise UsageError(f"{name}[{key!r}] is {item!r}; gRPC takes printable ASCII text")


def tensors(name: str, value: Any) -> None:
    """Inputs by the model's own names."""
    if not isinstance(value, Mapping):
        raise _refused(name, value, "a mapping from input names to values")
    for key in value:
        name_of(f"a name in {name}", key)


def names(name: str, value: Any) -> None:
    """Names, in any collection but a string."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Collection):
        raise _refused(name, value, "a list of names")
    for item in value:
        name_of(f"a name in {name}", item)


def instance(*kinds: type, what: str) -> Check:
    """A value of one of these classes."""

    def check(name: str, value: Any) -> None:
        if not isinstance(value, kinds):
            raise _refused(name, value, what)

    return check


def sequence_of(kind: type, what: str) -> Check:
    """A list or tuple of one class."""

    def check(name: str, value: Any) -> None:
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            raise _refused(name, value, what)
        for item in value:
            if not isinstance(item, kind):
                raise _refused(f"an item of {name}", item, what)

    return check


def messages(name: str, value: Any) -> None:
    """A conversation: a list of {'role': text, 'content': text, parts or None}."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise UsageError(f"{name} is a list of {{'role': ..., 'content': ...}}")
    if not value:
        raise UsageError(f"{name} is empty; give at least one {{'role': ..., 'content': ...}}")
    for number_, message in enumerate(value):
        if not isinstance(message, Mapping) or "role" not in message:
            raise UsageError(f"message {number_} is {message!r}; it must be a mapping with a role")
        name_of(f"the role of message {number_}", message["role"])
        content = message.get("content")
        if "content" not in message and "tool_calls" not in message:
            raise UsageError(f"message {number_} has neither content nor tool_calls")
        parts = content if isinstance(content, Sequence) and not isinstance(content, (str, bytes)) else ()
        if not isinstance(content, (str, type(None))) and (
            content is not parts or not all(isinstance(part, Mapping) for part in parts)
        ):
            what = "text, a list of parts such as {'type': 'text', 'text': ...}, or None"
            raise _refused(f"the content of message {number_}", content, what)


def token_ids(name: str, value: Sequence[Any]) -> None:
    """A prompt of ids. Long ones are common, so that each element is looked at in C alone."""
    kinds = set(map(type, value))
    if any(kind is bool or not hasattr(kind, "__index__") for kind in kinds):
        raise _refused(name, value, "text, or token ids that are whole numbers")
    if value and not (min(value) >= 0 and max(value) <= INT32_MAX):
        raise UsageError(f"{name} holds {min(value)} to {max(value)}; token ids go from 0 to 2^31 - 1")


def folder(name: str, value: Any) -> None:
    """A path."""
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise _refused(name, value, "the path of a folder")
