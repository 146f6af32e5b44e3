"""`model_metrics` that Triton refuses.

Each control names a family of metrics and gives the limits of its buckets (core, model_config_utils.cc,
`ValidateModelMetrics`).
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository

SEVERITY = "error"
_NEEDED = {
    "metric_identifier.family": 'metric_identifier { family: "nv_inference_first_response_histogram_ms" }',
    "histogram_options.buckets": "histogram_options { buckets: [ 100, 500, 2000 ] }",
}


def check(repository: LintRepository) -> Iterator[Found]:
    """metric_control of all models."""
    for model in repository.readable:
        metrics = model.field("model_metrics")
        for control in metrics.message.all("metric_control") if metrics and metrics.message else ():
            for path, remedy in _NEEDED.items():
                field = control.message.get(path) if control.message else None
                if field is None or not field.text:
                    yield Found(
                        model.at(control),
                        f"metric_control without {path}",
                        "Triton refuses it, and the model does not load",
                        f"write {remedy}",
                    )
