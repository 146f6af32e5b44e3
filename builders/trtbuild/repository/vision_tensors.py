"""What a single network's pipeline answers with, by task. dims are without the batch; -1 is free.

Boxes are left, top, right and bottom in pixels of the upright picture; rows of a picture with fewer boxes
than ``count`` of another of the same batch are filled up.
"""

from __future__ import annotations

from trtbuild.catalog.versions import Tensor
from trtbuild.catalog.vision import TensorRow
from trtbuild.plan.model import VisionPlan
from trtbuild.spec import Task

IMAGE = Tensor(name="image", dtype="STRING", dims=(1,))
GEOMETRY = Tensor(name="geometry", dtype="FP32", dims=(6,))
PROBLEM = Tensor(name="error", dtype="STRING", dims=(1,))
_PICTURE_SIZE = Tensor(name="picture_size", dtype="INT32", dims=(2,))
_BOXES = (
    Tensor(name="box", dtype="FP32", dims=(-1, 4)),
    Tensor(name="score", dtype="FP32", dims=(-1,)),
    Tensor(name="class_id", dtype="INT32", dims=(-1,)),
    Tensor(name="label", dtype="STRING", dims=(-1,)),
    Tensor(name="count", dtype="INT32", dims=(1,)),
)


def raw_outputs(plan: VisionPlan) -> tuple[TensorRow, ...]:
    """The network's outputs that are read, in the order in which they are."""
    assert plan.answer is not None
    by_name = {row.name: row for row in plan.networks[0].outputs}
    return tuple(by_name[name] for name in plan.answer.outputs)


def answer_tensors(plan: VisionPlan) -> tuple[Tensor, ...]:
    """Outputs of the pipeline."""
    assert plan.answer is not None
    if plan.task is Task.RAW:
        rows = raw_outputs(plan)
        taken = {"image", "pixels", "geometry", "error", *(row.name for row in rows)}
        own = tuple(Tensor(name=_free_name(row.name, taken), dtype=row.dtype, dims=row.dims) for row in rows)
        return (*own, GEOMETRY, PROBLEM)
    many = (plan.answer.top_k,)
    if plan.task is Task.CLASSIFICATION:
        own = (
            Tensor(name="class_id", dtype="INT32", dims=many),
            Tensor(name="score", dtype="FP32", dims=many),
            Tensor(name="label", dtype="STRING", dims=many),
        )
    elif plan.task is Task.EMBEDDING:
        own = (Tensor(name="embedding", dtype="FP32", dims=(_length(raw_outputs(plan)[0]),)),)
    elif plan.task is Task.SEGMENTATION:
        each = Tensor(name="mask", dtype="STRING", dims=(-1 if plan.answer.head else 1,))
        own = (*(_BOXES if plan.answer.head else ()), each)
    else:
        own = _BOXES
    return (*own, _PICTURE_SIZE, PROBLEM)


def _free_name(name: str, taken: set[str]) -> str:
    """An output's name in the ensemble, where ours are taken."""
    if name not in ("image", "pixels", "geometry", "error"):
        return name
    while name in taken:
        name += "_output"
    return name


def _length(row: TensorRow) -> int:
    total = 1
    for dim in row.dims:
        total = -1 if dim < 0 or total < 0 else total * dim
    return total
