"""Findings as SARIF 2.1.0 (OASIS), which code hosts and editors show beside the lines."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from trtbuild import __version__
from trtbuild.lint.findings import LintFinding
from trtbuild.lint.rule import all_rules

_LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def sarif(findings: Sequence[LintFinding]) -> dict[str, Any]:
    """One run with all rules and the findings."""
    rules = all_rules()
    index = {rule.id: number for number, rule in enumerate(rules)}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "trtbuild lint",
                        "version": __version__,
                        "rules": [
                            {
                                "id": rule.id,
                                "shortDescription": {"text": rule.title},
                                "fullDescription": {"text": rule.explanation or rule.title},
                                "defaultConfiguration": {"level": _LEVELS[rule.severity]},
                            }
                            for rule in rules
                        ],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_result(finding, index[finding.rule]) for finding in findings],
            }
        ],
    }


def _result(finding: LintFinding, index: int) -> dict[str, Any]:
    location: dict[str, Any] = {
        "artifactLocation": {"uri": quote(os.fsencode(finding.place.file)), "uriBaseId": "%SRCROOT%"}
    }
    if finding.place.line:
        location["region"] = {"startLine": finding.place.line, "startColumn": max(finding.place.column, 1)}
    return {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{finding.found}: {finding.why}. {finding.remedy}."},
        "locations": [{"physicalLocation": location}],
    }
