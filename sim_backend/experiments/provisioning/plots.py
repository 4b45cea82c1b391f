"""Figures 5.2 to 5.17 of batch-provisioning.txt from our figures, as charts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from daemons.report.charts import Chart, Scale, Series, Style, X
from daemons.report.themes import (
    AT_BLUE,
    AT_GREEN,
    AT_GREY,
    AT_INK,
    AT_LAST,
    AT_ORANGE,
    AT_OTHER,
    AT_PURPLE,
    DOTTED,
)
from sim_backend.experiments.drawing import saved
from sim_backend.experiments.provisioning.runs import BINS, Capacities, Priced, Scaled, Streams
from sim_backend.experiments.provisioning.settings import AWARE, HEURISTIC, RUNS, SHAPES, SIMPLE, thesis

_saved = partial(saved, "provisioning")
_BARS = ("static", *HEURISTIC, "optimal")
_TINTS = (AT_INK, AT_LAST, AT_PURPLE, AT_BLUE, AT_ORANGE, AT_GREEN, AT_OTHER)
_TIME = "interval of 15 minutes"


def draw_arrivals(results: Sequence[Streams], folder: Path) -> list[Path]:
    """Draw figures 5.2 and 5.3."""
    counts = np.mean([each.by_interval for each in results], axis=0).tolist()
    at_s = np.linspace(0.0, 57_600.0, 200)
    curve = Series("a(x)", at_s.tolist(), thesis().scenario.gap_factor(at_s).tolist())
    bars = Series("arrivals", [place + 0.5 for place in range(BINS)], counts, style=Style.BAR)
    gaps = Chart("gaps", "factor of the gaps between arrivals", "a(x)", series=(curve,), x=X.NUMBER, x_label="x (s)")
    arrivals = Chart("arrivals", "mean number of arrivals", "arrivals", series=(bars,), x=X.NUMBER, x_label=_TIME)
    return [_saved(folder, "5.2", gaps), _saved(folder, "5.3", arrivals)]


def draw_capacities(results: Sequence[Capacities], folder: Path) -> list[Path]:
    """Draw g_s(p), which figures 5.12 to 5.14 show for pmax."""
    series = tuple(
        Series(f"p = {place + 1}", range(len(jobs)), [None if each < 0 else each for each in jobs], style=Style.STEP)
        for place, jobs in enumerate(results[0].table.T.tolist())
    )
    title = "most jobs that p servers finish, 99.99 %"
    return [_saved(folder, "g", Chart("capacities", title, "jobs", series=series, x=X.NUMBER, x_label=_TIME))]


def draw_policies(results: Sequence[Priced], folder: Path) -> list[Path]:
    """Draw figures 5.4 to 5.16."""
    found = {each.shape: each for each in results}
    pictures = [
        _saved(folder, "5.4", _prices(found)),
        _saved(folder, "5.5", _missing(found)),
        _saved(folder, "5.6", _servers("servers of H1 and H2", found["uniform"], SIMPLE)),
    ]
    for number, shape in enumerate(SHAPES, 7):
        pictures.append(_saved(folder, f"5.{number}", _servers(f"servers, price {shape}", found[shape], AWARE)))
    for number, name in enumerate(AWARE, 12):
        pictures.append(_saved(folder, f"5.{number}", _queue(name, found)))
    for figure, title, value in (
        ("5.15", "cost of a period", lambda each: each.expected_server_cost),
        ("5.16", "servers added in a period", lambda each: each.deployments.servers),
    ):
        pictures.append(_saved(folder, figure, _of_all(title, found, value)))
    return pictures


def _prices(found: dict[str, Priced]) -> Chart:
    series = tuple(
        Series(shape, [place + 0.5 for place in range(len(each.price))], each.price.tolist())
        for shape, each in found.items()
    )
    return Chart("prices", "cost functions", "price of a server", series=series, x=X.NUMBER, x_label=_TIME)


def _bars(found: dict[str, Priced], names: Sequence[str], value: Callable[[str, str], float]) -> tuple[Series, ...]:
    return tuple(
        Series(
            HEURISTIC.get(name, name),
            range(len(found)),
            [value(shape, name) for shape in found],
            style=Style.BAR,
            colour=_TINTS[_BARS.index(name)],
        )
        for name in names
    )


def _missing(found: dict[str, Priced]) -> Chart:
    bars = _bars(found, AWARE, lambda shape, name: 100.0 * found[shape].exact[name].miss_probability)
    played = [
        (place, 100.0 * outcome[name].missed / RUNS)
        for place, each in enumerate(found.values())
        for outcome in each.played
        for name in AWARE
    ]
    runs = Series(f"{RUNS} runs", [x for x, _ in played], [y for _, y in played], style=Style.POINTS, colour=AT_INK)
    title = "runs with a missed deadline"
    return Chart("missed", title, "probability (%)", series=(*bars, runs), x=X.CATEGORY, x_names=tuple(found))


def _servers(title: str, priced: Priced, names: Sequence[str]) -> Chart:
    means = {HEURISTIC[name]: priced.exact[name].mean_servers.tolist() for name in names}
    series = tuple(Series(name, range(len(values)), values, style=Style.STEP) for name, values in means.items())
    return Chart("servers", title, "servers, mean", series=series, x=X.NUMBER, x_label=_TIME, y_min=0.0)


def _queue(name: str, found: dict[str, Priced]) -> Chart:
    means = {shape: each.exact[name].mean_jobs.tolist() for shape, each in found.items()}
    top = found["uniform"].top.tolist()
    series = (
        *(Series(shape, range(len(values)), values) for shape, values in means.items()),
        Series("g_s(pmax)", range(len(top)), top, style=Style.STEP, colour=AT_GREY, dash=DOTTED),
    )
    title = f"jobs in the system, {HEURISTIC[name]}"
    return Chart("jobs", title, "jobs, mean", series=series, x=X.NUMBER, x_label=_TIME)


def _of_all(title: str, found: dict[str, Priced], value: Callable[[Any], float]) -> Chart:
    bars = _bars(found, _BARS, lambda shape, name: value(found[shape].exact[name]))
    return Chart("policies", title, title, series=bars, x=X.CATEGORY, x_names=tuple(found))


def draw_scale(results: Sequence[Scaled], folder: Path) -> list[Path]:
    """Figure 5.17."""
    ordered = sorted(results, key=lambda each: each.servers_max)
    sizes = [each.servers_max for each in ordered]
    series = tuple(
        Series(HEURISTIC.get(what, what), sizes, [each.took_s[what] for each in ordered], dotted=True)
        for what in ordered[0].took_s
    )
    chart = Chart(
        "scale", "time of exact tables", "time (s)", series=series, x=X.NUMBER, x_label="pmax", scale=Scale.LOG
    )
    return [_saved(folder, "5.17", chart)]
