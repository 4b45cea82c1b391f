"""`trimtab sim days`: days of a log's jobs with a deadline every morning, under real prices, by every policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click
import numpy as np
from rich.console import RenderableType
from rich.progress import Progress
from rich.text import Text

from daemons.capacity.process_pool import run_all
from daemons.capacity.swf import read_swf
from daemons.cli.numbers import Number, Whole
from daemons.cli.output import emit, messages, output_option
from daemons.cli.tables import Fitted, stacked
from daemons.drivers.price_feed import PriceFeed
from daemons.models.deadline.rules import METHODS
from daemons.values.settings import Draw, Removal, ServiceModel
from shared.base.clock import perf_s
from shared.base.errors import InvalidInput, Problem
from shared.ports.plugins import find_policy
from sim_backend.history.days import DAY_S, Days, DaysOutcome, days_of, least_cost, run_days

COLUMNS = {
    "policy": "policy",
    "removal": "jobs on leaving nodes",
    "cost": "cost",
    "saved_frac": "below threshold",
    "kwh": "kWh",
    "misses": "jobs late",
    "missed_days": "days missed",
    "interval": "99 % interval",
    "impossible_days": "impossible",
    "foretold_days": "foretold",
    "alarm_days": "days of alarm",
    "node_starts": "node starts",
    "mean_up": "nodes up",
    "mean_busy": "nodes busy",
    "mean_turnaround_s": "turnaround s",
}
LEAST = (
    "mean_turnaround_s",
    "mean_busy",
    "alarm_days",
    "foretold_days",
    "impossible_days",
    "interval",
    "node_starts",
    "mean_up",
    "kwh",
    "removal",
)  # dropped first where there is not room for all
BASE = "threshold"
DAYS_MAX = 1_000
FIRST_DAY_MAX = 100_000
SERVICE_MAX_S = 1e7


@click.command()
@click.argument("log", type=click.Path(path_type=Path))
@click.option("--prices", type=click.Path(path_type=Path), required=True, help="CSV file with the price of every hour.")
@click.option("--column", default="price_eur_per_mwh", show_default=True, help="Column of the price.")
@click.option(
    "--factor", type=Number(1e-9, 1e9), default=0.001, show_default=True, help="Factor that makes it a price per kWh."
)
@click.option("--timezone", default="UTC", show_default=True, help="Time zone of the prices.")
@click.option(
    "--from", "from_day", type=click.DateTime(("%Y-%m-%d",)), required=True, help="Date of the first day of prices."
)
@click.option("--first-day", type=Whole(1, FIRST_DAY_MAX), default=7, show_default=True, help="First day of the log.")
@click.option("--days", "count", type=Whole(1, DAYS_MAX), default=30, show_default=True, help="Number of days.")
@click.option("--nodes", type=Whole(1, 1_000), default=6, show_default=True, help="Number of nodes, each for one job.")
@click.option(
    "--confidence",
    type=Number(0.5, 0.999999),
    default=0.99,
    show_default=True,
    help="Confidence of meeting the deadline.",
)
@click.option("--policies", default=",".join(METHODS), help="Provisioning policies, comma between.  [default: all]")
@click.option(
    "--service-s",
    type=Number(1.0, SERVICE_MAX_S),
    help="Draw exponential run times with this mean, in seconds, instead of those of the log.",
)
@click.option(
    "--removal",
    "removals",
    type=click.Choice(tuple(each.value for each in Removal)),
    multiple=True,
    default=(Removal.CHECKPOINT.value,),
    show_default=True,
    help="What happens to jobs on nodes that leave service; repeatable.",
)
@click.option("--seed", type=Whole(0), default=0, show_default=True, help="Seed of the wake-up times.")
@click.option(
    "--report-s", type=Number(60.0, 900.0), default=60.0, show_default=True, help="Seconds between reports of a node."
)
@click.option(
    "--service",
    type=click.Choice(tuple(each.value for each in ServiceModel)),
    default=ServiceModel.AUTO.value,
    show_default=True,
    help="Assumed distribution of run times.",
)
@output_option
def days(
    log: Path,
    prices: Path,
    column: str,
    factor: float,
    timezone: str,
    from_day: datetime,
    first_day: int,
    count: int,
    nodes: int,
    confidence: float,
    policies: str,
    service_s: float | None,
    removals: tuple[str, ...],
    seed: int,
    report_s: float,
    service: str,
) -> None:
    """Simulate days of the jobs in LOG (SWF), each on a whole node and due at 7:00, under real prices by every policy.

    \b
    Example:
      trimtab sim days log.swf --prices prices.csv --from 2024-01-01 --days 7
    """
    names = [name.strip() for name in policies.split(",") if name.strip()]
    for name in names:
        find_policy("provisioning", name)
    begun_s = perf_s()
    starts_s, per_kwh = _prices(prices, column, factor, timezone, from_day.date(), count)
    played = days_of(
        read_swf(log),
        first_day,
        count,
        service_s,
        nodes=nodes,
        starts_s=starts_s,
        per_kwh=per_kwh,
        confidence=confidence,
        draw=Draw(),
        seed=seed,
        report_s=report_s,
        service=ServiceModel(service),
    )
    outcomes = _play([replace(played, removal=Removal(each)) for each in dict.fromkeys(removals)], names)
    rows = [_row(each, outcomes) for each in outcomes]
    values = {"rows": rows, "least_cost": least_cost(played), "wall_s": perf_s() - begun_s}
    emit(values, lambda: _for_people(played, values))


def _prices(
    path: Path, column: str, factor: float, timezone: str, first: date, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Begins of the hours in seconds since the first midnight, and their prices, to the end of the last night."""
    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInput(
            Problem("--timezone", f"there is no {timezone!r}", "a zone such as Europe/Berlin")
        ) from error
    read = PriceFeed(str(path), column, timezone, factor).read()
    if read.error:
        raise InvalidInput(Problem("--prices", read.error, "a series without gaps"))
    begin_s = datetime(first.year, first.month, first.day, tzinfo=zone).timestamp()
    starts_s = np.array(read.starts_s) - begin_s
    inside = (starts_s >= 0.0) & (starts_s < (count + 1) * DAY_S)
    if not inside.any() or starts_s[inside][0] > 0.0 or read.until_s - begin_s < (count + 1) * DAY_S:
        expected = f"prices from {first} on for {count + 1} days"
        raise InvalidInput(Problem(str(path), "does not cover the days", expected))
    return starts_s[inside], np.array(read.per_kwh)[inside]


