"""``trtbuild lint --fix``: the corrections that cannot make things worse, written file by file."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from trtbuild.lint.findings import Edit, LintFinding


def fix(root: Path, findings: Iterable[LintFinding]) -> list[LintFinding]:
    """Applies the edits of findings; returns those that were applied. Line ends and a BOM stay."""
    by_file: dict[str, list[LintFinding]] = defaultdict(list)
    for finding in findings:
        if finding.edit is not None:
            by_file[finding.edit.place.file].append(finding)
    return [
        done for file, entries in sorted(by_file.items()) for done in _fix_file(root, root / file, entries)
    ]


def _fix_file(root: Path, path: Path, findings: list[LintFinding]) -> list[LintFinding]:
    if not path.resolve().is_relative_to(root.resolve()):
        return []  # a link out of the repository: what it shares with others is not ours to change
    text = path.read_bytes().decode("utf-8")
    lines = text.split("\n")
    newline = "\r\n" if "\r\n" in text else "\n"
    applied = []
    # From the end to the beginning: what is before an edit keeps its column.
    for finding in sorted(findings, key=lambda item: item.place, reverse=True):
        edit = finding.edit
        if edit is None:
            continue
        if edit.place.line == 0:
            if lines[-1]:
                lines[-1] += "\r" if newline == "\r\n" else ""
                lines.append("")
            lines[-1:] = edit.new.replace("\n", newline).split("\n")
            applied.append(finding)
        elif _replace(lines, edit):
            applied.append(finding)
    if applied:
        _write(path, "\n".join(lines))
    return applied[::-1]


def _replace(lines: list[str], edit: Edit) -> bool:
    line, at = lines[edit.place.line - 1], edit.place.column - 1
    if edit.place.line == 1 and line.startswith("\ufeff"):
        at += 1
    for quote in ('"', "'", ""):
        old = f"{quote}{edit.old}{quote}"
        if line.startswith(old, at):
            kept = "" if edit.bare else quote
            lines[edit.place.line - 1] = f"{line[:at]}{kept}{edit.new}{kept}{line[at + len(old) :]}"
            return True
    return False


def _write(path: Path, text: str) -> None:
    """Through a second file, so that a crash leaves the old one; a link's target is written, not the link."""
    target = path.resolve()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8"))
        Path(name).chmod(target.stat().st_mode & 0o7777)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
