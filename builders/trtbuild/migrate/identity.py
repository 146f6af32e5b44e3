"""Which model an old engine is: as the user says, as paths name it, or by the sizes in its config."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trtbuild.catalog.models import ModelRecord, all_models, find_model, find_sibling
from trtbuild.errors import CatalogError, ModelSourceError
from trtbuild.migrate.facts import Facts
from trtbuild.migrate.old import OldLlm
from trtbuild.plan.architecture import Architecture, from_hf_config, from_record

_PADDING = 0.02  # of a vocabulary or MLP that was padded to whole groups or ranks


@dataclass(frozen=True)
class Identity:
    """``model`` for the spec (a Hugging Face id or a folder), and how it was found."""

    model: str
    how: str
    architecture: Architecture
    record: ModelRecord | None = None


def identify(llm: OldLlm, facts: Facts, *, asked: str | None, tokenizer: Path | None) -> Identity:
    """The model of one old engine.

    Args:
        asked: what the user calls it.
        tokenizer: the folder of its ``tokenizer_dir``, if it is here.

    Raises:
        CatalogError: it cannot be told, or ``asked`` is no model.
        ModelSourceError: ``asked`` is another model than the engine holds.
    """
    if asked is not None:
        return _checked(_named(asked, "you said so"), facts, llm.engine.name)
    if facts.model is not None:
        return _named(facts.model[0], f"{facts.model[1]} names it")
    if (
        tokenizer is not None
        and any(tokenizer.glob("*.safetensors"))
        and (tokenizer / "config.json").is_file()
    ):
        return _checked(
            _named(str(tokenizer), "tokenizer_dir holds its weights, too"), facts, llm.engine.name
        )
    hints = [hint for hint in _hints(llm) if hint]
    alike = (
        [record for record in all_models() if _fits(from_record(record), facts.shape)] if facts.shape else []
    )
    choices = alike if facts.shape else list(all_models())
    named = _by_hint(choices, hints)
    if named is not None:
        record, hint = named
        return Identity(record.id, f"its files are called {hint}", from_record(record), record)
    if len(alike) == 1:
        return Identity(alike[0].id, "the sizes in its engine's config.json", from_record(alike[0]), alike[0])
    if tokenizer is not None and (tokenizer / "config.json").is_file() and not alike:
        return _checked(_named(str(tokenizer), "tokenizer_dir describes it"), facts, llm.engine.name)
    raise _unknown(llm, facts, alike)


def _named(name: str, how: str) -> Identity:
    folder = Path(name).expanduser()
    if folder.is_dir():
        return Identity(str(folder.resolve()), how, from_hf_config(folder))
    listed = find_sibling(name)
    record = listed[0] if listed is not None else find_model(name)
    return Identity(name if listed is not None else record.id, how, from_record(record), record)


def _checked(found: Identity, facts: Facts, engine: str) -> Identity:
    if facts.shape and not _fits(found.architecture, facts.shape, context=False):
        sizes = _sizes(found.architecture)
        wrong = [f"{key} {value}, not {sizes[key]}" for key, value in facts.shape.items() if key in sizes
                 and not _same(key, value, sizes[key])]  # fmt: skip
        raise ModelSourceError(
            f"the engine of {engine} is not {found.model}: it has {', '.join(wrong)}",
            "give the model that it was built from: --model NAME_OR_FOLDER",
        )
    return found


def _sizes(architecture: Architecture) -> dict[str, int]:
    sizes = {
        "num_hidden_layers": architecture.layers,
        "hidden_size": architecture.hidden,
        "num_attention_heads": architecture.heads,
        "num_key_value_heads": architecture.kv_heads,
        "vocab_size": architecture.vocab,
    }
    return sizes if architecture.moe is not None else {**sizes, "intermediate_size": architecture.ffn}


def _fits(architecture: Architecture, shape: Mapping[str, int], *, context: bool = True) -> bool:
    sizes = _sizes(architecture) | ({"max_position_embeddings": architecture.context} if context else {})
    known = [key for key in shape if key in sizes]
    return len(known) >= 4 and all(_same(key, shape[key], sizes[key]) for key in known)


def _same(key: str, old: int, plain: int) -> bool:
    if old == plain:
        return True
    if key == "intermediate_size":  # Qwen's first config.json counts both halves of its gated MLP
        return old == 2 * plain or 0 <= old - plain <= _PADDING * plain
    return key == "vocab_size" and 0 <= old - plain <= _PADDING * plain


def _hints(llm: OldLlm) -> Iterator[str]:
    """Parts of paths that often hold a model's name, the tokenizer's first."""
    values = [llm.tokenizer.value if llm.tokenizer is not None else ""]
    path = llm.engine.parameters.get("gpt_model_path")
    values += [path.value if path is not None and path.is_set else "", llm.bls.name if llm.bls else ""]
    values += [llm.ensemble.name if llm.ensemble else "", llm.engine.name]
    for value in values:
        parts = [part for part in re.split(r"[/\\:]", value) if part not in ("", ".", "..")]
        yield from reversed(parts[-4:])


def _by_hint(records: list[ModelRecord], hints: list[str]) -> tuple[ModelRecord, str] | None:
    """The record whose longest name stands in the first hint that names any."""
    for hint in hints:
        plain = re.sub(r"[^a-z0-9.]+", "-", hint.lower())
        lengths = {record.id: _named_length(record, plain) for record in records}
        longest = max(lengths.values(), default=0)
        best = [record for record in records if lengths[record.id] == longest]
        if longest and len(best) == 1:
            return best[0], hint
    return None


def _named_length(record: ModelRecord, text: str) -> int:
    """Characters of the record's longest name that is a part of ``text``; 0: none is."""
    return max((len(name) for name in record.names if _is_part(name, text)), default=0)


def _is_part(name: str, text: str) -> bool:
    return re.search(rf"(?<![a-z0-9.]){re.escape(name)}(?![a-z0-9.])", text) is not None


def _unknown(llm: OldLlm, facts: Facts, alike: list[ModelRecord]) -> CatalogError:
    flag = f"--model {llm.engine.name}=NAME_OR_FOLDER"
    if alike:
        return CatalogError(
            f"the engine of {llm.engine.name} can be one of {len(alike)} models of these sizes: "
            + ", ".join(record.id for record in alike[:8]),
            f"say which: {flag}",
        )
    if facts.shape:
        shown = ", ".join(f"{key} {value}" for key, value in facts.shape.items())
        return CatalogError(
            f"no model of the catalogue has the sizes of {llm.engine.name}'s engine ({shown})",
            f"give the folder of the Hugging Face model that it was built from: {flag}",
        )
    return CatalogError(
        f"nothing tells which model {llm.engine.name} is: no config.json of its engine is here, and "
        "no name in its paths is one of the catalogue",
        f"say it: {flag}",
        f"or show its engine: --engine {llm.engine.name}=FOLDER",
    )
