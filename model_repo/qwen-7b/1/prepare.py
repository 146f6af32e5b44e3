"""From a client's request to the engine's: prompt to ids, limits checked, words to ids."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tritonstream.text import PromptError, TextAssets, check_stops, embedding_bias, word_list
else:
    from .tritontext import PromptError, TextAssets, check_stops, embedding_bias, word_list

from .inputs import Array, TextRequest
from .prefixes import SeenPrefixes
from .settings import Settings
from .wire import request_bytes


@dataclass(frozen=True)
class Prepared:
    """A request that is ready for the engine."""

    message: bytes  # serialised
    prompt: str  # the text that was encoded
    input_tokens: int
    seen_tokens: int  # of them, in blocks that an earlier prompt began with
    output_limit: int  # tokens; the engine ends there
    end_ids: frozenset[int]
    engine_end_ids: frozenset[int]  # those of end_ids at which the engine ends by itself
    stops: tuple[str, ...]


def prepare(
    request: TextRequest,
    assets: TextAssets,
    settings: Settings,
    prefixes: SeenPrefixes | None = None,
    extra_outputs: Sequence[str] = (),
) -> Prepared:
    """Checks one request against the limits and serialises it for the engine.

    Args:
        prefixes: counts what is known of the prompt; None for an engine without KV reuse.
        extra_outputs: outputs of the engine that the client wants as they are.

    Raises:
        TextError: for anything that cannot be served; the text tells what was found and what would work.
    """
    if request.max_tokens is not None and request.max_tokens <= 0:
        raise PromptError(f"max_tokens is {request.max_tokens}; it must be at least 1")
    if request.min_tokens < 0:
        raise PromptError(f"min_tokens is {request.min_tokens}; it must not be negative")
    if request.timeout_ms < 0:
        raise PromptError(f"timeout_ms is {request.timeout_ms}; it must not be negative (0: no deadline)")
    if request.end_id is not None and not -1 <= request.end_id < assets.vocab_size:
        raise PromptError(
            f"end_id is {request.end_id}; ids go from 0 to {assets.vocab_size - 1}, and -1 means none"
        )
    if request.tools and request.messages is None:
        raise PromptError("tools go with messages; text_input is taken as it is")
    if request.stream and request.sequences > 1:
        raise PromptError(
            f"{request.sequences} texts cannot be streamed at once; send stream=false, or a request for each"
        )
    prompt, ids = _encode(request, assets, settings)
    wanted = settings.max_output_tokens if request.max_tokens is None else request.max_tokens
    output_limit = min(wanted, settings.max_seq_len - len(ids)) if settings.max_seq_len else wanted
    stops, end_ids = _ends(request, assets)
    tensors: dict[str, Array] = {
        "input_ids": np.array([ids], dtype=np.int32),
        "input_lengths": np.array([[len(ids)]], dtype=np.int32),
        "request_output_len": np.array([[output_limit]], dtype=np.int32),
        # beams cannot be streamed; all else is, so that a deadline or a stop string ends it where it is
        "streaming": np.array([[request.sequences == 1]]),
        "pad_id": np.array([[assets.pad_id if request.pad_id is None else request.pad_id]], dtype=np.int32),
    }
    tensors.update(_sampling(request, settings))
    engine_end_ids = end_ids
    if end_ids:
        tensors["end_id"] = np.array([[end_ids[0]]], dtype=np.int32)
        if request.min_tokens > 0:
            engine_end_ids = end_ids[:1]  # an engine heeds min_tokens for its end_id, not for stop words
        elif len(end_ids) > 1:
            tensors["stop_words_list"] = word_list([id_] for id_ in end_ids[1:])[np.newaxis]
    if request.bad_words:
        tensors["bad_words_list"] = word_list(map(assets.encoder.word, request.bad_words))[np.newaxis]
    if request.bias_words or request.bias_weights:
        words = [assets.encoder.word(word) for word in request.bias_words]
        size = max(settings.engine_vocab_size, assets.vocab_size if not settings.engine_vocab_size else 0)
        tensors["embedding_bias"] = embedding_bias(words, request.bias_weights, size)[np.newaxis]
    outputs = ["output_ids", "sequence_length", *extra_outputs]
    if request.samples > 1:
        outputs.append("sequence_index")  # each sample comes in messages of its own
    return Prepared(
        message=request_bytes(settings.engine_model, tensors, outputs),
        prompt=prompt,
        input_tokens=len(ids),
        seen_tokens=prefixes.count(ids) if prefixes is not None else 0,
        output_limit=output_limit,
        end_ids=frozenset(end_ids),
        engine_end_ids=frozenset(engine_end_ids),
        stops=stops,
    )


def _encode(request: TextRequest, assets: TextAssets, settings: Settings) -> tuple[str, list[int]]:
    limit = settings.max_input_tokens or settings.max_seq_len
    if settings.max_seq_len:
        limit = min(limit, settings.max_seq_len - 1)  # one token of answer at least
    if request.messages is not None:
        prompt = assets.template.render(request.messages, tools=request.tools)
        special = False  # the template spells them out
    elif request.text is not None:
        prompt, special = request.text, request.add_special_tokens
    else:
        raise PromptError("neither text_input nor messages is given; send one of them")
    if limit and assets.encoder.least_tokens(prompt) > limit:
        least = assets.encoder.least_tokens(prompt)
        raise PromptError(
            f"the prompt has at least {least} tokens, more than the {limit} that fit; shorten it"
        )
    ids = assets.encoder.prompt(prompt, add_special_tokens=special)
    if limit and len(ids) > limit:
        raise PromptError(f"the prompt has {len(ids)} tokens, more than the {limit} that fit; shorten it")
    return prompt, ids


def _ends(request: TextRequest, assets: TextAssets) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Stop strings, and the ids that end the answer: a special token as stop word becomes an end id."""
    check_stops(request.stop_words)
    ends = list(assets.end_ids) if request.end_id is None else [request.end_id]
    stops = []
    for word in request.stop_words:
        id_ = assets.special_id(word)
        if id_ is None:
            stops.append(word)
        else:
            ends.append(id_)
    return tuple(stops), tuple(dict.fromkeys(id_ for id_ in ends if id_ >= 0))  # -1: none


