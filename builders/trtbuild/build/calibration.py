"""Text that a quantiser reads: the user's own JSONL or text file, or the small set that is shipped.

Whatever it came from, it is written as ``calibration/train.jsonl`` with one ``text`` a line: a folder that
TensorRT-LLM's quantize.py takes as a local data set (train split, column ``text``), and our own quantiser
too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from trtbuild.build.flags import AWQ_CALIBRATION_LIMIT
from trtbuild.errors import ModelSourceError
from trtbuild.jsonl import filled_lines, parse

FILE_NAME = "train.jsonl"
DEFAULT_SAMPLES = 512  # quantize.py's own default; AWQ is cut to 32
# Fields in the order in which they are looked for when none is named.
FIELDS = (
    "text",
    "messages",
    "conversations",
    "prompt",
    "content",
    "instruction",
    "question",
    "input",
    "article",
)
_MIN_CHARACTERS = 20  # a shorter line says nothing about a model's activations


@dataclass(frozen=True)
class Calibration:
    """Texts for one quantisation.

    Attributes:
        texts: at most as many as were asked for.
        source: file, and field where there is one, for messages.
        note: what was decided that the user did not ask for; empty if nothing.
    """

    texts: tuple[str, ...]
    source: str
    note: str = ""

    @property
    def content(self) -> str:
        """Content of ``train.jsonl``; ASCII, so that it can be quoted in a script."""
        return "".join(json.dumps({"text": text}) + "\n" for text in self.texts)

    def write(self, folder: Path) -> None:
        """Writes ``train.jsonl`` into ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / f"{FILE_NAME}.partial"
        partial.write_text(self.content, encoding="utf-8")
        partial.replace(folder / FILE_NAME)


def load_calibration(
    path: Path | None, *, quant: str, samples: int | None = None, field: str | None = None
) -> Calibration:
    """Reads calibration text.

    Args:
        path: JSONL (one object or string a line), JSON (a list of them) or plain text (paragraphs); None
            takes the shipped set.
        quant: weight format; AWQ formats are cut to 32 texts, as TensorRT-LLM does whatever is asked for.
        samples: texts to take; None takes the format's usual number.
        field: name of the field that holds the text; None looks for a usual one.

    Raises:
        ModelSourceError: no such file, not readable as text, a field that is missing, or no usable text.
    """
    asked = samples or DEFAULT_SAMPLES
    limit = min(asked, AWQ_CALIBRATION_LIMIT) if "awq" in quant else asked
    notes = []
    if samples is not None and limit < samples:
        notes.append(f"{samples} texts were asked for; TensorRT-LLM cuts AWQ to {AWQ_CALIBRATION_LIMIT}")
    if path is None:
        texts, source = _shipped(), "the shipped texts"
        notes.append(
            "the shipped texts are few and general: your own users' prompts calibrate better (--calibration)"
        )
    else:
        texts, source = _read(path, field)
    usable = [text for text in texts if len(text.strip()) >= _MIN_CHARACTERS]
    if not usable:
        raise ModelSourceError(
            f"{source}: no text of at least {_MIN_CHARACTERS} characters among {len(texts)} entries",
            'give a JSONL file with lines such as {"text": "…"}, or a text file with paragraphs',
        )
    if len(usable) < limit:
        notes.append(f"texts to calibrate on: {len(usable)}; {limit} are usual for {quant}")
    return Calibration(tuple(usable[:limit]), source, "; ".join(notes))


def _shipped() -> list[str]:
    data = resources.files("trtbuild.build").joinpath("data").joinpath("calibration.jsonl")
    return [parse(line)["text"] for _, line in filled_lines(data.read_text(encoding="utf-8"))]


def _read(path: Path, field: str | None) -> tuple[list[str], str]:
    try:
        raw = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise ModelSourceError(f"{path}: no such file", "give a JSONL or text file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ModelSourceError(
            f"{path}: cannot be read as UTF-8 text: {error}", "save it as UTF-8"
        ) from error
    if path.suffix.lower() not in (".jsonl", ".json", ".ndjson"):
        return [part.strip() for part in raw.replace("\r\n", "\n").split("\n\n")], str(path)
    rows = _rows(path, raw)
    strings = [row for row in rows if isinstance(row, str)]
    objects = [row for row in rows if isinstance(row, Mapping)]
    if not objects:
        return strings, str(path)
    name = field or _find_field(path, objects)
    texts = [_text(row[name]) for row in objects if row.get(name)]
    if not texts:
        raise ModelSourceError(f"{path}: no line has the field {name!r}", _fields_there(objects))
    return [*strings, *texts], f"{path}, field {name!r}"


def _rows(path: Path, raw: str) -> list[Any]:
    if path.suffix.lower() == ".json":
        try:
            content = parse(raw)
        except ValueError as error:
            raise ModelSourceError(f"{path}: not valid JSON: {error}") from error
        return content if isinstance(content, list) else [content]
    return [_row(line, f"{path}:{number}") for number, line in filled_lines(raw)]


def _row(line: str, place: str) -> Any:
    try:
        return parse(line)
    except ValueError as error:
        raise ModelSourceError(
            f"{place}: not valid JSON: {error}", "a JSONL file has one JSON value a line"
        ) from error


def _find_field(path: Path, objects: list[Mapping[str, Any]]) -> str:
    keys = {key for row in objects[:100] for key, value in row.items() if value}
    for name in FIELDS:
        if name in keys:
            return name
    texts = {key for key in keys if all(isinstance(row.get(key, ""), str) for row in objects[:100])}
    if len(texts) == 1:
        return texts.pop()
    raise ModelSourceError(
        f"{path}: none of the usual fields ({', '.join(FIELDS)}) is there, and {len(texts)} others hold text",
        _fields_there(objects),
    )


def _fields_there(objects: Iterable[Mapping[str, Any]]) -> str:
    keys = sorted({str(key) for row in objects for key in row})
    return f"call the field that holds the text 'text'; the file has {', '.join(keys) or 'none'}"


def _text(value: Any) -> str:
    """A field's text; of a conversation, what everybody said, one message a line."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = (
            item.get("content") or item.get("value") if isinstance(item, Mapping) else item for item in value
        )
        return "\n".join(str(part) for part in parts if part)
    return json.dumps(value, ensure_ascii=False)
