"""Where repositories of the targets ``engine`` and ``local`` differ: here, and nowhere that a client sees."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """One place: ``where`` is a path with ``<model>`` or ``<network>`` in it, ``what`` a field or a file."""

    where: str
    what: str
    engine: str
    local: str


LOCAL_DIFFERENCES = (
    Difference("<network>/config.pbtxt", "instance_group.kind", "KIND_GPU", "KIND_CPU"),
    Difference(
        "<network>/config.pbtxt", "instance_group.rate_limiter", "a share of `vision`", "absent: one CPU"
    ),
    Difference("<network>/config.pbtxt", "parameters.gpu_mem_limit", "the planned bytes", "absent"),
    Difference("<network>/config.pbtxt", "parameters.arena_extend_strategy", "1 (as requested)", "absent"),
    Difference("<network>/config.pbtxt", "parameters.cudnn_conv_algo_search", "1 (heuristic)", "absent"),
    Difference(
        "<pipeline>/config.pbtxt",
        "ensemble_scheduling.max_inflight_requests",
        "two batches a network instance",
        "absent: its server is of 24.10",
    ),
    Difference(
        "<model>_engine/config.pbtxt",
        "parameters.max_tokens_in_paged_kv_cache",
        "from GPU memory",
        "from host RAM",
    ),
    Difference(
        "<model>_engine/config.pbtxt",
        "parameters.unsupported_inputs",
        "absent",
        "the inputs that the CPU engine refuses",
    ),
    Difference("<model>/config.pbtxt", "parameters.kv_tokens", "from GPU memory", "from host RAM"),
    Difference(
        "<model>_engine/config.pbtxt",
        "parameters.kv_cache_free_gpu_mem_fraction",
        "of free GPU memory",
        "not used: the token cap is the pool",
    ),
    Difference(
        "<model>_engine/1", "files", "config.json and rank*.engine of a build", "config.json and weights"
    ),
    Difference("<network>/1", "files", "model.onnx, brought to the GPU host", "model.onnx, written"),
    Difference("<model>/1/tokenizer", "files", "written or brought by the build", "written"),
    Difference("/", "files", "build_engines.sh, launch.sh, Dockerfile", "none of them: `trtbuild serve`"),
)