def _play(settings: Sequence[Days], names: Sequence[str]) -> list[DaysOutcome]:
    console = messages()
    work = [(run_days, (each, name)) for name in names for each in settings]
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("policies", total=len(work))
        return run_all(work, tell=lambda done: progress.update(task, completed=done))


def _row(outcome: DaysOutcome, outcomes: Sequence[DaysOutcome]) -> dict[str, Any]:
    """Return a row whose savings are relative to the first outcome of the threshold policy."""
    base = next((each.cost for each in outcomes if each.policy == BASE), None)
    saved = 1.0 - outcome.cost / base if base else None
    foretold = sum(each.foretold for each in outcome.missed)
    interval = [outcome.low_frac, outcome.high_frac]
    return outcome.to_json() | {"saved_frac": saved, "foretold_days": foretold, "interval": interval}


def _for_people(played: Days, values: Mapping[str, Any]) -> RenderableType:
    what = f"{len(played.submits_s)} jobs in {played.days} days on {played.nodes} nodes"
    bound = f"lower bound of the cost with all jobs in time: {values['least_cost']:.4g}"
    rows = [[_shown(name, row[name]) for name in COLUMNS] for row in values["rows"]]
    return stacked(Fitted(what, tuple(COLUMNS.values()), rows, tuple(COLUMNS[name] for name in LEAST)), Text(bound))


def _shown(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "saved_frac":
        return f"{value:.1%}"
    if name == "interval":
        return f"{value[0]:.1%} to {value[1]:.1%}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
