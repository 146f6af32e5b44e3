"""An engine's number format does not run on the GPU.

FP8 needs Ada or newer, NVFP4 Blackwell; weight-only integers were taken out for data centre Blackwell. Such
an engine does not load, or was built in vain (TensorRT-LLM issues 1335, 2559, 9298). The GPU is the one of
--gpu; without it nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.catalog.formats import all_formats, all_kv_dtypes, format_support
from trtbuild.lint.findings import Found
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.roles import is_cpp_engine
from trtbuild.spec import Target

SEVERITY = "error"


def check(repository: LintRepository) -> Iterator[Found]:
    """Weights and KV cache of engines that are on this machine."""
    for model in repository.readable:
        files = repository.engine_files(model) if is_cpp_engine(model) else None
        if files is None or repository.gpu is None:
            continue
        algorithm, kv = (
            str(files.get(f"pretrained_config.quantization.{key}") or "").upper()
            for key in ("quant_algo", "kv_cache_quant_algo")
        )
        for key, what, row in (
            ("quant_algo", "weights", next((fmt for fmt in all_formats() if fmt.algo == algorithm), None)),
            (
                "kv_cache_quant_algo",
                "KV cache",
                next((d for d in all_kv_dtypes() if d.name.upper() == kv), None),
            ),
        ):
            supported, why = (
                format_support(row, repository.gpu, Target.ENGINE) if row is not None else (True, "")
            )
            if not supported:
                yield Found(
                    files.at(key),
                    f"the engine of {model.name} has its {what} in {algorithm if what == 'weights' else kv}",
                    why,
                    f"build it in another format: `trtbuild formats --gpu {repository.gpu.name}` lists them",
                )
