"""Figures 1, 2, 5 and 9 to 20 of apc.txt from our runs, as charts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from daemons.report.charts import Chart, Mark, Scale, Series, Style, X
from daemons.report.themes import AT_BLUE, AT_GREEN, AT_INK, AT_ORANGE, DASHED, DOTTED, SOLID
from sim_backend.experiments.apc import equal, hypothetical, random
from sim_backend.experiments.apc.runs import Cycle, RunOutcome, distance_s, utility
from sim_backend.experiments.apc.settings import (
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
from sim_backend.experiments.drawing import saved
from sim_backend.experiments.experiment import mean
from sim_backend.world.figures import JobRun

_saved = partial(saved, "apc")
_COLOURS = (AT_BLUE, AT_ORANGE, AT_GREEN)
_TIME = "time (1,000 s)"
_SPREAD_GAPS_S = (400.0, 300.0, 200.0, 100.0, 50.0)
_SHIFT = 0.25  # of the points of one policy from those of the next


# --- Experiment One: figures 1, 2 and 5 ---------------------------------------------------------------------------


def draw_one(results: Sequence[Any], folder: Path) -> list[Path]:
    """Draw figures 1, 2 and 5, which are computed from formulas alone."""
    del results
    return [_saved(folder, "1", _figure_1()), _saved(folder, "2", _figure_2()), _saved(folder, "5", _figure_5())]


def _figure_1() -> Chart:
    speeds = np.array([10_000.0, 13_000.0, 16_000.0, 20_000.0, 25_000.0, 30_000.0])
    values = hypothetical.figure_1(speeds)
    series = tuple(
        Series(f"highest speed {speed:,.0f} MHz", range(len(values)), values[:, column].tolist(), dotted=True)
        for column, speed in enumerate(speeds)
    )
    return Chart(
        "speeds", "maximum achievable utility", "maximum achievable utility", series=series, x=X.NUMBER, x_label="cycle"
    )


def _figure_2() -> Chart:
    targets = np.linspace(-1.0, 0.6, 161)
    one, other = hypothetical.figure_2(targets)
    series = (
        Series("application 1", targets.tolist(), one.tolist(), colour=AT_BLUE, dash=SOLID),
        Series("application 2", targets.tolist(), other.tolist(), colour=AT_ORANGE, dash=SOLID),
        Series("together", targets.tolist(), (one + other).tolist(), colour=AT_INK, dash=DASHED),
    )
    return Chart(
        "needed", "CPU needed for a target utility", "CPU (MHz)", series=series, x=X.NUMBER, x_label="target utility"
    )


def _figure_5() -> Chart:
    times_s = np.linspace(0.0, 5_000.0, 51)
    series: list[Series] = []
    for factor, dash, of in ((1.0, SOLID, "identical"), (hypothetical.FIGURE_5_FACTOR, DASHED, "different")):
        running, stopped = hypothetical.figure_5(times_s, factor)
        for values, colour, what in (
            (running, AT_BLUE, "running"),
            (stopped, AT_ORANGE, "stopped"),
            (running + stopped, AT_INK, "together"),
        ):
            times = (times_s / 1e3).tolist()
            series.append(Series(f"{of}: {what}", times, values.tolist(), colour=colour, dash=dash))
    title = "CPU needed for the utility -0.1, one job running"
    return Chart("stopped", title, "CPU needed (MHz)", series=tuple(series), x=X.NUMBER, x_label=_TIME)


# --- Experiments Two and Three: figures 9 to 14, of the first seed ------------------------------------------------


def draw_two(results: Sequence[equal.Seed], folder: Path) -> list[Path]:
    """Draw figures 9, 10 and 11."""
    ran = results[0].ran[APC.label]
    return [
        _saved(folder, "9", _jobs(ran)),
        _saved(folder, "10", _utility(ran, ())),
        _saved(folder, "11", _deciding(ran)),
    ]


def draw_three(results: Sequence[equal.Seed], folder: Path) -> list[Path]:
    """Draw figures 12, 13 and 14."""
    ran = results[0].ran[APC.label]
    return [
        _saved(folder, "12", _jobs(ran)),
        _saved(folder, "13", _utility(ran, FACTORS)),
        _saved(folder, "14", _operations(ran)),
    ]


def _times(cycles: Iterable[Cycle]) -> list[float]:
    return [cycle.at_s / 1e3 for cycle in cycles]


def _jobs(ran: RunOutcome) -> Chart:
    times = _times(ran.cycles)
    series = (
        Series("in the system", times, [c.jobs for c in ran.cycles], style=Style.STEP, colour=AT_ORANGE, dash=SOLID),
        Series("placed", times, [c.placed for c in ran.cycles], style=Style.STEP, colour=AT_BLUE, dash=DASHED),
    )
    return Chart("jobs", "jobs in the system and jobs placed", "jobs", series=series, x=X.NUMBER, x_label=_TIME)


def _utility(ran: RunOutcome, factors: Sequence[float]) -> Chart:
    shown = [cycle for cycle in ran.cycles if cycle.mean is not None]
    predicted = [cycle.mean for cycle in shown]
    series = [Series("hypothetical, mean over the jobs", _times(shown), predicted, colour=AT_INK)]
    marks: list[Mark] = []
    if not factors:
        series.append(_achieved("achieved at completion", ran.completed, AT_ORANGE))
    for factor, colour in zip(factors, _COLOURS, strict=False):
        runs = [run for run in ran.completed if equal.factor_of(run) == factor]
        series.append(_achieved(f"achieved, factor {factor:g}", runs, colour))
        marks.append(Mark(f"highest, factor {factor:g}", 1.0 - 1.0 / factor, colour=colour))
    title = "hypothetical utility and utility achieved"
    return Chart("utility", title, "utility", series=tuple(series), x=X.NUMBER, x_label=_TIME, marks=tuple(marks))


def _achieved(name: str, runs: Sequence[JobRun], colour: int) -> Series:
    found = sorted(((run.end_s or 0.0) / 1e3, utility(run)) for run in runs)
    return _cloud(name, found, colour)


def _cloud(name: str, points: Sequence[tuple[float, float]], colour: int) -> Series:
    return Series(name, [x for x, _ in points], [y for _, y in points], style=Style.POINTS, colour=colour)


def _deciding(ran: RunOutcome) -> Chart:
    taken = Series("APC", _times(ran.cycles), [cycle.decide_s * 1e3 for cycle in ran.cycles], style=Style.POINTS)
    return Chart(
        "deciding", "time of a decision", "time of a decision (ms)", series=(taken,), x=X.NUMBER, x_label=_TIME
    )


def _operations(ran: RunOutcome) -> Chart:
    series: list[Series] = []
    kinds = ("start", "suspend", "resume", "migrate")
    for kind, colour, dash in zip(kinds, (AT_INK, *_COLOURS), (SOLID, SOLID, DASHED, DOTTED), strict=True):
        counts = np.cumsum([cycle.operations.get(kind, 0) for cycle in ran.cycles]).tolist()
        series.append(Series(kind, _times(ran.cycles), counts, style=Style.STEP, colour=colour, dash=dash))
    title = "operations on virtual machines"
    return Chart(
        "operations", title, "operations so far", series=tuple(series), x=X.NUMBER, x_label=_TIME, scale=Scale.SYMLOG
    )


# --- Experiment Four: figures 15 to 17 ----------------------------------------------------------------------------


def draw_four(results: Sequence[random.Outcome], folder: Path) -> list[Path]:
    """Draw figures 15, 16 and 17, separately for policies at cycles and by events; 17 in seconds and in utility."""
    files = []
    for rivals, when, suffix in ((AT_CYCLES, "at cycles", ""), (BY_EVENTS, "by events", "-events")):
        met = _by_rate(results, rivals, f"goals met, {when}", "goals met (%)", _met)
        changes = _by_rate(results, rivals, f"placement changes, {when}", "changes", _changes)
        files += [_saved(folder, f"15{suffix}", met), _saved(folder, f"16{suffix}", changes)]
        seed = min(each.seed for each in results)
        own = [each for each in results if each.seed == seed]
        for unit, of, ending in (("s", distance_s, ""), ("utility", utility, "-utility")):
            panels = [_distances(own, rivals, gap_s, unit, of) for gap_s in _SPREAD_GAPS_S]
            title = "distance to the goal at completion"
            files.append(_saved(folder, f"17{suffix}{ending}", panels, title, len(panels)))
    return files


def _met(outcome: random.Outcome) -> float:
    return outcome.met_percent


def _changes(outcome: random.Outcome) -> float:
    return float(outcome.changes)


def _by_rate(
    results: Sequence[random.Outcome],
    rivals: Sequence[Rival],
    title: str,
    unit: str,
    of: Callable[[random.Outcome], float],
) -> Chart:
    series: list[Series] = []
    for rival, colour in zip(rivals, _COLOURS, strict=True):
        values = [mean([of(each) for each in random.of(results, rival, gap_s)]) for gap_s in GAPS_S]
        series.append(Series(rival.label, GAPS_S, values, colour=colour, dash=SOLID, dotted=True))
    return Chart("rates", title, unit, series=tuple(series), x=X.NUMBER, x_label="mean time between arrivals (s)")


def _distances(
    results: Sequence[random.Outcome],
    rivals: Sequence[Rival],
    gap_s: float,
    unit: str,
    of: Callable[[JobRun], float],
) -> Chart:
    """Return one of five panels, for one time between arrivals: every job's distance to its goal, by factor and
    policy."""
    series: list[Series] = []
    for shift, (rival, colour) in enumerate(zip(rivals, _COLOURS, strict=True)):
        runs = [run for each in random.of(results, rival, gap_s) for run in each.done]
        places = [RANDOM_FACTORS.index(random.factor_of(run)) + (shift - 1) * _SHIFT for run in runs]
        found = sorted(zip(places, [of(run) for run in runs], strict=True))
        series.append(_cloud(rival.label, found, colour))
    is_crowded = gap_s in random.CROWDED_S  # FCFS is late by many times the relative goal
    return Chart(
        f"every-{gap_s:g}-s",
        f"a job every {gap_s:g} s",
        f"distance to the goal ({unit})",
        series=tuple(series),
        x=X.CATEGORY,
        x_label="relative goal factor",
        x_names=tuple(f"{factor:g}" for factor in RANDOM_FACTORS),
        marks=(Mark("", 0.0, colour=AT_INK),),
        scale=Scale.SYMLOG if is_crowded else Scale.LINEAR,
        symlog_linear=1e4 if unit == "s" else 1.0,
    )


# --- Experiment Five: figures 18 to 20, of the first seed ---------------------------------------------------------


def draw_five(results: Sequence[RunOutcome], folder: Path) -> list[Path]:
    """Draw figures 18, 19 and 20."""
    ran = results[0]
    return [
        _saved(folder, "18", _web_utility()),
        _saved(folder, "19", _both_utilities(ran)),
        _saved(folder, "20", _both_mhz(ran)),
    ]


def _web_utility() -> Chart:
    mhz = np.linspace(WEB_LOAD_MHZ + 8_000.0, 160_000.0, 300)
    series = (Series("web application", (mhz / 1e3).tolist(), [web_utility(float(each)) for each in mhz]),)
    goal = (Mark("", 0.0, colour=AT_INK),)
    return Chart(
        "web", "utility of the web application", "utility", series=series, x=X.NUMBER, x_label="CPU (GHz)", marks=goal
    )


def _both_utilities(ran: RunOutcome) -> Chart:
    cycles = [cycle for cycle in ran.cycles if cycle.level is not None]
    times = _times(cycles)
    series = (
        Series("web application", times, [cycle.web for cycle in cycles], colour=AT_ORANGE, dash=SOLID),
        Series("jobs: common level", times, [cycle.level for cycle in cycles], colour=AT_BLUE, dash=SOLID),
        Series("jobs: mean", times, [cycle.mean for cycle in cycles], colour=AT_GREEN, dash=SOLID),
    )
    return Chart("utilities", "utility of both workloads", "utility", series=series, x=X.NUMBER, x_label=_TIME)


def _both_mhz(ran: RunOutcome) -> Chart:
    times = _times(ran.cycles)
    jobs = [c.jobs_mhz / 1e3 for c in ran.cycles]
    web = [c.web_mhz / 1e3 for c in ran.cycles]
    wanted = [c.jobs * JOB_MHZ / 1e3 for c in ran.cycles]
    series = (
        Series("jobs", times, jobs, style=Style.STEP, colour=AT_BLUE, dash=SOLID),
        Series("web application", times, web, style=Style.STEP, colour=AT_ORANGE, dash=SOLID),
        Series("jobs: for the highest utility", times, wanted, style=Style.STEP, colour=AT_BLUE, dash=DOTTED),
    )
    most = (Mark("web: for the highest utility", WEB_MAX_MHZ / 1e3, colour=AT_ORANGE),)
    return Chart("cpu", "CPU of both workloads", "CPU (GHz)", series=series, x=X.NUMBER, x_label=_TIME, marks=most)
