"""A job's sampling values as OpenVINO GenAI's GenerationConfig."""

from __future__ import annotations

from typing import Any

from .grammar import structured_output
from .jobs import Job


def engine_stop_ids(job: Job) -> frozenset[int]:
    """Ids at which the engine itself ends a sequence: end ids, and stop words of one token.

    ``min_tokens`` holds back end ids only, while the engine would hold back all of its stop ids: then stop
    words are left to the StopWatch.
    """
    ids = set(job.end_ids)
    if not job.sampling.min_tokens:
        ids.update(word[0] for word in job.stop_words if len(word) == 1)
    return frozenset(ids)


def watched_words(job: Job) -> tuple[tuple[int, ...], ...]:
    """Stop words that the engine does not see."""
    ids = engine_stop_ids(job)
    return tuple(word for word in job.stop_words if len(word) > 1 or word[0] not in ids)


def generation_config(job: Job) -> Any:
    """``openvino_genai.GenerationConfig`` of a job."""
    import openvino_genai

    config = openvino_genai.GenerationConfig()
    sampling = job.sampling
    config.apply_chat_template = False
    config.max_new_tokens = job.max_new_tokens
    config.min_new_tokens = min(sampling.min_tokens, job.max_new_tokens)
    config.logprobs = 1 if job.log_probs else 0
    stop_ids = engine_stop_ids(job)
    if stop_ids:
        config.stop_token_ids = set(stop_ids)
        config.eos_token_id = min(stop_ids)  # the engine asks that it is one of them; which one is the same
    else:
        # Ids that are not set would be filled from the model's own defaults, which may be none (-1).
        config.ignore_eos = True
        config.stop_token_ids = {0}
        config.eos_token_id = 0
        config.min_new_tokens = 0  # would hold back id 0
    if sampling.guide_type:
        config.structured_output_config = structured_output(sampling)
    if sampling.beam_width > 1:
        config.num_beams = sampling.beam_width
        config.num_return_sequences = sampling.beams_returned
        config.length_penalty = sampling.length_penalty
        criteria = openvino_genai.StopCriteria
        config.stop_criteria = criteria.EARLY if sampling.early_stopping else criteria.HEURISTIC
        return config
    config.repetition_penalty = sampling.repetition_penalty
    config.presence_penalty = sampling.presence_penalty
    config.frequency_penalty = sampling.frequency_penalty
    if not sampling.greedy:
        config.do_sample = True
        config.temperature = sampling.temperature
        config.top_p = sampling.top_p
        config.rng_seed = sampling.seed
        if sampling.top_k:
            config.top_k = sampling.top_k
    return config
