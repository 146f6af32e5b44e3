"""An engine was built with another TensorRT-LLM than the one that will serve it.

Engines are bound to their version: "Version tag does not match", "key 'builder_config' not found" or
"Failed to deserialize cuda engine" (tensorrtllm_backend issues 531, 330, 235). The version stands in the
engine's config.json.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.versions import container_of

SEVERITY = "error"


def check(repository: LintRepository) -> Iterator[Found]:
    """Engines against the version that is known, or against each other."""
    built = repository.built_with
    server = repository.stated or repository.stamp
    versions = {known.trtllm for known in built.values()}
    for name, known in built.items():
        if server is not None and not _same(known.trtllm, server.trtllm, server.interfaces):
            yield Found(
                known.place,
                f"the engine of {name} was built with TensorRT-LLM {known.trtllm}; "
                f"{server.source} means {server.trtllm}",
                "an engine loads only in the version that built it",
                f"serve it with {container_of(known.trtllm)}, or build it again with {server.trtllm}",
            )
        elif server is None and len(versions) > 1 and known is not next(iter(built.values())):
            first = next(iter(built))
            if known.trtllm != built[first].trtllm:
                yield Found(
                    known.place,
                    f"the engine of {name} was built with TensorRT-LLM {known.trtllm}, that of {first} with "
                    f"{built[first].trtllm}",
                    "one server has one version, in which only one of them loads",
                    "build both with the same version",
                )


def _same(built: str, served: str, interfaces: tuple[str, ...]) -> bool:
    return built == served or built in interfaces or served.startswith(f"{built}.")
