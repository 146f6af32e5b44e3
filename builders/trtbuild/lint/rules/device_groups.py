"""gpu_device_ids does not fit the instances or the engine.

`,` stands between the GPUs of one instance, `;` between instances: `0,1;2,3` for two instances of a
two-GPU engine. The LLM API refuses fewer groups than instances; the C++ backend begins again with the first,
so that two engines share its GPUs and the weights are loaded twice (tensorrtllm_backend issue 274).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.model import ModelFolder, Parameter
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_cpp_engine, is_engine, is_llmapi

SEVERITY = "error"
_FORM = re.compile(r"[0-9]+(,[0-9]+)*(;[0-9]+(,[0-9]+)*)*")


def check(repository: LintRepository) -> Iterator[Found]:
    """The parameter of engines and LLM API models."""
    for model in repository.readable:
        parameter = model.parameters.get("gpu_device_ids")
        if parameter is None or not parameter.is_set or not (is_engine(model) or is_llmapi(model)):
            continue
        if not _FORM.fullmatch(parameter.value):
            yield Found(
                model.at(parameter.place),
                f"gpu_device_ids is {parameter.value!r}",
                "the backend cannot read it, and the model does not load",
                '"," between the GPUs of one instance, ";" between instances: "0,1;2,3"',
            )
            continue
        groups = [group.split(",") for group in parameter.value.split(";")]
        yield from _counts(model, parameter, groups)
        yield from _sizes(repository, model, parameter, groups)


def _counts(model: ModelFolder, parameter: Parameter, groups: list[list[str]]) -> Iterator[Found]:
    if len(groups) == model.instances or model.is_unfilled("instance_group.count"):
        return
    few = len(groups) < model.instances
    yield Found(
        model.at(parameter.place),
        f"gpu_device_ids {parameter.value!r} has {len(groups)} "
        f"group{'s' if len(groups) > 1 else ''}, and the model has "
        f"{model.instances} instance{'s' if model.instances > 1 else ''}",
        (
            "the C++ backend begins again with the first group, the LLM API stops"
            if few
            else "the last groups are never used"
        ),
        'one group for each instance, with ";" between them; "0;0" puts two on one GPU on purpose',
        severity=None if few else "warning",
    )


def _sizes(
    repository: LintRepository, model: ModelFolder, parameter: Parameter, groups: list[list[str]]
) -> Iterator[Found]:
    files = repository.engine_files(model) if is_cpp_engine(model) else None
    ranks = files.world_size if files is not None and files.get("pretrained_config.mapping") else None
    for group in groups:
        shown = ",".join(group)
        if len(set(group)) < len(group):
            yield Found(
                model.at(parameter.place),
                f"the group {shown} names a GPU twice",
                "every rank of an engine needs a GPU of its own",
                "name different GPUs",
            )
        elif ranks is not None and len(group) != ranks:
            yield Found(
                model.at(parameter.place),
                f"the group {shown} has {len(group)} GPUs, and the engine was built for {ranks} ranks",
                "each rank runs on one GPU; the model does not load",
                f"name {ranks} GPUs for each instance",
            )
