"""kv.*: the KV cache's type against attention and reuse, and its size against the longest sequence."""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.plan.kv_choice import FMHA_SM
from trtbuild.plan.model import Finding
from trtbuild.preflight.base import Subject, gib
from trtbuild.spec import Target


def check_bias(subject: Subject) -> Iterator[Finding]:
    """An FP8 KV cache breaks models with biases on key and value (TensorRT-LLM issue 4218)."""
    if subject.llm.kv_dtype == "fp8" and subject.architecture.qkv_bias:
        yield subject.finding(
            "kv.bias",
            "error" if subject.context.plan.target is Target.ENGINE else "warning",
            f"an FP8 KV cache with {subject.architecture.model_type}: its q, k and v have biases, which "
            "push keys "
            "past what one FP8 scale a layer can hold, and the answers break",
            "keep --quant fp8 for the weights and leave --kv-dtype at auto: "
            f"{subject.llm.kv_bytes_per_token} bytes a token instead of half of it",
        )


def check_reuse(subject: Subject) -> Iterator[Finding]:
    """In the compiled flow, KV reuse and chunked context need paged context FMHA; not every type has it."""
    llm = subject.llm
    wanted = " and ".join(
        name for name, on in (("KV reuse", llm.kv_reuse), ("chunked context", llm.chunked_context)) if on
    )
    if subject.context.plan.target is not Target.ENGINE or not wanted:
        return
    gpu = subject.context.gpu
    if gpu is not None and gpu.capability < FMHA_SM:
        why = f"TensorRT-LLM has no fused attention for SM {gpu.sm} (fmhaRunner.cpp), so it is turned off"
    elif llm.kv_dtype == "int8":
        why = (
            "trtllm-build turns paged context FMHA off for INT8 KV (builder.py), and the server then asserts"
        )
    elif llm.kv_dtype == "fp8" and not subject.format.fp8_fmha:
        why = f"FP8 KV needs FP8 context FMHA, which {llm.quant} weights do not allow, so it is turned off"
    else:
        return
    yield subject.finding(
        "kv.reuse",
        "error",
        f"{wanted} with a KV cache in {llm.kv_dtype}: {why}",
        "--kv-dtype auto keeps it",
        f"without it max_num_tokens must be at least {llm.max_input_tokens} tokens",
        *(["--quant fp8 with --kv-dtype fp8 keeps both"] if llm.kv_dtype == "fp8" else []),
    )


def check_pool(subject: Subject) -> Iterator[Finding]:
    """The pool holds at least one longest sequence, and should hold two."""
    llm = subject.llm
    blocks = llm.kv_tokens // llm.tokens_per_block
    needed = -(-llm.max_seq_len // llm.tokens_per_block)
    if blocks >= 2 * needed:
        return
    pool = (
        f"the KV pool holds {llm.kv_tokens} tokens ({blocks} blocks of {llm.tokens_per_block}, "
        f"{gib(llm.kv_bytes)}); one sequence of {llm.max_seq_len} tokens takes {needed} blocks"
    )
    fits = blocks * llm.tokens_per_block
    more = gib((2 * needed - blocks) * llm.tokens_per_block * llm.kv_bytes_per_token)
    if blocks < needed:
        yield subject.finding(
            "kv.pool",
            "error",
            f"{pool}, so not even one fits; the server would shrink the longest sequence without a word or "
            "refuse",
            f"lower input + output to {fits} tokens together",
            f"give the pool {more} more (narrower weights, a larger GPU, fewer models)",
        )
    else:
        yield subject.finding(
            "kv.pool",
            "warning",
            f"{pool}, so a second request of full length waits for the first",
            f"for two at once: {more} more, or at most {fits // 2} tokens a request",
        )
