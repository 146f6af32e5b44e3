"""Several engines take a share of what happens to be free.

`kv_cache_free_gpu_mem_fraction` counts free memory at load time: of 80 GiB, two engines with 15 GiB of
weights and 0.9 get 58 GiB and then nothing, whichever loads first (TensorRT-LLM issue 486,
llama_multi_instance.md). vLLM's `gpu_memory_utilization` counts the whole card instead, so the shares of
several must stay below 1 together.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from trtbuild.lint.findings import Found, Place
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_cpp_engine, used_gpus

SEVERITY = "warning"


def check(repository: LintRepository) -> Iterator[Found]:
    """Engines, and vLLM models, that share a GPU."""
    by_gpu: dict[str, list[ModelFolder]] = {}
    for model in repository.readable:
        if is_cpp_engine(model):
            for gpu in used_gpus(model):
                by_gpu.setdefault(gpu, []).append(model)
    told = set()
    for gpu, models in by_gpu.items():
        for model in models if len(models) > 1 else ():
            cap = model.parameters.get("max_tokens_in_paged_kv_cache")
            if (cap is None or not cap.is_set) and model.name not in told:
                told.add(model.name)
                share = model.parameters.get("kv_cache_free_gpu_mem_fraction")
                others = sorted({other.name for other in models} - {model.name}) or [
                    f"its own {model.instances} instances"
                ]
                yield Found(
                    model.at(share.place if share else None),
                    f"the KV cache takes {share.value if share and share.is_set else '0.9'} of "
                    f"what is free on GPU {gpu}, "
                    f"beside {', '.join(others)}",
                    "what is free depends on which model loads first; the last one may find nothing",
                    "cap each with max_tokens_in_paged_kv_cache; `trtbuild plan` computes the tokens",
                )
    yield from _vllm(repository)


def _vllm(repository: LintRepository) -> Iterator[Found]:
    shares = {
        repository.relative(path): _share(path) * model.instances
        for model in repository.readable
        if model.backend == "vllm"
        for path in model.files("[1-9]*/model.json")
    }
    if len(shares) > 1 and sum(shares.values()) > 1:
        yield Found(
            Place(max(shares)),
            f"gpu_memory_utilization of {len(shares)} vLLM models adds up to {sum(shares.values()):.2f}",
            "vLLM takes its share of the whole card, so the last one finds too little",
            "keep the sum below 1 on each GPU",
        )


def _share(path: Path) -> float:
    """gpu_memory_utilization; vLLM's default is 0.9. 0 where the file cannot be read."""
    try:
        return float(json.loads(path.read_text(encoding="utf-8")).get("gpu_memory_utilization", 0.9))
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return 0.0
