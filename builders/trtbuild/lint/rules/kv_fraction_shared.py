"""Several engines take a share of what happens to be free.

`kv_cache_free_gpu_mem_fraction`, and `free_gpu_memory_fraction` of the LLM API, count free memory at load
time: of 80 GiB, two engines with 15 GiB of weights and 0.9 get 58 GiB and then nothing, whichever loads first
(TensorRT-LLM issue 486, llama_multi_instance.md). vLLM's `gpu_memory_utilization` counts the whole card
instead, so the shares of several must stay below 1 together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trtbuild.lint.findings import Found, Place
from trtbuild.lint.llmapi import read_settings
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_cpp_engine, is_llmapi, used_gpus
from trtbuild.lint.vllm import EngineArgs, gpus, read_engine_args

SEVERITY = "warning"


def check(repository: LintRepository) -> Iterator[Found]:
    """Engines and LLM API models, and vLLM models, that share a GPU."""
    by_gpu: dict[str, list[_Pool]] = {}
    for model in repository.readable:
        pool = (
            _engine_pool(model) if is_cpp_engine(model) else _llmapi_pool(model) if is_llmapi(model) else None
        )
        for gpu in used_gpus(model) if pool is not None else ():
            by_gpu.setdefault(gpu, []).extend([pool] if pool is not None else [])
    told = set()
    for gpu, pools in by_gpu.items():
        for pool in pools if len(pools) > 1 else ():
            name = pool.model.name
            if pool.is_capped or name in told:
                continue
            told.add(name)
            others = sorted({other.model.name for other in pools} - {name})
            yield Found(
                pool.place,
                f"the KV cache takes {pool.share} of what is free on GPU {gpu}, beside "
                f"{', '.join(others) or f'its own {pool.model.instances} instances'}",
                "what is free depends on which model loads first; the last one may find nothing",
                f"cap each with {pool.cap}; `trtbuild plan` computes the tokens",
            )
    yield from _vllm(repository)


@dataclass(frozen=True)
class _Pool:
    """A KV cache: what caps it, where its share stands."""

    model: ModelFolder
    place: Place
    share: str
    is_capped: bool
    cap: str


def _engine_pool(model: ModelFolder) -> _Pool:
    cap = model.parameters.get("max_tokens_in_paged_kv_cache")
    share = model.parameters.get("kv_cache_free_gpu_mem_fraction")
    return _Pool(
        model,
        model.at(share.place if share else None),
        share.value if share and share.is_set else "0.9",
        cap is not None and cap.is_set,
        "max_tokens_in_paged_kv_cache",
    )


def _llmapi_pool(model: ModelFolder) -> _Pool | None:
    settings = next(reversed(list(read_settings(model))), None)
    if settings is None or settings.values is None:
        return None
    cache = settings.section("kv_cache_config")
    return _Pool(
        model,
        settings.at("free_gpu_memory_fraction" if "free_gpu_memory_fraction" in cache else "kv_cache_config"),
        str(cache.get("free_gpu_memory_fraction", 0.9)),
        bool(cache.get("max_tokens") or cache.get("max_gpu_total_bytes")),
        "kv_cache_config max_tokens or max_gpu_total_bytes",
    )


def _vllm(repository: LintRepository) -> Iterator[Found]:
    """vLLM's shares of one card."""
    by_gpu: dict[str, list[tuple[str, float]]] = {}
    for model in repository.readable:
        for args in read_engine_args(model) if model.backend == "vllm" else ():
            for gpu in gpus(model, args):
                by_gpu.setdefault(gpu, []).append((args.file, _share(args)))
    for gpu, shares in sorted(by_gpu.items()):
        total = sum(share for _, share in shares)
        if len(shares) > 1 and total > 1:
            files = sorted({file for file, _ in shares})
            what = (
                f"{len(files)} vLLM models"
                if len(files) > 1
                else f"{len(shares)} instances of one vLLM model"
            )
            yield Found(
                Place(files[-1]),
                f"gpu_memory_utilization of {what} on GPU {gpu} adds up to {total:.2f}",
                "vLLM takes its share of the whole card, so the last one finds too little",
                "keep the sum below 1 on each GPU",
            )


def _share(args: EngineArgs) -> float:
    """gpu_memory_utilization; vLLM's default is 0.9. 0 where the file does not say it as a number."""
    share = (args.values or {"gpu_memory_utilization": 0}).get("gpu_memory_utilization", 0.9)
    return float(share) if isinstance(share, int | float) else 0.0
