"""Figures 1, 2, 5 and 9 to 20 of apc.txt from our runs, drawn with matplotlib (extra `plots`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from daemons.report.draw import png_by
from daemons.report.themes import BLACK, BLUE, GREEN, ORANGE
from sim_backend.experiments import apc_equal, apc_hypothetical, apc_random
from sim_backend.experiments.apc_runs import Cycle, Ran, distance_s, utility
from sim_backend.experiments.apc_settings import (
    APC,
    AT_CYCLES,
    BY_EVENTS,
    FACTORS,
    GAPS_S,
    JOB_MHZ,
    RANDOM_FACTORS,
    WEB_LOAD_MHZ,
    WEB_MAX_MHZ,
    Rival,
    web_utility,
)
from sim_backend.experiments.claims import mean
from sim_backend.experiments.drawing import Axes, name_axes, saved
from sim_backend.figures import JobRun

_saved = partial(saved, "apc")
_COLOURS = (BLUE, ORANGE, GREEN)
_MARKS = ("o", "s", "^")
_TIME = "time (1,000 s)"
_SPREAD_GAPS_S = (400.0, 300.0, 200.0, 100.0, 50.0)


# --- Experiment One: figures 1, 2 and 5 ---------------------------------------------------------------------------


def draw_one(results: Sequence[Any], folder: Path) -> list[Path]:
    """Figures 1, 2 and 5, which come from formulas alone."""
    del results
    return [
        _saved(folder, "1", "maximum achievable utility", _draw_1),
        _saved(folder, "2", "CPU needed for a target utility", _draw_2),
        _saved(folder, "5", "CPU needed for the utility -0.1, one job running", _draw_5),
    ]


def _draw_1(axes: Axes) -> None:
    speeds = np.array([10_000.0, 13_000.0, 16_000.0, 20_000.0, 25_000.0, 30_000.0])
    values = apc_hypothetical.figure_1(speeds)
    for column, speed in enumerate(speeds):
        axes.plot(np.arange(len(values)), values[:, column], marker=".", label=f"highest speed {speed:,.0f} MHz")
    name_axes(axes, "cycle", "maximum achievable utility")


def _draw_2(axes: Axes) -> None:
    targets = np.linspace(-1.0, 0.6, 161)
    one, other = apc_hypothetical.figure_2(targets)
    for values, label, colour in ((one, "application 1", BLUE), (other, "application 2", ORANGE)):
        axes.plot(targets, values, color=colour, label=label)
    axes.plot(targets, one + other, color=BLACK, linestyle="--", label="together")
    name_axes(axes, "target utility", "CPU (MHz)")


def _draw_5(axes: Axes) -> None:
    times_s = np.linspace(0.0, 5_000.0, 51)
    for factor, style, of in ((1.0, "-", "identical"), (apc_hypothetical.FIGURE_5_FACTOR, "--", "different")):
        running, stopped = apc_hypothetical.figure_5(times_s, factor)
        for values, colour, what in (
            (running, BLUE, "running"),
            (stopped, ORANGE, "stopped"),
            (running + stopped, BLACK, "together"),
        ):
            axes.plot(times_s / 1e3, values, color=colour, linestyle=style, label=f"{of}: {what}")
    name_axes(axes, _TIME, "CPU needed (MHz)")


# --- Experiments Two and Three: figures 9 to 14, of the first seed ------------------------------------------------


def draw_two(results: Sequence[apc_equal.Seed], folder: Path) -> list[Path]:
    """Figures 9, 10 and 11."""
    ran = results[0].ran[APC.label]
    return [
        _saved(folder, "9", "jobs in the system and jobs placed", lambda axes: _draw_jobs(axes, ran)),
        _saved(folder, "10", "hypothetical utility and utility achieved", lambda axes: _draw_utility(axes, ran, ())),
        _saved(folder, "11", "time of a decision", lambda axes: _draw_deciding(axes, ran), legend=False),
    ]


def draw_three(results: Sequence[apc_equal.Seed], folder: Path) -> list[Path]:
    """Figures 12, 13 and 14."""
    ran = results[0].ran[APC.label]
    return [
        _saved(folder, "12", "jobs in the system and jobs placed", lambda axes: _draw_jobs(axes, ran)),
        _saved(
            folder, "13", "hypothetical utility and utility achieved", lambda axes: _draw_utility(axes, ran, FACTORS)
        ),
        _saved(folder, "14", "operations on virtual machines", lambda axes: _draw_operations(axes, ran)),
    ]


def _times(cycles: Iterable[Cycle]) -> list[float]:
    return [cycle.at_s / 1e3 for cycle in cycles]


def _draw_jobs(axes: Axes, ran: Ran) -> None:
    times = _times(ran.cycles)
    axes.step(times, [c.jobs for c in ran.cycles], where="post", color=ORANGE, label="in the system")
    axes.step(times, [c.placed for c in ran.cycles], where="post", color=BLUE, linestyle="--", label="placed")
    name_axes(axes, _TIME, "jobs")


def _points(axes: Axes, runs: Sequence[JobRun], colour: str, label: str) -> None:
    ends = [(run.end_s or 0.0) / 1e3 for run in runs]
    axes.plot(ends, [utility(run) for run in runs], ".", color=colour, markersize=3, label=label)


def _draw_utility(axes: Axes, ran: Ran, factors: Sequence[float]) -> None:
    shown = [cycle for cycle in ran.cycles if cycle.mean is not None]
    axes.plot(_times(shown), [c.mean for c in shown], color=BLACK, label="hypothetical, mean over the jobs")
    if not factors:
        _points(axes, ran.completed, ORANGE, "achieved at completion")
    for factor, colour in zip(factors, _COLOURS, strict=False):
        runs = [run for run in ran.completed if apc_equal.factor_of(run) == factor]
        _points(axes, runs, colour, f"achieved, factor {factor:g}")
        axes.axhline(1.0 - 1.0 / factor, color=colour, linestyle=":", label=f"highest, factor {factor:g}")
    name_axes(axes, _TIME, "utility")


def _draw_deciding(axes: Axes, ran: Ran) -> None:
    axes.plot(_times(ran.cycles), [cycle.decide_s * 1e3 for cycle in ran.cycles], ".", color=BLUE)
    name_axes(axes, _TIME, "time of a decision (ms)")


def _draw_operations(axes: Axes, ran: Ran) -> None:
    kinds = ("start", "suspend", "resume", "migrate")
    for kind, colour, style in zip(kinds, (BLACK, *_COLOURS), ("-", "-", "--", ":"), strict=True):
        counts = np.cumsum([cycle.operations.get(kind, 0) for cycle in ran.cycles])
        axes.step(_times(ran.cycles), counts, where="post", color=colour, linestyle=style, label=kind)
    axes.set_yscale("symlog")
    name_axes(axes, _TIME, "operations so far")


# --- Experiment Four: figures 15 to 17 ----------------------------------------------------------------------------


def draw_four(results: Sequence[apc_random.Outcome], folder: Path) -> list[Path]:
    """Figures 15, 16 and 17, policies at cycles and by events apart; 17 in seconds and in utility."""
    files = []
    for rivals, when, suffix in ((AT_CYCLES, "at cycles", ""), (BY_EVENTS, "by events", "-events")):
        files += [
            _saved(folder, f"15{suffix}", f"goals met, {when}", _by_rate(results, rivals, "goals met (%)", _met)),
            _saved(folder, f"16{suffix}", f"placement changes, {when}", _by_rate(results, rivals, "changes", _changes)),
        ]
        seed = min(each.seed for each in results)
        for unit, of in (("s", distance_s), ("utility", utility)):
            files.append(_draw_17([r for r in results if r.seed == seed], rivals, unit, of, folder, suffix))
    return files


def _met(outcome: apc_random.Outcome) -> float:
    return outcome.met_percent


def _changes(outcome: apc_random.Outcome) -> float:
    return float(outcome.changes)


def _by_rate(
    results: Sequence[apc_random.Outcome], rivals: Sequence[Rival], y: str, of: Callable[[apc_random.Outcome], float]
) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for rival, colour, mark in zip(rivals, _COLOURS, _MARKS, strict=True):
            values = [mean([of(each) for each in apc_random.of(results, rival, gap_s)]) for gap_s in GAPS_S]
            axes.plot(GAPS_S, values, color=colour, marker=mark, label=rival.label)
        name_axes(axes, "mean time between arrivals (s)", y)

    return draw


def _draw_17(
    results: Sequence[apc_random.Outcome],
    rivals: Sequence[Rival],
    unit: str,
    of: Callable[[JobRun], float],
    folder: Path,
    suffix: str,
) -> Path:
    """Five panels, one for each time between arrivals: every job's distance, by factor and policy."""
    number = f"17{suffix}" + ("" if unit == "s" else "-utility")
    draw = partial(_draw_panels, results, rivals, unit, of, number)
    path = folder / f"apc-figure-{number}.png"
    path.write_bytes(png_by(draw, f"apc-{number}", width_px=1680, height_px=600))
    return path


