"""What ``Client`` does with pictures: one method a task, which differ in what they read out of the answer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, overload

from ._many import carried
from ._pictures import Picture
from ._sync_base import SyncBase
from ._vision import CLASSIFY, DETECT, EMBED, OCR, SEGMENT, PictureCall, VisionTask, settled
from .errors import InvalidRequest
from .ocr import OcrResult
from .vision import Classification, Detections, Embedding, Segmentation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from ._infer import Array
    from ._params import InferParams
    from .models import ModelDescription


class SyncVision(SyncBase):
    """Methods for pictures, above those that the client itself has."""

    def describe(self, model: str) -> ModelDescription:
        raise NotImplementedError

    def infer(self, model: str, inputs: Mapping[str, Any], **params: Unpack[InferParams]) -> dict[str, Array]:
        raise NotImplementedError

    @overload
    def ocr(
        self, model: str, picture: list[Any], *, return_errors: Literal[True], **params: Unpack[InferParams]
    ) -> list[OcrResult | Exception]: ...

    @overload
    def ocr(
        self,
        model: str,
        picture: list[Any],
        *,
        return_errors: Literal[False] = False,
        **params: Unpack[InferParams],
    ) -> list[OcrResult]: ...

    @overload
    def ocr(self, model: str, picture: Picture, **params: Unpack[InferParams]) -> OcrResult: ...

    def ocr(
        self, model: str, picture: Any, *, return_errors: bool = False, **params: Unpack[InferParams]
    ) -> Any:
        """Reads the text in a picture; see ``classify``."""
        return self._see(OCR, model, picture, return_errors, params)

    @overload
    def classify(
        self, model: str, picture: list[Any], *, return_errors: Literal[True], **params: Unpack[InferParams]
    ) -> list[Classification | Exception]: ...

    @overload
    def classify(
        self,
        model: str,
        picture: list[Any],
        *,
        return_errors: Literal[False] = False,
        **params: Unpack[InferParams],
    ) -> list[Classification]: ...

    @overload
    def classify(self, model: str, picture: Picture, **params: Unpack[InferParams]) -> Classification: ...

    def classify(
        self, model: str, picture: Any, *, return_errors: bool = False, **params: Unpack[InferParams]
    ) -> Any:
        """Says what a picture shows.

        Args:
            picture: encoded bytes, a path, a uint8 array (RGB), a Pillow image; or a list of them, which is
                sent in batches as large as the model takes.
            return_errors: of a list, give a failed picture's error in its place, instead of raising it.
            params: see ``InferParams``.
        """
        return self._see(CLASSIFY, model, picture, return_errors, params)

    @overload
    def detect(
        self, model: str, picture: list[Any], *, return_errors: Literal[True], **params: Unpack[InferParams]
    ) -> list[Detections | Exception]: ...

    @overload
    def detect(
        self,
        model: str,
        picture: list[Any],
        *,
        return_errors: Literal[False] = False,
        **params: Unpack[InferParams],
    ) -> list[Detections]: ...

    @overload
    def detect(self, model: str, picture: Picture, **params: Unpack[InferParams]) -> Detections: ...

    def detect(
        self, model: str, picture: Any, *, return_errors: bool = False, **params: Unpack[InferParams]
    ) -> Any:
        """Finds things in a picture; see ``classify``."""
        return self._see(DETECT, model, picture, return_errors, params)

    @overload
    def segment(
        self, model: str, picture: list[Any], *, return_errors: Literal[True], **params: Unpack[InferParams]
    ) -> list[Segmentation | Detections | Exception]: ...

    @overload
    def segment(
        self,
        model: str,
        picture: list[Any],
        *,
        return_errors: Literal[False] = False,
        **params: Unpack[InferParams],
    ) -> list[Segmentation | Detections]: ...

    @overload
    def segment(
        self, model: str, picture: Picture, **params: Unpack[InferParams]
    ) -> Segmentation | Detections: ...

    def segment(
        self, model: str, picture: Any, *, return_errors: bool = False, **params: Unpack[InferParams]
    ) -> Any:
        """Tells the parts of a picture apart: a class a pixel, or things with masks; see ``classify``."""
        return self._see(SEGMENT, model, picture, return_errors, params)

    @overload
    def embed(
        self, model: str, picture: list[Any], *, return_errors: Literal[True], **params: Unpack[InferParams]
    ) -> list[Embedding | Exception]: ...

    @overload
    def embed(
        self,
        model: str,
        picture: list[Any],
        *,
        return_errors: Literal[False] = False,
        **params: Unpack[InferParams],
    ) -> list[Embedding]: ...

    @overload
    def embed(self, model: str, picture: Picture, **params: Unpack[InferParams]) -> Embedding: ...

    def embed(
        self, model: str, picture: Any, *, return_errors: bool = False, **params: Unpack[InferParams]
    ) -> Any:
        """Turns a picture into a vector; see ``classify``."""
        return self._see(EMBED, model, picture, return_errors, params)

    def _see(self, task: VisionTask[Any], model: str, pictures: Any, return_errors: bool, params: Any) -> Any:
        call = PictureCall(
            task, self._core.models.get(model) or self.describe(model), pictures, return_errors=return_errors
        )

        def answer(part: list[int]) -> list[Any]:
            try:
                return call.results(part, self.infer(model, call.inputs(part), **params))
            except InvalidRequest as error:  # none of its pictures is good: each has a reason of its own
                if len(part) == 1:
                    return [call.refused(part[0], error)]
                return [one for number in part for one in answer([number])]

        parts = call.parts()
        if len(parts) == 1:
            found = call.in_order(answer(parts[0]))
            return settled(found, alone=call.alone, return_errors=return_errors)
        with ThreadPoolExecutor(4, thread_name_prefix="tritonstream-pictures") as pool:
            found = call.in_order(one for part in pool.map(carried(answer), parts) for one in part)
        return settled(found, alone=call.alone, return_errors=return_errors)
