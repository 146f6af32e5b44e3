"""Single networks: from a spec's entry to the graph that is served and the names of its classes."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yaml import YAMLError, safe_load

from trtbuild.build.onnx_edit import with_pixels
from trtbuild.build.onnx_facts import ReadGraph, read_graph
from trtbuild.build.onnx_file import OnnxFile, load_onnx
from trtbuild.build.onnx_quantise import quantised
from trtbuild.build.weights import packaged_file
from trtbuild.catalog.vision import FileRow, ModelRow, entry
from trtbuild.errors import ModelSourceError
from trtbuild.plan.model import VisionPlan
from trtbuild.plan.vision import VisionSource
from trtbuild.spec import PostprocessSpec, PreprocessSpec, Task, VisionSpec

MODEL_FILE = "model.onnx"
LABELS_FILE = "labels.txt"
_MOST_LABELS = 100_000


@dataclass(frozen=True)
class SingleNetwork:
    """A model file that was read: what the plan needs of it, and what is written from it."""

    source: VisionSource
    graph: ReadGraph
    labels: tuple[str, ...]

    @classmethod
    def of(cls, spec: VisionSpec) -> SingleNetwork | None:
        """The network of a spec's entry; None for a pipeline of several networks.

        Raises:
            CatalogError: an unknown pipeline.
            ModelSourceError: a file that is missing, or cannot be served.
        """
        row = entry(spec.pipeline) if spec.model is None else None
        if row is not None and not isinstance(row, ModelRow):
            return None
        settings = spec if row is None else with_settings_of(row, spec)
        file = load_onnx(spec.model) if spec.model is not None else converted(row)  # type: ignore[arg-type]
        side = settings.preprocess.size
        graph = read_graph(file, side=(side[1], side[0]) if side else None)
        labels = _labels(settings, graph, row)
        return cls(VisionSource(settings, graph.facts, len(labels)), graph, labels)

    def served(self, plan: VisionPlan) -> bytes:
        """The graph with ``pixels`` UINT8[batch, height, width, channels] as its one input, quantised where
        the spec says so.

        Raises:
            BuildError, ModelSourceError: it cannot be quantised.
        """
        assert plan.picture is not None
        facts, picture = self.graph.facts, plan.picture
        model = with_pixels(
            self.graph.model,
            picture=facts.picture,
            layout=facts.layout,
            size=(picture.height, picture.width),
            scale=picture.scale,
            offset=picture.offset,
            swap_colours=picture.swap_colours,
            constants=facts.constants,
            unbatched=self.graph.unbatched,
        )
        data: bytes = model.SerializeToString()
        spec = self.source.spec
        if spec.precision in ("int8", "fp8") and spec.calibration is not None:
            return quantised(data, plan, spec.calibration, self.file.opset)
        return data

    @property
    def file(self) -> OnnxFile:
        return self.graph.file


def with_settings_of(row: ModelRow, spec: VisionSpec) -> VisionSpec:
    """A spec's entry with the catalogue's settings where the user gave none."""
    before = spec.preprocess.model_dump(exclude_unset=True)
    after = spec.postprocess.model_dump(exclude_unset=True)
    update = {
        "task": spec.task or Task(row.task),
        "preprocess": PreprocessSpec.model_validate({**row.preprocess, **before}),
        "postprocess": PostprocessSpec.model_validate({**row.postprocess, **after}),
    }
    return spec.model_copy(update=update)


def converted(row: ModelRow) -> OnnxFile:
    """A catalogue's network as ONNX, out of the package that carries it.

    Raises:
        ModelSourceError: the package is missing or carries another file.
    """
    path = _packaged(row.weights)
    if row.converter == "darknet":
        from trtbuild.build.darknet import to_onnx

        assert row.extra is not None
        text = _packaged(row.extra).read_text(encoding="utf-8")
        return OnnxFile(to_onnx(text, path.read_bytes(), str(path)), path.parent, str(path))
    from trtbuild.build.efficientnet import lite0_to_onnx
    from trtbuild.build.torch_file import read_state_dict

    return OnnxFile(lite0_to_onnx(read_state_dict(path)), path.parent, str(path))


def read_labels(path: Path) -> tuple[str, ...]:
    """Names of classes by number: one a line; or in JSON or YAML a list, a mapping from number to name, or
    what holds one: ``names`` (Ultralytics), ``id2label`` (transformers), ``categories`` (COCO, by their ids).

    Raises:
        ModelSourceError: the file cannot be read, or is neither.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelSourceError(
            f"{path}: the labels cannot be read: {error}", "save them as UTF-8 text"
        ) from error
    if path.suffix.lower() in (".json", ".yaml", ".yml"):
        try:
            return _numbered(_named(json.loads(text) if path.suffix.lower() == ".json" else safe_load(text)))
        except (ValueError, KeyError, TypeError, AttributeError, YAMLError) as error:
            raise ModelSourceError(
                f"{path}: neither a list of names nor a mapping from 0, 1, … to names, nor one under "
                "`names`, `id2label` or `categories`",
                'write ["cat", "dog"] or {"0": "cat", "1": "dog"}',
            ) from error
    labels = tuple(line.strip() for line in text.split("\n"))
    while labels and not labels[-1]:
        labels = labels[:-1]
    if not labels or len(labels) > _MOST_LABELS:
        raise ModelSourceError(
            f"{path}: {len(labels)} labels", "write one name a line, in the order of the classes"
        )
    return labels


def _named(data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    if isinstance(data.get("categories"), list):
        return [row["name"] for row in sorted(data["categories"], key=lambda row: int(row["id"]))]
    return data.get("names") or data.get("id2label") or data


def _numbered(data: object) -> tuple[str, ...]:
    if isinstance(data, dict):
        named = {int(key): value for key, value in data.items()}
        data = [named[number] for number in range(len(named))]
    if not isinstance(data, list) or not data:
        raise TypeError("no list")
    return tuple(" ".join(str(item).split()) for item in data)


def _labels(spec: VisionSpec, graph: ReadGraph, row: ModelRow | None) -> tuple[str, ...]:
    if spec.labels is not None:
        return read_labels(spec.labels)
    if row is not None:
        return read_labels(_packaged(row.labels))
    names = graph.facts.metadata.get("names", "")  # Ultralytics: the text of a dict
    if not names:
        return ()
    try:
        return _numbered(ast.literal_eval(names))
    except (ValueError, KeyError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ()


def _packaged(row: FileRow) -> Path:
    package = row.package
    return packaged_file(
        package=package.name,
        version=package.version,
        file=row.file,
        sha256=row.sha256,
        install=package.install,
    )


def labels_text(labels: Sequence[str]) -> bytes:
    """One name a line."""
    return "".join(" ".join(label.split()) + "\n" for label in labels).encode("utf-8")
