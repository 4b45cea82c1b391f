"""`trimtab plan`, `decide`, `pause`, `unpause`: what was decided, and whether it is carried out."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from daemons.cli import complete
from daemons.cli.asking import limit_option, tell, view
from daemons.cli.connection import ControllerConnection, bus_options, change_options
from daemons.cli.numbers import Whole
from daemons.cli.output import CommandGroup, emit, output_option
from daemons.cli.render import listing, record, rows_of
from shared.protocol.account_messages import RejectPlan
from shared.protocol.operator_messages import ApprovePlan, DryRun, SetDeciding

HISTORY_COLUMNS = ("number", "decided_at_s", "policy", "kinds", "provisioning", "counts")
SCORE_COLUMNS = ("workload", "policy", "cycles", "error", "over", "cause", "trusted")
NAMED_COLUMNS = ("number", "decided_at_s", "workload", "became", "kind", "nodes", "reason")
HISTORY_MAX = 200


@click.group(cls=CommandGroup)
def plan() -> None:
    """Show and approve what was decided."""


@plan.command()
@click.option("--decision", type=Whole(1), help="The number of one that is still kept.")
@limit_option
@bus_options
@output_option
def show(line: ControllerConnection, decision: int | None, limit: int) -> None:
    """Show the decision that waits for approval, else the last one: changes, refusals, steps."""
    data = view(line, "plan", "" if decision is None else str(decision), limit)
    emit(data, lambda: _decision(data))


@plan.command()
@click.argument("decision", type=Whole(1))
@change_options
@output_option
def approve(line: ControllerConnection, decision: int) -> None:
    """Approve the decision of that number; it is carried out when enough accounts have."""
    tell(line, lambda request: ApprovePlan(request, decision), f"decision {decision} is approved")


@plan.command()
@click.argument("decision", type=Whole(1))
@change_options
@output_option
def reject(line: ControllerConnection, decision: int) -> None:
    """Drop the decision of that number, which waits; what it held is not proposed again for a while."""
    tell(line, lambda request: RejectPlan(request, decision), f"decision {decision} is rejected")


@plan.command()
@click.option("--limit", type=Whole(1, HISTORY_MAX), default=20, show_default=True, help="Most to show.")
@click.option(
    "--workload",
    default="",
    metavar="NAME",
    shell_complete=complete.workloads,
    help="Only what was decided of this job or web application.",
)
@bus_options
@output_option
def history(line: ControllerConnection, limit: int, workload: str) -> None:
    """Show the last decisions, or what they say of one job or web application, and why; then whose predictions did
    not hold."""
    data = view(line, "plan-history", workload, limit)
    rows = rows_of(data, "decisions")
    missed = [row for row in rows_of(data, "scores") if row.get("over") or not row.get("trusted")]
    scores = [listing("predictions that do not hold", missed, SCORE_COLUMNS)] if missed else []
    if workload:
        named = [{**row, **one} for row in rows for one in rows_of(row, "named")]
        emit(data, lambda: Group(listing(f"decisions on {workload}", named, NAMED_COLUMNS), *scores))
    else:
        emit(data, lambda: Group(listing("decisions", rows, HISTORY_COLUMNS), *scores))


def _decision(data: dict[str, Any]) -> RenderableType:
    """The decision with what the view says about it; nothing of either twice."""
    decision = data.get("decision")
    if not isinstance(decision, dict):
        return Text("nothing has been decided yet")
    about = {name: value for name, value in data.items() if name not in ("decision", "at_s", "term")}
    return record(f"decision {decision.get('number', '')}", {**about, **decision})


@click.command()
@click.option("--dry-run", is_flag=True, required=True, help="Carry out nothing: only say what would be decided.")
@bus_options
@output_option
def decide(line: ControllerConnection, dry_run: bool) -> None:
    """Say what would be decided now, and why; the controller decides in earnest by itself."""
    assert dry_run
    with line:
        data = line.ask(DryRun(line.new_id()))
    values = dict(data) if isinstance(data, dict) else {"decision": data}
    emit(values, lambda: _decision(values))


@click.command()
@change_options
@output_option
def pause(line: ControllerConnection) -> None:
    """Stop deciding. What was decided goes on converging."""
    tell(line, lambda request: SetDeciding(request, False), "deciding is paused; `trimtab unpause` resumes it")


@click.command()
@change_options
@output_option
def unpause(line: ControllerConnection) -> None:
    """Decide again; after a restore of the store, act again."""
    tell(line, lambda request: SetDeciding(request, True), "deciding goes on")
