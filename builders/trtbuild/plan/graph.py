"""What the plan knows of an ONNX graph: its tensors and costs, without the graph."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from trtbuild.catalog.vision import TensorRow

# What a free height or width is taken as, where nothing says otherwise.
DEFAULT_SIDE = {"classification": 224, "embedding": 224}
OTHER_SIDE = 640


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class GraphFacts(_Frozen):
    """An ONNX graph as its file describes it.

    Attributes:
        origin: where it comes from, for messages.
        opset: version of the standard operators.
        inputs, outputs: tensors with all their dimensions, the batch first where there is one; -1 is free.
        metadata: ``metadata_props``; exporters leave labels, sizes and the task there.
        makers: output → operator that makes it, such as Softmax; reshapes and casts are looked through.
        scored: output → how many of its last values come out of a Sigmoid or Softmax of their own; of rows
            that are joined from parts, those of the last part.
        weights_bytes: constants of the graph, external data included.
        activation_bytes: most that is live at once beside them while one picture runs.
        picture: name of the input that takes the picture; empty: none was recognised.
        layout: order of that input's dimensions.
        constants: further inputs that only repeat the picture's size: name → its two values for one picture.
        own_range: where the graph begins with a normalisation of its own, the largest value of the pictures
            that it takes: 1 or 255; 0: it begins with none.
        own_steps: that normalisation, for messages.
        batch: free: several pictures run at once. rewritten: they do since the graph was changed. one: they
            cannot, for the reason in ``batch_note``; ``batch_remedy``: what would let them.
    """

    origin: str
    opset: int
    inputs: tuple[TensorRow, ...]
    outputs: tuple[TensorRow, ...]
    metadata: dict[str, str] = {}
    makers: dict[str, str] = {}
    scored: dict[str, int] = {}
    weights_bytes: int
    activation_bytes: int
    picture: str
    layout: Literal["nchw", "nhwc"] = "nchw"
    constants: dict[str, tuple[int, int]] = {}
    own_range: Literal[0, 1, 255] = 0
    own_steps: str = ""
    batch: Literal["free", "rewritten", "one"] = "free"
    batch_note: str = ""
    batch_remedy: str = ""

    @property
    def picture_input(self) -> TensorRow:
        return next(tensor for tensor in self.inputs if tensor.name == self.picture)

    @property
    def height(self) -> int:
        """Of the picture input; -1 is free."""
        return self.picture_input.dims[2 if self.layout == "nchw" else 1]

    @property
    def width(self) -> int:
        """Of the picture input; -1 is free."""
        return self.picture_input.dims[3 if self.layout == "nchw" else 2]

    @property
    def channels(self) -> int:
        """Of the picture input."""
        return self.picture_input.dims[1 if self.layout == "nchw" else 3]
