"""`trimtab plan`, `decide`, `pause`, `unpause`: decisions, and whether they are made and carried out."""

from __future__ import annotations

from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from daemons.cli import complete
from daemons.cli.asking import limit_option, tell, view
from daemons.cli.connection import ControllerConnection, bus_options, change_options
from daemons.cli.numbers import Whole
from daemons.cli.output import CommandGroup, emit, output_option
from daemons.cli.render import listing, record, rows_of
from daemons.cli.tables import stacked
from daemons.cli.watching import watch_option
from shared.protocol.account_messages import RejectPlan
from shared.protocol.operator_messages import ApprovePlan, DryRun, SetDeciding

HISTORY_COLUMNS = ("number", "decided_at_s", "policy", "kinds", "provisioning", "counts")
SCORE_COLUMNS = ("workload", "policy", "cycles", "error", "over", "cause", "trusted")
NAMED_COLUMNS = ("number", "decided_at_s", "workload", "became", "kind", "nodes", "reason")
HISTORY_LEAST = ("provisioning", "policy")
NAMED_LEAST = ("workload", "became")
HISTORY_MAX = 200


@click.group(cls=CommandGroup)
def plan() -> None:
    """Show, approve and reject plans."""


@plan.command()
@click.option("--decision", type=Whole(1), help="Show the decision of this number, if it is still kept.")
@limit_option
@bus_options
@watch_option
@output_option
def show(line: ControllerConnection, decision: int | None, limit: int) -> None:
    """Show the plan that waits for approval, else the last decision: changes, refusals, steps.

    \b
    Example:
      trimtab plan show --decision 41
    """
    data = view(line, "plan", "" if decision is None else str(decision), limit)
    emit(data, lambda: _decision(data))


@plan.command()
@click.argument("decision", type=Whole(1))
@change_options
@output_option
def approve(line: ControllerConnection, decision: int) -> None:
    """Approve the plan of that number. It is carried out once enough accounts have approved it.

    \b
    Example:
      trimtab plan approve 41
    """
    tell(
        line,
        lambda request: ApprovePlan(request, decision),
        f"decision {decision} is approved",
        f"trimtab plan show --decision {decision}",
    )


@plan.command()
@click.argument("decision", type=Whole(1))
@change_options
@output_option
def reject(line: ControllerConnection, decision: int) -> None:
    """Reject the plan of that number, which waits. Its changes are not proposed again for a while.

    \b
    Example:
      trimtab plan reject 41 --why "maintenance at 18:00"
    """
    tell(line, lambda request: RejectPlan(request, decision), f"decision {decision} is rejected")


@plan.command()
@click.option(
    "--limit", type=Whole(1, HISTORY_MAX), default=20, show_default=True, help="Show at most this many decisions."
)
@click.option(
    "--workload",
    default="",
    metavar="NAME",
    shell_complete=complete.workloads,
    help="Show only changes of this job or web application.",
)
@bus_options
@output_option
def history(line: ControllerConnection, limit: int, workload: str) -> None:
    """Show the last decisions, and workloads whose predictions fail.

    With --workload show what decisions changed for one job or web application, and why.

    \b
    Example:
      trimtab plan history --workload render-1
    """
    data = view(line, "plan-history", workload, limit)
    rows = rows_of(data, "decisions")
    missed = [row for row in rows_of(data, "scores") if row.get("over") or not row.get("trusted")]
    scores = [listing("predictions that fail", missed, SCORE_COLUMNS)] if missed else []
    if workload:
        named = [{**row, **one} for row in rows for one in rows_of(row, "named")]
        emit(data, lambda: stacked(listing(f"decisions on {workload}", named, NAMED_COLUMNS, NAMED_LEAST), *scores))
    else:
        emit(data, lambda: stacked(listing("decisions", rows, HISTORY_COLUMNS, HISTORY_LEAST), *scores))


def _decision(data: dict[str, Any]) -> RenderableType:
    """Return the decision with the view's details about it, without repetition."""
    decision = data.get("decision")
    if not isinstance(decision, dict):
        return Text("nothing has been decided yet")
    about = {name: value for name, value in data.items() if name not in ("decision", "at_s", "term")}
    return record(f"decision {decision.get('number', '')}", {**about, **decision})


@click.command()
@click.option("--dry-run", is_flag=True, default=True, expose_value=False, help="Change nothing. This is the default.")
@bus_options
@output_option
def decide(line: ControllerConnection) -> None:
    """Show what the controller would decide now, and why; change nothing.

    \b
    Example:
      trimtab decide
    """
    with line:
        data = line.ask(DryRun(line.new_id()))
    values = dict(data) if isinstance(data, dict) else {"decision": data}
    emit(values, lambda: _decision(values))


@click.command()
@change_options
@output_option
def pause(line: ControllerConnection) -> None:
    """Pause deciding. Changes that were decided are still carried out.

    \b
    Example:
      trimtab pause --why "network maintenance"
    """
    tell(line, lambda request: SetDeciding(request, False), "deciding is paused", "trimtab unpause")


@click.command()
@change_options
@output_option
def unpause(line: ControllerConnection) -> None:
    """Resume deciding; after a restored backup, act again.

    \b
    Example:
      trimtab unpause
    """
    tell(line, lambda request: SetDeciding(request, True), "deciding is resumed")
