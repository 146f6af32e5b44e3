"""Pictures to requests and answers to results, for every task alike. Does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from . import errors
from ._pictures import encoded
from .models import ModelDescription, ModelKind
from .ocr import OcrResult, ocr_result
from .vision import Classification, ClassScore, Detection, Detections, Embedding, Segmentation

ResultT = TypeVar("ResultT")
Outputs = Mapping[str, Any]


@dataclass(frozen=True)
class VisionTask(Generic[ResultT]):
    """What a method of the client asks for.

    Attributes:
        kind: of the models that answer it.
        verb: what they do, and needs: what they have, for messages.
        read: one picture's outputs, without the batch dimension, and the picture → the result.
    """

    kind: ModelKind
    verb: str
    needs: str
    read: Callable[[Outputs, bytes], ResultT]


class PictureCall(Generic[ResultT]):
    """One call with one picture or several.

    Args:
        pictures: one picture, or a list or tuple of them.
        return_errors: what is no picture in a list gets its error as its result.

    Raises:
        UnsupportedError: the model is of another kind.
        UsageError: something is no picture.
    """

    def __init__(
        self, task: VisionTask[ResultT], model: ModelDescription, pictures: Any, *, return_errors: bool
    ) -> None:
        if model.kind is not task.kind:
            raise errors.UnsupportedError(f"{model.name} does not {task.verb}: it needs {task.needs}")
        self._task, self._model = task, model
        self.alone = not isinstance(pictures, (list, tuple))
        self._pictures: list[bytes] = []
        self._broken: dict[int, errors.UsageError] = {}  # by number
        for number, picture in enumerate([pictures] if self.alone else pictures):
            try:
                self._pictures.append(encoded(picture))
            except errors.UsageError as exc:  # noqa: PERF203 - each picture for itself
                if self.alone or not return_errors:
                    raise
                self._pictures.append(b"")
                self._broken[number] = exc

    def parts(self) -> list[list[int]]:
        """Numbers of the pictures that go into one request each, as many as the model takes."""
        most = max(1, self._model.max_batch_size)
        good = [number for number in range(len(self._pictures)) if number not in self._broken]
        return [good[at : at + most] for at in range(0, len(good), most)]

    def in_order(self, found: Iterable[ResultT | Exception]) -> list[ResultT | Exception]:
        """All pictures' results, from those of all parts one after the other."""
        results = iter(found)
        return [self._broken[n] if n in self._broken else next(results) for n in range(len(self._pictures))]

    def inputs(self, part: Sequence[int]) -> Mapping[str, Any]:
        """The tensors of a request."""
        if not self._model.max_batch_size:
            return {"image": self._pictures[part[0]]}
        import numpy as np

        batch = np.empty((len(part), 1), dtype=object)
        for row, number in enumerate(part):
            batch[row, 0] = self._pictures[number]
        return {"image": batch}

    def results(self, part: Sequence[int], outputs: Outputs) -> list[ResultT | Exception]:
        """The results of a request's pictures; an exception for one that the model could not take.

        Raises:
            ProtocolError: the outputs do not fit together.
        """
        if not self._model.max_batch_size:
            return [self._task.read(outputs, self._pictures[part[0]])]
        try:
            return [self._result(row, number, outputs) for row, number in enumerate(part)]
        except (KeyError, IndexError, ValueError) as exc:
            raise errors.ProtocolError(
                f"the answer of {self._model.name} lacks a part or has a wrong shape: {exc}"
            ) from exc

    def refused(self, number: int, error: errors.InvalidRequest) -> errors.InvalidRequest:
        """The server's error for one picture that was sent alone, saying which of the list it is."""
        if not self.alone:
            _, _, reason = error.message.rpartition(f"in ensemble '{self._model.name}', ")
            error.message = f"picture {number}: {reason}"
        return error

    def _result(self, row: int, number: int, outputs: Outputs) -> ResultT | Exception:
        own = {name: array[row] for name, array in outputs.items()}
        problem = own["error"].item() if "error" in own else b""
        if problem:
            where = "" if self.alone else f"picture {number}: "
            return errors.InvalidRequest(f"{self._model.name}: {where}{problem.decode('utf-8', 'replace')}")
        return self._task.read(own, self._pictures[number])


def settled(results: Sequence[ResultT | Exception], *, alone: bool, return_errors: bool) -> Any:
    """What a method of the client returns: the result of one picture, or those of a list.

    Raises:
        TritonStreamError: of the first picture that failed, unless they are to be returned.
    """
    if not return_errors or alone:
        for result in results:
            if isinstance(result, Exception):
                raise result
    return results[0] if alone else list(results)


def _text(value: Any) -> str:
    return bytes(value).decode("utf-8", "replace")


def _size(outputs: Outputs) -> tuple[int, int]:
    width, height = outputs["picture_size"].tolist()
    return int(width), int(height)


def _classification(outputs: Outputs, picture: bytes) -> Classification:
    rows = zip(outputs["label"], outputs["class_id"], outputs["score"], strict=True)
    classes = tuple(ClassScore(_text(label), int(number), float(score)) for label, number, score in rows)
    return Classification(_size(outputs), classes, picture=picture)


def _detections(outputs: Outputs, picture: bytes) -> Detections:
    names = ("label", "class_id", "score", "box")
    count = int(outputs["count"].item())
    masks = outputs["mask"][:count] if "mask" in outputs else [b""] * count
    rows = zip(*(outputs[name][:count] for name in names), masks, strict=True)
    things = []
    for label, number, score, box, mask in rows:
        left, top, right, bottom = (float(value) for value in box)
        things.append(
            Detection(_text(label), int(number), float(score), (left, top, right, bottom), bytes(mask))
        )
    return Detections(_size(outputs), tuple(things), picture=picture)


def _segmentation(outputs: Outputs, picture: bytes) -> Segmentation | Detections:
    if "count" in outputs:
        return _detections(outputs, picture)
    return Segmentation(_size(outputs), bytes(outputs["mask"].item()), picture=picture)


def _embedding(outputs: Outputs, picture: bytes) -> Embedding:
    return Embedding(_size(outputs), tuple(outputs["embedding"].tolist()), picture=picture)


OCR: VisionTask[OcrResult] = VisionTask(
    ModelKind.OCR, "read text", "an input image and the outputs text, score and box", ocr_result
)
CLASSIFY = VisionTask(
    ModelKind.CLASSIFIER,
    "classify",
    "an input image and the outputs class_id, score and label",
    _classification,
)
DETECT = VisionTask(
    ModelKind.DETECTOR,
    "detect",
    "an input image and the outputs box, score, class_id, label and count",
    _detections,
)
SEGMENT: VisionTask[Segmentation | Detections] = VisionTask(
    ModelKind.SEGMENTER, "segment", "an input image and the outputs mask and picture_size", _segmentation
)
EMBED = VisionTask(ModelKind.EMBEDDER, "embed", "an input image and the output embedding", _embedding)
