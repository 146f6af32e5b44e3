"""The only place that calls tensorrt_llm: starting it, and one call a prompt."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

from .jobs import Job, Refused


class LlmEngine:
    """A running ``tensorrt_llm.LLM``."""

    def __init__(self, llm: Any, api: Any) -> None:
        self._llm = llm
        self._api = api

    @classmethod
    async def start(cls, arguments: dict[str, Any]) -> LlmEngine:
        """Loads the model; blocking work is done in a thread, so that the loop runs.

        Args:
            arguments: keywords of ``LLM``; ``kv_cache_config`` as a dict.
        """
        api = await asyncio.to_thread(_import_api)
        kv_cache = api.KvCacheConfig(**arguments.pop("kv_cache_config"))
        llm = await asyncio.to_thread(lambda: api.LLM(**arguments, kv_cache_config=kv_cache))
        return cls(llm, api)

    async def stop(self) -> None:
        """Ends the LLM and its workers."""
        await asyncio.to_thread(self._llm.shutdown)

    def generate(self, job: Job) -> Any:
        """Starts a prompt: an async iterator of the LLM API's RequestOutput, with ``abort``.

        Raises:
            Refused: for sampling parameters that the LLM API refuses.
        """
        sampling = dict(job.sampling)
        if job.guide is not None:
            sampling["guided_decoding"] = self._guide(*job.guide)
        if job.bias is not None:
            sampling["embedding_bias"] = _to_torch(job.bias)
        try:
            parameters = self._api.SamplingParams(**sampling, detokenize=False, add_special_tokens=False)
            # A stop word of several tokens is looked for here, so each token is wanted.
            streaming = job.streaming or bool(job.stop_words)
            return self._llm.generate_async(job.ids, sampling_params=parameters, streaming=streaming)
        except ValueError as exc:
            raise Refused(str(exc)) from exc

    def _guide(self, kind: str, text: str) -> Any:
        if kind == "json":
            return self._api.GuidedDecodingParams(json_object=True)
        keyword = {"json_schema": "json", "ebnf_grammar": "grammar"}.get(kind, kind)
        return self._api.GuidedDecodingParams(**{keyword: text})


def _import_api() -> Any:
    return importlib.import_module("tensorrt_llm.llmapi")


def _to_torch(values: Any) -> Any:
    return importlib.import_module("torch").from_numpy(values.astype("float32"))
