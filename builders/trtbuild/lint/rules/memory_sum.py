"""The engines of a repository do not fit on the GPU together.

Weights (the sizes of the engine files) and capped KV caches, added up over all models and instances of one
GPU; activations come on top. The GPU is the one of --gpu; without it nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.engines import EngineFiles
from trtbuild.lint.findings import Found
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_cpp_engine, used_gpus

SEVERITY = "error"
_KV_BYTES = {"FP8": 1, "INT8": 1}


def check(repository: LintRepository) -> Iterator[Found]:
    """Engines whose files are on this machine."""
    if repository.gpu is None:
        return
    gpu_bytes = repository.gpu.memory_bytes
    loads: dict[str, list[tuple[int, ModelFolder]]] = {}
    for model in repository.readable:
        files = repository.engine_files(model) if is_cpp_engine(model) else None
        if files is not None and files.config is not None:
            size = _weights_bytes(files) + _kv_bytes(model, files)
            for gpu in used_gpus(model):
                loads.setdefault(gpu, []).append((size, model))
    for gpu, entries in sorted(loads.items()):
        total = sum(size for size, _ in entries)
        if total > gpu_bytes:
            shown = " + ".join(f"{model.name} {size / (1 << 30):.1f}" for size, model in entries)
            largest = max(entries, key=lambda entry: entry[0])[1]
            cap = largest.parameters.get("max_tokens_in_paged_kv_cache")
            yield Found(
                largest.at(cap.place if cap else None),
                f"GPU {gpu} would hold {shown} = {total / (1 << 30):.1f} GiB of "
                f"{gpu_bytes / (1 << 30):.1f} GiB",
                "the model that loads last runs out of memory",
                "lower max_tokens_in_paged_kv_cache, use fewer instances, or place a model on another GPU",
            )


def _weights_bytes(files: EngineFiles) -> int:
    """Of one rank: ranks are of about the same size, and each GPU holds one."""
    return max((path.stat().st_size for path in files.folder.glob("rank*.engine")), default=0)


def _kv_bytes(model: ModelFolder, files: EngineFiles) -> int:
    """Capped tokens times bytes a token of one rank; 0 where one of them is unknown."""
    cap = model.parameters.get("max_tokens_in_paged_kv_cache")
    layers, heads = (
        files.number(f"pretrained_config.{key}") for key in ("num_hidden_layers", "num_key_value_heads")
    )
    width = files.number("pretrained_config.head_size")
    tokens = cap.number if cap is not None else None
    if not tokens or tokens < 0 or not layers or not heads or not width:
        return 0
    algorithm = str(files.get("pretrained_config.quantization.kv_cache_quant_algo") or "").upper()
    local_heads = -(-heads // files.world_size)
    return 2 * layers * local_heads * width * _KV_BYTES.get(algorithm, 2) * tokens  # 2: key and value
