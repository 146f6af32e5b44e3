"""Code that comes with a model's download is run.

`trust_remote_code` runs Python files of the model's repository inside the server; a pickled checkpoint
(`pytorch_model.bin`, `.pkl`) runs code when it is loaded. NVIDIA's pre- and post-processing set it for
`tokenizer_dir`; they are told where that folder has such files, or is a name that is downloaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from trtbuild.lint.engines import locate
from trtbuild.lint.findings import Found, Place
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_postprocessing, is_preprocessing

SEVERITY = "warning"
_TRUST = re.compile(
    r"""^(?![ \t]*#).*?\btrust_remote_code["']?[ \t]*[:=][ \t]*["']?(true|1)\b""", re.I | re.M
)
_PICKLES = ("pytorch_model*.bin", "*.pkl", "*.pickle", "*.ckpt")


def check(repository: LintRepository) -> Iterator[Found]:
    """Settings and code that trust, and checkpoints that are pickles."""
    for file in repository.text_files:
        if "trust_remote_code" not in file.text or _is_harmless(repository, file.file.partition("/")[0]):
            continue
        for match in _TRUST.finditer(file.text):
            yield Found(
                file.place(match.start(1)),
                "trust_remote_code is on",
                "Python files of the model's download run inside the server, with its rights",
                "turn it off; take a model that the library supports itself, or pin the revision "
                "and read its code",
            )
    for model in repository.models.values():
        for version in model.versions if model.config is not None else ():
            for pattern in _PICKLES:
                for path in model.files(f"{version}/{pattern}"):
                    yield Found(
                        Place(repository.relative(path)),
                        "a pickled checkpoint",
                        "loading a pickle runs the code in it",
                        "convert it to safetensors",
                    )


def _is_harmless(repository: LintRepository, name: str) -> bool:
    """NVIDIA's step with the tokenizer of a folder that brings no code, as far as can be seen here."""
    model = repository.models.get(name)
    if model is None or not (is_preprocessing(model) or is_postprocessing(model)):
        return False
    tokenizer = model.parameters.get("tokenizer_dir")
    if tokenizer is None or not tokenizer.is_set:
        return False
    folder = locate(repository.root, tokenizer.value)
    if folder is None:
        return tokenizer.value.startswith("/")  # else a name on the hub
    return not any(folder.glob("*.py")) and not any(_names_code(path) for path in folder.glob("*config.json"))


def _names_code(path: Path) -> bool:
    try:
        return '"auto_map"' in path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
