"""Which commands make one model's engine: plan → argument lists, the one description behind every place.

The steps that run here, the ones that run in a container (``places.py``) and the script for another machine
(``script.py``) are all written from the ``Command`` objects that ``llm_commands`` returns; nothing else knows
a flag. Each command

- runs with the model's work folder ``build/<model>/`` as its working directory, and names only paths
  inside it (``source``, ``calibration``, ``checkpoint``, ``engine``), so that it reads the same everywhere;
- writes to ``<product>.partial`` (``Command.partial``). Whoever runs it checks that every pattern in
  ``expects`` matches at least one file there that is not empty, and that ``facts`` hold, and only then
  renames it to ``<product>``: a folder with the final name is whole;
- gets secrets by the names in ``env`` from the environment, never in its arguments;
- starts with ``python3`` or a tool of TensorRT-LLM's. A place may replace ``python3`` by its interpreter.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from trtbuild.build.flags import (
    build_flags,
    converter_flags,
    converter_path,
    paged_context_fmha,
    quantiser_flags,
    require_int8_kv,
)
from trtbuild.catalog.formats import find_format
from trtbuild.catalog.versions import version_key
from trtbuild.defaults import CALIBRATION_TOKENS
from trtbuild.errors import BuildError
from trtbuild.plan.model import LlmPlan
from trtbuild.spec import Target

EXAMPLES = "/app/tensorrt_llm/examples"  # in every trtllm container; TLLM docs/source/getting_started

GUIDED_SINCE = "0.19.0"  # tensorrt_llm's parameter xgrammar_tokenizer_info_path
TOKENIZER_INFO = "xgrammar_tokenizer_info.json"

# A converted adapter: the rows that a request's lora_weights and lora_config take.
LORA_FILES = ("model.lora_weights.npy", "model.lora_config.npy")

# What a fetch takes beside the weights. Pickled weights are left out by not being named.
FETCHED_PATTERNS = ("*.json", "*.txt", "*.jinja", "*.model", "*.tiktoken")

# Then the weights: what the index names, else model*.safetensors, else what there is, as `weight_files` reads
# them. A second copy in the repository (Mistral's consolidated*.safetensors) is named and left there.
_FETCH = (
    "import json, os, sys; from huggingface_hub import list_repo_files, snapshot_download; "
    "repo, commit, folder, *names = sys.argv[1:]; "
    "get = lambda names: snapshot_download(repo, revision=commit, local_dir=folder, allow_patterns=names); "
    "there = {name for name in list_repo_files(repo, revision=commit) "
    "if name.endswith('.safetensors') and '/' not in name}; get(names); "
    "index = os.path.join(folder, 'model.safetensors.index.json'); "
    "wanted = set(json.load(open(index))['weight_map'].values()) if os.path.exists(index) "
    "else {name for name in there if name.startswith('model')} or there; "
    "get(sorted(wanted)); left = sorted(there - wanted); "
    "left and print('left in the repository, no part of the model:', *left)"
)

FETCH_SECRETS = ("HF_TOKEN", "HF_ENDPOINT")  # taken from the environment by these names

# Prints the commit that a revision of a repository names.
ASK_COMMIT = (
    "import sys; from huggingface_hub import model_info; "
    "print(model_info(sys.argv[1], revision=sys.argv[2]).sha)"
)


class Step(str, Enum):
    """One resumable unit of a build, in the order in which they run."""

    FETCH = "fetch"
    CONVERT = "convert"
    QUANTISE = "quantise"
    LORA = "lora"
    TOKENIZER_INFO = "tokenizer-info"
    COMPILE = "compile"


@dataclass(frozen=True)
class Recipe:
    """How the weights of a model become what the target loads; ``checkpoints.route`` decides it.

    Attributes:
        method: ``direct``: the target reads the Hugging Face folder itself; ``ready``: ``source`` is a
            TensorRT-LLM checkpoint; ``convert``: convert_checkpoint.py; ``quantise``: calibration and export.
        quant: weight format of the result, in the words of ``trtbuild formats``.
        group_size: weights a scale is shared by, for formats that group.
        source_quant: quant_algo that the converter gives a source that is quantised already; None for 16 bit.
        revision: commit of the model repository; None for a local folder.
        calibration_samples: texts that the quantiser reads; None where nothing is calibrated.
        calibration_tokens: longest part of a text that is used.
        loras: name and rank of each LoRA adapter; its folder is ``loras/<name>``. Compiled flow only.
        guided: write the tokenizer's description that guided decoding needs. Compiled flow only.
        quantiser: ``container``: TensorRT-LLM's quantize.py on a GPU; ``cpu``: ``trtbuild.build.quantise``.
    """

    method: Literal["direct", "ready", "convert", "quantise"]
    quant: str
    group_size: int | None = None
    source_quant: str | None = None
    revision: str | None = None
    calibration_samples: int | None = None
    calibration_tokens: int = CALIBRATION_TOKENS
    quantiser: Literal["container", "cpu"] = "container"
    loras: tuple[tuple[str, int], ...] = ()
    guided: bool = False


@dataclass(frozen=True)
class Fact:
    """A value that a JSON file of the product must hold; ``path`` is dotted, an absent key counts as None.

    Tools of TensorRT-LLM go on with a warning when they cannot read a quantisation config, so exit code 0
    does not say that the product is what was asked for.
    """

    file: str
    path: str
    value: str | int | bool | None


@dataclass(frozen=True)
class Command:
    """One child process of a build. See the module's docstring for the contract of its paths."""

    step: Step
    argv: tuple[str, ...]
    product: str
    expects: tuple[str, ...]
    facts: tuple[Fact, ...] = ()
    inputs: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    needs_gpu: bool = False
    least_bytes: int = 0  # of all files of the product together

    @property
    def partial(self) -> str:
        return f"{self.product}.partial"

    @property
    def label(self) -> str:
        """A name that is unique among a model's commands."""
        return self.product if self.step is Step.LORA else self.step.value


