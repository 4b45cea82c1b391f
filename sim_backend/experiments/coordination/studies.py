"""The parameter studies of phoenixcloud.txt, section 6.6.4: rows, tables and pictures of figures 12 to 16."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from daemons.capacity.coordination.values import Coordinated
from daemons.report.charts import Chart, Series, Style, X
from daemons.report.themes import AT_BLUE, AT_ORANGE
from sim_backend.experiments.coordination.runs import Studied
from sim_backend.experiments.coordination.settings import Name
from sim_backend.experiments.drawing import saved
from sim_backend.experiments.experiment import Row, Tables

_saved = partial(saved, "phoenixcloud")
_COLOURS = {"iPSC": AT_BLUE, "BLUE": AT_ORANGE}
_SMALL = 0.1  # what a small effect is, as a part of the value
_UNITS = {"B": "B as a part of the sum of the peaks", "U": "U", "V": "V", "G": "G", "L": "L (min)"}
_HELD = "; idle nodes of which little is given back stay held, by the rules as printed"
Value = Callable[[Coordinated], float]


def _turnaround_s(run: Coordinated) -> float:
    return run.mean_turnaround_s or 0.0


def _node_hours(run: Coordinated) -> float:
    return run.node_hours


def _peak(run: Coordinated) -> float:
    return run.peak_nodes


def _completed(run: Coordinated) -> float:
    return run.jobs_completed


def _series(each: Studied, parameter: str, of: Value) -> list[float]:
    return [of(run) for run in each.by_value[parameter].values()]


def _spread(values: Sequence[float]) -> float:
    return max(values) / min(values) - 1.0


def _shown(values: Mapping[Name, Sequence[float]]) -> str:
    return "; ".join(f"{log} {found[0]:,.0f} to {found[-1]:,.0f}" for log, found in values.items())


def _course(id: str, what: str, results: Sequence[Studied], parameter: str, of: Value, rises: bool) -> Row:
    """Return a row that holds when a value only rises, or only falls, with a parameter."""
    values = {each.log: _series(each, parameter, of) for each in results}
    steps = {log: np.diff(found) * (1.0 if rises else -1.0) for log, found in values.items()}
    against = {log: int((each < 0.0).sum()) for log, each in steps.items()}
    ends = all((found[-1] - found[0]) * (1.0 if rises else -1.0) > 0.0 for found in values.values())
    why = ", ".join(f"{log}: {count} of {len(steps[log])} steps go the other way" for log, count in against.items())
    word = "rises" if rises else "falls"
    return Row(id, f"{what} {word}", "yes", _shown(values), ends and not any(against.values()), why)


def _steady(id: str, what: str, results: Sequence[Studied], parameters: Sequence[str], of: Value, why: str = "") -> Row:
    """Return a row that holds when the parameters have a small effect on a value."""
    spreads = {(each.log, name): _spread(_series(each, name, of)) for each in results for name in parameters}
    shown = ", ".join(f"{log} {name} {100 * spread:.1f} %" for (log, name), spread in spreads.items())
    return Row(
        id,
        f"{what}: a small effect",
        "small",
        shown,
        max(spreads.values()) <= _SMALL,
        f"asked for at most {100 * _SMALL:g} %{why}",
    )


def rows_studied(results: Sequence[Studied]) -> list[Row]:
    """Return the rows for the paper's claims on figures 12 to 16."""
    return [
        _course("12/node-hours", "with B the total consumption", results, "B", _node_hours, True),
        _course("13/turnaround", "with B the mean turnaround time (s)", results, "B", _turnaround_s, False),
        _steady("13/completed", "B on completed jobs", results, "B", _completed),
        _steady("14/node-hours", "U, V and G on the total consumption", results, "UVG", _node_hours, _HELD),
        _steady("15/completed", "U, V and G on completed jobs", results, "UVG", _completed),
        _course("15/turnaround-G", "with G the mean turnaround time (s)", results, "G", _turnaround_s, True),
        _steady("15/turnaround-UV", "U and V on the turnaround time", results, "UV", _turnaround_s),
        _course("16/adjustments", "with L the number of adjustments", results, "L", lambda run: run.adjustments, False),
    ]


def tables_studied(results: Sequence[Studied]) -> Tables:
    """Return tables of every run."""
    return {
        f"{each.log}, FLB-NUB by {parameter}": [
            {
                parameter: value,
                "completed": run.jobs_completed,
                "turnaround_s": round(_turnaround_s(run), 1),
                "peak_nodes": run.peak_nodes,
                "node_hours": round(run.node_hours),
                "adjustments": run.adjustments,
            }
            for value, run in runs.items()
        ]
        for each in results
        for parameter, runs in each.by_value.items()
    }


def draw_studied(results: Sequence[Studied], folder: Path, varied: str = "GVU") -> list[Path]:
    """Draw figures 12 to 16; 14 and 15 once for each of `varied`."""
    pictures = [
        _saved(folder, "12", _consumed(results, "B"), "peak and total consumption by B"),
        _saved(folder, "13", _done(results, "B"), "completed jobs and turnaround by B"),
    ]
    for each in varied:
        pictures.append(_saved(folder, f"14-{each}", _consumed(results, each), f"peak and total consumption by {each}"))
        pictures.append(_saved(folder, f"15-{each}", _done(results, each), f"completed jobs and turnaround by {each}"))
    pictures.append(_saved(folder, "16", _adjustments(results)))
    return pictures


def _consumed(results: Sequence[Studied], parameter: str) -> tuple[Chart, Chart]:
    total = _by_parameter("total", "total consumption", "node-hours", results, parameter, _node_hours)
    return total, _by_parameter("peak", "peak", "nodes", results, parameter, _peak)


def _done(results: Sequence[Studied], parameter: str) -> tuple[Chart, Chart]:
    times = _by_parameter("turnaround", "mean turnaround", "time (s)", results, parameter, _turnaround_s)
    return times, _by_parameter("completed", "completed jobs", "jobs", results, parameter, _completed)


def _by_parameter(id: str, title: str, unit: str, results: Sequence[Studied], parameter: str, of: Value) -> Chart:
    series = tuple(
        Series(
            each.log,
            list(each.by_value[parameter]),
            _series(each, parameter, of),
            colour=_COLOURS[each.log],
            dotted=True,
        )
        for each in results
    )
    return Chart(id, title, unit, series=series, x=X.NUMBER, x_label=_UNITS[parameter], y_min=0.0)


def _adjustments(results: Sequence[Studied]) -> Chart:
    names = tuple(f"{value:g}" for value in results[0].by_value["L"])
    series = tuple(
        Series(
            each.log,
            range(len(names)),
            _series(each, "L", lambda run: run.adjustments),
            style=Style.BAR,
            colour=_COLOURS[each.log],
        )
        for each in results
    )
    title, unit = "adjustments by the lease unit", "adjustments in two weeks"
    return Chart("adjustments", title, unit, series=series, x=X.CATEGORY, x_label=_UNITS["L"], x_names=names)
