"""From a file or a mapping to a validated `DeploymentSpec`.

YAML is read by its 1.2 core rules, so that ``container: 25.10`` stays ``25.10``, ``name: no`` stays text
and a date is not a date. What a mapping cannot say twice or by a misspelt key is refused, by path.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from trtbuild.errors import SpecError
from trtbuild.spec import DeploymentSpec

MAX_SPEC_BYTES = 1 << 20
MAX_SPEC_NODES = 20_000  # bounds what aliases can expand to

# Words of other tools and of our own flags for keys that we call otherwise.
_SYNONYMS = {
    "tensor_parallel": "tp",
    "tensor_parallel_size": "tp",
    "tp_size": "tp",
    "quantization": "quant",
    "quantisation": "quant",
    "format": "quant",
    "kv_cache_dtype": "kv_dtype",
    "max_model_len": "max_input_tokens",
    "max_tokens": "max_output_tokens",
    "instance_count": "instances",
    "hf_id": "model",
    "path": "weights",
    "llms": "models",
    "with": "vision",
    "release": "container",
}


class _DuplicateKeyError(ValueError):
    pass


class _Loader(yaml.SafeLoader):
    """YAML's core schema without floats and dates (a spec has none), and no key twice."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - yaml's own name

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key in seen:
                line = key_node.start_mark.line + 1
                raise _DuplicateKeyError(f"line {line}: the key {key!r} is there twice in one mapping")
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789")
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"^<<$"), ["<"])


def load_spec(path: Path) -> DeploymentSpec:
    """Reads ``deployment.yaml`` (or the same as ``.json``). Paths in it are relative to the file's folder.

    Raises:
        SpecError: when the file cannot be read, parsed or validated; every fault found is named by path.
    """
    data = _parse(_read(path), where=str(path))
    spec = validate_spec(data, where=str(path))
    return _anchor_paths(spec, path.resolve().parent)


def validate_spec(data: object, *, where: str) -> DeploymentSpec:
    """Validates a mapping as a spec. ``where`` names its origin in messages.

    Raises:
        SpecError: names each wrong, missing or unknown key by its path.
    """
    if not isinstance(data, dict):
        raise SpecError(
            f"{where}: a deployment is a mapping with the key `models`, not {_describe(data)}",
            "write at least:\n    models:\n      - model: qwen-7b\n        quant: awq",
        )
    if (broken := _broken_text(data)) is not None:
        raise SpecError(f"{where}: {broken}", "write the characters themselves, in UTF-8")
    try:
        # The JSON mode takes text for paths and lists for tuples and is strict about the rest.
        return DeploymentSpec.model_validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        faults = [_explain(fault) for fault in error.errors(include_url=False)]
        listed = faults[0] if len(faults) == 1 else "".join(f"\n  - {fault}" for fault in faults)
        raise SpecError(f"{where}: {listed}") from error


def _broken_text(data: object, path: str = "") -> str | None:
    """What is wrong with the first text that no file or command line can hold; None: nothing is."""
    if isinstance(data, str):
        wrong = next((char for char in data if char == "\0" or "\ud800" <= char <= "\udfff"), None)
        return None if wrong is None else f"`{path}` holds U+{ord(wrong):04X}, which is no valid Unicode text"
    if isinstance(data, dict):
        keys = [(f"{path}.{key}".lstrip("."), key) for key in data]
        steps = [*keys, *((step, data[key]) for step, key in keys)]
    else:
        steps = [
            (f"{path}[{number}]", item) for number, item in enumerate(data if isinstance(data, list) else ())
        ]
    found = (_broken_text(value, step) for step, value in steps)
    return next((text for text in found if text is not None), None)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SPEC_BYTES + 1)  # a pipe or a device may have no end
        if len(data) > MAX_SPEC_BYTES:
            raise SpecError(f"{path}: too long for a spec (at most {MAX_SPEC_BYTES} bytes)")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: not UTF-8 text (byte {error.start})", "save it as UTF-8") from error
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from error


