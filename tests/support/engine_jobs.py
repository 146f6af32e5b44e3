"""Jobs and limits for tests of the engine's parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from trtbuild.serve.local.tensorrtllm.jobs import Job, Sampling
from trtbuild.serve.local.tensorrtllm.limits import Limits


def limits(**changes: Any) -> Limits:
    values: dict[str, Any] = {
        "max_sequences": 8,
        "max_num_tokens": 512,
        "max_seq_len": 1024,
        "tokens_per_block": 32,
        "pool_blocks": 64,
        "max_beam_width": 4,
        "max_queue_size": 0,
        "chunked_context": True,
        "kv_reuse": True,
        "vocab_size": 259,
    }
    return Limits(**{**values, **changes})


def job(key: int, prompt_tokens: int = 10, new_tokens: int = 10, **changes: Any) -> Job:
    """``changes``: fields of the job, or of its sampling."""
    fields = {name: changes.pop(name) for name in tuple(changes) if name in Job.__dataclass_fields__}
    values: dict[str, Any] = {
        "streaming": True,
        "end_ids": (),
        "stop_words": (),
        "sampling": Sampling(**changes),
        "log_probs": False,
        "arrival_time_ns": 0,
    }
    prompt = np.arange(3, 3 + prompt_tokens, dtype=np.int32)
    return Job(key=key, prompt=prompt, max_new_tokens=new_tokens, **{**values, **fields})
