"""``trtbuild lint`` and ``rules``: what is wrong with a repository, ours or not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtbuild.cli.console import note, print_json, print_table
from trtbuild.cli.options import FOLDER

if TYPE_CHECKING:
    from trtbuild.lint.findings import LintFinding


@click.command("lint")
@click.argument("repo", type=FOLDER)
@click.option("--container", metavar="RELEASE", help="The container that will serve it, such as 25.10.")
@click.option("--trtllm", metavar="VERSION", help="The TensorRT-LLM version, where no container is known.")
@click.option("--gpu", metavar="NAME", help="The GPU that it will run on; checks that all engines fit on it.")
@click.option("--json", "as_json", is_flag=True, help="Findings as JSON.")
@click.option(
    "--sarif", "as_sarif", is_flag=True, help="Findings as SARIF 2.1.0, for code hosts and editors."
)
@click.option("--fix", "do_fix", is_flag=True, help="Correct what can be corrected without a decision.")
def lint_command(
    repo: Path,
    container: str | None,
    trtllm: str | None,
    gpu: str | None,
    as_json: bool,
    as_sarif: bool,
    do_fix: bool,
) -> None:
    """Say what is wrong with a Triton model repository before a server starts.

    Exit code 1 with errors, 0 with warnings only; a clean repository is silent. Without --container or
    --trtllm, the version is that of trtbuild.json or of the engines; where none says it, only what holds for
    all versions is told.
    """
    from trtbuild.lint.run import lint

    if as_json and as_sarif:
        raise click.UsageError("--json and --sarif exclude each other")
    findings = lint(repo, container=container, trtllm=trtllm, gpu=gpu)
    if do_fix:
        from trtbuild.lint.fix import fix

        for done in fix(repo, findings):
            note(f"{done.place}: fixed: {done.found} [{done.rule}]")
        findings = lint(repo, container=container, trtllm=trtllm, gpu=gpu)
    if as_json:
        print_json([finding.as_json() for finding in findings])
    elif as_sarif:
        from trtbuild.lint.sarif import sarif

        print_json(sarif(findings))
    elif findings:
        for finding in findings:
            click.echo(_shown(finding))
        click.echo(_summary(findings))
    if any(finding.severity == "error" for finding in findings):
        click.get_current_context().exit(1)


def _shown(finding: LintFinding) -> str:
    where = f"{finding.place}:{finding.place.column}" if finding.place.column else f"{finding.place}"
    lines = (
        f"{where}: {finding.severity}: {finding.found} [{finding.rule}]",
        f"    {finding.why}",
        f"  → {finding.remedy}",
    )
    return "\n".join(
        "".join(char if char.isprintable() else repr(char)[1:-1] for char in line) for line in lines
    )


def _summary(findings: list[LintFinding]) -> str:
    counts = [
        f"{count} {name}{'s' if count > 1 and name != 'info' else ''}"
        for name in ("error", "warning", "info")
        if (count := sum(finding.severity == name for finding in findings))
    ]
    fixable = sum(finding.edit is not None for finding in findings)
    return ", ".join(counts) + (f"; --fix corrects {fixable}" if fixable else "")


@click.command("rules")
@click.argument("rule_id", metavar="[ID]", required=False)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def rules_command(rule_id: str | None, as_json: bool) -> None:
    """List the rules of lint; ID explains one."""
    from trtbuild.lint.rule import all_rules, find_rule

    rules = all_rules() if rule_id is None else (find_rule(rule_id),)
    if as_json:
        print_json(
            [
                {
                    "id": rule.id,
                    "severity": rule.severity,
                    "title": rule.title,
                    "explanation": rule.explanation,
                }
                for rule in rules
            ]
        )
    elif rule_id is None:
        print_table(
            ("rule", "severity", "what it finds"), [(rule.id, rule.severity, rule.title) for rule in rules]
        )
    else:
        click.echo(f"{rules[0].id} ({rules[0].severity}): {rules[0].title}.\n\n{rules[0].explanation}")
