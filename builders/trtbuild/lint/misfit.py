"""Misfits of the schema as findings of the rule that they belong to."""

from __future__ import annotations

from collections.abc import Iterator

from trtbuild.lint.findings import Edit, Found
from trtbuild.lint.pbtxt import Kind
from trtbuild.lint.repository import LintRepository


def misfits_of(repository: LintRepository, rule: str, why: str) -> Iterator[Found]:
    """Every misfit of ``rule`` in the repository."""
    for model in repository.readable:
        for misfit in model.misfits:
            if misfit.rule == rule:
                place = model.at(misfit.field)
                edit = None
                if misfit.correction is not None:
                    bare = misfit.field.kind is Kind.STRING
                    edit = Edit(place, misfit.field.text, misfit.correction, bare=bare)
                yield Found(place, misfit.message, why, misfit.remedy, edit=edit)
