"""The local onnxruntime backend in a real server, with graphs that are not ours."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from tests.support.tiny_onnx import FLOAT, INT64, STRING, Tensors, model_config, node, onnx_bytes, write_model
from tests.support.vision_client import VisionClient
from tritonclient.utils import InferenceServerException

from trtbuild.errors import ServeError
from trtbuild.serve.backends import assemble_backends
from trtbuild.serve.server import start
from trtbuild.serve.wheel import find_wheel

pytestmark = pytest.mark.server

ROWS: Tensors = {"a": (FLOAT, ("n", 3)), "b": (FLOAT, ("n", 3))}
SUMS: Tensors = {"sum": (FLOAT, ("n", 3)), "difference": (FLOAT, ("n", 3))}
ARITHMETIC = [node("Add", ["a", "b"], ["sum"]), node("Sub", ["a", "b"], ["difference"])]
# A run fails as a whole when one row's index is out of range.
PICK_IN: Tensors = {"data": (FLOAT, ("n", 4)), "index": (INT64, ("n", 1))}
PICK_OUT: Tensors = {"picked": (FLOAT, ("n", 1))}
PICK = [node("GatherElements", ["data", "index"], ["picked"], axis=1)]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    arithmetic = onnx_bytes(ARITHMETIC, ROWS, SUMS)
    write_model(
        folder, model_config("batched", ROWS, SUMS, max_batch_size=8, queue_delay_us=100_000), arithmetic
    )
    write_model(folder, model_config("unbatched", ROWS, SUMS), arithmetic)
    write_model(folder, model_config("renamed", ROWS, SUMS, max_batch_size=4), arithmetic, file="other.onnx")
    config = folder / "renamed" / "config.pbtxt"
    config.write_text(config.read_text() + 'default_model_filename: "other.onnx"\n')
    pick = model_config("pick", PICK_IN, PICK_OUT, max_batch_size=8, queue_delay_us=200_000)
    write_model(folder, pick, onnx_bytes(PICK, PICK_IN, PICK_OUT))
    two = model_config("two", ROWS, SUMS, max_batch_size=1)
    two.instance_group[0].count = 2
    write_model(folder, two, arithmetic)
    words_in: Tensors = {"words": (STRING, ("n", "m"))}
    words_out: Tensors = {"same": (STRING, ("n", "m"))}
    echo = onnx_bytes([node("Identity", ["words"], ["same"])], words_in, words_out)
    write_model(folder, model_config("echo", words_in, words_out, max_batch_size=4), echo)
    return folder


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[Any]:
    with start(repository) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Any) -> Iterator[VisionClient]:
    found = VisionClient(server.grpc_address, server.metrics_address)
    yield found
    found.close()


def rows(count: int, value: float) -> dict[str, Any]:
    return {"a": np.full((count, 3), value, np.float32), "b": np.ones((count, 3), np.float32)}


@pytest.mark.parametrize("model", ["batched", "unbatched", "renamed"])
def test_outputs_are_those_of_the_graph(client: VisionClient, model: str) -> None:
    answer = client.infer(model, rows(2, 5.0))
    np.testing.assert_array_equal(answer["sum"], np.full((2, 3), 6.0))
    np.testing.assert_array_equal(answer["difference"], np.full((2, 3), 4.0))


def test_only_wanted_outputs_are_sent(client: VisionClient) -> None:
    assert set(client.infer("batched", rows(1, 5.0), ("sum",))) == {"sum"}


def test_requests_that_arrive_together_are_one_execution(client: VisionClient) -> None:
    before = client.counters("batched")
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda i: client.infer("batched", rows(1, float(i))), range(16)))
    for i, answer in enumerate(answers):
        np.testing.assert_array_equal(answer["sum"], np.full((1, 3), i + 1.0))
    # the server counts a request after it has answered: that of the test before may be among these
    assert client.counters("batched")["exec_count"] - before["exec_count"] < 16


def test_one_bad_request_of_a_batch_fails_alone(client: VisionClient) -> None:
    data = np.arange(4, dtype=np.float32)[np.newaxis]

    def picked(index: int) -> Any:
        inputs = {"data": data, "index": np.array([[index]], np.int64)}
        try:
            return client.infer("pick", inputs)["picked"].item()
        except InferenceServerException as error:
            return error

    before = client.counters("pick")
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(picked, [0, 1, 99, 2, 3, 1]))
    assert [item for item in results if not isinstance(item, Exception)] == [0.0, 1.0, 2.0, 3.0, 1.0]
    assert "index" in str(results[2])
    assert client.counters("pick")["exec_count"] - before["exec_count"] < 6  # they did share a run


def test_strings(client: VisionClient) -> None:
    words = np.array([["é".encode(), b"", "字".encode()]], dtype=np.object_)
    np.testing.assert_array_equal(client.infer("echo", {"words": words})["same"], words)


def test_tensors_and_batching_are_completed_from_the_graph(tmp_path: Path) -> None:
    """In a server that asks for it; `trtbuild serve` does not, since all it writes is complete."""
    model = tmp_path / "repository" / "bare"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text('backend: "onnxruntime"\n')
    (model / "1" / "model.onnx").write_bytes(onnx_bytes(ARITHMETIC, ROWS, SUMS))
    wheel = find_wheel()
    assemble_backends(wheel, tmp_path / "backends")
    port = free_port()
    command = [str(wheel.server), f"--model-repository={model.parent}", "--allow-metrics=false"]
    command += [f"--backend-directory={tmp_path / 'backends'}", "--allow-http=false"]
    command += ["--grpc-address=127.0.0.1", f"--grpc-port={port}"]
    paths = {
        "LD_LIBRARY_PATH": wheel.library_path,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **paths})
    client = VisionClient(f"127.0.0.1:{port}")
    try:
        config = client.config_when_ready("bare", timeout_s=120)
        np.testing.assert_array_equal(client.infer("bare", rows(2, 5.0))["sum"], np.full((2, 3), 6.0))
    finally:
        client.close()
        server.terminate()
        server.wait(60)
    assert config.max_batch_size == 4
    assert config.HasField("dynamic_batching")
    assert {item.name: list(item.dims) for item in config.input} == {"a": [3], "b": [3]}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_every_instance_is_a_process(server: Any) -> None:
    stubs = [child.cmdline() for child in psutil.Process(server.pid).children(recursive=True)]
    assert sum(any(argument.startswith("two_") for argument in stub) for stub in stubs) == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda config: config.input[0].ClearField("dims") or config.input[0].dims.append(7), r"dims \[7\]"),
        (lambda config: setattr(config.input[1], "name", "c"), "no input 'c'; its inputs are a, b"),
        (lambda config: setattr(config, "default_model_filename", "none.onnx"), "none.onnx is missing"),
    ],
    ids=["dims", "name", "file"],
)
def test_a_configuration_that_does_not_fit_is_the_reason_why_the_server_does_not_start(
    tmp_path: Path, change: Any, reason: str
) -> None:
    config = model_config("wrong", ROWS, SUMS, max_batch_size=8)
    change(config)
    write_model(tmp_path, config, onnx_bytes(ARITHMETIC, ROWS, SUMS))
    with pytest.raises(ServeError, match=reason):
        start(tmp_path).stop()
