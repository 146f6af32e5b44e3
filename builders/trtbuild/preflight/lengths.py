"""length.*: sequence lengths against the model's context and against max_num_tokens."""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.plan.model import Finding
from trtbuild.preflight.base import Subject


def check_context(subject: Subject) -> Iterator[Finding]:
    """Prompt and answer together fit the engine's longest sequence, and that the model's context."""
    llm, arch = subject.llm, subject.context.architectures.get(subject.llm.name)
    asked = llm.max_input_tokens + llm.max_output_tokens
    if llm.max_seq_len < asked:
        yield subject.finding(
            "length.sequence",
            "error",
            f"{llm.max_input_tokens} tokens in and {llm.max_output_tokens} out are {asked}, and the longest "
            f"sequence is {llm.max_seq_len}",
            f"lower the answer to {max(llm.max_seq_len - llm.max_input_tokens, 0)} tokens",
            f"lower the prompt to {max(llm.max_seq_len - llm.max_output_tokens, 0)} tokens",
        )
    if arch is not None and llm.max_seq_len > arch.context:
        yield subject.finding(
            "length.context",
            "error",
            f"the longest sequence is {llm.max_seq_len} tokens, and the model was made for {arch.context}: "
            "beyond it answers fall apart without an error",
            f"input + output of at most {arch.context} tokens",
        )


def check_num_tokens(subject: Subject) -> Iterator[Finding]:
    """Without chunked context a prompt goes through in one iteration, so max_num_tokens bounds it."""
    llm = subject.llm
    if llm.chunked_context:
        if llm.max_num_tokens < llm.tokens_per_block:
            yield subject.finding(
                "length.num-tokens",
                "error",
                f"a chunk of max_num_tokens {llm.max_num_tokens} is smaller than one KV block of "
                f"{llm.tokens_per_block} tokens; trtllm-build asserts that with paged context FMHA",
                f"max_num_tokens of at least {llm.tokens_per_block}",
            )
    elif llm.max_num_tokens < llm.max_input_tokens:
        yield subject.finding(
            "length.num-tokens",
            "error",
            f"without chunked context a prompt of {llm.max_input_tokens} tokens must go through in one "
            f"iteration, and max_num_tokens is {llm.max_num_tokens}",
            "turn chunked context on (needs --kv-dtype auto)",
            f"max_num_tokens of at least {llm.max_input_tokens}, which makes the activations "
            f"{llm.max_input_tokens / llm.max_num_tokens:.1f} times as large",
        )
    if llm.max_num_tokens < llm.max_batch_size:
        yield subject.finding(
            "length.num-tokens",
            "error",
            f"{llm.max_batch_size} sequences each make a token in an iteration, and max_num_tokens is "
            f"{llm.max_num_tokens}",
            f"max_num_tokens of at least {llm.max_batch_size}",
            f"max_batch_size of at most {llm.max_num_tokens}",
        )
