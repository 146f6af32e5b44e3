"""A setting that only TensorRT's models take.

Optimisation profiles of an instance group, shape tensors, and tensors of a format that is not linear: Triton
refuses a model of another backend that has them (core, model_config_utils.cc, `ValidateInstanceGroup`,
`ValidateModelInput`, `ValidateNonLinearFormatIO`). A profile is a number from 0 in quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository

SEVERITY = "error"
_PROFILE = re.compile(r"\s*\+?\d")
_WHY = "Triton refuses it, and the model does not load"


def check(repository: LintRepository) -> Iterator[Found]:
    """Instance groups and tensors of all models whose backend is known."""
    for model in repository.readable:
        if not model.backend or "${" in model.backend or model.is_ensemble:
            continue
        if model.backend != "tensorrt":
            groups = [(group, "profile") for group in model.all("instance_group")]
            tensors = [
                (entry, key)
                for entry in (*model.all("input"), *model.all("output"))
                for key in ("is_shape_tensor", "is_non_linear_format_io")
            ]
            for entry, key in groups + tensors:
                field = entry.message.get(key) if entry.message else None
                if field is not None and (key == "profile" or field.is_on):
                    yield Found(
                        model.at(field),
                        f"{key} in a model of backend {model.backend}",
                        f"only TensorRT's models have it: {_WHY}",
                        f"remove {key}",
                    )
            continue
        for group in model.all("instance_group"):
            for profile in group.message.all("profile") if group.message else ():
                if not _PROFILE.match(profile.text) and "${" not in profile.text:
                    yield Found(
                        model.at(profile),
                        f"profile is {profile.text!r}",
                        f"it is the number of an optimisation profile: {_WHY}",
                        'write profile: [ "0" ], or the number of another one',
                    )