def llm_commands(
    llm: LlmPlan,
    *,
    target: Target,
    version: str,
    model_type: str,
    recipe: Recipe,
    layers: int = 0,
    examples: str = EXAMPLES,
) -> tuple[Command, ...]:
    """Returns the commands for one language model, in order; empty for a local folder that needs none.

    Args:
        version: TensorRT-LLM version, such as "1.2.1" or "0.17.0.post1".
        model_type: ``model_type`` of the model's config.json; chooses the converter.
        layers: of the model; only a converter asks for it.
        examples: folder of TensorRT-LLM's examples where the commands run.

    Raises:
        BuildError: no converter is known for ``model_type``, or ``version`` lacks what the recipe needs.
    """
    steps = []
    if recipe.revision is not None:
        steps.append(_fetch(llm.source, recipe.revision))
    hf_export = target is not Target.ENGINE
    if recipe.method == "convert":
        steps.append(_convert(llm, version, model_type, layers, recipe, examples))
    elif recipe.method == "quantise":
        steps.append(_quantise(llm, version, recipe, examples, hf_export))
    if target is Target.ENGINE:
        steps += [_lora(name, llm, examples) for name, _ in recipe.loras]
        if recipe.guided:
            steps.append(_tokenizer_info(version, examples))
        steps.append(_compile(llm, version, recipe))
    return tuple(steps)


def _fetch(repository: str, revision: str) -> Command:
    argv = ("python3", "-c", _FETCH, repository, revision, "source.partial", *FETCHED_PATTERNS)
    return Command(Step.FETCH, argv, "source", ("config.json", "*.safetensors"), env=FETCH_SECRETS)


def _rank_files(tp: int, suffix: str) -> tuple[str, ...]:
    return tuple(f"rank{rank}.{suffix}" for rank in range(tp))


def _least_bytes(llm: LlmPlan) -> int:
    """Half of the planned weights on all ranks: less means that layers are missing, whatever the estimate's
    error.
    """
    return llm.weights_bytes * llm.tp // 2


def _checkpoint_facts(llm: LlmPlan, quant_algo: str | None) -> tuple[Fact, ...]:
    kv_algo = {"int8": "INT8", "fp8": "FP8"}.get(llm.kv_dtype)
    return (
        Fact("config.json", "quantization.quant_algo", quant_algo),
        Fact("config.json", "quantization.kv_cache_quant_algo", kv_algo),
        Fact("config.json", "mapping.tp_size", llm.tp),
    )


def _convert(
    llm: LlmPlan, version: str, model_type: str, layers: int, recipe: Recipe, examples: str
) -> Command:
    weight_only = recipe.quant if recipe.source_quant is None and recipe.quant in ("int8", "int4") else None
    argv = [
        *("python3", converter_path(model_type, version, examples)),
        *converter_flags(llm, version, model_type=model_type, layers=layers, weight_only=weight_only),
    ]
    inputs = ["source"]
    if llm.kv_dtype == "int8":
        require_int8_kv(model_type)
        argv += ["--int8_kv_cache", "--calib_dataset", "calibration"]
        inputs.append("calibration")
    return Command(
        Step.CONVERT,
        tuple(argv),
        product="checkpoint",
        expects=("config.json", *_rank_files(llm.tp, "safetensors")),
        facts=_checkpoint_facts(llm, recipe.source_quant or find_format(recipe.quant).algo),
        least_bytes=_least_bytes(llm),
        inputs=tuple(inputs),
    )


