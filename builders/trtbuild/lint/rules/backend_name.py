"""A backend that does not exist under this name.

Triton looks for a folder of that name in its backend directory: the TensorRT-LLM backend is `tensorrtllm`,
ONNX models are `onnxruntime`, plans are `tensorrt`.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Edit, Found
from trtbuild.lint.repository import LintRepository

SEVERITY = "error"
_MEANT = {
    "tensorrt_llm": "tensorrtllm", "tensorrt-llm": "tensorrtllm", "trtllm": "tensorrtllm",
    "trt_llm": "tensorrtllm", "tensorrtllm_backend": "tensorrtllm", "TensorRT-LLM": "tensorrtllm",
    "onnx": "onnxruntime", "onnxruntime_onnx": "onnxruntime", "onnx_runtime": "onnxruntime",
    "tensorrt_plan": "tensorrt", "trt": "tensorrt", "TensorRT": "tensorrt",
    "pytorch_libtorch": "pytorch", "torch": "pytorch", "libtorch": "pytorch",
    "Python": "python", "python3": "python", "py": "python",
}  # fmt: skip


def check(repository: LintRepository) -> Iterator[Found]:
    """Well-known wrong names, unless the model brings a backend of that name."""
    for model in repository.readable:
        backend = model.field("backend")
        meant = _MEANT.get(backend.text) if backend is not None else None
        if backend is None or meant is None or any(model.path.glob("libtriton_*.so")):
            continue
        place = model.at(backend)
        yield Found(
            place,
            f"backend is {backend.text!r}",
            "Triton has no backend of this name, and the model does not load",
            f'write backend: "{meant}"',
            edit=Edit(place, backend.text, meant),
        )
