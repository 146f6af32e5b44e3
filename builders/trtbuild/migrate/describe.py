"""From the facts of an old model to its entry in the spec, with a note on each number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trtbuild.catalog.formats import Format, all_formats, find_format, find_kv_dtype, format_support
from trtbuild.catalog.gpus import Gpu
from trtbuild.catalog.models import ModelRecord
from trtbuild.defaults import MAX_OUTPUT_TOKENS
from trtbuild.errors import CatalogError
from trtbuild.lint.findings import Place
from trtbuild.migrate.facts import Facts, Number
from trtbuild.migrate.identity import Identity
from trtbuild.migrate.notes import Note
from trtbuild.migrate.old import OldLlm
from trtbuild.spec import LlmSpec, Target

_MOST_AT_ONCE = 4096
_MOST_GPUS = _MOST_INSTANCES = 64
_KV = {"FP8": "fp8", "INT8": "int8"}
# What trtllm-build takes where nobody said anything; a number of requests that nobody chose.
_BUILDER_DEFAULT_BATCHES = (256, 2048)


@dataclass(frozen=True)
class Described:
    """A model's entry; ``batch`` is its place in the old repository, for a note if it does not fit."""

    llm: LlmSpec
    notes: tuple[Note, ...]
    batch: Number | None


def describe(
    old: OldLlm,
    facts: Facts,
    identity: Identity,
    *,
    name: str,
    target: Target,
    gpu: Gpu,
    said: dict[str, Any],
) -> Described:
    """The entry of one model. ``said`` are values of the command line, which count before the old ones."""
    notes: list[Note] = [_identity_note(old, identity)]
    batch = _batch(facts)
    values: dict[str, Any] = {
        "model": identity.model,
        "name": name,
        **_kept(notes, "quant", _quant(facts, identity, target, gpu)),
        **_kept(notes, "kv_dtype", _kv_dtype(facts, target, gpu)),
        **_kept(notes, "tp", _tp(facts)),
        **_lengths(facts, identity.architecture.context, notes),
        **{switch: False for switch, (on, _) in facts.switches.items() if not on},
        "instances": min(facts.instances, _MOST_INSTANCES),
        "concurrency": min(batch.value, _MOST_AT_ONCE) if batch is not None else None,
    }
    if facts.instances > 1:
        notes.append(
            Note(
                Place(old.engine.file),
                "carried",
                f"{facts.instances} instances",
                f"instances {values['instances']}",
            )
        )
    if "max_input_tokens" not in values and not ({"max_input_tokens", "max_output_tokens"} & said.keys()):
        default = LlmSpec(model="x")
        notes.append(
            Note(
                Place(old.engine.file), "left", "the longest sequence",
                f"{default.max_input_tokens} tokens in, {default.max_output_tokens} out",
                "no engine's config.json is here: --engine FOLDER, or --max-input and --max-output",
            )
        )  # fmt: skip
    return Described(
        LlmSpec(**{**values, **said}), tuple(notes), batch if "concurrency" not in said else None
    )


def _identity_note(old: OldLlm, identity: Identity) -> Note:
    place = (
        old.files.at("architecture") if old.files is not None and old.files.raw else Place(old.engine.file)
    )
    return Note(place, "carried", f"the model of {old.engine.name}", identity.model, identity.how)


def _kept(notes: list[Note], key: str, found: tuple[Any, Note | None]) -> dict[str, Any]:
    value, note = found
    if note is not None:
        notes.append(note)
    return {} if value is None else {key: value}


def _batch(facts: Facts) -> Number | None:
    """What the engine runs at once: its own limit, unless that is a default that nobody chose."""
    engine, config = facts.engine_batch, facts.batch
    if engine is None or (
        engine.value in _BUILDER_DEFAULT_BATCHES and config is not None and config.value > 1
    ):
        return config if config is not None and config.value > 1 else None
    return None if engine.value in _BUILDER_DEFAULT_BATCHES else engine


def _quant(facts: Facts, identity: Identity, target: Target, gpu: Gpu) -> tuple[str | None, Note | None]:
    if identity.record is None and identity.architecture.native_quant is not None:
        return None, None  # the folder's own format
    if facts.quant_algo is None:
        return _sixteen_bit(facts), None
    algo, place = facts.quant_algo
    found = _format_of(algo, identity.record)
    if found is None:
        return None, Note(
            place,
            "left",
            f"weights in {algo}",
            "the model's own format",
            "there is no such format here: --quant FORMAT",
        )
    supported, why = format_support(found, gpu, target)
    if supported:
        return found.name, Note(place, "carried", f"weights in {algo}", f"quant {found.name}")
    other = _instead(found, gpu, target)
    if other is None:
        return None, Note(place, "left", f"weights in {algo}", "16 bit", why)
    return other.name, Note(place, "changed", f"weights in {algo}", f"quant {other.name}", why)