def _draw_panels(
    results: Sequence[apc_random.Outcome],
    rivals: Sequence[Rival],
    unit: str,
    of: Callable[[JobRun], float],
    number: str,
    figure: Any,
) -> None:
    panels = figure.subplots(1, len(_SPREAD_GAPS_S))
    for axes, gap_s in zip(panels, _SPREAD_GAPS_S, strict=True):
        for shift, (rival, colour) in enumerate(zip(rivals, _COLOURS, strict=True)):
            runs = [run for each in apc_random.of(results, rival, gap_s) for run in each.done]
            places = [RANDOM_FACTORS.index(apc_random.factor_of(run)) + (shift - 1) * 0.25 for run in runs]
            axes.plot(places, [of(run) for run in runs], ".", color=colour, markersize=2, label=rival.label)
        axes.axhline(0.0, color=BLACK, linewidth=0.8)
        if gap_s in apc_random.CROWDED_S:  # FCFS is late by many times the relative goal
            axes.set_yscale("symlog", linthresh=1e4 if unit == "s" else 1.0)
        axes.set_xticks(range(len(RANDOM_FACTORS)), [f"{factor:g}" for factor in RANDOM_FACTORS])
        axes.set_title(f"a job every {gap_s:g} s", fontsize="small")
        axes.set_xlabel("relative goal factor")
    panels[0].set_ylabel("distance to the goal (s)" if unit == "s" else "distance to the goal (utility)")
    panels[-1].legend(loc="best", fontsize="x-small", markerscale=4)
    figure.suptitle(f"apc.txt, figure {number}: distance to the goal at completion")


