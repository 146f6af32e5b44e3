"""What of an old repository has no place in the new one, or another value there, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from trtbuild.catalog.versions import containers, interface
from trtbuild.lint.files import read_text_files
from trtbuild.lint.findings import Place
from trtbuild.lint.llmapi import read_settings
from trtbuild.lint.model import ModelFolder, Parameter
from trtbuild.migrate.notes import Note
from trtbuild.migrate.old import OldLlm, OldRepository
from trtbuild.plan.model import LlmPlan
from trtbuild.repository.engine import engine_parameters
from trtbuild.repository.llm import own_tensors
from trtbuild.repository.names import LlmNames
from trtbuild.spec import Target

# Told elsewhere, or places and names that follow from the new repository's own.
_OWN = frozenset(
    {"gpt_model_path", "executor_worker_path", "worker_path", "FORCE_CPU_ONLY_INPUT_TENSORS", "tokenizer_dir",
     "max_tokens_in_paged_kv_cache", "kv_cache_free_gpu_mem_fraction", "tensorrt_llm_model_name",
     "multimodal_encoders_name", "enable_kv_cache_reuse", "enable_chunked_context",
     "cancellation_check_period_ms", "stats_check_period_ms", "iter_stats_max_iterations", "num_nodes"}
)  # fmt: skip
_WHY = {
    "gpt_model_type": "requests are always batched in flight",
    "gpu_device_ids": "the plan counts devices from 0: choose them with docker's --gpus",
    "batch_scheduler_policy": "no running sequence is paused for others, so that fewer may run at once",
    "max_beam_width": "requests are sampled; the plan has no memory for beams",
    "decoding_mode": "the plan has no draft model, heads or beams",
    "medusa_choices": "the plan has no draft model or heads",
    "eagle_choices": "the plan has no draft model or heads",
    "lookahead_window_size": "the plan has no lookahead decoding",
    "lookahead_ngram_size": "the plan has no lookahead decoding",
    "lookahead_verification_set_size": "the plan has no lookahead decoding",
    "speculative_decoding_fast_logits": "the plan has no draft model",
    "max_attention_window_size": "every layer keeps the whole sequence",
    "sink_token_length": "every layer keeps the whole sequence",
    "encoder_model_path": "only decoder-only language models are served",
    "cross_kv_cache_fraction": "only decoder-only language models are served",
    "kv_cache_host_memory_bytes": "the plan counts no host memory for KV blocks",
    "participant_ids": "ranks are started by the launch script",
    "gpu_weights_percent": "the plan keeps all weights on the GPU",
    "exclude_input_in_output": "answers never repeat the prompt; a request can ask for it",
    "xgrammar_tokenizer_info_path": "it is made anew where guided decoding is planned",
    "guided_decoding_backend": "write `guided: true` for the model into deployment.yaml (0.19 and later)",
    "accumulate_tokens": "the front decodes over chunk borders itself, and sends each piece of text once",
    "add_special_tokens": "the chat template decides it; text_input gets the tokenizer's own",
    "skip_special_tokens": "special tokens are never part of the text",
    "visual_model_path": "pictures are no part of a language model here",
    "multimodal_model_path": "pictures are no part of a language model here",
    "max_num_images": "pictures are no part of a language model here",
    "hf_model_path": "pictures are no part of a language model here",
    "num_draft_tokens": "the plan has no draft model",
    "use_draft_logits": "the plan has no draft model",
    "tensorrt_llm_draft_model_name": "the plan has no draft model",
}
# Clients or answers notice these: other words, prompts repeated or not, requests that wait longer.
_BEHAVIOUR = frozenset(
    {"add_special_tokens", "skip_special_tokens", "exclude_input_in_output", "batch_scheduler_policy",
     "max_beam_width", "decoding_mode", "max_attention_window_size", "sink_token_length"}
)  # fmt: skip
_LORA = "adapters are planned by name: `loras:` in deployment.yaml"
# Fields of NVIDIA's templates, which the new ones have with values of the plan.
_FIELDS = frozenset(
    {"name", "backend", "platform", "max_batch_size", "model_transaction_policy", "dynamic_batching", "input",
     "output", "instance_group", "parameters", "ensemble_scheduling"}
)  # fmt: skip
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def leftovers(old: OldLlm, plan: LlmPlan, target: Target, version: str, names: LlmNames) -> Iterator[Note]:
    """Of one language model. ``version`` is the new interface's."""
    new = engine_parameters(plan, version, "", "") | {
        "add_special_tokens": "true",
        "skip_special_tokens": "true",
    }
    new |= {"accumulate_tokens": "true"}
    if target is Target.LLMAPI:
        new["guided_decoding_backend"] = "xgrammar"
    for folder in old.folders:
        for key, parameter in folder.parameters.items():
            yield from _parameter(folder, key, parameter, new)
        yield from _fields(folder)
    yield from _streaming(old, names)
    yield from _tensors(old, version, names)


