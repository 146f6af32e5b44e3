"""Asks a server all questions, greedily, and keeps what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tritonstream import (
    AsyncClient,
    GenerateParams,
    ModelDescription,
    ModelKind,
    Timeouts,
    TritonStreamError,
)
from trtbuild.errors import MeasureError, ServeError
from trtbuild.measure.load.calls import prompt_sizing
from trtbuild.measure.load.prompts import Sizing
from trtbuild.measure.quality.questions import Question

ANSWER_S = 300.0


@dataclass(frozen=True)
class Answer:
    """What one model said. ``ids`` and ``logprobs`` are empty where the model does not give them."""

    text: str = ""
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    finish: str = ""
    error: str = ""


class Respondent:
    """A model that answers.

    Args:
        address: ``HOST:PORT`` of its server.
        concurrency: questions in flight.
    """

    def __init__(self, address: str, model: str, *, concurrency: int = 4) -> None:
        self.address, self.model, self.concurrency = address, model, concurrency

    def ask(self, questions: Sequence[Question], on_done: Callable[[], None] = lambda: None) -> list[Answer]:
        """The answers, in the order of the questions; an error is an answer, too.

        Raises:
            ServeError: the server cannot be reached, or does not know the model.
            MeasureError: the model generates no text.
        """
        return asyncio.run(self._ask(questions, on_done))

    def sizing(self) -> Sizing:
        """How many tokens the model makes of words.

        Raises:
            ServeError: it does not answer.
        """

        async def asked() -> Sizing:
            async with AsyncClient(self.address) as client:
                model = await self._describe(client)
                try:
                    return await prompt_sizing(client, model, timeout_s=ANSWER_S)
                except TritonStreamError as error:
                    raise ServeError(str(error), "see what runs: trtbuild status") from error

        return asyncio.run(asked())

    async def _describe(self, client: AsyncClient) -> ModelDescription:
        try:
            model = await client.describe(self.model)
        except TritonStreamError as error:
            raise ServeError(str(error), "name the model: --model NAME") from error
        if model.kind in (ModelKind.OCR, ModelKind.OTHER, ModelKind.ENGINE):
            raise MeasureError(
                f"{self.model} does not answer text with text", "name a text front: --model NAME"
            )
        return model

    async def _ask(self, questions: Sequence[Question], on_done: Callable[[], None]) -> list[Answer]:
        async with AsyncClient(self.address) as client:
            model = await self._describe(client)
            extras: GenerateParams = {"timeouts": Timeouts(total_s=ANSWER_S)}
            if "token_ids" in model.outputs:
                extras["token_ids"] = True
            if "logprobs" in model.features and questions:
                extras["logprobs"] = await self._gives_logprobs(client, questions[0])
            places = asyncio.Semaphore(self.concurrency)

            async def one(question: Question) -> Answer:
                async with places:
                    answer = await self._one(client, question, extras)
                    on_done()
                    return answer

            return list(await asyncio.gather(*map(one, questions)))

    async def _gives_logprobs(self, client: AsyncClient, question: Question) -> bool:
        """An input for log probabilities does not mean that the engine was built to give them."""
        answer = await self._one(client, question, {"logprobs": True}, max_tokens=1)
        return bool(answer.logprobs)

    async def _one(
        self, client: AsyncClient, question: Question, extras: GenerateParams, max_tokens: int | None = None
    ) -> Answer:
        params: GenerateParams = {**extras, "top_k": 1, "max_tokens": max_tokens or question.max_tokens}
        try:
            if question.prompt.messages is not None:
                done = await client.chat(self.model, question.prompt.messages, **params)
            else:
                done = await client.generate(self.model, question.prompt.text or "", **params)
        except TritonStreamError as error:
            return Answer(error=f"{type(error).__name__}: {error.message}")
        return Answer(done.text, done.token_ids, done.logprobs, done.finish_reason or "")
