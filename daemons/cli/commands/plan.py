"""`trimtab plan`, `decide`, `pause`, `unpause`: decisions, and whether they are made and carried out."""

from __future__ import annotations

from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from daemons.cli import complete
from daemons.cli.asking import limit_option, note_of, tell, view
from daemons.cli.connection import ControllerConnection, bus_options, change_options
from daemons.cli.numbers import Whole
from daemons.cli.output import CommandGroup, emit, output_option, say_next
from daemons.cli.render import listing, record, rows_of
from daemons.cli.tables import stacked
from daemons.cli.waiting import Look, NotYet, wait_for_all
from daemons.cli.watching import watch_option
from shared.protocol.account_messages import RejectPlan
from shared.protocol.operator_messages import ApprovePlan, DecideNow, DryRun, Query, SetDeciding, StopPlan

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
@click.option("--abort", is_flag=True, help="Abort migrations that run, too.")
@change_options
@output_option
def stop(line: ControllerConnection, abort: bool) -> None:
    """Stop what decisions have in progress. Nothing new begins; operations that run end. Nodes that are being drained
    serve on, and nodes that have not begun to wake sleep on.

    What was given up is not proposed again for four cycles.

    \b
    Example:
      trimtab plan stop --abort --why "storage is slow"
    """
    request = line.new_id()
    with line:
        note = note_of(line, StopPlan(request, abort))
    values = {"done": True, "request": request, "note": note}
    emit(values, lambda: Text(f"plans are stopped: {note}" if note else "plans are stopped"))
    say_next("trimtab plan show")


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
@click.option("--dry-run", is_flag=True, help="Change nothing. This is the default.")
@click.option("--now", is_flag=True, help="Make the next cycle's decision now, at the automation level that is set.")
@change_options
@output_option
def decide(line: ControllerConnection, dry_run: bool, now: bool) -> None:
    """Show what the controller would decide now, and why; change nothing.

    With --now it decides: the decision is recorded, held for approval or carried out, by the automation level.

    \b
    Example:
      trimtab decide
      trimtab decide --now
    """
    if dry_run and now:
        raise click.UsageError("Give --dry-run or --now, not both.")
    if now:
        with line:
            data = _decided(line)
        emit(data, lambda: _decision(data))
        return
    with line:
        data = line.ask(DryRun(line.new_id()))
    values = dict(data) if isinstance(data, dict) else {"decision": data}
    emit(values, lambda: _decision(values))


def _decided(line: ControllerConnection) -> dict[str, Any]:
    """Have a decision made, and return the view of it. Raises `NotYet` if there is none within the time limit."""
    before = _last(line)
    line.ask(DecideNow(line.new_id()))
    found: dict[str, Any] = {}

    def look() -> Look:
        number = _last(line)
        if number <= before:
            return Look("is being computed")
        found.update(dict(line.ask(Query(line.new_id(), "plan", str(number)))))
        return Look("", done=True)

    subject = "the decision"
    if not wait_for_all(line, {subject: look}, line.limit_s, "it goes on: trimtab plan show")[subject].done:
        raise NotYet("the decision is not made yet; see trimtab plan show, and trimtab status for why none is made")
    return found


def _last(line: ControllerConnection) -> int:
    """Return the number of the last decision, 0: none was made yet."""
    rows = dict(line.ask(Query(line.new_id(), "plan-history", "", 1)))["decisions"]
    return int(rows[0]["number"]) if rows else 0


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
