"""Tensors of a request to calls of the LLM API: each input is honoured, has no effect, or is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .words import read_words

Array = npt.NDArray[Any]


class Refused(ValueError):
    """A request that cannot be served as it asks; the message is for its caller, ``code`` Triton's."""

    code = "INVALID_ARG"


class Busy(Refused):
    """A request that could be served later."""

    code = "UNAVAILABLE"


@dataclass(frozen=True)
class Job:
    """One prompt of a request.

    Attributes:
        sampling: keywords of SamplingParams.
        guide: kind and text of guided decoding.
        bias: [vocabulary] added to the logits.
        stop_words: ids that end the answer and need more than one token.
        whole: whether a response that does not stream begins with the prompt's ids.
    """

    row: int
    ids: list[int]
    sampling: dict[str, Any]
    guide: tuple[str, str] | None
    bias: Array | None
    stop_words: list[tuple[int, ...]]
    streaming: bool
    whole: bool
    perf_metrics: bool
    log_probs: bool
    count_input: bool
    count_output: bool


def _empty(value: Array) -> bool:
    return value.size == 0


def _zero(value: Array) -> bool:
    return not value.any()


def _is(number: float) -> Callable[[Array], bool]:
    return lambda value: value.size == 0 or bool(np.isclose(value.astype(np.float64), number).all())


# Inputs that the LLM API has no call for → the values that change nothing.
_NOT_SERVED: dict[str, Callable[[Array], bool]] = {
    "encoder_input_features": _empty,
    "encoder_output_lengths": _zero,
    "decoder_input_ids": _empty,
    "decoder_input_lengths": _zero,
    "cross_attention_mask": _empty,
    "skip_cross_attn_blocks": _zero,
    "draft_input_ids": _empty,
    "draft_logits": _empty,
    "draft_acceptance_threshold": _zero,
    "runtime_top_p_min": _zero,
    "runtime_top_p_decay": _is(1.0),
    "runtime_top_p_reset_ids": _zero,
    "beam_width": _is(1),
    "return_context_logits": _zero,
    "return_generation_logits": _zero,
    "prompt_embedding_table": _empty,
    "prompt_table_extra_ids": _empty,
    "prompt_vocab_size": _zero,
    "mrope_rotary_cos_sin": _empty,
    "mrope_position_deltas": _zero,
    "lora_task_id": _zero,
    "lora_weights": _empty,
    "lora_config": _empty,
    "context_phase_params": _empty,
    "retention_token_range_starts": _empty,
    "retention_token_range_ends": _empty,
    "retention_token_range_priorities": _empty,
    "retention_token_range_durations_ms": _empty,
    "retention_decode_priority": _is(35),  # kDefaultRetentionPriority of the executor
    "retention_decode_duration_ms": _zero,
    "lookahead_window_size": _zero,
    "lookahead_ngram_size": _zero,
    "lookahead_verification_set_size": _zero,
}
# They order beams, and there is one.
_WITHOUT_EFFECT = frozenset({"len_penalty", "early_stopping", "beam_search_diversity_rate"})
# Input → keyword of SamplingParams, for plain numbers.
_NUMBERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "request_output_len": ("max_tokens", int),
    "end_id": ("end_id", int),
    "pad_id": ("pad_id", int),
    "num_return_sequences": ("n", int),
    "runtime_top_k": ("top_k", int),
    "runtime_top_p": ("top_p", float),
    "temperature": ("temperature", float),
    "repetition_penalty": ("repetition_penalty", float),
    "presence_penalty": ("presence_penalty", float),
    "frequency_penalty": ("frequency_penalty", float),
    "min_tokens": ("min_tokens", int),
    "seed": ("seed", int),
}
_READ_HERE = frozenset(
    {
        *("input_ids", "input_lengths", "stop_words_list", "bad_words_list", "embedding_bias"),
        *("streaming", "stop", "exclude_input_in_output", "return_log_probs", "return_perf_metrics"),
        *("return_num_input_tokens", "return_num_output_tokens"),
        *("guided_decoding_guide_type", "guided_decoding_guide"),
    }
)
HANDLED = _READ_HERE | _NUMBERS.keys() | _NOT_SERVED.keys() | _WITHOUT_EFFECT


