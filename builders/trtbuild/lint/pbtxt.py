"""Protobuf text format with positions: what ``config.pbtxt`` says, and on which line it says it.

The protobuf runtime's own parser drops positions and stops at the first thing that it does not know. A
linter needs the line of every value, and templates that are not filled yet (``${max_batch_size}`` where a
number belongs) as values like any other. Grammar: protobuf.dev "Text Format Language Specification".
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

# Longer ones fit no field of a config; Python refuses to read more than 4300 digits.
_WHOLE = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]{1,15})|([0-9]{1,18}))")
MAX_DEPTH = 100  # nesting; a real config has about 6


class Kind(Enum):
    """What a value is written as."""

    STRING = "string"
    NUMBER = "number"
    WORD = "word"  # enum values, true, false, inf, nan
    PLACEHOLDER = "placeholder"  # ${name}, where a template was not filled
    MESSAGE = "message"


class PbtxtError(Exception):
    """Text that is not in text format.

    Attributes:
        line, column: position, from 1.
        key: path of the field in which it happened, such as ``instance_group.count``; empty at the top.
    """

    def __init__(self, message: str, *, line: int, column: int, key: str) -> None:
        super().__init__(f"line {line}, column {column}: {message}" + (f" (in {key})" if key else ""))
        self.message = message
        self.line = line
        self.column = column
        self.key = key


def whole_number(text: str) -> int | None:
    """The number that a text is, decimal or hexadecimal; None where it is none, or one that fits no field."""
    match = _WHOLE.fullmatch(text)
    if match is None:
        return None
    value = int(match[2], 16) if match[2] else int(match[3])
    return -value if match[1] == "-" else value


@dataclass(slots=True)
class Field:
    """One ``name: value``; a list ``name: [a, b]`` gives one Field per element."""

    name: str
    kind: Kind
    text: str  # the value; a string's content without quotes and escapes; "" for a message
    line: int
    column: int
    message: Message | None = None

    @property
    def number(self) -> int | None:
        """The whole number that the value is, if it is one."""
        return whole_number(self.text)

    @property
    def is_on(self) -> bool:
        """Whether a limit or a switch acts: a number above 0, or true; never a template's placeholder."""
        return (self.number or 0) > 0 or (self.kind is Kind.WORD and self.text in ("true", "True", "t"))


@dataclass(slots=True)
class Message:
    """The fields of one message, in the order of the file. A look-up takes the last, as protobuf does."""

    fields: list[Field] = field(default_factory=list)

    def all(self, name: str) -> list[Field]:
        """Every field called ``name``."""
        return [item for item in self.fields if item.name == name]

    def get(self, path: str) -> Field | None:
        """The field at a dotted ``path``, or None where any part of it is missing."""
        message: Message | None = self
        found: Field | None = None
        for name in path.split("."):
            if message is None:
                return None
            found = next((item for item in reversed(message.fields) if item.name == name), None)
            if found is None:
                return None
            message = found.message
        return found

    def walk(self, prefix: str = "") -> Iterator[tuple[str, Field]]:
        """Every field below this message with its dotted path, depth first."""
        for item in self.fields:
            path = f"{prefix}.{item.name}" if prefix else item.name
            yield path, item
            if item.message is not None:
                yield from item.message.walk(path)


