"""The numbers of one old model: from its engine's config.json, its config.pbtxt, or its model.yaml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trtbuild.lint.engines import EngineFiles
from trtbuild.lint.findings import Place
from trtbuild.lint.llmapi import read_settings
from trtbuild.lint.model import ModelFolder, Parameter
from trtbuild.migrate.old import OldLlm

_BUILDER_DEFAULT_INPUT = 1024  # --max_input_len of trtllm-build; does not bind packed prompts

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True)
class Number:
    """A value and where it stands."""

    value: int
    place: Place


@dataclass(frozen=True)
class Facts:
    """None is what nothing says. Lengths are tokens, ``kv_tokens`` of one instance's pool.

    Attributes:
        shape: sizes of the model in the words of a TensorRT-LLM checkpoint.
        switches: fields of `LlmSpec` that the old repository switches on or off itself.
        engine_batch: requests at once that the engine was built for; ``batch``: max_batch_size of the config.
        input_binds: whether ``max_input`` limits prompts; packed engines ignore the builder's default.
        model: a Hugging Face id or a folder that the old repository names itself.
    """

    ranks: Mapping[str, Number] = field(default_factory=dict)  # tp, pp, cp
    instances: int = 1
    batch: Number | None = None
    engine_batch: Number | None = None
    max_input: Number | None = None
    input_binds: bool = True
    max_seq_len: Number | None = None
    kv_tokens: Number | None = None
    kv_fraction: tuple[float, Place] | None = None
    quant_algo: tuple[str, Place] | None = None
    kv_algo: tuple[str, Place] | None = None
    dtype: str | None = None
    switches: Mapping[str, tuple[bool, Place]] = field(default_factory=dict)
    shape: Mapping[str, int] = field(default_factory=dict)
    model: tuple[str, Place] | None = None


def read_facts(llm: OldLlm) -> Facts:
    """Reads what can be read; what is no number is treated as the old backend did: as not given."""
    if llm.is_llmapi:
        return _llmapi_facts(llm.engine)
    return _engine_facts(llm.engine, llm.files)


def _engine_facts(model: ModelFolder, files: EngineFiles | None) -> Facts:
    max_input = _in_engine(files, "build_config", "max_input_len")
    plugins = files.get("build_config.plugin_config") if files else None
    packed = isinstance(plugins, dict) and plugins.get("remove_input_padding") is not False
    default = max_input is not None and max_input.value == _BUILDER_DEFAULT_INPUT
    return Facts(
        ranks={
            key: number
            for key in ("tp", "pp", "cp")
            if (number := _in_engine(files, "pretrained_config.mapping", f"{key}_size")) is not None
        },
        instances=model.instances,
        batch=_field(model, "max_batch_size"),
        engine_batch=_in_engine(files, "build_config", "max_batch_size"),
        max_input=max_input,
        input_binds=not (packed and default),
        max_seq_len=_in_engine(files, "build_config", "max_seq_len"),
        kv_tokens=_whole(model, "max_tokens_in_paged_kv_cache"),
        kv_fraction=_share(model, "kv_cache_free_gpu_mem_fraction"),
        quant_algo=_word(files, "pretrained_config.quantization", "quant_algo"),
        kv_algo=_word(files, "pretrained_config.quantization", "kv_cache_quant_algo"),
        switches=dict(_switches(model)),
        dtype=str(files.get("pretrained_config.dtype") or "") or None if files else None,
        shape=dict(_shape(files)) if files else {},
    )


def _switches(model: ModelFolder) -> Iterator[tuple[str, tuple[bool, Place]]]:
    for key, name in (("enable_kv_cache_reuse", "kv_reuse"), ("enable_chunked_context", "chunked_context")):
        parameter = _set(model, key)
        value = _BOOLEANS.get(parameter.value.strip().lower()) if parameter is not None else None
        if parameter is not None and value is not None:
            yield name, (value, model.at(parameter.place))


def _shape(files: EngineFiles) -> Iterator[tuple[str, int]]:
    for key in (
        "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
        "vocab_size", "max_position_embeddings",
    ):  # fmt: skip
        value = files.number(f"pretrained_config.{key}")
        if value is not None and value > 0:
            yield key, value


def _llmapi_facts(model: ModelFolder) -> Facts:
    """NVIDIA's own LLM API model: ``model.yaml`` in its newest version folder."""
    versions = list(read_settings(model))
    if not versions:
        return Facts(instances=model.instances)
    settings = versions[-1]
    values, cache, at = settings.values or {}, settings.section("kv_cache_config"), settings.at

    def number(section: dict[str, Any], key: str) -> Number | None:
        value = section.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            return None
        return Number(value, at(key))

    sizes = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "cp": "context_parallel_size"}
    fraction = cache.get("free_gpu_memory_fraction")
    name = values.get("model")
    kv = str(cache.get("dtype") or "auto").upper()
    return Facts(
        ranks={key: found for key, name_ in sizes.items() if (found := number(values, name_)) is not None},
        instances=model.instances,
        engine_batch=number(values, "max_batch_size"),
        max_input=number(values, "max_input_len"),
        max_seq_len=number(values, "max_seq_len"),
        kv_tokens=number(cache, "max_tokens"),
        kv_fraction=(float(fraction), at("free_gpu_memory_fraction"))
        if isinstance(fraction, float | int) and 0 < fraction < 1
        else None,
        kv_algo=None if kv == "AUTO" else (kv, at("dtype")),
        switches={
            field_: (value, at(key))
            for field_, value, key in (
                ("kv_reuse", cache.get("enable_block_reuse"), "enable_block_reuse"),
                ("chunked_context", values.get("enable_chunked_prefill"), "enable_chunked_prefill"),
            )
            if isinstance(value, bool)
        },
        model=(name, at("model")) if isinstance(name, str) and "${" not in name else None,
    )


def _in_engine(files: EngineFiles | None, section: str, key: str) -> Number | None:
    value = files.number(f"{section}.{key}") if files is not None else None
    return Number(value, files.at(key)) if files is not None and value is not None and value > 0 else None


def _word(files: EngineFiles | None, section: str, key: str) -> tuple[str, Place] | None:
    value = files.get(f"{section}.{key}") if files is not None else None
    return (value.upper(), files.at(key)) if files is not None and isinstance(value, str) and value else None


def _field(model: ModelFolder, path: str) -> Number | None:
    found = model.config.get(path) if model.config is not None else None
    value = found.number if found is not None else None
    return Number(value, model.at(found)) if value is not None and value > 0 else None


def _set(model: ModelFolder, key: str) -> Parameter | None:
    parameter = model.parameters.get(key)
    return parameter if parameter is not None and parameter.is_set else None


def _whole(model: ModelFolder, key: str) -> Number | None:
    parameter = _set(model, key)
    value = parameter.number if parameter is not None else None
    if parameter is None or value is None or value <= 0:
        return None
    return Number(value, model.at(parameter.place))


def _share(model: ModelFolder, key: str) -> tuple[float, Place] | None:
    parameter = _set(model, key)
    try:
        value = float(parameter.value) if parameter is not None else 0.0
    except ValueError:
        return None
    return (value, model.at(parameter.place)) if parameter is not None and 0 < value < 1 else None
