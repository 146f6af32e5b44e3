"""EfficientNet-Lite's weights (as PyTorch's port names them) to an ONNX graph.

Structure: tensorflow/tpu, efficientnet/lite/efficientnet_lite_builder.py: no squeeze-and-excitation, ReLU6,
stem and head of fixed width. Names: lukemelas/EfficientNet-PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trtbuild.build.onnx_file import import_onnx

OPSET = 13
_EPSILON = 1e-3  # of the batch normalisation
# repeats, kernel, stride, expansion, channels out; lite0's
_BLOCKS = ((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112),
           (4, 5, 2, 6, 192), (1, 3, 1, 6, 320))  # fmt: skip


def lite0_to_onnx(weights: Mapping[str, Any]) -> Any:
    """``images`` FLOAT[batch, 3, 224, 224] in, ``logits`` FLOAT[batch, classes] out, as ``onnx.ModelProto``.

    Raises:
        KeyError: a weight is missing.
    """
    graph = _Graph(weights)
    at = graph.conv("images", "_conv_stem", "_bn0", stride=2)
    number, channels = 0, 32
    for repeats, kernel, stride, expansion, out in _BLOCKS:
        for repeat in range(repeats):
            name, step = f"_blocks.{number}.", stride if repeat == 0 else 1
            start = at
            if expansion != 1:
                at = graph.conv(at, f"{name}_expand_conv", f"{name}_bn0")
            depthwise = channels * expansion
            at = graph.conv(
                at, f"{name}_depthwise_conv", f"{name}_bn1", kernel=kernel, stride=step, group=depthwise
            )
            at = graph.conv(at, f"{name}_project_conv", f"{name}_bn2", active=False)
            if step == 1 and channels == out:
                at = graph.node("Add", [at, start], f"block{number}")
            number, channels = number + 1, out
    at = graph.conv(at, "_conv_head", "_bn1")
    at = graph.node("Flatten", [graph.node("GlobalAveragePool", [at], "pooled")], "features")
    graph.node("Gemm", [at, graph.constant("_fc.weight"), graph.constant("_fc.bias")], "logits", transB=1)
    helper, types = import_onnx().helper, import_onnx().TensorProto
    images = helper.make_tensor_value_info("images", types.FLOAT, ["batch", 3, 224, 224])
    logits = helper.make_tensor_value_info("logits", types.FLOAT, ["batch", len(weights["_fc.bias"])])
    made = helper.make_graph(graph.nodes, "efficientnet_lite0", [images], [logits], graph.tensors)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


class _Graph:
    def __init__(self, weights: Mapping[str, Any]) -> None:
        self._weights = weights
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []

    def node(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(import_onnx().helper.make_node(operator, inputs, [output], **attributes))
        return output

    def constant(self, name: str, values: Any = None) -> str:
        values = self._weights[name] if values is None else values
        self.tensors.append(import_onnx().numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def conv(
        self,
        source: str,
        name: str,
        norm: str,
        *,
        kernel: int | None = None,
        stride: int = 1,
        group: int = 1,
        active: bool = True,
    ) -> str:
        """A convolution without bias, its batch normalisation folded in, and ReLU6."""
        scale, bias, mean, variance = (
            self._weights[f"{norm}.{part}"].astype(np.float64)
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        factor = scale / np.sqrt(variance + _EPSILON)
        kernels = self._weights[f"{name}.weight"]
        side = kernel or kernels.shape[-1]
        inputs = [
            source,
            self.constant(f"{name}.folded", (kernels * factor[:, None, None, None]).astype(np.float32)),
            self.constant(f"{name}.bias", (bias - mean * factor).astype(np.float32)),
        ]
        output = self.node(
            "Conv", inputs, f"{name}.out", kernel_shape=[side] * 2, strides=[stride] * 2, group=group,
            auto_pad="SAME_UPPER",
        )  # fmt: skip
        if not active:
            return output
        bounds = []
        for bound, value in (("zero", 0.0), ("six", 6.0)):
            if all(item.name != bound for item in self.tensors):
                self.constant(bound, np.array(value, np.float32))
            bounds.append(bound)
        return self.node("Clip", [output, *bounds], f"{name}.active")
