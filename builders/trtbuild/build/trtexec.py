"""TensorRT plan files of vision networks: the command that compiles one in the container, and its key.

The profile is made of what the network's Triton configuration says, so that batch sizes, names, types and
layouts are the same in both. Options: samples/common/sampleOptions.cpp of TensorRT 10.3 to 10.14.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from trtbuild.catalog.versions import Container
from trtbuild.plan.model import NetworkPlan

PLAN_FILE = "model.plan"
# Where images have it: TensorRT-LLM's beside the libraries that it was built with, others among the samples.
_FIND = 'PATH=$PATH:/usr/local/tensorrt/bin:/usr/src/tensorrt/bin; mkdir -p plan.partial; exec trtexec "$@"'
# Weak typing, of TensorRT up to 10: deprecated since 10.12, a warning since 10.14. TensorRT 11 knows none of
# these options (the graph's own types are the network's); a container with it needs graphs cast beforehand.
_PRECISION = {"fp32": (), "fp16": ("--fp16",), "int8": ("--int8", "--fp16"), "fp8": ("--fp8", "--fp16")}


@dataclass(frozen=True)
class PlanFile:
    """One network that is compiled on the GPU that runs it. ``key`` digests all that changes the product."""

    network: NetworkPlan
    argv: tuple[str, ...]
    key: str


def plan_file(network: NetworkPlan, container: Container, sm: str | None, *, onnx: str) -> PlanFile:
    """How a network's plan file is made.

    Args:
        sm: compute capability of the GPU.
        onnx: path of the graph as it is served.
    """
    argv = trtexec_argv(network, onnx=onnx, product=f"plan.partial/{PLAN_FILE}")
    facts = [container.image, container.tensorrt, sm, argv]
    return PlanFile(network, argv, hashlib.sha256(json.dumps(facts).encode()).hexdigest())


def trtexec_argv(network: NetworkPlan, *, onnx: str, product: str) -> tuple[str, ...]:
    """The command. Quantised graphs carry their scales (QuantizeLinear), so no calibration cache is given."""
    batches = {"min": 1, "opt": optimal_batch(network), "max": network.max_batch_size}
    shapes = [f"--{word}Shapes={_shapes(network, size)}" for word, size in batches.items()]
    return (
        "bash",
        "-c",
        _FIND,
        "trtexec",
        f"--onnx={onnx}",
        f"--saveEngine={product}",
        *shapes,
        *_PRECISION[network.precision],
        f"--memPoolSize=workspace:{max(1, network.workspace_bytes >> 20)}M",
        "--timingCacheFile=timing.cache",
        "--skipInference",
    )


def optimal_batch(network: NetworkPlan) -> int:
    """The batch that kernels are chosen for: the largest that the scheduler prefers."""
    return max(network.preferred_batch_sizes, default=network.max_batch_size)


def _shapes(network: NetworkPlan, batch: int) -> str:
    return ",".join(f"{row.name}:{'x'.join(map(str, (batch, *row.dims)))}" for row in network.inputs)
