"""The folders of one language model: text front, classic ensemble with its two Python steps, engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from trtbuild.catalog.versions import Container, Interface, Tensor, interface, wiring
from trtbuild.errors import RepositoryError
from trtbuild.plan.model import LlmPlan
from trtbuild.repository import engine, llmapi
from trtbuild.repository.contents import Content, Linked, ModelFolder, ModelUnit, Text
from trtbuild.repository.names import LlmNames, NameScheme, llm_names
from trtbuild.repository.render import TEMPLATES, model_code, render_config
from trtbuild.spec import Target

# The front reaches the server that runs it here unless TRTBUILD_GRPC_ADDRESS says otherwise.
ENGINE_ADDRESS = "127.0.0.1:8001"

# Hugging Face's own files, and nothing else of a model's folder: no weights, no code.
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "config.json",
)

# Triton wants a version folder also where it stays empty, and git keeps no empty folders.
_KEEP = {"1/.gitkeep": Text(b"")}


@dataclass(frozen=True)
class LlmSources:
    """Where the files of one language model come from.

    Attributes:
        tokenizer: folder with Hugging Face's tokenizer files; None: the build script brings them.
        weights: GGUF file or OpenVINO IR folder for the target ``local``; None for the others.
    """

    tokenizer: Path | None = None
    weights: Path | None = None


@dataclass(frozen=True)
class LlmContext:
    """What all folders of one language model are written from."""

    llm: LlmPlan
    names: LlmNames
    target: Target
    container: Container
    origin: str

    @property
    def version(self) -> str:
        return self.container.interface

    def interface(self, model: str) -> Interface:
        return interface(self.version, model).generated()


def llm_unit(
    llm: LlmPlan,
    *,
    target: Target,
    container: Container,
    sm: str | None,
    sources: LlmSources,
    scheme: NameScheme = "own",
) -> ModelUnit:
    """All folders of one language model.

    Args:
        container: decides names and parameters; for ``local`` the newest.
        sm: compute capability that engines are built for.

    Raises:
        RepositoryError: if a file that the target needs is missing, or the container lacks the target.
    """
    if target is not Target.LOCAL and target not in container.targets:
        raise RepositoryError(
            f"container {container.release} (TensorRT-LLM {container.trtllm}) has no target {target.value}",
            "choose a newer --container",
        )
    context = LlmContext(
        llm=llm,
        names=llm_names(llm.name, scheme),
        target=target,
        container=container,
        origin=f"the plan of {llm.name} ({target.value}, TensorRT-LLM {container.interface})",
    )
    names = context.names
    folders = [
        _front(context, names.front, sources),
        _step(context, names.preprocess, "preprocessing", "llm_preprocess"),
        _llmapi(context) if target is Target.LLMAPI else _engine(context, sources),
        _step(context, names.postprocess, "postprocessing", "llm_postprocess"),
        _ensemble(context),
        *(_front(context, alias, sources) for alias in names.aliases),
    ]
    key = None
    if target is Target.ENGINE:
        key = engine.engine_key(llm, container, sm)
    elif target is Target.LLMAPI:
        key = engine.checkpoint_key(llm)
    return ModelUnit(llm.name, "llm", tuple(folders), key)


def _folder(kind: str, files: Mapping[str, Content], **values: Any) -> ModelFolder:
    text, config = render_config(kind, **values)
    return ModelFolder(values["name"], config, {"config.pbtxt": Text(text.encode()), **files})


def _front(context: LlmContext, name: str, sources: LlmSources) -> ModelFolder:
    llm, rows = context.llm, context.interface("tensorrt_llm")
    parameters = {
        "engine_model": context.names.engine,
        "engine_address": ENGINE_ADDRESS,
        "interface": context.version,
        "min_tokens_input": engine.input_name(rows, "min_tokens", "min_length"),
        "seed_input": engine.input_name(rows, "seed", "random_seed"),
        "max_input_tokens": str(llm.max_input_tokens),
        "max_output_tokens": str(llm.max_output_tokens),
        "max_seq_len": str(llm.max_seq_len),
        "engine_vocab_size": str(llm.vocab_size),
        "tokens_per_block": str(llm.tokens_per_block if llm.kv_reuse else 0),
        "kv_tokens": str(llm.kv_tokens),
        "max_requests": str(llm.max_batch_size * llm.instances + llm.max_queue_size),
    }
    files: dict[str, Content] = {f"1/{file}": Text(data) for file, data in model_code("llm_front").items()}
    files |= {f"1/tritontext/{file}": Text(data) for file, data in text_package().items()}
    if name != context.names.front:
        parameters["tokenizer_dir"] = f"../../{context.names.front}/1/tokenizer"
    elif sources.tokenizer is not None:
        found = tokenizer_files(sources.tokenizer)
        files |= {f"1/tokenizer/{file}": Text(data) for file, data in found.items()}
    elif context.target is Target.LOCAL:
        raise RepositoryError(f"the tokenizer of {llm.name} is missing", "it comes with the model's weights")
    inputs, outputs = own_tensors("llm_front")
    return _folder(
        "llm_front",
        files,
        name=name,
        origin=context.origin,
        inputs=inputs,
        outputs=outputs,
        parameters=parameters,
    )


def _step(context: LlmContext, name: str, model: str, kind: str) -> ModelFolder:
    rows = context.interface(model)
    parameters = {
        "text_model": context.names.front,  # its folder holds the tokenizer and the text package
        "max_input_tokens": str(context.llm.max_input_tokens),
        "engine_vocab_size": str(context.llm.vocab_size),
    }
    parameters |= (
        {"add_special_tokens": "true"} if model == "preprocessing" else {"skip_special_tokens": "true"}
    )
    return _folder(
        kind,
        {f"1/{file}": Text(data) for file, data in model_code(kind).items()},
        name=name,
        origin=context.origin,
        max_batch_size=context.llm.max_batch_size,
        inputs=rows.inputs,
        outputs=rows.outputs,
        parameters=parameters,
    )


def _engine(context: LlmContext, sources: LlmSources) -> ModelFolder:
    llm, name, rows = context.llm, context.names.engine, context.interface("tensorrt_llm")
    files: dict[str, Content] = dict(_KEEP)
    told: dict[str, str] = {}
    if context.target is Target.LOCAL:
        told = {"unsupported_inputs": engine.refused_by_the_cpu_engine(row.name for row in rows.inputs)}
        config = json.dumps(engine.engine_config(llm, context.version), indent=2) + "\n"
        files = {"1/config.json": Text(config.encode()), **local_weights(llm.name, sources.weights)}
    worker = context.container.paths.executor_worker
    return _folder(
        "llm_engine",
        files,
        name=name,
        origin=context.origin,
        max_batch_size=llm.max_batch_size,
        instances=llm.instances,
        inputs=rows.inputs,
        outputs=rows.outputs,
        parameters=engine.engine_parameters(llm, context.version, f"{name}/1", worker) | told,
    )


def _llmapi(context: LlmContext) -> ModelFolder:
    llm, rows = context.llm, context.interface("tensorrt_llm")
    files: dict[str, Content] = {f"1/{file}": Text(data) for file, data in model_code("llm_llmapi").items()}
    return _folder(
        "llm_llmapi",
        files | {"1/model.yaml": Text(llmapi.model_yaml(llm, context.version))},
        name=context.names.engine,
        origin=context.origin,
        max_batch_size=llm.max_batch_size,
        instances=llm.instances,
        inputs=rows.inputs,
        outputs=rows.outputs,
        parameters=llmapi.llmapi_parameters(llm),
    )


def _ensemble(context: LlmContext) -> ModelFolder:
    rows = context.interface("ensemble")
    return _folder(
        "llm_ensemble",
        _KEEP,
        name=context.names.ensemble,
        origin=context.origin,
        max_batch_size=context.llm.max_batch_size,
        inputs=rows.inputs,
        outputs=rows.outputs,
        steps=ensemble_steps(context),
    )


def ensemble_steps(context: LlmContext) -> list[dict[str, Any]]:
    """The steps with their maps, wired as NVIDIA's ensemble of the same version is.

    A tensor is wired where the ensemble, or an earlier step, provides it; the engine's further inputs
    (drafts, retention, lookahead, ``stop``) are for callers of the engine itself.
    """
    outer = context.interface("ensemble")
    available = {tensor.name for tensor in outer.inputs}
    wanted = {tensor.name for tensor in outer.outputs}
    steps = []
    for model, name in (
        ("preprocessing", context.names.preprocess),
        ("tensorrt_llm", context.names.engine),
        ("postprocessing", context.names.postprocess),
    ):
        rows = context.interface(model)
        into = wiring(context.version, model, "inputs")
        out = wiring(context.version, model, "outputs")
        inputs = {row.name: into.get(row.name, row.name) for row in rows.inputs}
        outputs = {row.name: out.get(row.name, row.name) for row in rows.outputs}
        written = {key: value for key, value in outputs.items() if key in out or value in wanted}
        read = {key: value for key, value in inputs.items() if value in available}
        steps.append({"model": name, "inputs": read, "outputs": written})
        available |= set(written.values())
    return steps


@lru_cache(maxsize=8)
def own_tensors(kind: str) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Inputs and outputs of a front: ``tensors.yaml`` beside its code."""
    text = resources.files(TEMPLATES).joinpath(kind, "tensors.yaml").read_text(encoding="utf-8")
    table = yaml.safe_load(text)
    inputs, outputs = (
        tuple(Tensor.model_validate(row) for row in table[side]) for side in ("inputs", "outputs")
    )
    return inputs, outputs


