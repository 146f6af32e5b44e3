"""Vision pipelines of the plan: the catalogue's rows with what the user changed."""

from __future__ import annotations

from trtbuild.catalog.vision import NetworkRow, pipeline
from trtbuild.plan.model import NetworkPlan, VisionPlan
from trtbuild.spec import VisionSpec


def plan_vision(spec: VisionSpec) -> VisionPlan:
    """The numbers of one vision pipeline.

    Raises:
        CatalogError: an unknown pipeline.
    """
    row = pipeline(spec.pipeline)
    networks = tuple(_network(network, spec) for network in row.networks)
    return VisionPlan(
        name=spec.name,
        pipeline=spec.pipeline,
        weights_path=str(spec.weights) if spec.weights else None,
        instances=row.front.instances,
        max_batch_size=max(network.max_batch_size for network in networks),
        max_picture_pixels=row.front.max_picture_pixels,
        networks=networks,
    )


def _network(row: NetworkRow, spec: VisionSpec) -> NetworkPlan:
    batch = min(row.max_batch_size, spec.max_batch_size or row.max_batch_size)
    return NetworkPlan(
        role=row.role,
        model=f"{spec.name}_{row.role}",
        instances=spec.instances or row.instances,
        max_batch_size=batch,
        preferred_batch_sizes=tuple(size for size in row.preferred_batch_sizes if size <= batch),
        max_queue_delay_us=row.max_queue_delay_us,
        weights_bytes=row.bytes,
        workspace_bytes=row.workspace.at_batch(batch),
    )
