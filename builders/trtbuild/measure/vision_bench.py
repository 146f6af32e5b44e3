"""A classifier's whole pipeline over the same decoding and network in one process; and what batching gains.

Both arms decode the same JPEG and run the same served graph on the same cores. The served arm counts its
clients' CPU, too. Figures are medians over interleaved rounds.
"""

from __future__ import annotations

import io
import json
import os
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from trtbuild.build.onnx_quantise import fit_parameters
from trtbuild.build.vision_source import SingleNetwork
from trtbuild.generate import generate
from trtbuild.plan.vision import plan_vision
from trtbuild.prepare import prepare
from trtbuild.serve.server import Server, start
from trtbuild.spec import DeploymentSpec, Target, VisionSpec

_BATCHED, _SINGLE = "batched", "single"
_WARM_UP = 32


@dataclass(frozen=True)
class Result:
    """Pictures a second (``_per_s``) and ratios of medians.

    Attributes:
        in_process_per_s: decoding and network in one process, a thread a core.
        served_per_s, single_per_s: the pipeline from JPEG bytes with dynamic batching, and with batches of 1.
        ratio: served over in process.
        network_gain: of the network alone in process, at the mean batch that formed over a batch of 1.
        served_gain: served over single.
        pictures, executions: what Triton counted for the network of the batched arm.
    """

    clients: int
    in_process_per_s: float
    served_per_s: float
    single_per_s: float
    ratio: float
    network_gain: float
    served_gain: float
    pictures: int
    executions: int


def photograph(width: int = 640, height: int = 480) -> bytes:
    """A JPEG with the detail of a photograph, the same every time."""
    from PIL import Image

    rng = np.random.default_rng(5)
    coarse = Image.fromarray(rng.integers(0, 256, (height // 16, width // 16, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC)).astype(np.float32)
    noisy = np.clip(smooth + rng.normal(0, 6, smooth.shape), 0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noisy).save(buffer, "JPEG", quality=88)
    return buffer.getvalue()


class InProcess:
    """The same work without a server."""

    def __init__(self, spec: VisionSpec, threads: int) -> None:
        import onnxruntime

        from trtbuild_templates.vision_preprocess.fit import Fit

        network = SingleNetwork.of(spec)
        assert network is not None
        plan, _ = plan_vision(network.source.spec, network.source)
        assert plan.picture is not None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(
            network.served(plan), options, providers=["CPUExecutionProvider"]
        )
        self._fit = Fit.of(fit_parameters(plan.picture))
        self._pixels = plan.max_picture_pixels

    def __call__(self, data: bytes) -> None:
        """One picture, decoded and run."""
        from trtbuild_templates.vision_ocr.picture import decode

        picture = decode(data, max_pixels=self._pixels, working_pixels=self._pixels)
        self._session.run(None, {"pixels": self._fit(picture.image)[0][np.newaxis]})

    def network_per_s(self, batch: int, seconds: float) -> float:
        """Pictures a second of the network alone."""
        size = (batch, self._fit.height, self._fit.width, self._fit.channels)
        pixels = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
        self._session.run(None, {"pixels": pixels})
        begun, runs = time.perf_counter(), 0
        while (passed := time.perf_counter() - begun) < seconds:
            self._session.run(None, {"pixels": pixels})
            runs += 1
        return runs * batch / passed


def rate(call: Callable[[bytes], Any], data: bytes, *, threads: int, seconds: float) -> float:
    """Calls a second of ``threads`` callers that do not pause."""
    end = threading.Event()

    def caller() -> int:
        done = 0
        while not end.is_set():
            call(data)
            done += 1
        return done

    with ThreadPoolExecutor(threads) as pool:
        begun = time.perf_counter()
        callers = [pool.submit(caller) for _ in range(threads)]
        end.wait(seconds)
        end.set()
        total = sum(item.result() for item in callers)
        return total / (time.perf_counter() - begun)


def counters(server: Server, model: str) -> tuple[int, int]:
    """Pictures and executions of a model, by Triton's metrics."""
    text = urllib.request.urlopen(f"http://{server.metrics_address}/metrics", timeout=10).read().decode()
    found = []
    for name in ("nv_inference_count", "nv_inference_exec_count"):
        head = f'{name}{{model="{model}",version="1"}} '
        found.append(
            next(int(float(line[len(head) :])) for line in text.splitlines() if line.startswith(head))
        )
    return found[0], found[1]


def measure(*, clients: int, rounds: int, seconds: float, pipeline: str) -> Result:
    """Runs all arms, one after the other, ``rounds`` times."""
    from tritonstream import Client

    cores = len(os.sched_getaffinity(0))
    data = photograph()
    specs = (
        VisionSpec(name=_BATCHED, pipeline=pipeline),
        VisionSpec(name=_SINGLE, pipeline=pipeline, max_batch_size=1),
    )
    plain = InProcess(specs[0], cores)
    rates: dict[str, list[float]] = {"plain": [], _BATCHED: [], _SINGLE: []}
    with tempfile.TemporaryDirectory(prefix="trtbuild-") as scratch:
        repository = Path(scratch) / "repository"
        generate(prepare(DeploymentSpec(target=Target.LOCAL, vision=specs)), repository)
        with start(repository) as server, Client(server.grpc_address) as client:
            for name in (_BATCHED, _SINGLE):
                client.classify(name, [data] * _WARM_UP)
            before = counters(server, f"{_BATCHED}_network")
            for _ in range(rounds):
                rates["plain"].append(rate(plain, data, threads=cores, seconds=seconds))
                for name in (_BATCHED, _SINGLE):

                    def ask(picture: bytes, name: str = name) -> None:
                        client.classify(name, picture)

                    rates[name].append(rate(ask, data, threads=clients, seconds=seconds))
            after = counters(server, f"{_BATCHED}_network")
    pictures, executions = after[0] - before[0], after[1] - before[1]
    batch = max(1, round(pictures / executions))
    median = {name: statistics.median(values) for name, values in rates.items()}
    gain = plain.network_per_s(batch, seconds) / plain.network_per_s(1, seconds)
    return Result(
        clients=clients,
        in_process_per_s=round(median["plain"], 1),
        served_per_s=round(median[_BATCHED], 1),
        single_per_s=round(median[_SINGLE], 1),
        ratio=round(median[_BATCHED] / median["plain"], 3),
        network_gain=round(gain, 3),
        served_gain=round(median[_BATCHED] / median[_SINGLE], 3),
        pictures=pictures,
        executions=executions,
    )


@click.command()
@click.option("--clients", default=16, show_default=True, help="Callers that do not pause.")
@click.option("--rounds", default=5, show_default=True, help="Interleaved rounds; medians are shown.")
@click.option("--seconds", default=6.0, show_default=True, help="Of each arm in each round.")
@click.option("--pipeline", default="efficientnet-lite0", show_default=True, help="Of the catalogue.")
def main(clients: int, rounds: int, seconds: float, pipeline: str) -> None:
    """A classifier from JPEG bytes: served over in process, and what batching gains."""
    result = measure(clients=clients, rounds=rounds, seconds=seconds, pipeline=pipeline)
    json.dump(asdict(result), sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
