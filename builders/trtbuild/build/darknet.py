"""Darknet's network description and weights to an ONNX graph.

Layers of YOLOv2 to v4 without those that only training needs. Formats: pjreddie/darknet, src/parser.c; the
order of weights is that of load_convolutional_weights there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trtbuild.build.onnx_file import import_onnx
from trtbuild.errors import ModelSourceError

OPSET = 13
_EPSILON = 1e-6  # added to the deviation (src/blas.c, normalize_cpu)
_LEAK = 0.1


@dataclass(frozen=True)
class Section:
    """One ``[section]`` of a .cfg file."""

    kind: str
    options: dict[str, str]

    def integer(self, name: str, default: int) -> int:
        return int(self.options.get(name, default))

    def integers(self, name: str) -> list[int]:
        return [int(item) for item in self.options.get(name, "").split(",") if item.strip()]


def sections(text: str) -> list[Section]:
    """The sections of a .cfg file in order."""
    found: list[Section] = []
    for line in (raw.partition("#")[0].strip() for raw in text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            found.append(Section(line[1:-1], {}))
        elif line and found:
            key, _, value = line.partition("=")
            found[-1].options[key.strip()] = value.strip()
    return found


def to_onnx(cfg: str, weights: bytes, origin: str) -> Any:
    """The network as an ``onnx.ModelProto``: ``image`` FLOAT[batch, 3, height, width] of 0 to 1 in; each
    [yolo] layer's raw values FLOAT[batch, anchors × (5 + classes), rows, columns] out.

    Raises:
        ModelSourceError: a layer that is not known, or weights of another network.
    """
    layers = sections(cfg)
    if not layers or layers[0].kind not in ("net", "network"):
        raise ModelSourceError(f"{origin}: no Darknet description: it does not begin with [net]")
    graph = _Graph(layers[0], _Values(weights, origin), origin)
    for layer in layers[1:]:
        graph.add(layer)
    left = graph.values.left
    if left:
        raise ModelSourceError(f"{origin}: {left} weights are left over: they are another network's")
    return graph.model()


class _Values:
    """The weights of a file, in order."""

    def __init__(self, data: bytes, origin: str) -> None:
        major, minor, _ = np.frombuffer(data, "<i4", 3)
        header = 20 if major * 10 + minor >= 2 else 16  # the count of pictures seen became 64 bits
        self._values = np.frombuffer(data, "<f4", offset=header)
        self._origin = origin
        self._at = 0

    def take(self, *shape: int) -> Any:
        count = int(np.prod(shape))
        if self.left < count:
            raise ModelSourceError(f"{self._origin}: the weights end too soon: they are another network's")
        self._at += count
        return self._values[self._at - count : self._at].reshape(shape)

    @property
    def left(self) -> int:
        return len(self._values) - self._at


@dataclass
class _Graph:
    net: Section
    values: _Values
    origin: str
    nodes: list[Any] = field(default_factory=list)
    tensors: list[Any] = field(default_factory=list)
    made: list[tuple[str, int]] = field(default_factory=list)  # tensor and channels of each layer
    heads: list[str] = field(default_factory=list)

    def add(self, layer: Section) -> None:
        handler = {
            "convolutional": self._convolutional,
            "maxpool": self._maxpool,
            "upsample": self._upsample,
            "route": self._route,
            "shortcut": self._shortcut,
            "yolo": self._yolo,
        }.get(layer.kind)
        if handler is None:
            raise ModelSourceError(f"{self.origin}: the layer [{layer.kind}] is not known here")
        self.made.append(handler(layer, f"layer{len(self.made)}"))

    def model(self) -> Any:
        helper, types = import_onnx().helper, import_onnx().TensorProto
        size = [self.net.integer("height", 416), self.net.integer("width", 416)]
        image = helper.make_tensor_value_info("image", types.FLOAT, ["batch", self._channels, *size])
        outputs = [
            helper.make_tensor_value_info(name, types.FLOAT, ["batch", None, None, None])
            for name in self.heads
        ]
        graph = helper.make_graph(self.nodes, "darknet", [image], outputs, self.tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)

    @property
    def _channels(self) -> int:
        return self.net.integer("channels", 3)

    @property
    def _last(self) -> tuple[str, int]:
        return self.made[-1] if self.made else ("image", self._channels)

    def _node(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(import_onnx().helper.make_node(operator, inputs, [output], **attributes))
        return output

    def _constant(self, name: str, values: Any) -> str:
        self.tensors.append(import_onnx().numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def _convolutional(self, layer: Section, name: str) -> tuple[str, int]:
        source, channels = self._last
        filters, size, stride = (layer.integer(key, 1) for key in ("filters", "size", "stride"))
        groups = layer.integer("groups", 1)
        pad = size // 2 if layer.integer("pad", 0) else layer.integer("padding", 0)
        bias = self.values.take(filters)
        norm = self.values.take(3, filters) if layer.integer("batch_normalize", 0) else None
        weights = self.values.take(filters, channels // groups, size, size)
        if norm is not None:  # into the convolution: (x - mean) / (deviation + epsilon) * scale + bias
            scale, mean, variance = norm
            factor = scale / (np.sqrt(variance) + _EPSILON)
            weights, bias = weights * factor[:, None, None, None], bias - mean * factor
        inputs = [source, self._constant(f"{name}_w", weights), self._constant(f"{name}_b", bias)]
        attributes = {"strides": [stride] * 2, "pads": [pad] * 4, "group": groups, "kernel_shape": [size] * 2}
        output = self._node("Conv", inputs, f"{name}_conv", **attributes)
        return self._activated(output, layer.options.get("activation", "linear"), name), filters

    def _activated(self, source: str, activation: str, name: str) -> str:
        if activation == "linear":
            return source
        if activation == "leaky":
            return self._node("LeakyRelu", [source], name, alpha=_LEAK)
        if activation == "mish":
            return self._node("Mul", [source, self._node("Tanh", [
                self._node("Softplus", [source], f"{name}_softplus")], f"{name}_tanh")], name)  # fmt: skip
        simple = {"logistic": "Sigmoid", "relu": "Relu"}.get(activation)
        if simple is None:
            raise ModelSourceError(f"{self.origin}: the activation {activation} is not known here")
        return self._node(simple, [source], name)

    def _maxpool(self, layer: Section, name: str) -> tuple[str, int]:
        source, channels = self._last
        stride = layer.integer("stride", 1)
        size = layer.integer("size", stride)
        total = layer.integer("padding", size - 1)  # src/parser.c, parse_maxpool: shared by both sides
        before, after = total // 2, total - total // 2
        pads = [before, before, after, after]
        attributes = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": pads}
        return self._node("MaxPool", [source], name, **attributes), channels

    def _upsample(self, layer: Section, name: str) -> tuple[str, int]:
        source, channels = self._last
        stride = float(layer.integer("stride", 2))
        scales = self._constant(f"{name}_scales", np.array([1, 1, stride, stride], np.float32))
        attributes = {
            "mode": "nearest",
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        }
        return self._node("Resize", [source, "", scales], name, **attributes), channels

    def _route(self, layer: Section, name: str) -> tuple[str, int]:
        parts = list(self._referred(layer.integers("layers")))
        groups = layer.integer("groups", 1)
        channels = sum(count for _, count in parts) // groups
        if len(parts) == 1:
            joined = parts[0][0]
        else:
            joined = self._node("Concat", [part for part, _ in parts], name, axis=1)
        if groups > 1:
            start = layer.integer("group_id", 0) * channels
            bounds = [
                self._constant(f"{name}_{word}", np.array([value], np.int64))
                for word, value in (("start", start), ("stop", start + channels), ("axis", 1))
            ]
            joined = self._node("Slice", [joined, *bounds], f"{name}_part")
        return joined, channels

    def _shortcut(self, layer: Section, name: str) -> tuple[str, int]:
        source, channels = self._last
        ((other, _),) = self._referred(layer.integers("from"))
        total = self._node("Add", [source, other], f"{name}_sum")
        return self._activated(total, layer.options.get("activation", "linear"), name), channels

    def _yolo(self, layer: Section, name: str) -> tuple[str, int]:
        source, channels = self._last
        self.heads.append(source)
        return source, channels

    def _referred(self, numbers: list[int]) -> Iterator[tuple[str, int]]:
        for number in numbers:
            yield self.made[number if number >= 0 else len(self.made) + number]