def _sixteen_bit(facts: Facts) -> str | None:
    return {"float16": "fp16", "bfloat16": "bf16"}.get(facts.dtype or "")


def _format_of(algo: str, record: ModelRecord | None) -> Format | None:
    if algo == "W4A16_GPTQ" and record is not None:  # what imported AutoAWQ checkpoints are called, too
        methods = {sibling.method for sibling in record.siblings}
        if "gptq" not in methods:
            return find_format("awq")
    if algo.startswith("W8A8_SQ"):
        return find_format("int8-sq")
    return next((fmt for fmt in all_formats() if fmt.algo == algo), None)


def _instead(old: Format, gpu: Gpu, target: Target) -> Format | None:
    """The narrowest format that runs there, is made from 16-bit weights, and is not narrower than the old."""
    runs = [
        fmt
        for fmt in all_formats()
        if fmt.bits >= old.bits
        and not fmt.needs_checkpoint
        and format_support(fmt, gpu, target) == (True, "")
    ]
    return min(runs, key=lambda fmt: fmt.bits, default=None)


def _kv_dtype(facts: Facts, target: Target, gpu: Gpu) -> tuple[str | None, Note | None]:
    if facts.kv_algo is None:
        return None, None
    algo, place = facts.kv_algo
    try:
        dtype = find_kv_dtype(_KV.get(algo, algo.lower()))
    except CatalogError:
        return None, Note(place, "left", f"a KV cache in {algo}", "16 bit", "there is no such KV type here")
    supported, why = format_support(dtype, gpu, target)
    if not supported:
        return None, Note(place, "changed", f"a KV cache in {algo}", "kv_dtype auto", why)
    return dtype.name, Note(place, "carried", f"a KV cache in {algo}", f"kv_dtype {dtype.name}")


def _tp(facts: Facts) -> tuple[int | None, Note | None]:
    tp, pp, cp = (facts.ranks.get(key) for key in ("tp", "pp", "cp"))
    total = 1
    for number in (tp, pp, cp):
        total *= number.value if number is not None else 1
    odd = next((number for number in (pp, cp) if number is not None and number.value > 1), None)
    if total > _MOST_GPUS:
        place = next(number.place for number in (tp, pp, cp) if number is not None and number.value > 1)
        return None, Note(
            place, "left", f"{total} ranks", "tp 1", f"at most {_MOST_GPUS} are planned: --tp N"
        )
    if odd is not None:
        old = ", ".join(f"{key} {number.value}" for key, number in facts.ranks.items())
        why = "there are no pipeline or context ranks here; all GPUs share every layer"
        return total, Note(odd.place, "changed", old, f"tp {total}", why)
    if tp is None:
        return None, None
    return tp.value, Note(tp.place, "carried", f"tp {tp.value}", f"tp {tp.value}") if tp.value > 1 else None


def _lengths(facts: Facts, context: int, notes: list[Note]) -> dict[str, int]:
    longest, max_input = facts.max_seq_len, facts.max_input
    if longest is None:
        return {}
    total = min(longest.value, context)
    if total < longest.value:
        notes.append(
            Note(
                longest.place,
                "changed",
                f"max_seq_len {longest.value}",
                f"{total} tokens",
                "the model's context ends there",
            )
        )
    if max_input is not None and facts.input_binds and max_input.value < total:
        into = max_input.value
    else:
        into = max(1, total - min(MAX_OUTPUT_TOKENS, max(1, total // 4)))
    out = max(1, total - into)
    note = Note(longest.place, "carried", f"max_seq_len {longest.value}", f"{into} tokens in, {out} out")
    if max_input is None or not facts.input_binds or max_input.value >= total:
        note = Note(
            longest.place, "changed", f"max_seq_len {longest.value}", f"{into} tokens in, {out} out",
            "the old engine divides it freely between prompt and answer: --max-input, --max-output",
        )  # fmt: skip
    notes.append(note)
    return {"max_input_tokens": into, "max_output_tokens": out}