def _quantise(llm: LlmPlan, version: str, recipe: Recipe, examples: str, hf_export: bool) -> Command:
    tool: tuple[str, ...] = ("python3", f"{examples}/quantization/quantize.py")
    if recipe.quantiser == "cpu":
        tool = ("python3", "-m", "trtbuild.build.quantise")
    argv = [
        *(*tool, "--model_dir", "source", "--output_dir", "checkpoint.partial"),
        *("--calib_dataset", "calibration", "--calib_size", str(recipe.calibration_samples)),
        *("--calib_max_seq_length", str(recipe.calibration_tokens)),
        *quantiser_flags(llm, version, recipe.quant, recipe.group_size),
    ]
    expects = ("config.json", *_rank_files(llm.tp, "safetensors"))
    facts = _checkpoint_facts(llm, find_format(recipe.quant).algo)
    if hf_export:
        argv += ["--export_format", "hf"]
        expects = ("config.json", "hf_quant_config.json", "*.safetensors")
        facts = (Fact("hf_quant_config.json", "quantization.quant_algo", find_format(recipe.quant).algo),)
    return Command(
        Step.QUANTISE,
        tuple(argv),
        product="checkpoint",
        expects=expects,
        facts=facts,
        inputs=("source", "calibration"),
        needs_gpu=recipe.quantiser == "container",
        least_bytes=_least_bytes(llm),
    )


def _lora(name: str, llm: LlmPlan, examples: str) -> Command:
    """TensorRT-LLM's numpy form of an adapter; its rows are what a request's lora_weights and lora_config
    take.
    """
    product = f"lora-{name}"
    return Command(
        Step.LORA,
        (
            *("python3", f"{examples}/hf_lora_convert.py"),
            *("--in-file", f"loras/{name}", "--out-dir", f"{product}.partial", "--storage-type", llm.dtype),
        ),
        product=product,
        expects=LORA_FILES,
        inputs=(f"loras/{name}",),
    )


def _tokenizer_info(version: str, examples: str) -> Command:
    if version_key(version) < version_key(GUIDED_SINCE):
        raise BuildError(
            f"guided decoding in the compiled flow came with TensorRT-LLM {GUIDED_SINCE}; the plan is for "
            f"{version}",
            "take a newer container",
        )
    return Command(
        Step.TOKENIZER_INFO,
        (
            *("python3", f"{examples}/generate_xgrammar_tokenizer_info.py"),
            *("--model_dir", "source", "--output_dir", "tokenizer_info.partial"),
        ),
        product="tokenizer_info",
        expects=(TOKENIZER_INFO,),
        inputs=("source",),
    )


def _compile(llm: LlmPlan, version: str, recipe: Recipe) -> Command:
    checkpoint = "source" if recipe.method == "ready" else "checkpoint"
    flags = build_flags(llm, version, recipe.quant)
    if recipe.loras:
        folders = [f"loras/{name}" for name, _ in recipe.loras]
        rank = max(rank for _, rank in recipe.loras)
        flags += ("--lora_plugin", llm.dtype, "--lora_dir", *folders, "--max_lora_rank", str(rank))
    config, plugins = "build_config", "build_config.plugin_config"
    return Command(
        Step.COMPILE,
        ("trtllm-build", "--checkpoint_dir", checkpoint, "--output_dir", "engine.partial", *flags),
        product="engine",
        expects=("config.json", *_rank_files(llm.tp, "engine")),
        facts=(
            Fact("config.json", "pretrained_config.mapping.tp_size", llm.tp),
            Fact("config.json", f"{config}.max_batch_size", llm.max_batch_size),
            Fact("config.json", f"{config}.max_num_tokens", llm.max_num_tokens),
            Fact("config.json", f"{config}.max_seq_len", llm.max_seq_len),
            Fact("config.json", f"{plugins}.tokens_per_block", llm.tokens_per_block),
            Fact("config.json", f"{plugins}.use_paged_context_fmha", paged_context_fmha(llm)),
        ),
        inputs=(checkpoint, *(f"loras/{name}" for name, _ in recipe.loras)),
        needs_gpu=True,
        least_bytes=_least_bytes(llm),
    )
