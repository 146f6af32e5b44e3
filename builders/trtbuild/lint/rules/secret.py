"""A key or password in a file of the repository.

Repositories are copied into images, buckets and tickets, and a client may read every parameter of a
config through the server. The value is not shown here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository

SEVERITY = "error"
# What it is, a part that every one has (looked for first), its form.
_FORMS = tuple(
    (title, part, re.compile(form))
    for title, part, form in (
        ("a Hugging Face token", "hf_", r"\bhf_[A-Za-z0-9]{30,}"),
        ("an NVIDIA API key", "nvapi-", r"\bnvapi-[A-Za-z0-9_-]{40,}"),
        ("an OpenAI key", "sk-", r"\bsk-[A-Za-z0-9_-]{32,}"),
        ("a GitHub token", "gh", r"\bgh[pousr]_[A-Za-z0-9]{36,}"),
        ("an AWS access key", "AKIA", r"\bAKIA[A-Z0-9]{16}\b"),
        ("a Google API key", "AIza", r"\bAIza[A-Za-z0-9_-]{35}"),
        ("a private key", "PRIVATE KEY-----", r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
        ("a Slack token", "xox", r"\bxox[baprs]-[A-Za-z0-9-]{20,}"),
        ("a password in a URL", "://", r"://[^\s/:@\"'${}<>]+:[^\s/@\"'${}<>]{6,}@"),
    )
)
_KEY = re.compile(
    r"(?:^|_)(?:password|passwd|secret|secret_key|api_?key|access_?key|auth_?token|hf_token|access_token)$",
    re.I,
)
_NOT_ONE = re.compile(r"|\$.*|<.*>|x+|\*+|changeme|none|null|your[_-].*", re.IGNORECASE)


def check(repository: LintRepository) -> Iterator[Found]:
    """Forms of well-known keys in all text files, and parameters that are named like one."""
    for file in repository.text_files:
        for title, part, form in _FORMS:
            for match in form.finditer(file.text) if part in file.text else ():
                yield Found(
                    file.place(match.start()),
                    f"{title} stands in the file ({match.group()[:4]}…, {len(match.group())} characters)",
                    "who gets a copy of the repository has it, and parameters can be read through the server",
                    "revoke it, and pass the new one as an environment variable of the server",
                )
    for model in repository.readable:
        for key, parameter in model.parameters.items():
            if (
                _KEY.search(key)
                and not _NOT_ONE.fullmatch(parameter.value.strip())
                and not any(form.search(parameter.value) for _, _, form in _FORMS)
            ):
                yield Found(
                    model.at(parameter.place),
                    f"parameter {key} has a value of {len(parameter.value)} characters",
                    "who gets a copy of the repository has it, and clients can read the config of a model",
                    "pass it as an environment variable of the server",
                )
