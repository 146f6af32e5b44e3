"""What a model is for, as far as its config tells."""

from __future__ import annotations

from trtbuild.lint.model import ModelFolder


def is_engine(model: ModelFolder) -> bool:
    """NVIDIA's TensorRT-LLM model: the C++ backend, or its Python twin with the same parameters."""
    return is_cpp_engine(model) or (model.backend == "python" and model.parameters.keys() >= _ENGINE_KEYS)


def is_cpp_engine(model: ModelFolder) -> bool:
    """The C++ backend; also where the template's ``${triton_backend}`` is still to be filled."""
    return model.backend == "tensorrtllm" or (
        model.backend.startswith("${") and model.parameters.keys() >= _ENGINE_KEYS
    )


_ENGINE_KEYS = {"gpt_model_path", "gpt_model_type"}


def is_llmapi(model: ModelFolder) -> bool:
    """A Python model that runs TensorRT-LLM's LLM API."""
    return model.backend == "python" and any(
        (model.path / version / "model.yaml").is_file() for version in model.versions
    )


def is_bls(model: ModelFolder) -> bool:
    """NVIDIA's Python model that calls pre-processing, engine and post-processing itself."""
    return model.backend == "python" and (
        "tensorrt_llm_model_name" in model.parameters
        or (model.name == "tensorrt_llm_bls" and not model.parameters.keys() & {"engine_model"})
    )


def is_llm(model: ModelFolder) -> bool:
    """Whether tokens are made in it."""
    return is_engine(model) or is_llmapi(model) or model.backend == "vllm"


def is_preprocessing(model: ModelFolder) -> bool:
    """NVIDIA's tokenising step, not another generator's with the same tensors."""
    return _has(model, "input", "QUERY") and _has(model, "output", "INPUT_ID") and _nvidias(model)


def is_postprocessing(model: ModelFolder) -> bool:
    return _has(model, "input", "TOKENS_BATCH") and _has(model, "output", "OUTPUT") and _nvidias(model)


def _nvidias(model: ModelFolder) -> bool:
    return model.backend == "python" and "text_model" not in model.parameters


def _has(model: ModelFolder, side: str, name: str) -> bool:
    return any(tensor.name == name for tensor in model.tensors(side))


def used_gpus(model: ModelFolder) -> list[str]:
    """The GPUs of all its instances, each as often as it is used; the first one where nothing is said."""
    ids = model.parameters.get("gpu_device_ids")
    if ids is None or not ids.is_set:
        return ["0"] * model.instances
    groups = ids.value.split(";")
    return [gpu.strip() for index in range(model.instances) for gpu in groups[index % len(groups)].split(",")]


def is_as_written(model: ModelFolder) -> bool:
    """Whether nothing completes the config: ensembles, the C++ engine, Python models that do not do it."""
    if model.backend != "python":
        return model.is_ensemble or model.backend == "tensorrtllm"
    try:
        texts = [(model.path / version / "model.py").read_bytes() for version in model.loaded]
    except OSError:
        return False
    return bool(texts) and not any(b"auto_complete_config" in text or b"import *" in text for text in texts)
