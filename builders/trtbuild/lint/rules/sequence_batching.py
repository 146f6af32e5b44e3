"""Settings and states of a sequence batcher that Triton refuses.

`minimum_slot_utilization` is a share. The initial value of a state has a name, the state's type, and its
dimensions with a number for each free one; it is zeros, or a file in `MODEL/initial_state/` that is large
enough (core, sequence_batch_scheduler.cc, `GenerateInitialStateData`).
"""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Found
from trtbuild.lint.model import ModelFolder
from trtbuild.lint.pbtxt import Field, Kind, Message
from trtbuild.lint.repository import LintRepository
from trtbuild.lint.samples import short_file

SEVERITY = "error"
_WHY = "Triton refuses it, and the model does not load"


def check(repository: LintRepository) -> Iterator[Found]:
    """sequence_batching of all models."""
    for model in repository.readable:
        share = model.field("sequence_batching.direct.minimum_slot_utilization")
        if share is not None and share.kind is Kind.NUMBER and not 0 <= float(share.text.rstrip("fF")) <= 1:
            yield Found(
                model.at(share),
                f"minimum_slot_utilization is {share.text}",
                f"it is a share of the slots: {_WHY}",
                "write a number from 0 to 1",
            )
        batching = model.field("sequence_batching")
        for state in batching.message.all("state") if batching and batching.message else ():
            initial = state.message.all("initial_state") if state.message else []
            if state.message is not None and len(initial) > 1:
                yield Found(
                    model.at(initial[1]),
                    f"{len(initial)} values of initial_state",
                    f"a state begins with one: {_WHY}",
                    "keep one",
                )
            elif state.message is not None and initial and initial[0].message is not None:
                yield from _initial(model, state.message, initial[0], initial[0].message)


def _initial(model: ModelFolder, state: Message, entry: Field, initial: Message) -> Iterator[Found]:
    def wrong(place: Field | None, found: str, remedy: str) -> Found:
        return Found(model.at(place or entry), found, _WHY, remedy)

    of, own = state.get("data_type"), initial.get("data_type")
    if (of.text if of else "") != (own.text if own else ""):
        given = own.text if own else "no data_type"
        yield wrong(
            own,
            f"initial_state has {given}, and its state {of.text if of else 'none'}",
            "write the same type in both",
        )
    name = initial.get("name")
    if name is None or not name.text:
        yield wrong(name, "initial_state has no name", 'write name: "…" in it')
    outer, inner = ([item.number for item in message.all("dims")] for message in (state, initial))
    if None not in outer + inner:
        if len(outer) != len(inner) or any(
            out not in (-1, value) for out, value in zip(outer, inner, strict=False)
        ):
            yield wrong(
                initial.get("dims"),
                f"initial_state has dims {inner}, and its state {outer}",
                "write the state's dims, with a number for each -1",
            )
        elif -1 in inner:
            yield wrong(
                initial.get("dims"),
                f"initial_state has dims {inner}",
                "write a number for each -1: a value has a size",
            )
    file = initial.get("data_file")
    if file is None and initial.get("zero_data") is None:
        yield wrong(None, "initial_state says no value", "write zero_data: true, or data_file")
    elif file is not None and (problem := short_file(model, "initial_state", file, own, inner)) is not None:
        yield problem
