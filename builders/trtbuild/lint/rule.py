"""A rule: one module in ``lint/rules/``, found by its name.

The module gives ``SEVERITY``, ``check(repository)``, and a docstring whose first line is the title and
whose rest is what ``trtbuild rules ID`` shows. The id is the module's name with dashes.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from inspect import cleandoc
from typing import TYPE_CHECKING

from trtbuild.errors import CatalogError
from trtbuild.lint import rules
from trtbuild.lint.findings import Found, LintFinding, Severity

if TYPE_CHECKING:
    from trtbuild.lint.repository import LintRepository

_LONGEST = 600  # characters of a message
_LONGEST_WORD = 120  # of a token or a key path in it; a remedy's may be a command with paths
_LONGEST_IN_REMEDY = 400
Check = Callable[["LintRepository"], Iterator[Found]]


@dataclass(frozen=True)
class Rule:
    """One rule of the linter."""

    id: str
    severity: Severity
    title: str
    explanation: str
    check: Check

    def run(self, repository: LintRepository) -> Iterator[LintFinding]:
        """The rule's findings in a repository."""
        for found in self.check(repository):
            yield LintFinding(
                self.id,
                found.severity or self.severity,
                found.place,
                _short(found.found, _LONGEST_WORD),
                _short(found.why, _LONGEST_WORD),
                _short(found.remedy, _LONGEST_IN_REMEDY),
                found.edit,
            )


def _short(text: str, word: int) -> str:
    """Without the middle of words, and of a text, of thousands of characters."""
    return _cut(re.sub(rf"\S{{{word + 1},}}", lambda match: _cut(match[0], word), text), _LONGEST)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest // 2]} … {text[-longest // 2 :]}"


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, by id."""
    found = []
    for module_info in pkgutil.iter_modules(rules.__path__):
        module = importlib.import_module(f"{rules.__name__}.{module_info.name}")
        title, _, explanation = cleandoc(module.__doc__ or "").partition("\n")
        rule_id = module_info.name.replace("_", "-")
        found.append(Rule(rule_id, module.SEVERITY, title.rstrip("."), explanation.strip(), module.check))
    return tuple(sorted(found, key=lambda rule: rule.id))


def find_rule(rule_id: str) -> Rule:
    """The rule with this id.

    Raises:
        CatalogError: if there is none.
    """
    from difflib import get_close_matches

    by_id = {rule.id: rule for rule in all_rules()}
    if rule_id in by_id:
        return by_id[rule_id]
    near = get_close_matches(rule_id, by_id, n=1)
    hint = f"did you mean {near[0]}?" if near else "`trtbuild rules` lists all"
    raise CatalogError(f"there is no rule {rule_id!r}", hint)
