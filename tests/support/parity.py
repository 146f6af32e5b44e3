"""Generated configurations beside NVIDIA's template of the same version, key by key.

python -m tests.support.parity [--all]   prints the table; --all with every deliberate difference; exits 1 for
                                         a difference without a reason

A key is one field of one tensor (dtype, dims, reshape, optional, ragged), one setting of a model, one
parameter or one wire of the ensemble. NVIDIA's side are the facts in tests/golden/nvidia: what its public
repository has at the commit that each of them names. A placeholder stands for what a deployment fills in.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tests.support.plans import llm_plan
from tritonclient.grpc.model_config_pb2 import DataType, ModelInstanceGroup

from trtbuild.catalog.versions import Container, containers, interface, version_key
from trtbuild.repository.llm import LlmSources, llm_unit
from trtbuild.spec import Target

FACTS = Path(__file__).parents[1] / "golden" / "nvidia"
MODELS = ("tensorrt_llm", "preprocessing", "postprocessing", "ensemble")
# Version whose configurations are compared → facts. 0.20 has those of 25.05: NVIDIA moved the templates to
# another repository then, and their first commit there is not among those that could be read.
VERSIONS = {path.stem: path.stem for path in sorted(FACTS.glob("*.json"))}
VERSIONS |= {"0.20.0": "0.19.0+25.05", "1.2.1": "1.2.0"}
# What a placeholder for a type is filled with; each must be the type that arrives at run time.
TYPES = {
    "logits_datatype": "FP32",
    "encoder_input_features_data_type": "FP16",
    "prompt_embedding_table_data_type": "FP16",
}
_QUEUE = "a queue policy makes Triton's batcher look for new requests only every half second"
_PYTHON = "our own Python step: its tokenizer and text package lie with the text front"
_TWO = "batched as they come: fill_template.py's own default is a delay of 0, too"
_DETOUR = "straight from the engine: up to 0.13 NVIDIA's ensemble makes a detour through a Python step"
_ONCE = "NVIDIA lists it twice"


@dataclass(frozen=True)
class Key:
    """One compared key; ``reason``: why a difference is meant, empty for equal keys and for faults."""

    version: str
    model: str
    path: str
    ours: str
    theirs: str
    reason: str = ""

    @property
    def equal(self) -> bool:
        return self.ours == self.theirs or (self.theirs.startswith("${") and self.ours != "-")

    @property
    def fault(self) -> bool:
        return not self.equal and not self.reason


@lru_cache(maxsize=64)
def generated(version: str) -> dict[str, Any]:
    """The configurations that are written for a version, under NVIDIA's names."""
    newest_before = next(
        container for container in containers() if version_key(container.interface) <= version_key(version)
    )
    container: Container = newest_before.model_copy(update={"interface": version})
    unit = llm_unit(
        llm_plan(quant="fp16"),
        target=Target.ENGINE,
        container=container,
        sm="8.9",
        sources=LlmSources(),
        scheme="classic",
    )
    return {folder.name: folder.config for folder in unit.folders}


def keys(version: str) -> Iterator[Key]:
    """Every key of the four models of a version."""
    facts = json.loads((FACTS / f"{VERSIONS[version]}.json").read_text())["models"]
    for model in MODELS:
        config = generated(version)[model]
        rows = interface(version, model)
        left_out = {row.name: row.left_out for row in (*rows.inputs, *rows.outputs) if row.left_out}
        for side, tensors in (("inputs", config.input), ("outputs", config.output)):
            yield from _tensors(version, model, side, tensors, facts[model][side], left_out)
        yield from _settings(version, model, config, facts[model]["settings"])
        yield from _parameters(version, model, config, facts[model])
    yield from _wires(version, facts)


def _tensors(
    version: str, model: str, side: str, tensors: Any, template: list[str], left_out: dict[str, str]
) -> Iterator[Key]:
    ours = {tensor.name: _fields(tensor) for tensor in tensors}
    theirs = dict(_read(row) for row in template)
    for name in sorted(theirs.keys() | ours.keys()):
        mine, other = ours.get(name, {}), theirs.get(name, {})
        for field in ("dtype", "dims", "reshape", "optional", "ragged"):
            yield Key(
                version, model, f"{side}.{name}.{field}", mine.get(field, "-"), other.get(field, "-"),
                left_out.get(name, ""),
            )  # fmt: skip
    for name, count in Counter(row.split(" ", 1)[0] for row in template).items():
        yield Key(version, model, f"{side}.{name}", "1" if name in ours else "0", str(count),
                  left_out.get(name) or (_ONCE if count > 1 else ""))  # fmt: skip


def _fields(tensor: Any) -> dict[str, str]:
    """One tensor of a configuration; what NVIDIA's templates never set must not be set here."""
    assert not tensor.is_shape_tensor
    assert not tensor.is_non_linear_format_io
    assert not getattr(tensor, "format", 0)
    return {
        "dtype": DataType.Name(tensor.data_type).removeprefix("TYPE_"),
        "dims": str(list(tensor.dims)),
        "reshape": str(list(tensor.reshape.shape)) if tensor.HasField("reshape") else "no",
        "optional": str(getattr(tensor, "optional", False)),
        "ragged": str(getattr(tensor, "allow_ragged_batch", False)),
    }


