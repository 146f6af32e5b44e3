"""What ``AsyncClient`` does with pictures; the twin of ``_sync_vision``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, overload

from ._aio_base import AioBase
from ._pictures import Picture
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


class AioVision(AioBase):
    """Methods for pictures, above those that the client itself has."""

    async def describe(self, model: str) -> ModelDescription:
        raise NotImplementedError

    async def infer(
        self, model: str, inputs: Mapping[str, Any], **params: Unpack[InferParams]
    ) -> dict[str, Array]:
        raise NotImplementedError

    @overload
    async def ocr(
        self, model: str, picture: list[Any], *, return_errors: Literal[True], **params: Unpack[InferParams]
    ) -> list[OcrResult | Exception]: ...

    @overload
    async def ocr(
        self,
        model: str,
        picture: list[Any],
        *,
        return_errors: Literal[False] = False,
        **params: Unpack[InferParams],
    ) -> list[OcrResult]: ...

    @overload
    async def ocr(self, model: str, picture: Picture, **params: Unpack[InferParams]) -> OcrResult: ...

    async def ocr(
        self, model: str, picture: Any, *, return_errors: bool = False, **params: Unpack[InferParams]
    ) -> Any:
        """See ``Client.ocr``."""
        return await self._see(OCR, model, picture, return_errors, params)

    @overload
    async def classify(
        self, model: str, picture: list[Any], *, return_errors: Literal[True], **params: Unpack[InferParams]
    ) -> list[Classification | Exception]: ...

    @overload
    async def classify(
        self,
        model: str,
        picture: list[Any],
        *,
        return_errors: Literal[False] = False,
        **params: Unpack[InferParams],
    ) -> list[Classification]: ...

    @overload
    async def classify(
        self, model: str, picture: Picture, **params: Unpack[InferParams]
    ) -> Classification: ...

    async def classify(
        self, model: str, picture: Any, *, return_errors: bool = False, **params: Unpack[InferParams]
    ) -> Any:
        """See ``Client.classify``."""
        return await self._see(CLASSIFY, model, picture, return_errors, params)

    @overload
    async def detect(
        self, model: str, picture: list[Any], *, return_errors: Literal[True], **params: Unpack[InferParams]
    ) -> list[Detections | Exception]: ...

    @overload
    async def detect(
        self,
        model: str,
        picture: list[Any],
        *,
        return_errors: Literal[False] = False,
        **params: Unpack[InferParams],
    ) -> list[Detections]: ...

    @overload
    async def detect(self, model: str, picture: Picture, **params: Unpack[InferParams]) -> Detections: ...

    async def detect(
        self, model: str, picture: Any, *, return_errors: bool = False, **params: Unpack[InferParams]
    ) -> Any:
        """See ``Client.detect``."""
        return await self._see(DETECT, model, picture, return_errors, params)

    @overload
    async def segment(
        self, model: str, picture: list[Any], *, return_errors: Literal[True], **params: Unpack[InferParams]
    ) -> list[Segmentation | Detections | Exception]: ...

    @overload
    async def segment(
        self,
        model: str,
        picture: list[Any],
        *,
        return_errors: Literal[False] = False,
        **params: Unpack[InferParams],
    ) -> list[Segmentation | Detections]: ...

    @overload
    async def segment(
        self, model: str, picture: Picture, **params: Unpack[InferParams]
    ) -> Segmentation | Detections: ...

    async def segment(
        self, model: str, picture: Any, *, return_errors: bool = False, **params: Unpack[InferParams]
    ) -> Any:
        """See ``Client.segment``."""
        return await self._see(SEGMENT, model, picture, return_errors, params)

    @overload
    async def embed(
        self, model: str, picture: list[Any], *, return_errors: Literal[True], **params: Unpack[InferParams]
    ) -> list[Embedding | Exception]: ...

    @overload
    async def embed(
        self,
        model: str,
        picture: list[Any],
        *,
        return_errors: Literal[False] = False,
        **params: Unpack[InferParams],
    ) -> list[Embedding]: ...

    @overload
    async def embed(self, model: str, picture: Picture, **params: Unpack[InferParams]) -> Embedding: ...

    async def embed(
        self, model: str, picture: Any, *, return_errors: bool = False, **params: Unpack[InferParams]
    ) -> Any:
        """See ``Client.embed``."""
        return await self._see(EMBED, model, picture, return_errors, params)

    async def _see(
        self, task: VisionTask[Any], model: str, pictures: Any, return_errors: bool, params: Any
    ) -> Any:
        call = PictureCall(
            task,
            self._core.models.get(model) or await self.describe(model),
            pictures,
            return_errors=return_errors,
        )

        async def answer(part: list[int]) -> list[Any]:
            try:
                return call.results(part, await self.infer(model, call.inputs(part), **params))
            except InvalidRequest as error:  # none of its pictures is good: each has a reason of its own
                if len(part) == 1:
                    return [call.refused(part[0], error)]
                return [one for number in part for one in await answer([number])]

        parts = await asyncio.gather(*map(answer, call.parts()))
        found = call.in_order(one for part in parts for one in part)
        return settled(found, alone=call.alone, return_errors=return_errors)