def _parameter(folder: ModelFolder, key: str, parameter: Parameter, new: Mapping[str, str]) -> Iterator[Note]:
    place = folder.at(parameter.place)
    if "${" in parameter.value:
        return  # one note a file is enough: lint tells all of them
    if not parameter.is_set or key in _OWN or _neutral(key, parameter.value):
        return
    if key in new and _plain(new[key]) == _plain(parameter.value):
        return
    why = _LORA if key.startswith("lora_") else _WHY.get(key, "no model that is written here reads it")
    now = new.get(key, "")
    item = f"{key} {parameter.value}"
    yield Note(place, "changed" if now else "left", item, now, why, behaviour=key in _BEHAVIOUR)


def _plain(value: str) -> str:
    """A value in one spelling, booleans as booleans."""
    text = value.strip().lower()
    try:
        return str(float(text)) if text not in ("0", "1") else str(_BOOLEANS[text])
    except ValueError:
        return str(_BOOLEANS.get(text, text))


def _neutral(key: str, value: str) -> bool:
    """A default that says nothing, such as a beam width of 1."""
    if key == "exclude_input_in_output":
        return False
    rows = (row for row in interface(containers()[0].interface, "tensorrt_llm").parameters if row.name == key)
    return any(row.default is not None and _plain(row.default) == _plain(value) for row in rows)


def _fields(folder: ModelFolder) -> Iterator[Note]:
    for item in folder.config.fields if folder.config is not None else ():
        if item.name not in _FIELDS:
            yield Note(
                folder.at(item), "left", f"{item.name} of {folder.name}", "", "the plan has no such setting"
            )
    for path, why in (
        ("dynamic_batching.max_queue_delay_microseconds", "in-flight batching needs no waiting"),
        ("dynamic_batching.priority_levels", "priorities do not reach the executor"),
        ("dynamic_batching.default_queue_policy.default_timeout_microseconds", "deadlines are the client's"),
        ("instance_group.rate_limiter", "it cannot restrain an engine, which takes requests at once"),
        ("instance_group.gpus", "the TensorRT-LLM backend ignores it"),
    ):
        found = folder.config.get(path) if folder.config is not None else None
        if found is not None and found.text != "0" and "${" not in found.text:
            yield Note(folder.at(found), "left", f"{path} {found.text}".rstrip(), "", why)


def _streaming(old: OldLlm, names: LlmNames) -> Iterator[Note]:
    found = _unary(old)
    if found is not None:
        yield Note(
            found, "changed", "decoupled false", "decoupled true",
            f"{names.front} and {names.ensemble} can stream: clients use ModelStreamInfer, /generate or "
            "/generate_stream; unary ModelInfer and /infer are refused",
            behaviour=True,
        )  # fmt: skip


