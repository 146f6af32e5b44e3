"""Calls and counters of a real server with vision models, for tests."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException, np_to_triton_dtype


@dataclass(frozen=True)
class Read:
    """What the OCR front answered."""

    text: list[str]
    score: Any
    box: Any


class VisionClient:
    """One gRPC connection; safe for several threads."""

    def __init__(self, address: str, metrics_address: str = "") -> None:
        self.grpc = grpc_client.InferenceServerClient(address)
        self._metrics = f"http://{metrics_address}/metrics"

    def read(self, picture: bytes, *, model: str = "ocr", timeout_s: float = 120) -> Read:
        tensor = grpc_client.InferInput("image", [1], "BYTES")
        tensor.set_data_from_numpy(np.array([picture], dtype=np.object_))
        answer = self.grpc.infer(model, [tensor], client_timeout=timeout_s)
        lines = [line.decode("utf-8") for line in answer.as_numpy("text")]
        return Read(lines, answer.as_numpy("score"), answer.as_numpy("box"))

    def infer(
        self, model: str, inputs: Mapping[str, Any], outputs: tuple[str, ...] = (), *, timeout_s: float = 60
    ) -> dict[str, Any]:
        tensors = []
        for name, array in inputs.items():
            kind = "BYTES" if array.dtype == np.object_ else np_to_triton_dtype(array.dtype)
            tensors.append(grpc_client.InferInput(name, list(array.shape), kind))
            tensors[-1].set_data_from_numpy(array)
        wanted = [grpc_client.InferRequestedOutput(name) for name in outputs] or None
        answer = self.grpc.infer(model, tensors, outputs=wanted, client_timeout=timeout_s)
        return {item.name: answer.as_numpy(item.name) for item in answer.get_response().outputs}

    def counters(self, model: str) -> dict[str, int]:
        """``nv_inference_…`` counters of a model by their ending, such as exec_count."""
        text = urllib.request.urlopen(self._metrics, timeout=10).read().decode()
        found = re.findall(rf'^nv_inference_(\w+){{model="{model}",version="1"}} (\S+)$', text, re.MULTILINE)
        return {name: int(float(value)) for name, value in found}

    def config_when_ready(self, model: str, *, timeout_s: float) -> Any:
        """A model's configuration, as soon as the server has loaded it."""
        deadline = time.monotonic() + timeout_s
        while not self._is_ready(model) and time.monotonic() < deadline:
            time.sleep(0.1)  # before it listens, the server gives no event to wait for
        return self.grpc.get_model_config(model).config

    def _is_ready(self, model: str) -> bool:
        try:
            return bool(self.grpc.is_model_ready(model))
        except InferenceServerException:
            return False

    def close(self) -> None:
        self.grpc.close()
