"""Figures 5.2 to 5.17 of batch-provisioning.txt from our figures, drawn with matplotlib (extra `plots`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from daemons.report.themes import BLACK, BLUE, GREEN, ORANGE
from sim_backend.experiments.drawing import Axes, name_axes, saved
from sim_backend.experiments.provisioning_runs import BINS, Capacities, Priced, Scaled, Streams
from sim_backend.experiments.provisioning_settings import AWARE, HEURISTIC, RUNS, SHAPES, SIMPLE, thesis

_saved = partial(saved, "provisioning")
_COLOURS = (BLUE, ORANGE, GREEN)
_LINES = ("-", "--", "-.")
_BARS = ("static", *HEURISTIC, "optimal")
_TINTS = (BLACK, "#56B4E9", "#CC79A7", BLUE, ORANGE, GREEN, "#D55E00")
_TIME = "interval of 15 minutes"


def draw_arrivals(results: Sequence[Streams], folder: Path) -> list[Path]:
    """Figures 5.2 and 5.3."""
    counts = np.mean([each.by_interval for each in results], axis=0)

    def draw_factor(axes: Axes) -> None:
        at_s = np.linspace(0.0, 57_600.0, 200)
        axes.plot(at_s, thesis().scenario.gap_factor(at_s), color=BLUE)
        name_axes(axes, "x (s)", "a(x)")

    def draw_counts(axes: Axes) -> None:
        axes.bar(np.arange(BINS), counts, color=BLUE, align="edge", width=0.9)
        name_axes(axes, _TIME, "arrivals")

    return [
        _saved(folder, "5.2", "factor of the gaps between arrivals", draw_factor, legend=False),
        _saved(folder, "5.3", "mean number of arrivals", draw_counts, legend=False),
    ]


def draw_capacities(results: Sequence[Capacities], folder: Path) -> list[Path]:
    """g_s(p), which figures 5.12 to 5.14 show for pmax."""
    table = results[0].table

    def draw(axes: Axes) -> None:
        for column in range(table.shape[1]):
            known = np.where(table[:, column] < 0, np.nan, table[:, column])
            axes.step(np.arange(table.shape[0]), known, where="post", label=f"p = {column + 1}")
        name_axes(axes, _TIME, "jobs")

    return [_saved(folder, "g", "most jobs that p servers finish, 99.99 %", draw)]


def draw_policies(results: Sequence[Priced], folder: Path) -> list[Path]:
    """Figures 5.4 to 5.16."""
    found = {each.shape: each for each in results}
    pictures = [
        _saved(folder, "5.4", "cost functions", lambda axes: _draw_prices(axes, found)),
        _saved(folder, "5.5", "runs with a missed deadline", lambda axes: _draw_missing(axes, found)),
        _saved(folder, "5.6", "servers of H1 and H2", lambda axes: _draw_servers(axes, found["uniform"], SIMPLE)),
    ]
    pictures += [_draw_shape(folder, number, found[shape]) for number, shape in enumerate(SHAPES, 7)]
    pictures += [_draw_queue(folder, number, name, found) for number, name in enumerate(AWARE, 12)]
    for number, title, value in (
        ("5.15", "cost of a period", lambda each: each.expected_server_cost),
        ("5.16", "servers added in a period", lambda each: each.deployments.servers),
    ):
        pictures.append(_draw_bars(folder, number, title, found, value))
    return pictures


def _draw_prices(axes: Axes, found: dict[str, Priced]) -> None:
    for shape, each in found.items():
        axes.plot(np.arange(len(each.price)) + 0.5, each.price, label=shape)
    name_axes(axes, _TIME, "price of a server")


def _bars(axes: Axes, found: dict[str, Priced], names: Sequence[str], value: Callable[[str, str], float]) -> None:
    width = 0.8 / len(names)
    for place, name in enumerate(names):
        places = np.arange(len(SHAPES)) + (place - len(names) / 2.0 + 0.5) * width
        colour = _TINTS[_BARS.index(name)]
        axes.bar(places, [value(shape, name) for shape in found], width, color=colour, label=HEURISTIC.get(name, name))
    axes.set_xticks(np.arange(len(SHAPES)), list(found))


def _draw_missing(axes: Axes, found: dict[str, Priced]) -> None:
    _bars(axes, found, AWARE, lambda shape, name: 100.0 * found[shape].exact[name].miss_probability)
    for place, each in enumerate(found.values()):
        played = [100.0 * outcome[name].missed / RUNS for outcome in each.played for name in AWARE]
        axes.plot([place] * len(played), played, ".", color=BLACK, label=f"{RUNS} runs" if not place else None)
    axes.set_ylabel("probability (%)")


def _draw_servers(axes: Axes, priced: Priced, names: Sequence[str]) -> None:
    for name, colour, line in zip(names, _COLOURS, _LINES, strict=False):
        servers = priced.exact[name].mean_servers
        axes.step(np.arange(len(servers)), servers, where="post", color=colour, linestyle=line, label=HEURISTIC[name])
    axes.set_ylim(bottom=0)
    name_axes(axes, _TIME, "servers, mean")


def _draw_shape(folder: Path, number: int, priced: Priced) -> Path:
    title = f"servers, price {priced.shape}"
    return _saved(folder, f"5.{number}", title, lambda axes: _draw_servers(axes, priced, AWARE))


def _draw_queue(folder: Path, number: int, name: str, found: dict[str, Priced]) -> Path:
    def draw(axes: Axes) -> None:
        for shape, each in found.items():
            axes.plot(each.exact[name].mean_jobs, label=shape)
        top = found["uniform"].top
        axes.step(np.arange(len(top)), top, where="post", color=BLACK, linestyle=":", label="g_s(pmax)")
        name_axes(axes, _TIME, "jobs, mean")

    return _saved(folder, f"5.{number}", f"jobs in the system, {HEURISTIC[name]}", draw)


def _draw_bars(folder: Path, number: str, title: str, found: dict[str, Priced], value: Callable[[Any], float]) -> Path:
    def draw(axes: Axes) -> None:
        _bars(axes, found, _BARS, lambda shape, name: value(found[shape].exact[name]))
        axes.set_ylabel(title)

    return _saved(folder, number, title, draw)


def draw_scale(results: Sequence[Scaled], folder: Path) -> list[Path]:
    """Figure 5.17."""
    ordered = sorted(results, key=lambda each: each.servers_max)

    def draw(axes: Axes) -> None:
        for what in ordered[0].took_s:
            times = [each.took_s[what] for each in ordered]
            axes.plot([each.servers_max for each in ordered], times, marker="o", label=HEURISTIC.get(what, what))
        axes.set_yscale("log")
        name_axes(axes, "pmax", "time (s)")

    return [_saved(folder, "5.17", "time of exact tables", draw)]
