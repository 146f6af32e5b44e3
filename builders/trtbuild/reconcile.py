"""A build or load log against a repository's plan: what it says takes the place of the plan's estimates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trtbuild.build.engine_log import EngineLog, parse_log
from trtbuild.errors import PlanError
from trtbuild.plan.model import LlmPlan, Plan
from trtbuild.plan.sources import name_of
from trtbuild.prepare import Prepared, prepare
from trtbuild.spec import DeploymentSpec, LlmSpec, MeasuredSpec, Target
from trtbuild.tenants import Repository

# A log's weights tell which of several models it is about, unless two are this near to each other.
ALIKE = 1.25


@dataclass(frozen=True)
class Difference:
    """One quantity of one model: as planned before, as the log says, as planned now. Bytes, or tokens."""

    model: str
    item: str
    planned: int
    said: int
    now: int


@dataclass(frozen=True)
class Reconciled:
    """The new plan, what differs, and what else the log gives reason to say."""

    prepared: Prepared
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]


def reconcile(repository: Repository, text: str, *, source: str, model: str | None = None) -> Reconciled:
    """Plans a repository anew with what a log says of its engines.

    Concurrency stays as it was planned, so that engines need not be compiled again: the KV pool gives or
    takes.

    Args:
        text: the log of trtllm-build, of a server's start, or of both.
        source: the log's name, which the plan will show.
        model: which model the log is about; None: told by its weights.

    Raises:
        PlanError: no line about memory, or about none of the models; the new plan does not fit.
        CatalogError, ModelSourceError: see `prepare`.
    """
    plan = repository.plan
    if plan.target is Target.LOCAL:
        raise PlanError(
            "the target local has no TensorRT-LLM log", "trtbuild demo shows what its processes use"
        )
    engines = parse_log(text)
    if not engines:
        raise PlanError(
            f"{source}: no line of TensorRT-LLM about memory, such as 'Loaded engine size' or 'Total "
            "Activation Memory'",
            "the server's or trtllm-build's log at level info: TLLM_LOG_LEVEL=INFO, --log_level info",
        )
    found = _assign(engines, plan, model, source)
    measured = {name: _measured(logs, _llm(plan, name), source) for name, logs in found.items()}
    prepared = prepare(
        _with_measured(repository.spec, plan, measured), names=repository.manifest.names, build=False
    )
    differences: list[Difference] = []
    notes: list[str] = []
    for name, logs in found.items():
        before, now = _llm(plan, name), _llm(prepared.plan, name)
        differences += _differences(before, now, measured[name])
        for log in logs:
            notes += _notes(before, log)
    return Reconciled(prepared, tuple(differences), tuple(notes))


def _assign(
    engines: Sequence[EngineLog], plan: Plan, model: str | None, source: str
) -> dict[str, list[EngineLog]]:
    """The engines of a log by the model that they are of."""
    if model is not None:
        _llm(plan, model)
        return {model: list(engines)}
    if len(plan.llms) == 1:
        return {plan.llms[0].name: list(engines)}
    found: dict[str, list[EngineLog]] = {}
    for engine in engines:
        if engine.weights is None:
            continue
        ratios = sorted((ratio_of_weights(llm, engine.weights), llm.name) for llm in plan.llms)
        if ratios[0][0] > ALIKE or ratios[1][0] <= ALIKE:
            raise PlanError(
                f"{source}: an engine with {engine.weights / (1 << 30):.2f} GiB of weights is "
                "like several models here, or like none",
                *(f"--model {llm.name}" for llm in plan.llms),
            )
        found.setdefault(ratios[0][1], []).append(engine)
    return found


def ratio_of_weights(llm: LlmPlan, weights_bytes: int) -> float:
    """How far a log's weights are from a model's planned ones: 1 or more."""
    held = llm.weights_bytes + llm.engine_copy_bytes
    return max(held, weights_bytes) / max(1, min(held, weights_bytes))


def _llm(plan: Plan, name: str) -> LlmPlan:
    for llm in plan.llms:
        if llm.name == name:
            return llm
    held = ", ".join(llm.name for llm in plan.llms)
    raise PlanError(f"the repository holds no language model {name!r}", f"it holds {held}")


def _measured(logs: Sequence[EngineLog], llm: LlmPlan, source: str) -> MeasuredSpec:
    """What the logs of one model say; a load counts more than a build, whose engine it runs."""
    ordered = sorted(logs, key=lambda log: log.kind == "build")

    def first(name: str) -> int | None:
        return next((value for log in ordered if (value := getattr(log, name)) is not None), None)

    return MeasuredSpec(
        source=source,
        max_num_tokens=first("max_num_tokens") or llm.max_num_tokens,
        max_batch_size=first("max_batch_size") or llm.max_batch_size,
        weights_bytes=first("weights"),
        activation_bytes=first("activation"),
        buffer_bytes=first("buffers"),
    )


def _with_measured(spec: DeploymentSpec, plan: Plan, measured: dict[str, MeasuredSpec]) -> DeploymentSpec:
    def changed(entry: LlmSpec) -> LlmSpec:
        name = name_of(entry)
        if name not in measured:
            return entry
        planned = _llm(plan, name).max_batch_size
        return entry.model_copy(
            update={"measured": measured[name], "concurrency": entry.concurrency or planned}
        )

    fixed = {"target": plan.target, "gpu": plan.gpu.name, "container": plan.container, "trtllm": None}
    return spec.model_copy(update={**fixed, "models": tuple(changed(entry) for entry in spec.models)})


def _differences(before: LlmPlan, now: LlmPlan, said: MeasuredSpec) -> list[Difference]:
    held = before.weights_bytes + before.engine_copy_bytes + before.vision_tower_bytes
    rows = (
        ("weights", held, said.weights_bytes, now.weights_bytes),
        ("activations", before.activation_bytes, said.activation_bytes, now.activation_bytes),
        ("buffers", before.buffer_bytes, said.buffer_bytes, now.buffer_bytes),
    )
    return [
        Difference(before.name, item, planned, value, after)
        for item, planned, value, after in rows
        if value is not None
    ]


def _notes(llm: LlmPlan, log: EngineLog) -> list[str]:
    notes = []
    if log.reduced_seq_len is not None and log.reduced_seq_len < llm.max_seq_len:
        notes.append(
            f"{llm.name}: the engine cut its longest sequence to {log.reduced_seq_len} tokens without "
            f"telling any client; the plan has {llm.max_seq_len}"
        )
    if log.kv_tokens is not None and log.kv_tokens < llm.kv_tokens:
        notes.append(
            f"{llm.name}: the KV pool holds {log.kv_tokens} tokens and {llm.kv_tokens} were planned: less "
            "memory was free than the plan counted on"
        )
    per_token = log.kv_bytes_per_token
    if per_token is not None and abs(per_token / llm.kv_bytes_per_token - 1) > 0.05:
        notes.append(
            f"{llm.name}: a token takes {per_token:.0f} bytes of the pool and {llm.kv_bytes_per_token} were "
            "planned: another KV type or model"
        )
    for name, planned in (("max_batch_size", llm.max_batch_size), ("max_num_tokens", llm.max_num_tokens)):
        value = getattr(log, name)
        if value is not None and value != planned:
            notes.append(f"{llm.name}: the log is of an engine with {name} {value}; the plan has {planned}")
    return notes
