"""`trimtab sim provision`: how many servers each policy has in service until a deadline, at what cost and risk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from daemons.capacity.provisioning.monte_carlo import Outcome
from daemons.capacity.provisioning.report import PolicyReport, ProvisionReport, report_of
from daemons.capacity.provisioning.series import read_scenario
from daemons.cli.numbers import Whole
from daemons.cli.output import REFUSED, emit, output_option, say
from daemons.cli.waiting import saying_what_goes_on
from daemons.models.deadline.rules import METHODS

RUNS_MAX = 10_000_000
COLUMNS = ("cost", "miss probability", "value at 0", "added at", "servers added", "time s")
SIMULATED = ("cost", "miss probability", "runs missed", "added at", "servers added")


def policy_names(text: str | None) -> tuple[str, ...]:
    """Names with commas between them, in the order of `METHODS`; all of them where nothing is given."""
    if text is None:
        return METHODS
    words = {word.strip() for word in text.split(",")}
    unknown = sorted(words - set(METHODS))
    if unknown:
        raise click.BadParameter(f"no policy {unknown[0]!r}: expected {', '.join(METHODS)}")
    return tuple(name for name in METHODS if name in words)


@click.command()
@click.argument("scenario", metavar="SCENARIO.toml", type=click.Path(path_type=Path))
@click.option("--monte-carlo", "runs", type=Whole(1, RUNS_MAX), metavar="RUNS", help="Also play RUNS periods.")
@click.option("--seed", type=Whole(0), default=0, show_default=True, help="Of what is played at random.")
@click.option("--policies", type=policy_names, metavar="NAME,NAME", help="Only these; all if not given.")
@output_option
def provision(scenario: Path, runs: int | None, seed: int, policies: tuple[str, ...] | None) -> None:
    """Say how many servers each policy has in service in the period with a deadline that SCENARIO.toml describes."""
    given = read_scenario(scenario)
    with saying_what_goes_on("reading") as tell:
        report = report_of(given, policies or METHODS, runs or 0, seed, tell)
    emit(report.to_json(), lambda: for_people(report))
    if report.infeasible:
        say(f"infeasible: {report.infeasible}")
        click.get_current_context().exit(REFUSED)


def for_people(report: ProvisionReport) -> RenderableType:
    """Tables."""
    parts: list[RenderableType] = [_policies(report.policies), _servers(report.policies)]
    if report.monte_carlo is not None:
        parts.append(_simulated(report.monte_carlo))
    parts += [_capacity(report), Text(f"{report.wall_s['capacity']:.2f} s for the capacity")]
    return Group(*parts)


def _policies(policies: dict[str, PolicyReport]) -> Table:
    table = Table("policy", title="expected, exactly")
    for heading in COLUMNS:
        table.add_column(heading, justify="right")
    for name, each in policies.items():
        value = "-" if each.value_at_0 is None else f"{each.value_at_0:,.4f}"
        added = (f"{each.deployment_events:.2f}", f"{each.servers_deployed:.2f}", f"{each.wall_s:.2f}")
        table.add_row(name, f"{each.expected_server_cost:,.4f}", f"{each.miss_probability:.3e}", value, *added)
    return table


def _simulated(outcomes: dict[str, Outcome]) -> Table:
    runs = next(iter(outcomes.values())).runs
    table = Table("policy", title=f"{runs} periods played, with 95 % intervals")
    for heading in SIMULATED:
        table.add_column(heading, justify="right")
    for name, each in outcomes.items():
        half = (each.cost.high - each.cost.low) / 2.0
        miss = each.miss_probability
        table.add_row(
            name,
            f"{each.cost.mean:,.3f} ± {half:.3f}",
            f"{miss.mean:.2e} ({miss.low:.1e} to {miss.high:.1e})",
            str(each.missed),
            f"{each.deployment_events.mean:.2f}",
            f"{each.servers_deployed.mean:.2f}",
        )
    return table


def _spread(count: int, most: int = 16) -> list[int]:
    """At most so many of 0..count - 1, evenly, the last among them."""
    step = max(1, -(-count // most))
    return sorted({*range(0, count, step), count - 1})


def _servers(policies: dict[str, PolicyReport]) -> Table:
    intervals = len(next(iter(policies.values())).mean_servers)
    shown = _spread(intervals)
    table = Table("policy", *map(str, shown), title="mean number of servers in interval")
    for name, each in policies.items():
        table.add_row(name, *(f"{each.mean_servers[at]:.2f}" for at in shown))
    return table


def _capacity(report: ProvisionReport) -> Table:
    shown = _spread(len(report.capacity))
    sizes = _spread(len(report.capacity[0]), 12)
    first = report.servers_min
    title = "most jobs that so many servers finish in time with the confidence wanted; PoB: breach from the begin"
    table = Table("interval", *(str(first + at) for at in sizes), title=title)
    for interval in shown:
        table.add_row(str(interval), *_dashed([report.capacity[interval][at] for at in sizes]))
    table.add_row("PoB", *(f"{report.breach[first + at]:.2e}" for at in sizes))
    return table


def _dashed(values: Sequence[Any]) -> list[str]:
    return ["-" if value is None else str(value) for value in values]