def _sampling(request: TextRequest, settings: Settings) -> dict[str, Array]:
    tensors = dict(request.passed_on)
    temperature = tensors.get("temperature")
    if temperature is not None and temperature.size == 1 and float(temperature.ravel()[0]) == 0.0:
        # TensorRT-LLM refuses 0; what is meant is the likeliest token
        for name in ("temperature", "runtime_top_p"):
            tensors.pop(name, None)
        tensors["runtime_top_k"] = np.array([[1]], dtype=np.int32)
    seed = request.seed
    if request.sequences == request.samples:  # no beams
        # TensorRT-LLM's defaults of top_k, top_p and seed are 0: the likeliest token at any temperature, and
        # the same draws for every equal request. Whoever gives a temperature means to sample.
        if "temperature" in tensors and not {"runtime_top_k", "runtime_top_p"} & tensors.keys():
            tensors["runtime_top_p"] = np.array([[1.0]], dtype=np.float32)
        if seed is None and _samples(tensors):
            seed = random.getrandbits(63)
    if request.min_tokens:
        tensors[settings.min_tokens_input] = np.array([[request.min_tokens]], dtype=np.int32)
    if seed is not None:
        tensors[settings.seed_input] = np.array([[seed]], dtype=np.uint64)
    return tensors


def _samples(tensors: dict[str, Array]) -> bool:
    """Whether the engine draws: top_k above 1, or top_p without a top_k of 1."""
    top_k, top_p = map(tensors.get, ("runtime_top_k", "runtime_top_p"))
    if top_k is not None and top_k.any():
        return not (top_k == 1).all()
    return top_p is not None and bool(top_p.any())
