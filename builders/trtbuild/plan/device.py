"""The GPU of a plan that was made before."""

from __future__ import annotations

from trtbuild.catalog.gpus import Gpu, find_gpu, unlisted_gpu
from trtbuild.errors import CatalogError
from trtbuild.plan.model import Plan


def planned_gpu(plan: Plan) -> Gpu | None:
    """The catalogue's row of the planned GPU, or what the plan itself knows of it; None for a CPU."""
    planned = plan.gpu
    if planned.sm is None:
        return None
    try:
        return find_gpu(planned.name).gpu
    except CatalogError:
        return unlisted_gpu(name=planned.name, nvidia_smi_bytes=planned.memory_bytes, sm=planned.sm)