# --- Experiment Five: figures 18 to 20, of the first seed ---------------------------------------------------------


def draw_five(results: Sequence[Ran], folder: Path) -> list[Path]:
    """Figures 18, 19 and 20."""
    ran = results[0]
    return [
        _saved(folder, "18", "utility of the web application", _draw_18, legend=False),
        _saved(folder, "19", "utility of both workloads", lambda axes: _draw_19(axes, ran)),
        _saved(folder, "20", "CPU of both workloads", lambda axes: _draw_20(axes, ran)),
    ]


def _draw_18(axes: Axes) -> None:
    mhz = np.linspace(WEB_LOAD_MHZ + 8_000.0, 160_000.0, 300)
    axes.plot(mhz / 1e3, [web_utility(float(each)) for each in mhz], color=BLUE)
    axes.axhline(0.0, color=BLACK, linewidth=0.8)
    name_axes(axes, "CPU (GHz)", "utility")


def _draw_19(axes: Axes, ran: Ran) -> None:
    cycles = [cycle for cycle in ran.cycles if cycle.level is not None]
    axes.plot(_times(cycles), [cycle.web for cycle in cycles], color=ORANGE, label="web application")
    axes.plot(_times(cycles), [cycle.level for cycle in cycles], color=BLUE, label="jobs: common level")
    axes.plot(_times(cycles), [cycle.mean for cycle in cycles], color=GREEN, label="jobs: mean")
    name_axes(axes, _TIME, "utility")


def _draw_20(axes: Axes, ran: Ran) -> None:
    times = _times(ran.cycles)
    axes.step(times, [c.jobs_mhz / 1e3 for c in ran.cycles], where="post", color=BLUE, label="jobs")
    axes.step(times, [c.web_mhz / 1e3 for c in ran.cycles], where="post", color=ORANGE, label="web application")
    wanted = [c.jobs * JOB_MHZ / 1e3 for c in ran.cycles]
    axes.step(times, wanted, where="post", color=BLUE, linestyle=":", label="jobs: for the highest utility")
    axes.axhline(WEB_MAX_MHZ / 1e3, color=ORANGE, linestyle=":", label="web: for the highest utility")
    name_axes(axes, _TIME, "CPU (GHz)")
