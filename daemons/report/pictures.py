"""Pictures of a run in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daemons.report.charts import Chart, Mark, Series, Style, X
from daemons.report.draw import png

SECONDS_PER_HOUR = 3600.0
LOWEST_UTILITY = -1.0  # lower values are drawn here: a longer axis would make the rest unreadable
WIDTH_PX, HEIGHT_PX = 1080, 360
_HOURS = "virtual time (h)"


@dataclass(frozen=True, slots=True)
class RunSeries:
    """What a run looked like at `times_s` (one value per time in each series).

    `waiting`, `running`, `completed`: jobs; suspended ones count as waiting. `allotted_mhz`: CPU given to VMs that
    run, of `capacity_mhz` in all; `web_mhz`: the part of it that web applications have. `web_utility`: measured against
    the goals, `jobs_level`: the jobs' common level (None: nothing was measured, or there is no job that runs). The last
    three are empty where there is no web application.
    """

    times_s: Sequence[float]
    waiting: Sequence[int]
    running: Sequence[int]
    completed: Sequence[int]
    allotted_mhz: Sequence[float]
    capacity_mhz: float
    web_mhz: Sequence[float] = ()
    web_utility: Sequence[float | None] = ()
    jobs_level: Sequence[float | None] = ()


def draw_run(series: RunSeries, title: str) -> bytes:
    """Draw jobs, utilities (if there is a web application) and allotted CPU over time as a PNG picture. Raises
    ModuleNotFoundError without matplotlib (see `draw.can_draw`)."""
    return png(run_charts(series), "light", WIDTH_PX, HEIGHT_PX, title)


def run_charts(series: RunSeries) -> tuple[Chart, ...]:
    """Return charts of jobs, utilities (if there is a web application) and allotted CPU over time."""
    hours = [time_s / SECONDS_PER_HOUR for time_s in series.times_s]
    counts = {"waiting": series.waiting, "running": series.running, "completed": series.completed}
    jobs = tuple(Series(name, hours, values, style=Style.STEP) for name, values in counts.items())
    charts = [Chart("jobs", "Jobs", "jobs", series=jobs, x=X.NUMBER, x_label=_HOURS, y_min=0.0)]
    if series.web_utility:
        charts.append(_utility(hours, series))
    cpu = [Series("allotted", hours, [mhz / 1000 for mhz in series.allotted_mhz], style=Style.AREA)]
    if series.web_mhz:
        cpu.append(Series("web applications", hours, [mhz / 1000 for mhz in series.web_mhz], style=Style.STEP))
    all_nodes = Mark("capacity of all nodes", series.capacity_mhz / 1000)
    charts.append(
        Chart("cpu", "CPU", "CPU (GHz)", series=tuple(cpu), x=X.NUMBER, x_label=_HOURS, marks=(all_nodes,), y_min=0.0)
    )
    return tuple(charts)


def draw_band(runs: Sequence[RunSeries], title: str) -> bytes:
    """Return a PNG picture of several runs, at least one: of the utilities the median, and between which nine in ten
    are. ModuleNotFoundError without matplotlib (see `draw.can_draw`)."""
    longest = max((run.times_s for run in runs), key=len)
    hours = [time_s / SECONDS_PER_HOUR for time_s in longest]
    web = _band("web application, measured", hours, [run.web_utility for run in runs], 0)
    jobs = _band("jobs, common utility", hours, [run.jobs_level for run in runs], 1)
    chart = _utilities((*web, *jobs))
    return png((chart,), "light", WIDTH_PX, HEIGHT_PX, title)


def _band(name: str, hours: Sequence[float], runs: Sequence[Sequence[float | None]], colour: int) -> tuple[Series, ...]:
    """Return the median of some runs at each time, and the band from the lowest to the highest twentieth; each run ends
    at its own time."""
    low: list[float | None] = []
    middle: list[float | None] = []
    high: list[float | None] = []
    for row in range(len(hours)):
        values = [value for run in runs if row < len(run) and (value := run[row]) is not None]
        found = np.quantile(values, (0.05, 0.5, 0.95)).tolist() if values else (None, None, None)
        for kept, value in zip((low, middle, high), found, strict=True):
            kept.append(value)
    if not any(value is not None for value in middle):
        return ()
    edges = Series(f"{name}, 90 % band", hours, _shown(high), style=Style.BAND, edge=_shown(low), colour=colour)
    return edges, Series(f"{name}, median", hours, _shown(middle), style=Style.STEP, colour=colour)


def _utility(hours: Sequence[float], series: RunSeries) -> Chart:
    named = {"web application, measured": series.web_utility, "jobs, common utility": series.jobs_level}
    lines = tuple(Series(name, hours, _shown(values), style=Style.STEP) for name, values in named.items())
    return _utilities(lines)


def _utilities(lines: tuple[Series, ...]) -> Chart:
    on_goal = (Mark("goal met exactly", 0.0),)
    return Chart(
        "utility",
        "Utility",
        "utility",
        series=lines,
        x=X.NUMBER,
        x_label=_HOURS,
        marks=on_goal,
        y_min=LOWEST_UTILITY,
        y_max=1.05,
    )


def _shown(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else max(value, LOWEST_UTILITY) for value in values]
