"""Code that comes with a model's download is run.

`trust_remote_code` runs Python files of the model's repository inside the server; a pickled checkpoint
(`pytorch_model.bin`, `.pkl`) runs code when it is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from trtbuild.lint.findings import Found, Place
from trtbuild.lint.repository import LintRepository

SEVERITY = "warning"
_TRUST = re.compile(
    r"""^(?![ \t]*#).*?\btrust_remote_code["']?[ \t]*[:=][ \t]*["']?(true|1)\b""", re.I | re.M
)
_PICKLES = ("pytorch_model*.bin", "*.pkl", "*.pickle", "*.ckpt")


def check(repository: LintRepository) -> Iterator[Found]:
    """Settings and code that trust, and checkpoints that are pickles."""
    for file in repository.text_files:
        for match in _TRUST.finditer(file.text) if "trust_remote_code" in file.text else ():
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