def text_package() -> dict[str, bytes]:
    """The files of ``tritonstream.text``, which runs inside the server, too; the client is not imported."""
    spec = find_spec("tritonstream")
    locations = spec.submodule_search_locations if spec is not None else None
    for location in locations or ():
        folder = Path(location, "text")
        if folder.is_dir():
            return {
                path.relative_to(folder).as_posix(): path.read_bytes()
                for path in sorted(folder.rglob("*.py"))
            }
    raise RepositoryError("the installed package lacks tritonstream.text", "install trtbuild again")


def tokenizer_files(folder: Path) -> dict[str, bytes]:
    """The tokenizer's files of a Hugging Face folder.

    Raises:
        RepositoryError: if there is no tokenizer.json.
    """
    if not (folder / "tokenizer.json").is_file():
        raise RepositoryError(
            f"{folder} has no tokenizer.json",
            "save a fast tokenizer there: AutoTokenizer.from_pretrained(…).save_pretrained(…)",
        )
    return {name: (folder / name).read_bytes() for name in TOKENIZER_FILES if (folder / name).is_file()}


def local_weights(model: str, weights: Path | None) -> dict[str, Content]:
    """``N_engine/1`` files of the local target: model.gguf, or the files of an OpenVINO IR folder.

    Raises:
        RepositoryError: if the weights are missing or of neither kind.
    """
    if weights is None:
        raise RepositoryError(f"the local target needs weights for {model}", "give --weights a GGUF file")
    if weights.is_file() and weights.suffix == ".gguf":
        return {"1/model.gguf": Linked(weights)}
    if (weights / "openvino_model.xml").is_file():
        files = sorted(path for path in weights.iterdir() if path.is_file() and path.name != "config.json")
        return {f"1/{path.name}": Linked(path) for path in files}
    raise RepositoryError(
        f"{weights} is neither a GGUF file nor an OpenVINO IR folder",
        "convert it: optimum-cli export openvino --model FOLDER OUT",
    )
