"""The rules that a generated repository keeps, checked on the parsed configurations before it is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tritonclient.grpc.model_config_pb2 import ModelConfig

from trtbuild.errors import RepositoryError
from trtbuild.repository.contents import ModelFolder, Repository
from trtbuild.repository.edges import ensemble_faults


def check_repository(repository: Repository) -> None:
    """Raises what would keep the server from loading the repository, or break its streams.

    Raises:
        RepositoryError: naming every fault.
    """
    faults = list(_faults(repository.folders()))
    if faults:
        raise RepositoryError("the generated configurations contradict each other: " + "; ".join(faults))


def _faults(folders: dict[str, ModelFolder]) -> Iterator[str]:
    configs = {name: folder.config for name, folder in folders.items()}
    for name, folder in folders.items():
        config = folder.config
        if not any(path.startswith("1/") for path in folder.files):
            yield f"{name} has no version folder"
        for kind, tensors in (("input", config.input), ("output", config.output)):
            names = [tensor.name for tensor in tensors]
            yield from (f"{name} declares {kind} {twice!r} twice" for twice in sorted(set(_repeated(names))))
        if config.platform == "ensemble":
            yield from (str(fault) for fault in ensemble_faults(config, configs))
            yield from _scrambling(name, configs)


def _repeated(names: list[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield name
        seen.add(name)


def _scrambling(name: str, configs: Mapping[str, ModelConfig]) -> Iterator[str]:
    """Steps behind a decoupled one: with two instances, responses of one stream overtake each other."""
    streaming = False
    for step in configs[name].ensemble_scheduling.step:
        config = configs.get(step.model_name)
        if config is None:
            continue
        count = sum(group.count for group in config.instance_group) or 1
        if streaming and count > 1:
            yield f"{step.model_name} follows a decoupled step of {name} and has {count} instances, not 1"
        streaming = streaming or config.model_transaction_policy.decoupled
