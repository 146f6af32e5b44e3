"""`gpus:` where it is not looked at, or not allowed.

The TensorRT-LLM backend ignores the device that Triton gives an instance: two instances with
`gpus: [0, 1]` both land on GPU 0 and run out of memory (tensorrtllm_backend issue 481, server issue 7255).
Triton itself refuses `gpus` with KIND_CPU and KIND_MODEL, negative ones, and instance groups of ensembles.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_cpp_engine

SEVERITY = "error"


def check(repository: LintRepository) -> Iterator[Found]:
    """Instance groups of all models."""
    for model in repository.readable:
        for group in model.all("instance_group"):
            if model.is_ensemble:
                yield Found(
                    model.at(group),
                    "an ensemble has an instance_group",
                    "ensembles have no instances of their own, and Triton refuses the setting",
                    "set the instances of the models that it calls",
                )
                break
            gpus = group.message.get("gpus") if group.message else None
            kind = group.message.get("kind") if group.message else None
            if gpus is None or group.message is None:
                continue
            if is_cpp_engine(model):
                yield Found(
                    model.at(gpus),
                    "gpus in the instance group of a TensorRT-LLM model",
                    "the backend ignores it: every instance starts on the first visible GPU",
                    'write parameter gpu_device_ids ("0;1" for two instances) and kind: KIND_CPU',
                )
            elif negative := [item for item in group.message.all("gpus") if (item.number or 0) < 0]:
                yield Found(
                    model.at(negative[0]),
                    f"gpus has {negative[0].text}",
                    "GPUs are counted from 0, Triton knows no such one, and the model does not load",
                    "name GPUs from 0 on, or leave gpus out to use all",
                )
            elif kind is not None and kind.text in ("KIND_CPU", "KIND_MODEL"):
                yield Found(
                    model.at(gpus),
                    f"gpus with {kind.text}",
                    "Triton refuses the combination, and the model does not load",
                    "remove gpus, or write kind: KIND_GPU",
                )
