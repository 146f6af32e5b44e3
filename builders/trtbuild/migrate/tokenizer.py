"""The old tokenizer: whether its files can serve the new front."""

from __future__ import annotations

import tempfile
from pathlib import Path

from trtbuild.errors import ModelSourceError
from trtbuild.lint.findings import Place
from trtbuild.migrate.notes import Note
from trtbuild.migrate.old import OldLlm


def usable_tokenizer(folder: Path | None) -> tuple[Path | None, str]:
    """The folder if a front can be written from it; else None, and why not."""
    if folder is None:
        return None, "it is not on this machine"
    from trtbuild.build.text_assets import write_text_assets

    try:
        with tempfile.TemporaryDirectory(prefix="trtbuild-") as scratch:
            write_text_assets(folder, Path(scratch))
    except ModelSourceError as error:
        return None, error.message
    return folder, ""


def tokenizer_note(llm: OldLlm, fault: str) -> Note:
    """Whether the old tokenizer's files come along; ``fault`` says why not."""
    instead = "the build brings the model's own"
    for folder in (llm.preprocess, llm.postprocess, llm.engine):
        parameter = folder.parameters.get("tokenizer_dir") if folder is not None else None
        if folder is None or parameter is None or parameter is not llm.tokenizer:
            continue
        place, item = folder.at(parameter.place), f"tokenizer_dir {parameter.value}"
        if fault:
            return Note(place, "left", item, "", f"{fault}; {instead}")
        return Note(place, "carried", item, "its tokenizer and chat template are copied")
    return Note(Place(llm.engine.file), "left", "the tokenizer", "", f"nothing names one; {instead}")
