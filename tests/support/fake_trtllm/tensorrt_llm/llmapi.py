"""The LLM API's names. Keywords are held against the signatures that NVIDIA published for one release.

The engine answers a prompt with its own ids, over and over; sequence i begins at the prompt's id i. A prompt
that begins with 13 fails, one that begins with 14 never answers.
"""

import asyncio
import json
import os
import types
from pathlib import Path

PUBLISHED = json.loads((Path(__file__).resolve().parents[3] / "golden/llmapi/signatures.json").read_text())
SIGNATURES = {
    "generate_async": PUBLISHED["generate_async"],
    **PUBLISHED["versions"][os.environ.get("FAKE_TRTLLM_VERSION", "1.2.1")],
}
STEP_S = float(os.environ.get("FAKE_TRTLLM_STEP_S", "0"))


def _check(kind, given):
    unknown = set(given) - set(SIGNATURES[kind])
    if unknown:
        raise TypeError(f"{kind} got unexpected keywords {sorted(unknown)}")


class _Keywords(types.SimpleNamespace):
    def __init__(self, **given):
        _check(type(self).__name__, given)
        super().__init__(**given)


class KvCacheConfig(_Keywords):
    pass


class GuidedDecodingParams(_Keywords):
    pass


class SamplingParams(_Keywords):
    def __init__(self, **given):
        super().__init__(**given)
        if self.n_sequences > 1 and getattr(self, "top_k", None) == 1:
            raise ValueError("Greedy decoding in the LLM API does not allow multiple returns.")

    @property
    def n_sequences(self):
        return getattr(self, "n", 1)


class LLM:
    aborted = 0

    def __init__(self, **given):
        _check("LLM", given)
        if not isinstance(given["kv_cache_config"], KvCacheConfig):
            raise TypeError("kv_cache_config must be a KvCacheConfig")
        if not Path(given["model"], "config.json").is_file():
            raise FileNotFoundError(given["model"])
        self.given = given
        self.calls = []

    def shutdown(self):
        self.given = None

    def generate_async(self, inputs, sampling_params=None, **given):
        _check("generate_async", given)
        self.calls.append((inputs, sampling_params, given))
        return Result(inputs, sampling_params, given.get("streaming", False))


class Result:
    """Iterated once a token when streaming, else once at the end, as RequestOutput is."""

    def __init__(self, prompt, sampling, streaming):
        self._prompt, self._sampling, self._streaming = prompt, sampling, streaming
        self._aborted = False
        self.finished = False
        self.outputs = [self._sequence(index) for index in range(sampling.n_sequences)]

    @staticmethod
    def _sequence(index):
        return types.SimpleNamespace(
            index=index, token_ids=[], finish_reason=None, logprobs=[], cumulative_logprob=0.0
        )

    def abort(self):
        self._aborted = True
        LLM.aborted += 1
        if told := os.environ.get("FAKE_TRTLLM_ABORTED"):
            with Path(told).open("a") as file:
                file.write("aborted\n")

    async def __aiter__(self):
        if self._prompt[0] == 13:
            raise RuntimeError("the engine broke")
        stops = getattr(self._sampling, "stop_token_ids", [])
        ends = not getattr(self._sampling, "ignore_eos", False)
        end = [getattr(self._sampling, "end_id", None)] if ends else []
        for step in range(self._sampling.max_tokens):
            await asyncio.sleep(3600 if self._prompt[0] == 14 else STEP_S)
            if self._aborted:
                return
            for part in self.outputs:
                if part.finish_reason is None:
                    token = self._prompt[(part.index + step) % len(self._prompt)]
                    part.token_ids.append(token)
                    part.logprobs.append({token: types.SimpleNamespace(logprob=-0.5)})
                    part.cumulative_logprob -= 0.5
                    if token in (*stops, *end):
                        part.finish_reason = "stop"
                    elif step == self._sampling.max_tokens - 1:
                        part.finish_reason = "length"
            self.finished = all(part.finish_reason is not None for part in self.outputs)
            if self._streaming or self.finished:
                yield self
            if self.finished:
                return
