"""Prompts of a given length that no cache has seen, unless a part of them is meant to be shared."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trtbuild.errors import MeasureError
from trtbuild.jsonl import PROMPT_KEYS, filled_lines
from trtbuild.measure.load.lines import file_text, json_lines
from trtbuild.measure.load.spec import MOST_TOKENS, FileTraffic, TextTraffic

# Frequent words are one token in every tokenizer of the catalogue, with the blank before them.
WORDS = (
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school",
    "state", "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week",
    "company", "system", "program", "question", "work", "government", "number", "night", "point", "home",
    "water", "room", "mother", "area", "money", "story", "fact", "month", "lot", "right", "study", "book",
    "eye", "job", "word", "business", "issue", "side", "kind", "head", "house", "service", "friend",
    "father", "power", "hour", "game", "line", "end", "member", "law", "car", "city", "community", "name",
    "president", "team", "minute", "idea", "kid", "body", "information", "back", "parent", "face", "others",
    "level", "office", "door", "health", "person", "art", "war", "history", "party", "result", "change",
    "morning", "reason", "research", "girl", "guy", "moment", "air", "teacher", "force", "education",
)  # fmt: skip
_FORM = '{"prompt": "…"} or {"messages": […]}'


@dataclass(frozen=True)
class Sizing:
    """How many words make how many tokens on a model: ``tokens = fixed + words · per_word``."""

    per_word: float = 1.0
    fixed: float = 0.0

    @classmethod
    def through(cls, few: tuple[int, int], many: tuple[int, int]) -> Sizing:
        """The line through two (words, tokens) points that the server counted."""
        per_word = (many[1] - few[1]) / (many[0] - few[0])
        if per_word <= 0:
            return cls()
        return cls(per_word, few[1] - few[0] * per_word)

    def words(self, tokens: int) -> int:
        return max(1, round((tokens - self.fixed) / self.per_word))


@dataclass(frozen=True)
class Prompt:
    """What one request says. ``messages`` wins over ``text``; ``params`` go to the client."""

    text: str | None = None
    messages: list[dict[str, Any]] | None = None
    ids: tuple[int, ...] | None = None  # for a bare engine
    output_tokens: int | None = None
    exact: bool = False  # the answer is to have that length, not less
    prefix_tokens: int = 0
    place: str = ""  # file and line that it is from


def words(count: int, rng: random.Random) -> str:
    """``count`` random words; their first dozen alone have more bits than runs have requests."""
    return " ".join(rng.choices(WORDS, k=count))


class TextPrompts:
    """Prompts of a `TextTraffic`, by number: the same seed gives the same prompts.

    Args:
        as_ids: make token ids instead of text, for models that take ids. They lie in 1000 to 5000: ordinary
            tokens in every vocabulary of the catalogue.
    """

    def __init__(self, traffic: TextTraffic, *, seed: str, sizing: Sizing, as_ids: bool = False) -> None:
        self._traffic = traffic
        self._seed = f"{seed}/{traffic.name}"
        self._sizing = sizing
        self._as_ids = as_ids
        shared = self._count(traffic.input_tokens * traffic.prefix_share)
        self._prefixes = [
            self._units(shared, random.Random(f"{self._seed}/p{group}"))
            for group in range(traffic.prefix_groups)
        ]

    def make(
        self, number: int, *, input_tokens: int | None = None, output_tokens: int | None = None
    ) -> Prompt:
        """The prompt of the request with this number; a trace may say other lengths."""
        traffic, rng = self._traffic, random.Random(f"{self._seed}/{number}")
        total = input_tokens or traffic.input_tokens
        prefix = rng.choice(self._prefixes)[: self._count(total)]
        units = [*prefix, *self._units(max(1, self._count(total) - len(prefix)), rng)]
        output = output_tokens or traffic.output_tokens
        shared = round(len(prefix) * (1.0 if self._as_ids else self._sizing.per_word))
        if self._as_ids:
            return Prompt(ids=tuple(map(int, units)), output_tokens=output, exact=True, prefix_tokens=shared)
        return Prompt(text=" ".join(map(str, units)), output_tokens=output, exact=True, prefix_tokens=shared)

    def _count(self, tokens: float) -> int:
        if tokens < 1:
            return 0
        return round(tokens) if self._as_ids else self._sizing.words(round(tokens))

    def _units(self, count: int, rng: random.Random) -> list[Any]:
        if self._as_ids:
            return [rng.randrange(1000, 5000) for _ in range(count)]
        return words(count, rng).split() if count else []


class FilePrompts:
    """Prompts of a file: JSONL as ``trtbuild prefix`` reads it, or a plain text with one prompt a line.

    Raises:
        MeasureError: an empty file, or a line that holds no prompt, named by its number.
    """

    def __init__(self, traffic: FileTraffic) -> None:
        self._prompts = [_with_output(prompt, traffic.output_tokens) for prompt in read_prompts(traffic.path)]

    def __len__(self) -> int:
        return len(self._prompts)

    def make(
        self, number: int, *, input_tokens: int | None = None, output_tokens: int | None = None
    ) -> Prompt:
        """The prompt of the request with this number, around and again."""
        return self._prompts[number % len(self._prompts)]


def _with_output(prompt: Prompt, output_tokens: int | None) -> Prompt:
    if output_tokens is None or prompt.output_tokens is not None:
        return prompt
    return replace(prompt, output_tokens=output_tokens)


def read_prompts(path: Path) -> list[Prompt]:
    """See `FilePrompts`."""
    return [prompt for prompt, _ in read_rows(path)]


def read_rows(path: Path) -> list[tuple[Prompt, dict[str, Any]]]:
    """The prompts of a file, each with what else its line says; see `FilePrompts`."""
    text = file_text(path)
    if path.suffix == ".txt":
        rows: list[tuple[Prompt, dict[str, Any]]] = [
            (Prompt(text=line, place=f"{path}:{number}"), {}) for number, line in filled_lines(text)
        ]
    else:
        rows = [
            (_prompt(row, f"{path}:{number}"), row if isinstance(row, dict) else {})
            for number, row in json_lines(text, path, _FORM)
        ]
    if not rows:
        raise MeasureError(f"{path} holds no prompt", 'write one JSON value a line, such as {"prompt": "…"}')
    return rows


def _prompt(row: Any, place: str) -> Prompt:
    if isinstance(row, str) and row:
        return Prompt(text=row, place=place)
    if isinstance(row, dict):
        output = _most_tokens(row.get("max_tokens"), place)
        if isinstance(row.get("messages"), list) and row["messages"]:
            return Prompt(messages=row["messages"], output_tokens=output, place=place)
        for key in PROMPT_KEYS:
            if isinstance(row.get(key), str) and row[key]:
                return Prompt(text=row[key], output_tokens=output, place=place)
    raise MeasureError(f"{place} holds no prompt", f"write {_FORM}")


def _most_tokens(value: Any, place: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_TOKENS:
        raise MeasureError(f"{place}: max_tokens is {value!r}, not a whole number from 1 to {MOST_TOKENS:,}")
    return value
