"""``trtbuild plan``: every number of a deployment, before anything is built."""

from __future__ import annotations

from typing import Any

import click

from trtbuild.cli.console import print_json
from trtbuild.cli.options import read_spec, spec_options


@spec_options
@click.command("plan")
@click.option("--explain", is_flag=True, help="The chain of numbers in plain words.")
@click.option("--json", "as_json", is_flag=True, help="The plan as JSON, also when it does not fit.")
def plan_command(explain: bool, as_json: bool, **flags: Any) -> None:
    """Show the plan of a deployment. Needs no GPU, and no network for models of the catalogue."""
    spec = read_spec(flags)
    from trtbuild.cli.plan_view import print_plan, refuse_unless_it_fits
    from trtbuild.prepare import prepare

    prepared = prepare(spec)
    plan = prepared.plan
    if as_json:
        print_json(plan.model_dump(mode="json"))
    elif explain:
        from trtbuild.plan.explain import explain as in_words

        click.echo(in_words(plan))
    else:
        print_plan(plan, prepared.notes)
    refuse_unless_it_fits(plan)
