"""What Triton's own validation refuses (core, model_config_utils.cc), told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.lint_repo import found, write

HEAD = 'backend: "identity"\nmax_batch_size: 8\n'


def refused(repo: Path, text: str, rule: str, head: str = HEAD) -> list[int]:
    """The lines, counted within ``text``, at which a rule speaks of a config of the two; -1: of the file."""
    write(repo, "m", head + text)
    return [line - head.count("\n") for name, _, line in found(repo) if name == rule]


@pytest.mark.parametrize(
    ("policy", "lines"),
    [
        ("priority_levels: 3", [2]),
        ("priority_levels: 3\ndefault_priority_level: 0", [3]),
        ("priority_levels: 3\ndefault_priority_level: 4", [3]),
        ("priority_levels: 3\ndefault_priority_level: 2", []),
        ("priority_levels: 2\ndefault_priority_level: 1\npreserve_ordering: true", [2]),
        ("priority_levels: 1\ndefault_priority_level: 1\npreserve_ordering: true", []),
        ("priority_levels: 2 default_priority_level: 1\npriority_queue_policy { key: 3 value { } }", [3]),
        ("priority_levels: 2 default_priority_level: 1\npriority_queue_policy { key: 0 value { } }", [3]),
        (
            "preserve_ordering: true\ndefault_queue_policy { default_timeout_microseconds: 9\n"
            "timeout_action: DELAY }",
            [4],
        ),
        (
            "preserve_ordering: true priority_levels: 1 default_priority_level: 1\npriority_queue_policy {\n"
            "key: 1 value { default_timeout_microseconds: 9\ntimeout_action: 1 } }",
            [5],
        ),
        ("preserve_ordering: true\ndefault_queue_policy { timeout_action: DELAY }", []),
        ("preserve_ordering: false\npriority_levels: 2 default_priority_level: 1", []),
        ("priority_levels: ${levels}\ndefault_priority_level: ${level}\npreserve_ordering: true", []),
    ],
)
def test_queue_settings_that_exclude_each_other(tmp_path, policy, lines):
    assert refused(tmp_path, f"dynamic_batching {{\n{policy}\n}}\n", "queue-policy") == lines
