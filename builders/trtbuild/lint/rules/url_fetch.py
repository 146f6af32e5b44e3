"""The server fetches addresses that a request names.

NVIDIA's pre-processing calls `requests.get(url, stream=True)` with the client's URL: no list of allowed
hosts, no timeout, no limit of size. A client reaches the inside network and the cloud's metadata address
through it. It does so only with a model for pictures: `multimodal_model_path` (before 0.19
`visual_model_path`) is set.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.repository import LintRepository

SEVERITY = "warning"
_CALL = re.compile(
    r"""^(?![ \t]*\#).*?(?P<call>\b(?:requests\.get|requests\.request|httpx\.get|urlopen|urlretrieve|
    load_image_from_url|wget\.download)\()(?![ \t]*f?["'])""",
    re.MULTILINE | re.VERBOSE,
)
_QUICK = ("requests.", "httpx.", "urlopen", "urlretrieve", "wget.", "load_image_from_url")

_PICTURES = ("multimodal_model_path", "visual_model_path")


def check(repository: LintRepository) -> Iterator[Found]:
    """Python code of version folders that fetches what a variable holds."""
    for file in repository.text_files:
        if (
            file.suffix != ".py"
            or "TritonPythonModel" not in file.text
            or not any(w in file.text for w in _QUICK)
        ):
            continue
        owner = repository.models.get(file.file.partition("/")[0])
        if owner is not None and _is_text_only(owner):
            continue
        for match in _CALL.finditer(file.text):
            yield Found(
                file.place(match.start("call")),
                f"{match['call']}…) fetches an address that the code does not fix",
                "where a request can set it, clients reach the inside network, and one slow or "
                "huge answer blocks "
                "the model",
                "take bytes from the client instead; else allow hosts by a list and set a "
                "timeout and a size limit",
            )


def _is_text_only(model: ModelFolder) -> bool:
    """NVIDIA's pre-processing without a model for pictures: its code looks at no address then."""
    paths = [model.parameters[key] for key in _PICTURES if key in model.parameters]
    return bool(paths) and not any(path.is_set for path in paths)
