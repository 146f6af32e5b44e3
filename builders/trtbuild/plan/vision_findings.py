"""What is said of a model file's plan: what was taken for what, what is left out, and what was guessed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from trtbuild.plan.graph import GraphFacts
from trtbuild.plan.model import Finding
from trtbuild.plan.vision_picture import Assumed
from trtbuild.plan.vision_task import Reading
from trtbuild.spec import Task, VisionSpec

_SAME = 0.01  # of a deviation
_OTHERWISE = "add-vision, or the same under `preprocess` in the spec"


def findings(spec: VisionSpec, facts: GraphFacts, reading: Reading, assumed: Assumed) -> Iterator[Finding]:
    """In the order in which they are shown."""
    yield from _of_outputs(spec, facts, reading)
    yield from _of_pictures(spec, facts, assumed)
    yield from _of_batches(spec, facts)


def _of_outputs(spec: VisionSpec, facts: GraphFacts, reading: Reading) -> Iterator[Finding]:
    if reading.task is Task.RAW:
        message = f"{spec.name}: its outputs are served as raw tensors, because {reading.why}"
        tasks = " or ".join(f"--task {task.value}" for task in reading.perhaps)
        remedy = f"{tasks}, if it is that; --task raw, if not" if tasks else ""
        if not tasks and spec.task is None:
            remedy = "what they mean is left to the caller; --task raw says that this is meant"
        severity: Literal["info", "warning"] = "info" if spec.task is Task.RAW else "warning"
        yield Finding(id="vision.raw", severity=severity, message=message, remedy=remedy)
        return
    if spec.task is None or reading.head == "ssd":  # its boxes may be meant otherwise
        message = f"{spec.name}: taken for {reading.task.value}, because {reading.why}"
        yield Finding(id="vision.task", severity="info", message=message)
    if reading.task is Task.CLASSIFICATION and facts.makers.get(reading.outputs[0]) == "Sigmoid":
        message = (
            f"{spec.name}: its scores are independent (multi-label): a Sigmoid makes each of its own, they "
            "do not sum to 1, and several classes may hold of one picture"
        )
        yield Finding(id="vision.scores", severity="info", message=message)
    left = [row.name for row in facts.outputs if row.name not in reading.outputs]
    if left:
        message = f"{spec.name}: not served: {', '.join(left)}; the answer is made of " + ", ".join(
            reading.outputs
        )
        remedy = "--task raw serves every output as it is"
        yield Finding(id="vision.outputs", severity="info", message=message, remedy=remedy)


def _of_pictures(spec: VisionSpec, facts: GraphFacts, assumed: Assumed) -> Iterator[Finding]:
    if spec.model is None:  # the catalogue says it
        return
    if facts.own_range:
        mean, std = spec.preprocess.mean or (), spec.preprocess.std or ()
        given = any(mean) or any(abs(value * facts.own_range - 1) > _SAME for value in std)
        message = f"{spec.name}: its graph begins with a normalisation of its own ({facts.own_steps})"
        if given:
            message += f" of values from 0 to {facts.own_range}, and the mean and std given come before it"
            remedy = "leave mean and std out: it is then given what its own normalisation takes"
        else:
            message += f", so it is given values from 0 to {facts.own_range}, not normalised before"
            remedy = ""
        severity: Literal["info", "warning"] = "warning" if given else "info"
        yield Finding(id="vision.normalised", severity=severity, message=message, remedy=remedy)
    if assumed.guessed:
        message = (
            f"{spec.name}: how its pictures are normalised is a guess, for its file does not say: "
            f"{assumed.guessed}"
        )
        remedy = f"--mean and --std that it was trained with, of {_OTHERWISE}; wrong ones cost accuracy"
        yield Finding(id="vision.guessed", severity="warning", message=message, remedy=remedy)
    if assumed.usual:
        usual = "; ".join(assumed.usual)
        message = f"{spec.name}: its pictures are prepared as such models usually are: {usual}"
        remedy = f"say otherwise with --fit, --colours, --mean and --std of {_OTHERWISE}"
        yield Finding(id="vision.assumed", severity="info", message=message, remedy=remedy)


def _of_batches(spec: VisionSpec, facts: GraphFacts) -> Iterator[Finding]:
    if facts.batch == "rewritten":
        yield Finding(id="vision.batch", severity="info", message=f"{spec.name}: {facts.batch_note}")
    if facts.batch == "one":
        asked = f", and max_batch_size {spec.max_batch_size} was asked for" if spec.max_batch_size else ""
        message = f"{spec.name}: one picture at a time{asked}: {facts.batch_note}"
        severity: Literal["info", "warning"] = "warning" if (spec.max_batch_size or 0) > 1 else "info"
        yield Finding(id="vision.batch", severity=severity, message=message, remedy=facts.batch_remedy)
