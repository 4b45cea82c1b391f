"""Pictures of a run, drawn with matplotlib (extra `plots`), which is imported only when something is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SECONDS_PER_HOUR = 3600.0
# Okabe and Ito's colours, told apart by people with any kind of colour vision; line styles differ as well.
ORANGE, BLUE, GREEN, BLACK = "#E69F00", "#0072B2", "#009E73", "#000000"
FILL_ALPHA = 0.25
LOWEST_UTILITY = -1.0  # what is worse is drawn there: how much worse makes the rest unreadable


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


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def draw_run(series: RunSeries, title: str, path: Path) -> None:
    """Draw jobs, utilities (where there is a web application) and allotted CPU over time into a PNG file.
    ModuleNotFoundError without matplotlib (see `can_draw`), OSError when the file cannot be written."""
    from matplotlib.figure import Figure

    parts = [_draw_jobs, _draw_utility, _draw_cpu] if series.web_utility else [_draw_jobs, _draw_cpu]
    figure = Figure(figsize=(9, 3 * len(parts)), dpi=120, layout="constrained")
    hours = [time_s / SECONDS_PER_HOUR for time_s in series.times_s]
    for draw, axes in zip(parts, figure.subplots(len(parts), 1, sharex=True), strict=True):
        draw(axes, hours, series)
    figure.suptitle(title)
    figure.savefig(path)


def _draw_jobs(axes: Any, hours: Sequence[float], series: RunSeries) -> None:
    axes.step(hours, series.waiting, where="post", color=ORANGE, linestyle="--", label="waiting")
    axes.step(hours, series.running, where="post", color=BLUE, linestyle="-", label="running")
    axes.step(hours, series.completed, where="post", color=GREEN, linestyle="-.", label="completed")
    axes.set_ylabel("jobs")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=FILL_ALPHA)
    axes.legend(loc="best")


def _draw_utility(axes: Any, hours: Sequence[float], series: RunSeries) -> None:
    for name, values, color, line in (
        ("web application, measured", series.web_utility, BLUE, "-"),
        ("jobs, common level", series.jobs_level, ORANGE, "--"),
    ):
        shown = [math.nan if value is None else max(value, LOWEST_UTILITY) for value in values]
        axes.step(hours, shown, where="post", color=color, linestyle=line, label=name)
    axes.axhline(0.0, color=BLACK, linestyle=":", label="on goal")
    axes.set_ylabel("utility")
    axes.set_ylim(LOWEST_UTILITY, 1.05)
    axes.grid(alpha=FILL_ALPHA)
    axes.legend(loc="best")


def _draw_cpu(axes: Any, hours: Sequence[float], series: RunSeries) -> None:
    allotted_ghz = [mhz / 1000 for mhz in series.allotted_mhz]
    axes.step(hours, allotted_ghz, where="post", color=BLUE, label="allotted")
    axes.fill_between(hours, allotted_ghz, step="post", color=BLUE, alpha=FILL_ALPHA)
    if series.web_mhz:
        web_ghz = [mhz / 1000 for mhz in series.web_mhz]
        axes.step(hours, web_ghz, where="post", color=GREEN, linestyle="-.", label="of it web")
    axes.axhline(series.capacity_mhz / 1000, color=BLACK, linestyle=":", label="of all nodes")
    axes.set_ylabel("CPU (GHz)")
    axes.set_xlabel("virtual time (h)")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=FILL_ALPHA)
    axes.legend(loc="best")
