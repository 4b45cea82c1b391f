"""`trimtab jobs set`, `vms set` and `web set`: change what is wanted of workloads that are there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from daemons.cli import complete
from daemons.cli.asking import RulesOf, look_up_jobs, look_up_vms, refuse_all, tell, tell_each, vms_there
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
from daemons.manifests.vm_terms import AssignedTerms, read_terms
from shared.base.errors import InvalidInput, Problem
from shared.protocol.operator_messages import SetJob, SetWeb
from shared.values.jobs import Rules
from shared.values.vm_terms import TermChanges

SECONDS_MAX = 1e10


def _moment(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    """Return a time of the command line in seconds since the epoch."""
    at_s = None if text is None else epoch_s(text)
    if text is not None and at_s is None:
        raise click.BadParameter(f"{text!r}: expected {WHEN_WORDS}")
    return at_s


@click.command("set")
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=complete.active_jobs)
@importance_option
@click.option(
    "--goal-at",
    "goal_s",
    callback=_moment,
    help="Time by which the job should be complete, such as 2030-01-31T12:00:00Z.",
)
@click.option("--goal-within", type=Number(0.0, SECONDS_MAX, above=True), help="The same, in seconds from now.")
@click.option("--best-effort", is_flag=True, help="Remove the goal.")
@rules_option
@change_options
@output_option
def set_jobs(
    line: ControllerConnection,
    jobs: tuple[str, ...],
    importance: float | None,
    goal_s: float | None,
    goal_within: float | None,
    best_effort: bool,
    rules_file: Path | None,
) -> None:
    """Change goal, importance or rules of jobs that wait or run.

    \b
    Example:
      trimtab jobs set render-1 --importance 4 --goal-within 3600
    """
    if sum((goal_s is not None, goal_within is not None, best_effort)) > 1:
        raise click.UsageError("Give one of --goal-at, --goal-within and --best-effort.")
    if goal_within is not None:
        goal_s = line.now_s + goal_within
    rules = changed_rules(rules_file)
    _something(importance, goal_s, rules, best_effort or None)
    checked = rules is not None and len(set(jobs)) > 1
    tell_each(
        line,
        jobs,
        lambda request, job: SetJob(
            request, job, importance=importance, goal_s=goal_s, best_effort=best_effort, rules=rules, checked=checked
        ),
        "job {} is changed",
        look_up=look_up_jobs,
        rules_of=_the_same(rules),
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

    NAME is the managed name of a VM or its own, which patterns of --terms match.

    \b
    Example:
      trimtab vms set db-1 db-2 --automation confirm --moves-per-day 2
      trimtab vms set db-1 --terms vms.toml
    """
    given = (importance, rules_file, *(options[key] for key in KEYS))
    if file is not None:
        if any(each is not None for each in given):
            raise click.UsageError("--terms cannot be combined with other options.")
        _assign(line, vms, file)
        return
    _something(*given)
    rules, terms = changed_rules(rules_file), changed_terms(options)
    checked = rules is not None and len(set(vms)) > 1
    tell_each(
        line,
        vms,
        lambda request, vm: SetJob(request, vm, importance, rules=rules, terms=terms, checked=checked),
        "VM {} is changed",
        look_up=look_up_vms,
        rules_of=_the_same(rules),
    )


def _the_same(rules: Rules | None) -> RulesOf | None:
    return None if rules is None else lambda _name: rules


def _assign(line: ControllerConnection, vms: Sequence[str], file: Path) -> None:
    """Give VMs the terms of a file, whose patterns match their own names."""
    read_terms(file, ())  # what is wrong with the file alone needs no controller
    unique = list(dict.fromkeys(vms))
    with line:
        own, wrong = look_up_vms(line, unique)
        if wrong:
            refuse_all(unique, wrong)
            return
        assigned = read_terms(file, own.values(), vms_there(line, own.values()))
        unmatched = [vm for vm in unique if own[vm] not in assigned]
        if unmatched:
            what = f"no pattern matches {', '.join(map(repr, unmatched))}"
            raise InvalidInput(Problem(f"{file}: vms", what, "a table whose `match` does"))
        checked = len(unique) > 1
        tell_each(
            line,
            unique,
            lambda request, vm: _as_assigned(request, vm, assigned[own[vm]], checked),
            "VM {} is changed",
            rules_of=lambda vm: assigned[own[vm]].rules,
        )


def _as_assigned(request: str, vm: str, own: AssignedTerms, checked: bool) -> SetJob:
    terms = TermChanges.of(own.terms)
    return SetJob(request, vm, own.importance, rules=own.rules, terms=terms, checked=checked)


def _goals(_: click.Context, __: click.Parameter, texts: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """Return the goals of the command line by flow."""
    goals: dict[str, float] = {}
    for text in texts:
        flow, separator, value = text.partition("=")
        number = plain_number(value)
        if not flow or not separator or not number > 0.0 or number > SECONDS_MAX:
            expected = f"FLOW=VALUE with a value above 0 and at most {SECONDS_MAX:g}, such as buy=0.2"
            raise click.BadParameter(f"{text!r}: expected {expected}")
        if flow in goals:
            raise click.BadParameter(f"{text!r}: expected each flow once, and {flow!r} has a goal already")
        goals[flow] = number
    return tuple(goals.items())


@click.command("set")
@click.argument("app", shell_complete=complete.apps)
@importance_option
@click.option(
    "--goal",
    "goals",
    multiple=True,
    metavar="FLOW=VALUE",
    callback=_goals,
    help="Goal of a flow: seconds, or requests a second, as its file gives it. Can be repeated.",
)
@rules_option
@change_options
@output_option
def set_web(
    line: ControllerConnection,
    app: str,
    importance: float | None,
    goals: tuple[tuple[str, float], ...],
    rules_file: Path | None,
) -> None:
    """Change importance, goals or rules of a web application.

    \b
    Example:
      trimtab web set shop --goal buy=0.2
    """
    rules = changed_rules(rules_file)
    _something(importance, rules, goals or None)
    tell(line, lambda request: SetWeb(request, app, importance, rules, goals), f"web application {app} is changed")


def _something(*given: object) -> None:
    if all(each is None for each in given):
        raise click.UsageError("Nothing to change: give at least one option.")