def _read(row: str) -> tuple[str, dict[str, str]]:
    """A row of the facts: ``name dtype [dims] [reshape [dims]] [optional] [ragged]``."""
    name, dtype, rest = row.split(" ", 2)
    dims, _, flags = rest.partition("]")
    reshape = flags.split("[", 1)[1].split("]")[0] if "reshape" in flags else None
    return name, {
        "dtype": TYPES.get(dtype, dtype),
        "dims": f"{dims}]",
        "reshape": "no" if reshape is None else f"[{reshape}]",
        "optional": str("optional" in flags.split()),
        "ragged": str("ragged" in flags.split()),
    }


def _settings(version: str, model: str, config: Any, template: dict[str, str]) -> Iterator[Key]:
    (group,) = config.instance_group or (None,)
    batching = config.dynamic_batching
    ours = {
        "backend": config.backend,
        "platform": config.platform,
        "max_batch_size": str(config.max_batch_size),
        "instance_group.count": str(group.count) if group else "",
        "instance_group.kind": ModelInstanceGroup.Kind.Name(group.kind) if group else "",
        "dynamic_batching": "yes" if config.HasField("dynamic_batching") else "",
        "dynamic_batching.preferred_batch_size": " ".join(map(str, batching.preferred_batch_size)),
        "dynamic_batching.max_queue_delay_microseconds": str(batching.max_queue_delay_microseconds),
        "model_transaction_policy.decoupled": str(config.model_transaction_policy.decoupled),
    }
    assert not batching.HasField("default_queue_policy")
    assert not config.HasField("sequence_batching")
    theirs = (
        {"dynamic_batching": "yes"} if any(key.startswith("dynamic_batching") for key in template) else {}
    )
    theirs |= {key: value for key, value in template.items() if key != "dynamic_batching"}
    absent = {
        "dynamic_batching.max_queue_delay_microseconds": "0",
        "model_transaction_policy.decoupled": "False",
    }
    for path in sorted(ours.keys() | theirs.keys()):
        mine, other = ours.get(path) or "-", theirs.get(path, absent.get(path, "-"))
        reason = _QUEUE if "queue_policy" in path else ""
        if path.startswith("dynamic_batching") and model in ("preprocessing", "postprocessing"):
            reason = _TWO
        if reason and other.startswith("${"):  # left out on purpose, not filled in
            other = f"filled {other}"
        yield Key(version, model, path, mine, other, reason)


def _parameters(version: str, model: str, config: Any, template: dict[str, Any]) -> Iterator[Key]:
    ours = {key: value.string_value for key, value in config.parameters.items()}
    own_step = _PYTHON if model in ("preprocessing", "postprocessing") else ""
    for name in sorted({*ours, *template["parameters"]}):
        fixed = template["fixed_parameters"].get(name)
        other = "-" if name not in template["parameters"] else fixed if fixed is not None else f"${{{name}}}"
        yield Key(version, model, f"parameters.{name}", ours.get(name, "-"),
                  "declared" if own_step and name not in ours else other, own_step)  # fmt: skip


def _wires(version: str, facts: dict[str, Any]) -> Iterator[Key]:
    steps = {step.model_name: step for step in generated(version)["ensemble"].ensemble_scheduling.step}
    for step in facts["ensemble"]["steps"]:
        mine = steps[step["model"]]
        yield Key(version, "ensemble", f"{step['model']}.model_version", str(mine.model_version), "-1")
        rows = interface(version, step["model"])
        left_out = {row.name: row.left_out for row in (*rows.inputs, *rows.outputs) if row.left_out}
        for side, ours in (("inputs", dict(mine.input_map)), ("outputs", dict(mine.output_map))):
            theirs = step[side]
            for name in sorted(ours.keys() | theirs.keys()):
                reason = left_out.get(name, "")
                if not reason and version_key(version) < version_key("0.14.0"):
                    reason = _DETOUR
                yield Key(version, "ensemble", f"{step['model']}.{side}.{name}", ours.get(name, "-"),
                          theirs.get(name, "-"), reason)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Prints the table; 1 when a difference has no reason."""
    print(f"{'version':14} {'compared':>8} {'equal':>6} {'meant':>6} {'faults':>6}  facts")
    found = [key for version in sorted(VERSIONS, key=version_key) for key in keys(version)]
    for version in sorted(VERSIONS, key=version_key):
        mine = [key for key in found if key.version == version]
        counts = [sum(getattr(key, name) for key in mine) for name in ("equal", "fault")]
        numbers = f"{len(mine):8} {counts[0]:6} {len(mine) - sum(counts):6} {counts[1]:6}"
        print(f"{version:14} {numbers}  {VERSIONS[version]}")
    print()
    for reason, count in Counter(key.reason for key in found if not key.equal and key.reason).most_common():
        print(f"{count:5} {reason}")
    for key in found:
        if key.fault or ("--all" in arguments and not key.equal):
            sides = f"{key.ours!r}, NVIDIA {key.theirs!r}"
            print(f"{key.version} {key.model} {key.path}: {sides}  {key.reason or 'FAULT'}")
    return any(key.fault for key in found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