def read_jobs(tensors: Mapping[str, Array], *, exclude_input: bool) -> list[Job]:
    """The prompts of a request, one a row of its batch.

    Args:
        tensors: inputs by name, batch first.
        exclude_input: what holds where the request does not say.

    Raises:
        Refused: for an input that is missing, wrong, or cannot be honoured.
    """
    for name, value in tensors.items():
        if name not in HANDLED:
            raise Refused(f"{name} is unknown to the LLM API's model; leave it out")
        if name in _NOT_SERVED and not _NOT_SERVED[name](value):
            raise Refused(f"{name} is not served by the LLM API; leave it out, or use the target engine")
    for name in ("input_ids", "input_lengths", "request_output_len"):
        if name not in tensors:
            raise Refused(f"{name} is missing")
    count = tensors["input_ids"].shape[0]
    return [
        _job({name: value[row] for name, value in tensors.items()}, row, exclude_input)
        for row in range(count)
    ]


def _job(row: Mapping[str, Array], index: int, exclude_input: bool) -> Job:
    length = int(row["input_lengths"].reshape(-1)[0])
    ids = [int(i) for i in row["input_ids"].reshape(-1)[:length]]
    if not ids:
        raise Refused("the prompt is empty")
    sampling = {key: cast(row[name].reshape(-1)[0]) for name, (key, cast) in _NUMBERS.items() if name in row}
    _settle(sampling)
    words = read_words(row["stop_words_list"]) if "stop_words_list" in row else []
    single = [word[0] for word in words if len(word) == 1]
    if single:
        sampling["stop_token_ids"] = single
    bad = read_words(row["bad_words_list"]) if "bad_words_list" in row else []
    if any(len(word) > 1 for word in bad):
        raise Refused("bad_words_list has a word of several tokens; the LLM API bans single tokens only")
    if bad:
        sampling["bad_token_ids"] = [word[0] for word in bad]
    if _flag(row, "return_log_probs"):
        sampling["logprobs"] = 1
    if _flag(row, "return_perf_metrics"):
        sampling["return_perf_metrics"] = True
    return Job(
        row=index,
        ids=ids,
        sampling=sampling,
        guide=_guide(row),
        bias=row["embedding_bias"].reshape(-1) if _given(row, "embedding_bias") else None,
        stop_words=[word for word in words if len(word) > 1],
        streaming=_flag(row, "streaming"),
        whole=not _flag(row, "exclude_input_in_output", default=exclude_input),
        perf_metrics=_flag(row, "return_perf_metrics"),
        log_probs=_flag(row, "return_log_probs"),
        count_input=_flag(row, "return_num_input_tokens"),
        count_output=_flag(row, "return_num_output_tokens"),
    )


def _settle(sampling: dict[str, Any]) -> None:
    """The LLM API's own way to say the same: no bound is None, greedy is top_k 1 without a temperature."""
    if sampling["max_tokens"] < 1:
        raise Refused(f"request_output_len is {sampling['max_tokens']}; it must be at least 1")
    if sampling.get("end_id", 0) < 0:
        del sampling["end_id"]
        sampling["ignore_eos"] = True
    if sampling.get("temperature") == 0:
        sampling["top_k"] = 1
    if sampling.get("top_k") == 1:
        for key in ("temperature", "top_p"):
            sampling.pop(key, None)
    for key in ("top_k", "top_p"):
        if sampling.get(key, 1) <= 0:
            del sampling[key]


def _given(row: Mapping[str, Array], name: str) -> bool:
    return name in row and row[name].size > 0


def _flag(row: Mapping[str, Array], name: str, default: bool = False) -> bool:
    return bool(row[name].reshape(-1)[0]) if _given(row, name) else default


def _guide(row: Mapping[str, Array]) -> tuple[str, str] | None:
    if not _given(row, "guided_decoding_guide_type"):
        return None
    texts = []
    for name in ("guided_decoding_guide_type", "guided_decoding_guide"):
        value = row[name].reshape(-1)[0] if _given(row, name) else b""
        texts.append(value.decode("utf-8") if isinstance(value, bytes) else str(value))
    if texts[0] not in ("json", "json_schema", "regex", "ebnf_grammar", "structural_tag"):
        raise Refused(f"guided_decoding_guide_type {texts[0]!r} is unknown")
    return texts[0], texts[1]
