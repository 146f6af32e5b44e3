"""What a file is that should be UTF-8 text and is none: told by its first bytes."""

from __future__ import annotations

from dataclasses import dataclass

_AS_TEXT = "put the configuration there as text, and keep this file in the version folder"
_CONVERT = "save it as UTF-8: iconv -f {encoding} -t UTF-8 {{file}} > config.utf8 && mv config.utf8 {{file}}"
_MARKS = (
    (b"\xff\xfe\0\0", "UTF-32"),
    (b"\0\0\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
_MAGIC = (
    (b"\x7fELF", "a program or a library (ELF)"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"%PDF", "a PDF document"),
    (b"SQLite format 3\0", "an SQLite database"),
)
_SAMPLE_BYTES = 4096
_MOST_ZEROS = 0.4  # of the bytes at odd or even places: Latin text in UTF-16 has nearly all


@dataclass(frozen=True)
class BinaryKind:
    """``remedy`` has a place for the file's path, ``{file}``."""

    name: str
    remedy: str


def binary_kind(raw: bytes) -> BinaryKind | None:
    """What the bytes are; None for what may be text of 8 bits."""
    for mark, encoding in _MARKS:
        if raw.startswith(mark):
            return _encoded(encoding)
    for magic, name in _MAGIC:
        if raw.startswith(magic):
            return BinaryKind(f"{name}, no text", _AS_TEXT)
    if b"\0" not in raw:
        return None
    sample = raw[:_SAMPLE_BYTES]
    for first, encoding in ((1, "UTF-16LE"), (0, "UTF-16BE")):
        zeros, others = sample[first::2].count(0), sample[1 - first :: 2].count(0)
        if not others and zeros > _MOST_ZEROS * len(sample) / 2:
            return _encoded(encoding)
    return BinaryKind("a binary file, no text", _AS_TEXT)


def _encoded(encoding: str) -> BinaryKind:
    return BinaryKind(f"text in {encoding}, and Triton reads UTF-8 only", _CONVERT.format(encoding=encoding))
