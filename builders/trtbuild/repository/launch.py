"""How tritonserver is started for a repository on a GPU host: options by version, processes and /dev/shm."""

from __future__ import annotations

from trtbuild.catalog.versions import Container
from trtbuild.plan.constants import CUDA_POOL_BYTES
from trtbuild.plan.model import Plan
from trtbuild.repository.vision import VISION_RESOURCE
from trtbuild.server_options import STUB_THREADS
from trtbuild.spec import Target

EXIT_TIMEOUT_S = 30
# Responses of one stream that may wait for a slow reader. A stream that fills it blocks the front's sender,
# so it holds more than the longest answer.
MIN_RESPONSE_POOL = 4096
# A client that sends keepalive pings on a quiet stream is otherwise cut off after two of them: gRPC's
# default allows one in five minutes without data.
GRPC_KEEPALIVE = {
    "grpc-keepalive-time": 30_000,
    "grpc-keepalive-timeout": 20_000,
    "grpc-keepalive-permit-without-calls": "true",
    "grpc-http2-min-recv-ping-interval-without-data": 5_000,
}
# Docker's own 64 MiB are gone with the first models; what the plan does not count gets this.
SPARE_SHM_BYTES = 256 << 20


# Vision networks that run at the same time where there are several pipelines.
VISION_AT_ONCE = 2


def is_orchestrated(plan: Plan) -> bool:
    """Whether engines run in worker processes: more than one in a server is served in no other way."""
    return plan.target is Target.ENGINE and sum(llm.instances for llm in plan.llms) > 1


def ranks(plan: Plan) -> int:
    """Server processes that mpirun starts: one a GPU where one engine is split (leader mode), else one."""
    return (
        1
        if is_orchestrated(plan) or plan.target is not Target.ENGINE
        else max((llm.tp for llm in plan.llms), default=1)
    )


def server_options(plan: Plan, container: Container) -> list[str]:
    """The options of tritonserver, but for those that differ from start to start: ports, names, keys."""
    options = {
        "model-repository": ".",
        "model-control-mode": "none",
        "exit-timeout-secs": EXIT_TIMEOUT_S,
        "metrics-config": "histogram_latencies=true",
        **GRPC_KEEPALIVE,
    }
    if "grpc_max_response_pool_size" in container.features:
        longest = max((llm.max_output_tokens for llm in plan.llms), default=0)
        options["grpc-max-response-pool-size"] = max(MIN_RESPONSE_POOL, 2 * longest)
    if is_orchestrated(plan):
        # As NVIDIA's launch_triton_server.py does for several models.
        options |= {"pinned-memory-pool-byte-size": 0, "enable-peer-access": "false"}
    if len(plan.visions) > 1:
        # Among themselves; it cannot restrain a language model, whose execute only enqueues.
        options |= {
            "rate-limit": "execution_count",
            "rate-limit-resource": f"{VISION_RESOURCE}:{VISION_AT_ONCE}",
        }
    arguments = ["--disable-auto-complete-config"]
    arguments += [f"--{name}={value}" for name, value in options.items()]
    pool = 0 if is_orchestrated(plan) else CUDA_POOL_BYTES
    gpus = max((llm.tp for llm in plan.llms), default=1)
    arguments += [f"--cuda-memory-pool-byte-size={gpu}:{pool}" for gpu in range(gpus)]
    return [*arguments, f"--backend-config=python,thread-pool-size={STUB_THREADS}"]


def shm_bytes(plan: Plan, container: Container, folders: int) -> int:
    """/dev/shm of the server's container: what the plan counts, with room to grow."""
    return max(plan.shm_bytes, folders * container.python_shm_bytes) + SPARE_SHM_BYTES