def _parse(text: str, *, where: str) -> object:
    try:
        if text.lstrip().startswith("{"):
            data = json.loads(text, parse_float=str, object_pairs_hook=_unique)
        else:
            data = yaml.load(text, Loader=_Loader)  # a SafeLoader
        for count, _ in enumerate(_nodes(data)):
            if count > MAX_SPEC_NODES:
                raise SpecError(f"{where}: more than {MAX_SPEC_NODES} values once its aliases are expanded")
    except json.JSONDecodeError as error:
        raise SpecError(f"{where}: line {error.lineno}, column {error.colno}: {error.msg}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise SpecError(f"{where}: {at}{error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise SpecError(f"{where}: {error}") from error
    except RecursionError as error:
        raise SpecError(f"{where}: nested too deeply") from error
    return data


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _DuplicateKeyError(f"the key {twice!r} is there twice in one mapping")
    return result


def _nodes(data: object) -> Iterator[object]:
    pending = [data]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, dict):
            for key in node:
                if not isinstance(key, str):
                    raise ValueError(f"{_describe(key)} cannot be a key; keys are words")  # noqa: TRY004 - of the file
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)


def _anchor_paths(spec: DeploymentSpec, base: Path) -> DeploymentSpec:
    def source(model: str) -> str:
        candidate = base / Path(model).expanduser()
        is_path = model.startswith((".", "~")) or ("/" in model and candidate.is_dir())
        return str(candidate) if is_path else model

    def anchored(path: Path | None) -> Path | None:
        return None if path is None else base / path.expanduser()

    return spec.model_copy(
        update={
            "models": tuple(
                llm.model_copy(
                    update={
                        "model": source(llm.model),
                        "weights": anchored(llm.weights),
                        "calibration": anchored(llm.calibration),
                        "loras": {name: base / path.expanduser() for name, path in llm.loras.items()},
                    }
                )
                for llm in spec.models
            ),
            "vision": tuple(
                entry.model_copy(
                    update={
                        key: anchored(getattr(entry, key))
                        for key in ("model", "labels", "weights", "calibration")
                    }
                )
                for entry in spec.vision
            ),
        }
    )


def _explain(fault: Any) -> str:
    loc: tuple[int | str, ...] = fault["loc"]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")
    kind, found = fault["type"], fault.get("input")
    if kind == "extra_forbidden":
        return f"unknown key `{path}`" + _nearest(loc)
    if kind == "missing":
        return f"`{path}` is missing"
    if kind == "value_error":
        return f"`{path}`: {fault['ctx']['error']}" if path else str(fault["ctx"]["error"])
    if kind == "enum":
        return f"`{path}`: {found!r} is not one of {fault['ctx']['expected']}"
    if kind == "string_too_short":
        return f"`{path}` is empty"
    expected = {"model_type": "a mapping", "model_attributes_type": "a mapping", "string_type": "text"}.get(
        kind
    )
    expected = expected or {"int_type": "a whole number", "tuple_type": "a list"}.get(kind)
    if expected is None:
        return f"`{path}`: {fault['msg'][0].lower()}{fault['msg'][1:]}, found {_describe(found)}"
    hint = ""
    if kind == "string_type" and isinstance(found, (int, bool)):
        hint = f' (quote it: "{str(found).lower() if isinstance(found, bool) else found}")'
    elif kind in ("model_type", "model_attributes_type") and isinstance(found, str):
        first = "model" if loc[0] == "models" else "pipeline"
        hint = f" (write `- {first}: {found}`)"
    return f"`{path}`: expected {expected}, found {_describe(found)}{hint}"


def _describe(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {value[:60]!r}"
    return "a list" if isinstance(value, list) else "a mapping"


def _nearest(loc: Sequence[int | str]) -> str:
    *parents, key = loc
    keys = _keys_at(parents)
    word = str(key).lower().replace("-", "_")
    if _SYNONYMS.get(word) in keys:
        return f"; here it is `{_SYNONYMS[word]}`"
    close = difflib.get_close_matches(word, keys, n=1, cutoff=0.5)
    prefixed = [candidate for candidate in keys if candidate.startswith(word)]
    if prefixed or close:
        return f"; did you mean `{(prefixed or close)[0]}`?"
    for parent in ("models", "vision"):
        if not parents and word in _keys_at([parent, 0]):
            return f"; it belongs to an entry of `{parent}`"
    return f"; the keys here are {', '.join(keys)}"


def _keys_at(parents: Sequence[int | str]) -> list[str]:
    model: type[BaseModel] = DeploymentSpec
    for part in parents:
        if isinstance(part, str):
            annotation = model.model_fields[part].annotation
            annotations = get_args(annotation) or (annotation,)
            model = next(a for a in annotations if isinstance(a, type) and issubclass(a, BaseModel))
    return list(model.model_fields)