def _unary(old: OldLlm) -> Place | None:
    """Where the old model says, or leaves it to the default, that each request has one answer."""
    settings = list(read_settings(old.engine)) if old.is_llmapi else []
    chosen = settings[-1].section("triton_config").get("decoupled") if settings else None
    if isinstance(chosen, bool):
        return None if chosen else settings[-1].at("decoupled")
    field = old.engine.config.get("model_transaction_policy.decoupled") if old.engine.config else None
    if old.engine.decoupled or (field is not None and "${" in field.text):
        return None
    return old.engine.at(field)


def _tensors(old: OldLlm, version: str, names: LlmNames) -> Iterator[Note]:
    """Inputs that clients may send and that the new models do not have."""
    outer = interface(version, "ensemble").generated()
    front = {tensor.name for tensor in own_tensors("llm_front")[0]}
    newest = containers()[0].trtllm  # whose names the front has in every version
    for folder, known, name, of in (
        (old.ensemble, {tensor.name for tensor in outer.inputs}, names.ensemble, version),
        (old.bls, front, names.front, newest),
    ):
        rows = (*interface(of, "ensemble").generated().inputs, *interface(of, "tensorrt_llm").inputs)
        renamed = {row.was: row.name for row in rows if row.was}
        if folder is None:
            continue
        lost = [tensor for tensor in folder.tensors("input") if tensor.name and tensor.name not in known]
        for tensor in lost:
            if (new := renamed.get(tensor.name)) in known:
                why = f"TensorRT-LLM {of} calls it so"
                yield Note(folder.at(tensor.place), "changed", f"input {tensor.name}", f"input {new}", why)
        gone = [tensor for tensor in lost if renamed.get(tensor.name) not in known]
        if gone:
            item = f"input{'s' if len(gone) > 1 else ''} {', '.join(tensor.name for tensor in gone)}"
            yield Note(folder.at(gone[0].place), "left", item, "", f"{name} has no such input")


def code(llms: Iterable[OldLlm]) -> Iterator[Note]:
    """Python code of all models, in one note: whether somebody changed NVIDIA's is not known here."""
    files = {
        Place(f"{folder.name}/{version}/model.py"): folder.name
        for llm in llms
        for folder in llm.folders
        for version in folder.numbered
        if (folder.path / version / "model.py").is_file()
    }
    if files:
        yield Note(
            min(files), "left", f"the code of {', '.join(sorted(set(files.values())))}", "",
            "the new models have code of their own: nothing is lost where it is NVIDIA's, and what somebody "
            "changed in it is",
        )  # fmt: skip


def unfilled(llms: Iterable[OldLlm]) -> Iterator[Note]:
    """Placeholders that were never filled, one note a file: what they stood for is planned."""
    for llm in llms:
        for folder in llm.folders:
            places = (
                [(item.line, item.text) for _, item in folder.config.walk() if "${" in item.text]
                if folder.config
                else []
            )
            if places:
                first = min(places)
                more = f" and {len(places) - 1} more" if len(places) > 1 else ""
                yield Note(
                    Place(folder.file, first[0]), "left", f"{first[1]}{more}", "",
                    "never filled: what they stood for comes from the plan",
                )  # fmt: skip


def beside(repository: OldRepository) -> Iterator[Note]:
    """Folders and files that belong to no language model."""
    for draft in repository.drafts:
        yield Note(
            Place(draft.file), "left", f"the draft model {draft.name}", "", "the plan has no draft model"
        )
    for model in repository.others:
        if model.problem is not None:
            found = model.problem.found
            yield Note(
                found.place, "left", f"the folder {model.name}", "", f"it cannot be read: {found.found}"
            )
        elif model.config is not None:
            what = f"the {model.backend} model {model.name}" if model.backend else f"the model {model.name}"
            why = "only language models are written anew; copy its folder, and keep its memory free"
            yield Note(Place(model.file), "left", what, "", why)
        else:
            yield Note(Place(model.name), "left", f"the folder {model.name}", "", "it is no model")
    for file in read_text_files(repository.lint.root):
        if "/" not in file.file:
            yield Note(Place(file.file), "left", file.file, "", "launch and build files are written anew")
