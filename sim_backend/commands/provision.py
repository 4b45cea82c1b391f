"""`trimtab sim provision`: how many servers each policy has in service until a deadline, at what cost and risk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from daemons.capacity.provisioning.monte_carlo import Outcome
from daemons.capacity.provisioning.report import PolicyReport, ProvisionReport, report_of
from daemons.capacity.provisioning.series import read_scenario
from daemons.cli.numbers import Whole
from daemons.cli.output import REFUSED, emit, output_option, say
from daemons.cli.tables import Fitted, stacked
from daemons.cli.waiting import saying_what_goes_on
from daemons.models.deadline.rules import METHODS

RUNS_MAX = 10_000_000
COLUMNS = ("cost", "miss probability", "value at 0", "added at", "servers added", "time s")
SIMULATED = ("cost", "miss probability", "runs missed", "added at", "servers added")


def policy_names(text: str | None) -> tuple[str, ...]:
    """Return comma-separated names, in the order of `METHODS`; all of them if none is given."""
    if text is None:
        return METHODS
    words = {word.strip() for word in text.split(",")}
    unknown = sorted(words - set(METHODS))
    if unknown:
        raise click.BadParameter(f"no policy {unknown[0]!r}: expected {', '.join(METHODS)}")
    return tuple(name for name in METHODS if name in words)


@click.command()
@click.argument("scenario", metavar="SCENARIO.toml", type=click.Path(path_type=Path))
@click.option("--monte-carlo", "runs", type=Whole(1, RUNS_MAX), metavar="RUNS", help="Also simulate this many periods.")
@click.option("--seed", type=Whole(0), default=0, show_default=True, help="Seed of the simulated periods.")
@click.option("--policies", type=policy_names, metavar="NAME,NAME", help="Policies, comma between.  [default: all]")
@output_option
def provision(scenario: Path, runs: int | None, seed: int, policies: tuple[str, ...] | None) -> None:
    """Show how many servers each policy has in service until the deadline in SCENARIO.toml, at what cost and risk.

    \b
    Example:
      trimtab sim provision examples/provision-day-ahead.toml
    """
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
    return stacked(*parts)


def _policies(policies: dict[str, PolicyReport]) -> RenderableType:
    rows = []
    for name, each in policies.items():
        value = "-" if each.value_at_0 is None else f"{each.value_at_0:,.4f}"
        added = (f"{each.deployment_events:.2f}", f"{each.servers_deployed:.2f}", f"{each.wall_s:.2f}")
        rows.append([name, f"{each.expected_server_cost:,.4f}", f"{each.miss_probability:.3e}", value, *added])
    return Fitted("expected, exactly", ("policy", *COLUMNS), rows, ("time s", "added at"), COLUMNS)


def _simulated(outcomes: dict[str, Outcome]) -> RenderableType:
    runs = next(iter(outcomes.values())).runs
    rows = []
    for name, each in outcomes.items():
        half = (each.cost.high - each.cost.low) / 2.0
        miss = each.miss_probability
        rows.append(
            [
                name,
                f"{each.cost.mean:,.3f} ± {half:.3f}",
                f"{miss.mean:.2e} ({miss.low:.1e} to {miss.high:.1e})",
                str(each.missed),
                f"{each.deployment_events.mean:.2f}",
                f"{each.servers_deployed.mean:.2f}",
            ]
        )
    title = f"{runs} periods simulated, with 95 % intervals"
    return Fitted(title, ("policy", *SIMULATED), rows, ("added at", "servers added"), SIMULATED)


def _spread(count: int, most: int = 16) -> list[int]:
    """Return at most `most` evenly spaced values of 0..count - 1, plus the last one."""
    step = max(1, -(-count // most))
    return sorted({*range(0, count, step), count - 1})


def _servers(policies: dict[str, PolicyReport]) -> RenderableType:
    intervals = len(next(iter(policies.values())).mean_servers)
    shown = _spread(intervals)
    heads = [str(each) for each in shown]
    rows = [[name, *(f"{each.mean_servers[at]:.2f}" for at in shown)] for name, each in policies.items()]
    return Fitted("mean number of servers in interval", ("policy", *heads), rows, _every_second(heads), heads)


def _every_second(heads: Sequence[str]) -> list[str]:
    """Columns in the order in which they are dropped: every second first, so that the others are spread evenly."""
    kept = [*heads[:-1:2], *heads[-1:]]
    return [head for head in heads if head not in kept] + (_every_second(kept) if len(kept) > 2 else [])


def _capacity(report: ProvisionReport) -> RenderableType:
    shown = _spread(len(report.capacity))
    sizes = _spread(len(report.capacity[0]), 12)
    first = report.servers_min
    heads = [str(first + at) for at in sizes]
    rows = [[str(each), *_dashed([report.capacity[each][at] for at in sizes])] for each in shown]
    rows.append(["PoB", *(f"{report.breach[first + at]:.2e}" for at in sizes)])
    title = "most jobs that so many servers finish in time with the required confidence; PoB: breach from the start"
    return Fitted(title, ("interval", *heads), rows, _every_second(heads), heads)


def _dashed(values: Sequence[Any]) -> list[str]:
    return ["-" if value is None else str(value) for value in values]
