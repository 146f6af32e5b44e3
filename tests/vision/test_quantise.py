"""8 bits from a folder of pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.graphs import FLOAT, graph, node, save, tensor
from tests.support.pictures import odd_pictures

from trtbuild.build.onnx_quantise import quantised
from trtbuild.build.vision_source import SingleNetwork
from trtbuild.errors import ModelSourceError
from trtbuild.plan.vision import plan_vision
from trtbuild.spec import VisionSpec

onnxruntime = pytest.importorskip("onnxruntime")


def convolution() -> Any:
    rng = np.random.default_rng(2)
    nodes = [
        node("Conv", ["image", "kernels", "bias"], ["maps"], kernel_shape=[3, 3], pads=[1] * 4),
        node("Relu", ["maps"], ["active"]),
        node("GlobalAveragePool", ["active"], ["pooled"]),
        node("Flatten", ["pooled"], ["features"]),
        node("Gemm", ["features", "weights"], ["logits"]),
    ]
    tensors = [
        tensor("kernels", rng.normal(size=(16, 3, 3, 3)).astype(np.float32)),
        tensor("bias", rng.normal(size=16).astype(np.float32)),
        tensor("weights", rng.normal(size=(16, 5)).astype(np.float32)),
    ]
    return graph(nodes, [("image", FLOAT, ["batch", 3, 32, 32])], [("logits", FLOAT, ["batch", 5])], tensors)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number, data in enumerate(odd_pictures(24)):
        (folder / f"{number}.png").write_bytes(data)
    (folder / "broken.jpg").write_bytes(b"no picture")
    return folder


def planned(tmp_path: Path, pictures: Path) -> tuple[Any, Any]:
    spec = VisionSpec(
        name="m",
        model=save(convolution(), tmp_path / "m.onnx"),
        task="classification",
        precision="int8",
        calibration=pictures,
    )
    network = SingleNetwork.of(spec)
    assert network is not None
    return network, plan_vision(network.source.spec, network.source)[0]


def test_the_answers_stay_near_and_the_scales_are_in_the_graph(tmp_path: Path, pictures: Path) -> None:
    network, plan = planned(tmp_path, pictures)
    eight = onnxruntime.InferenceSession(network.served(plan), providers=["CPUExecutionProvider"])
    plain = plan.model_copy(update={})
    spec = network.source.spec.model_copy(update={"precision": "fp32"})
    full = SingleNetwork.of(spec)
    assert full is not None
    whole = onnxruntime.InferenceSession(full.served(plain), providers=["CPUExecutionProvider"])
    assert [item.name for item in eight.get_inputs()] == ["pixels"]
    pixels = np.random.default_rng(4).integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
    (rough,), (exact,) = eight.run(None, {"pixels": pixels}), whole.run(None, {"pixels": pixels})
    assert np.corrcoef(rough.ravel(), exact.ravel())[0, 1] > 0.99
    assert not np.array_equal(rough, exact)


def test_too_few_pictures_are_said(tmp_path: Path, pictures: Path) -> None:
    network, plan = planned(tmp_path, pictures)
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "one.png").write_bytes((pictures / "1.png").read_bytes())
    (alone / "two.png").write_bytes(b"")
    with pytest.raises(ModelSourceError, match="1 pictures can be read, and ranges need at least 8"):
        quantised(network.served(plan), plan, alone, 13)