_TOKEN = re.compile(
    r"""[ \t\r\n\f\v]*(?:\#[^\n]*[ \t\r\n\f\v]*)*(?:
        (?P<word>-?[ ]?[A-Za-z_][A-Za-z0-9_]*)
      | (?P<mark>[{}<>\[\]:,;/])
      | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<number>[-+]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)[fF]?(?![A-Za-z0-9_.]))
      | (?P<placeholder>\$\{[^}\n]*\})
      | (?P<dot>\.)
      | (?P<open_string>["'])
      | (?P<other>[^ \t\r\n\f\v])
      | (?P<end>\Z))""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(
    r"\\(?:([abfnrtv?\\'\"])|([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))"
)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_CLOSES = {"{": "}", "<": ">"}
_KINDS = {
    **{name: name for name in ("word", "mark", "string", "number", "placeholder", "open_string", "other")},
    "dot": "mark",
}


def _unescape(match: re.Match[str]) -> str:
    simple, octal, hexa, short, long = match.groups()
    if simple:
        return _SIMPLE.get(simple, simple)
    code = int(octal, 8) if octal else int(hexa or short or long, 16)
    return chr(code) if code <= 0x10FFFF else "�"


class _Parser:
    def __init__(self, text: str) -> None:
        self._starts = [0, *(match.end() for match in re.finditer(r"\n", text))]
        self._tokens = [
            (_KINDS[kind], match[kind], match.start(kind))
            for match in _TOKEN.finditer(text)
            if (kind := match.lastgroup or "end") != "end"
        ]
        self._tokens.append(("end", "end of file", len(text)))
        self._at = 0
        self._path: list[str] = []

    def position(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def fail(self, message: str, offset: int | None = None) -> PbtxtError:
        line, column = self.position(self._tokens[self._at][2] if offset is None else offset)
        return PbtxtError(message, line=line, column=column, key=".".join(self._path))

    def message(self, close: str | None) -> Message:
        """Fields up to ``close`` (None: the end of the file); the closing mark is consumed."""
        if len(self._path) > MAX_DEPTH:
            raise self.fail(f"nested deeper than {MAX_DEPTH}")
        opened_at = self._tokens[self._at - 1][2] if close else 0
        result = Message()
        while True:
            kind, text, offset = self._tokens[self._at]
            if kind == "end":
                if close is None:
                    return result
                line, _ = self.position(opened_at)
                raise self.fail(
                    f"the file ends inside a message opened on line {line}: a {close!r} is missing"
                )
            if text == close and kind == "mark":
                self._at += 1
                return result
            name = self._name(kind, text)
            self._path.append(name)
            self._values(result, name, offset)
            self._path.pop()
            kind, text, _ = self._tokens[self._at]
            if text in ",;" and kind == "mark":  # one, or none
                self._at += 1

    def _name(self, kind: str, text: str) -> str:
        if kind == "word" and text[0] != "-":
            self._at += 1
            return text
        if text == "[" and kind == "mark":  # an extension or a google.protobuf.Any
            parts = []
            while self._tokens[self._at][1] != "]":
                if self._tokens[self._at][0] == "end":
                    raise self.fail("a ']' is missing")
                parts.append(self._tokens[self._at][1])
                self._at += 1
            self._at += 1
            return "".join(parts) + "]"
        raise self._unexpected(kind, text, "a field's name")

    def _unexpected(self, kind: str, text: str, wanted: str) -> PbtxtError:
        if kind == "open_string":
            return self.fail(
                f"a string begins here and does not end on this line; a closing {text} is missing"
            )
        shown = text if kind == "end" else repr(text)
        return self.fail(f"{wanted} is expected here, found {shown}")

    def _values(self, into: Message, name: str, offset: int) -> None:
        kind, text, _ = self._tokens[self._at]
        if kind == "mark" and text == ":":
            self._at += 1
            kind, text, _ = self._tokens[self._at]
        elif not (kind == "mark" and text in "{<["):
            raise self._unexpected(kind, text, f"':' or '{{' after {name!r}")
        if not (kind == "mark" and text == "["):
            into.fields.append(self._value(name, offset))
            return
        self._at += 1
        kind, text, at = self._tokens[self._at]
        while not (text == "]" and kind == "mark"):
            into.fields.append(self._value(name, at))
            kind, text, _ = self._tokens[self._at]
            if kind == "mark" and text == ",":
                comma = self._tokens[self._at][2]
                self._at += 1
                kind, text, at = self._tokens[self._at]
                if kind == "mark" and text == "]":
                    raise self.fail("a comma before the ']': a list's last value has none behind it", comma)
            elif not (kind == "mark" and text == "]"):
                raise self._unexpected(kind, text, f"',' or ']' after a value of {name!r}")
        self._at += 1

    def _value(self, name: str, offset: int) -> Field:
        kind, text, value_at = self._tokens[self._at]
        line, column = self.position(value_at if kind != "mark" else offset)
        self._at += 1
        if kind == "string":
            parts = [_ESCAPE.sub(_unescape, text[1:-1])]
            while self._tokens[self._at][0] == "string":  # adjacent strings are one
                parts.append(_ESCAPE.sub(_unescape, self._tokens[self._at][1][1:-1]))
                self._at += 1
            return Field(name, Kind.STRING, "".join(parts), line, column)
        if kind == "word" and self._is_next_key(offset, value_at):
            self._at -= 1
            line, _ = self.position(offset)
            raise self.fail(f"{name!r} on line {line} has no value, and the next line begins with {text!r}")
        if kind in ("number", "word", "placeholder"):
            return Field(name, Kind(kind), text, line, column)
        if kind == "mark" and text in _CLOSES:
            return Field(name, Kind.MESSAGE, "", line, column, self.message(_CLOSES[text]))
        self._at -= 1
        raise self._unexpected(kind, text, f"a value for {name!r}")

    def _is_next_key(self, key_at: int, word_at: int) -> bool:
        """Whether the word just taken for a value is a key of a later line: no value has a mark behind it."""
        after, mark, _ = self._tokens[self._at]
        return after == "mark" and mark in ":{[<" and self.position(key_at)[0] < self.position(word_at)[0]


def parse(text: str) -> Message:
    """Reads text format into a tree of fields with positions.

    Raises:
        PbtxtError: at the first place that is not text format.
    """
    return _Parser(text.removeprefix("\ufeff")).message(None)
