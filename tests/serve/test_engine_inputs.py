"""Each input of the engine that is honoured, shown by what it does to an answer of a real server."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tests.serve.test_contract import HONOURED_INPUTS
from tests.support.grpc_engine import EngineClient, EngineError, request
from tests.support.tiny_gguf import EOS, SPECIAL, byte_tokens

pytestmark = [pytest.mark.server, pytest.mark.alone]

Run = Callable[..., Any]
Body = Callable[[EngineClient], Awaitable[None]]
PROMPT = [10, 20, 30, 40, 50]
SHOWN: dict[str, Body] = {}


def shows(*names: str) -> Callable[[Body], Body]:
    def register(body: Body) -> Body:
        SHOWN.update(dict.fromkeys(names, body))
        return body

    return register


async def ids(client: EngineClient, tokens: int = 24, prompt: list[int] = PROMPT, **inputs: Any) -> list[int]:
    return (await client.answer(request("tiny", prompt, tokens, **inputs))).ids


def spell(tokens: list[int]) -> str:
    """The text of byte tokens, without the end id."""
    letters = byte_tokens()
    return "".join(letters[token - len(SPECIAL)] for token in tokens if token >= len(SPECIAL))


def stop_words(*words: list[int]) -> Any:
    flat = [token for word in words for token in word]
    ends = np.cumsum([len(word) for word in words]).tolist()
    return np.array([flat, ends + [-1] * (len(flat) - len(ends))], np.int32)


@shows("input_ids", "input_lengths")
async def only_the_first_tokens_of_a_padded_prompt_count(client: EngineClient) -> None:
    padded = await ids(client, prompt=[10, 20, 30, 0, 0, 0], input_lengths=np.int32(3))
    assert padded == await ids(client, prompt=[10, 20, 30])
    assert padded != await ids(client, prompt=[10, 20, 31])


@shows("request_output_len")
async def as_many_tokens_as_asked(client: EngineClient) -> None:
    assert [len(await ids(client, count)) for count in (1, 2, 33)] == [1, 2, 33]


@shows("end_id")
async def generation_ends_with_the_end_id(client: EngineClient) -> None:
    free = await ids(client)
    end = free[10]
    assert await ids(client, end_id=np.int32(end)) == free[: free.index(end) + 1]
    assert await ids(client, end_id=np.int32(-1)) == free


@shows("pad_id")
async def the_pad_id_changes_nothing(client: EngineClient) -> None:
    assert await ids(client, pad_id=np.int32(0)) == await ids(client, pad_id=np.int32(2))


@shows("stop_words_list")
async def generation_ends_with_a_stop_word(client: EngineClient) -> None:
    free = await ids(client)
    pairs = list(pairwise(free))
    word = list(pairs[8])
    kept = free[: pairs.index((word[0], word[1])) + 2]
    assert await ids(client, stop_words_list=stop_words([258, 257, 256], word)) == kept
    one = free[12]
    assert await ids(client, stop_words_list=stop_words([one])) == free[: free.index(one) + 1]


@shows("min_tokens")
async def the_end_id_waits_for_min_tokens(client: EngineClient) -> None:
    first = (await ids(client, 1))[0]
    assert await ids(client, end_id=np.int32(first)) == [first]
    held = await ids(client, end_id=np.int32(first), min_tokens=np.int32(6))
    assert first not in held[:6]
    assert len(held) > 6


@shows("runtime_top_k", "seed")
async def top_k_samples_and_the_seed_repeats_it(client: EngineClient) -> None:
    sampled = {"runtime_top_k": np.int32(50), "temperature": np.float32(2.0)}
    once = await ids(client, **sampled, seed=np.uint64(7))
    assert once == await ids(client, **sampled, seed=np.uint64(7))
    assert once != await ids(client, **sampled, seed=np.uint64(8))
    assert await ids(client, runtime_top_k=np.int32(1), temperature=np.float32(2.0)) == await ids(client)


@shows("runtime_top_p")
async def a_tiny_top_p_leaves_the_likeliest_token(client: EngineClient) -> None:
    assert await ids(client, runtime_top_p=np.float32(1e-6)) == await ids(client)
    assert await ids(client, runtime_top_p=np.float32(1.0), temperature=np.float32(3.0)) != await ids(client)


@shows("temperature")
async def a_low_temperature_is_nearly_greedy_and_a_high_one_is_not(client: EngineClient) -> None:
    sampled = {"runtime_top_p": np.float32(1.0), "seed": np.uint64(3)}
    assert await ids(client, **sampled, temperature=np.float32(1e-3)) == await ids(client)
    assert await ids(client, **sampled, temperature=np.float32(0.0)) == await ids(client)
    assert await ids(client, **sampled, temperature=np.float32(5.0)) != await ids(client)


@shows("repetition_penalty", "presence_penalty", "frequency_penalty")
async def penalties_make_repeats_rarer(client: EngineClient) -> None:
    free = len(set(await ids(client, 60)))
    assert len(set(await ids(client, 60, repetition_penalty=np.float32(10.0)))) > free
    assert await ids(client, 60, presence_penalty=np.float32(2.0)) != await ids(client, 60)
    assert len(set(await ids(client, 60, frequency_penalty=np.float32(2.0)))) > free


@shows("beam_width", "num_return_sequences")
async def as_many_beams_as_asked(client: EngineClient) -> None:
    beams = {"beam_width": np.int32(4)}
    answer = await client.answer(request("tiny", PROMPT, 8, **beams))
    assert answer.responses[0].tensors["output_ids"].shape == (1, 4, 8)
    fewer = await client.answer(request("tiny", PROMPT, 8, **beams, num_return_sequences=np.int32(2)))
    assert fewer.responses[0].tensors["output_ids"].shape == (1, 2, 8)
    best = answer.responses[0].tensors["output_ids"][0, :2].tolist()
    assert fewer.responses[0].tensors["output_ids"][0].tolist() == best


@shows("len_penalty", "early_stopping")
async def a_length_penalty_prefers_longer_beams(client: EngineClient) -> None:
    free = await ids(client)
    beams = {"beam_width": np.int32(4), "end_id": np.int32(free[2]), "num_return_sequences": np.int32(1)}
    late = {**beams, "early_stopping": False}
    short = await ids(client, **late, len_penalty=np.float32(-5.0))
    long = await ids(client, **late, len_penalty=np.float32(5.0))
    assert len(long) > len(short)
    early = await ids(client, **beams, early_stopping=True, len_penalty=np.float32(5.0))
    assert len(early) <= len(long)


@shows("return_log_probs")
async def log_probabilities_only_when_asked(client: EngineClient) -> None:
    names = ("output_ids", "cum_log_probs", "output_log_probs")
    asked = await client.answer(request("tiny", PROMPT, 4, outputs=names, return_log_probs=True))
    not_asked = await client.answer(request("tiny", PROMPT, 4, outputs=names))
    assert set(asked.responses[0].tensors) == set(names)
    assert set(not_asked.responses[0].tensors) == {"output_ids"}


@shows("return_perf_metrics", "return_num_input_tokens", "return_num_output_tokens")
async def figures_only_when_asked(client: EngineClient) -> None:
    outputs = {
        "return_perf_metrics": "last_token_time_ns",
        "return_num_input_tokens": "num_input_tokens",
        "return_num_output_tokens": "num_output_tokens",
    }
    for asked, output in outputs.items():
        answer = await client.answer(request("tiny", PROMPT, 4, outputs=outputs.values(), **{asked: True}))
        assert set(answer.responses[0].tensors) == {output}


@shows("exclude_input_in_output")
async def the_prompt_comes_first_unless_excluded(client: EngineClient) -> None:
    alone = await ids(client, exclude_input_in_output=True)
    assert await ids(client, exclude_input_in_output=False) == PROMPT + alone
    assert await ids(client, exclude_input_in_output=False, streaming=True) == alone


@shows("streaming")
async def a_stream_comes_in_several_responses(client: EngineClient) -> None:
    streamed = await client.answer(request("tiny", PROMPT, 64, streaming=True))
    whole = await client.answer(request("tiny", PROMPT, 64, streaming=False))
    assert len(streamed.responses) > len(whole.responses) == 1
    assert streamed.ids == whole.ids


@shows("stop")
async def a_stop_request_ends_the_one_with_its_id(client: EngineClient) -> None:
    stream = client.stream(request("tiny", PROMPT, 1500, streaming=True, request_id="stop-me"))
    other = client.stream(request("tiny", PROMPT, 300, streaming=True, request_id="not-me"))
    events = aiter(stream)
    got = (await anext(events)).ids
    answer = await client.answer(request("tiny", [1], 1, request_id="stop-me", stop=True))
    assert answer.ids == []
    async for response in events:
        got += response.ids
    assert 0 < len(got) < 1500
    assert len([token async for response in other for token in response.ids]) == 300
    await client.answer(request("tiny", [1], 1, request_id="unknown", stop=True))  # as NVIDIA's: no error


@shows("guided_decoding_guide_type", "guided_decoding_guide")
async def a_guide_is_followed(client: EngineClient) -> None:
    async def text(kind: str, guide: str, **inputs: Any) -> str:
        answer = await ids(
            client, 40, guided_decoding_guide_type=np.array([kind.encode()], object),
            guided_decoding_guide=np.array([guide.encode()], object), end_id=np.int32(EOS), **inputs,
        )  # fmt: skip
        return spell(answer)

    sampled = {"runtime_top_p": np.float32(1.0), "temperature": np.float32(5.0)}
    assert {await text("regex", "(yes|no)", **sampled, seed=np.uint64(n)) for n in range(12)} == {"yes", "no"}
    assert re.fullmatch("ab*c?", await text("ebnf_grammar", 'root ::= "a" "b"* "c"?'))
    assert json.loads(await text("json_schema", '{"enum": ["left", "right"]}')) in ("left", "right")
    for kind, guide, words in (
        ("json_schema", "{bad", "cannot be compiled: Failed to parse JSON"),
        ("regex", "((", "cannot be compiled: Regex parsing error"),
        ("regex", "", "guided_decoding_guide is missing"),
        ("yaml", "x", "must be one of json, json_schema, regex, ebnf_grammar"),
    ):
        running = asyncio.create_task(ids(client, 40))
        with pytest.raises(EngineError, match=words):
            await text(kind, guide)
        assert len(await running) == 40  # a guide that cannot be compiled hurts nobody else


def test_every_honoured_input_is_shown_here() -> None:
    assert set(SHOWN) == HONOURED_INPUTS


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_input(run: Run, name: str) -> None:
    run(SHOWN[name])
