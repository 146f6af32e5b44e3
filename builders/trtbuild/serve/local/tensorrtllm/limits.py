"""What one engine can take, read from the same places that TensorRT-LLM reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .jobs import Job, RequestRefused


class LoadRefused(ValueError):
    """An engine folder or a config.pbtxt that cannot be served; the text ends up in the server's log."""


def blocks_of(tokens: int, tokens_per_block: int) -> int:
    """Blocks that hold ``tokens``, rounded up."""
    return -(-tokens // tokens_per_block)


@dataclass(frozen=True)
class Limits:
    """Limits of one engine; all counts are tokens unless the name says otherwise.

    ``max_seq_len`` is the effective one: of build_config, of the model's context and of the KV pool, the
    smallest, as TensorRT-LLM shrinks it to the pool (kvCacheManager.cpp).
    """

    max_sequences: int  # build_config.max_batch_size
    max_num_tokens: int  # of one iteration
    max_seq_len: int
    tokens_per_block: int
    pool_blocks: int
    max_beam_width: int
    max_queue_size: int  # requests; 0: no limit
    chunked_context: bool
    kv_reuse: bool
    vocab_size: int

    @property
    def max_input_len(self) -> int:
        """Without chunked context a prompt is one iteration (trtGptModel.h, computeMaxInputLen)."""
        longest = self.max_seq_len - 1  # room for one new token
        return longest if self.chunked_context else min(longest, self.max_num_tokens)

    def blocks(self, job: Job) -> int:
        """KV blocks that a job may hold at once, whatever it generates.

        Beams share the prompt's full blocks; one block a beam on top covers the copy made while forking.
        """
        total = blocks_of(len(job.prompt) + job.max_new_tokens, self.tokens_per_block)
        beams = job.sampling.beam_width
        if beams == 1:
            return total
        shared = len(job.prompt) // self.tokens_per_block
        return shared + beams * (total - shared + 1)

    def checked_new_tokens(self, *, prompt_tokens: int, new_tokens: int) -> int:
        """``new_tokens``, lowered to what fits ``max_seq_len`` as TensorRT-LLM's executor does.

        Raises:
            RequestRefused: for an empty or too long prompt, or nothing to generate.
        """
        if prompt_tokens == 0:
            raise RequestRefused(
                "the prompt is empty: input_ids and input_lengths must hold at least one token"
            )
        if new_tokens < 1:
            raise RequestRefused(f"request_output_len is {new_tokens}; at least 1 token must be asked for")
        if prompt_tokens > self.max_input_len:
            raise RequestRefused(
                f"Prompt length ({prompt_tokens}) exceeds maximum input length ({self.max_input_len}). "
                + self._why_input_limit()
            )
        return min(new_tokens, self.max_seq_len - prompt_tokens)

    def _why_input_limit(self) -> str:
        if self.max_input_len == self.max_seq_len - 1:
            return (
                f"The engine's longest sequence is {self.max_seq_len} tokens, prompt and answer together; "
                "shorten the prompt, or plan the model with a longer --max-input."
            )
        return (
            f"Without chunked context a prompt must fit one iteration, max_num_tokens {self.max_num_tokens}; "
            "shorten the prompt, or set enable_chunked_context."
        )

    def check_token(self, what: str, token: int) -> None:
        """Raises RequestRefused for an id that the vocabulary does not have.

        The engine does not look: it reads past its tables, and a penalty or ``min_tokens`` then writes there
        or throws in the middle of everybody's step (logit_transformers.hpp).
        """
        if not 0 <= token < self.vocab_size:
            raise RequestRefused(f"{what} {token}; token ids are 0 to {self.vocab_size - 1}")

    def check_fits(self, job: Job) -> None:
        """Raises RequestRefused if the job could not run even on an idle engine."""
        sequences, blocks = job.sampling.beam_width, self.blocks(job)
        if sequences > self.max_sequences:
            raise RequestRefused(
                f"beam_width {sequences} exceeds the engine's max_batch_size {self.max_sequences}"
            )
        if blocks > self.pool_blocks:
            raise RequestRefused(
                f"the request may need {blocks} KV blocks of {self.tokens_per_block} tokens, and the whole "
                f"pool has {self.pool_blocks} (max_tokens_in_paged_kv_cache); ask for fewer tokens or beams"
            )


def read_build_config(engine_dir: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """``build_config`` and ``pretrained_config`` of an engine folder's config.json.

    Raises:
        LoadRefused: when the file is missing, is no JSON, or lacks ``build_config``.
    """
    path = engine_dir / "config.json"
    try:
        config = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise LoadRefused(
            f"{path} cannot be read ({error.strerror}); gpt_model_path must name an engine folder"
        ) from error
    except ValueError as error:
        raise LoadRefused(f"{path} is not JSON: {error}") from error
    if not isinstance(config, dict) or not isinstance(config.get("build_config"), dict):
        raise LoadRefused(f"{path} has no build_config; it is not the config.json of an engine folder")
    return config["build_config"], config.get("pretrained_config") or {}


def positive(config: dict[str, Any], key: str, path: str = "build_config") -> int:
    """A positive integer of config.json.

    Raises:
        LoadRefused: when it is missing or something else.
    """
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise LoadRefused(f"config.json: {path}.{key} is {value!r}; a positive whole number is needed")
    return value
