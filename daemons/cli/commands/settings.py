"""`trimtab jobs set`, `vms set` and `web set`: change what is wanted of workloads that are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from daemons.cli import complete
from daemons.cli.asking import inner, tell, tell_each
from daemons.cli.connection import ControllerConnection, change_options
from daemons.cli.numbers import Number, plain_number
from daemons.cli.output import output_option
from daemons.cli.term_options import (
    KEYS,
    changed_rules,
    changed_terms,
    importance_option,
    rules_option,
    term_options,
)
from daemons.manifests.job import WHEN_WORDS, epoch_s
from daemons.manifests.vm_terms import read_terms
from shared.protocol.operator_messages import Query, SetJob, SetWeb

SECONDS_MAX = 1e10


@click.command("set")
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=complete.active_jobs)
@importance_option
@click.option("--goal-at", help="Time by which the job should be complete, such as 2030-01-31T12:00:00Z.")
@click.option("--goal-within", type=Number(0.0, SECONDS_MAX, above=True), help="The same, in seconds from now.")
@click.option("--best-effort", is_flag=True, help="Remove the goal.")
@rules_option
@change_options
@output_option
def set_jobs(
    line: ControllerConnection,
    jobs: tuple[str, ...],
    importance: float | None,
    goal_at: str | None,
    goal_within: float | None,
    best_effort: bool,
    rules_file: Path | None,
) -> None:
    """Change goal, importance or rules of jobs that wait or run.

    \b
    Example:
      trimtab jobs set render-1 --importance 4 --goal-within 3600
    """
    if sum((goal_at is not None, goal_within is not None, best_effort)) > 1:
        raise click.UsageError("Give one of --goal-at, --goal-within and --best-effort.")
    goal_s = None if goal_within is None else line.now_s + goal_within
    if goal_at is not None:
        goal_s = epoch_s(goal_at)
        if goal_s is None:
            raise click.BadParameter(f"{goal_at!r}: expected {WHEN_WORDS}")
    rules = changed_rules(rules_file)
    _something(importance, goal_s, rules, best_effort or None)
    tell_each(
        line,
        jobs,
        lambda request, job: SetJob(request, job, importance, goal_s, best_effort, rules),
        "job {} is changed",
    )


@click.command("set")
@click.argument("vms", metavar="NAME...", nargs=-1, required=True, shell_complete=complete.active_jobs)
@importance_option
@term_options
@rules_option
@click.option(
    "--terms", "file", type=click.Path(path_type=Path), help="TOML file with terms and rules by pattern of names."
)
@change_options
@output_option
def set_vms(
    line: ControllerConnection,
    vms: tuple[str, ...],
    importance: float | None,
    rules_file: Path | None,
    file: Path | None,
    **options: Any,
) -> None:
    """Change importance, rules, automation level and disruption budget of adopted VMs.

    \b
    Example:
      trimtab vms set db-1 db-2 --automation confirm --moves-per-day 2
      trimtab vms set db-1 --terms vms.toml
    """
    rules = changed_rules(rules_file)
    given = (importance, rules, *(options[key] for key in KEYS))
    if file is not None:
        if any(each is not None for each in given):
            raise click.UsageError("--terms says everything: give no other option with it.")
        assigned = read_terms(file, vms)
        unmatched = [vm for vm in vms if vm not in assigned]
        if unmatched:
            raise click.UsageError(f"No pattern of {file} matches {', '.join(unmatched)}.")
        tell_each(
            line,
            vms,
            lambda request, vm: SetJob(
                request, vm, assigned[vm].importance, rules=assigned[vm].rules, terms=assigned[vm].terms
            ),
            "VM {} is changed",
        )
        return
    _something(*given)
    rows = _rows(line, vms) if any(options[key] is not None for key in KEYS) else {}
    tell_each(
        line,
        vms,
        lambda request, vm: SetJob(
            request, vm, importance, rules=rules, terms=changed_terms(rows[vm], options) if vm in rows else None
        ),
        "VM {} is changed",
    )


def _rows(line: ControllerConnection, vms: Sequence[str]) -> dict[str, Mapping[str, Any] | None]:
    """Return the present terms of each VM. Raises `Refused` for one that is not known."""
    with line:
        return {vm: inner(dict(line.ask(Query(line.new_id(), "job", vm))), "job")["terms"] for vm in vms}


@click.command("set")
@click.argument("app", shell_complete=complete.apps)
@importance_option
@click.option(
    "--goal",
    "goals",
    multiple=True,
    metavar="FLOW=VALUE",
    help="Goal of a flow: seconds, or requests a second, as its file gives it. Can be repeated.",
)
@rules_option
@change_options
@output_option
def set_web(
    line: ControllerConnection, app: str, importance: float | None, goals: tuple[str, ...], rules_file: Path | None
) -> None:
    """Change importance, goals or rules of a web application.

    \b
    Example:
      trimtab web set shop --goal buy=0.2
    """
    rules = changed_rules(rules_file)
    _something(importance, rules, goals or None)
    wanted = tuple(_goal(text) for text in goals)
    tell(line, lambda request: SetWeb(request, app, importance, rules, wanted), f"web application {app} is changed")


def _goal(text: str) -> tuple[str, float]:
    flow, separator, value = text.partition("=")
    number = plain_number(value)
    if not flow or not separator or not number > 0.0 or number > SECONDS_MAX:
        raise click.BadParameter(f"{text!r}: expected FLOW=VALUE with a value above 0, such as buy=0.2")
    return flow, number


def _something(*given: object) -> None:
    if all(each is None for each in given):
        raise click.UsageError("Nothing to change: give at least one option.")
