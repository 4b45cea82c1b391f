"""Figures of d-factor.txt from our figures, and the real measurement, as charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from daemons.models.dilation.list_scheduling import Rule
from daemons.report.charts import Chart, Series, Style, X
from daemons.report.themes import AT_BLUE, AT_GREEN, AT_INK, AT_ORANGE, DOTTED, SOLID
from sim_backend.experiments.dilation.figures import (
    FILECOMP_BESIDE_CPU_S,
    FILECOMP_BESIDE_IO_S,
    HADOOP,
    HADOOP_ENDS_S,
    TABLE_3,
    Figures,
)
from sim_backend.experiments.dilation.measured import FORMULA, LINEAR, PRODUCT_FORM, SETS, Compared, Measured, compared
from sim_backend.experiments.dilation.scheduling import KINDS, OPTIMUM, Scheduled, of, ratio
from sim_backend.experiments.drawing import saved

_saved = partial(saved, "dfactor")
_MODELS = {FORMULA: AT_BLUE, PRODUCT_FORM: AT_GREEN, LINEAR: AT_ORANGE}
_RULES = {Rule.LOADING.value: AT_ORANGE, Rule.COMPOSED.value: AT_BLUE, OPTIMUM: AT_INK}
_SECONDS = "time (s)"


def draw_figures(results: Sequence[Figures], folder: Path) -> list[Path]:
    """Draw figures 4 to 8."""
    (found,) = results
    filebench = {
        f"{name}: {what}": ends_s[row]
        for name, ends_s in found.filebench_s.items()
        for row, what in enumerate(("fileserver", "varmail"))
    }
    comp = {"+ STD-CPU": found.filecomp_s[0], "+ STD-I/O": found.filecomp_s[1]}
    measured = {"+ STD-CPU": FILECOMP_BESIDE_CPU_S, "+ STD-I/O": FILECOMP_BESIDE_IO_S}
    pairs = {name: max(ends_s) for name, ends_s in found.pairs_s.items()}
    hadoop = {"ours": found.hadoop_ends_s, "the paper's": HADOOP_ENDS_S}
    return [
        _saved(folder, "4", _bars("standard jobs of 100 s", _SECONDS, {"D-factor": pairs})),
        _saved(folder, "5", _bars("FileComp", _SECONDS, {"D-factor": comp, "measured in the paper": measured})),
        _saved(folder, "6", _bars("FileBench", _SECONDS, {"D-factor": filebench})),
        _saved(folder, "7a", _like(found)),
        _saved(folder, "7b", _bars("unlike ones", _SECONDS, hadoop)),
        _saved(folder, "8", _schedules(found)),
    ]


def draw_scheduling(results: Sequence[Sequence[Scheduled]], folder: Path) -> list[Path]:
    """Makespans against plain list scheduling."""
    shown = {rule: {f"{size}, {load}": ratio(of(results, size, load), rule) for size, load in KINDS} for rule in _RULES}
    chart = _bars("12 jobs on 4 machines", "makespan / plain list", shown, tuple(_RULES.values()))
    return [_saved(folder, "sets", chart)]


def draw_measured(results: Sequence[Measured], folder: Path) -> list[Path]:
    """Predicted against measured dilations, with intervals."""
    (found,) = results
    cases = [case for size in (2, 3) if SETS[size][0] in found.runs for case in compared(found, size)]
    return [_saved(folder, "measured", _cases(cases))]


def _bars(
    title: str,
    unit: str,
    values: Mapping[str, Mapping[str, float]],
    colours: Sequence[int] = (AT_BLUE, AT_ORANGE),
) -> Chart:
    """Return a bar chart with one series per name and one bar per place; all series have the same places."""
    (places, *_) = values.values()
    series = tuple(
        Series(name, range(len(bars)), list(bars.values()), style=Style.BAR, colour=colour)
        for (name, bars), colour in zip(values.items(), colours, strict=False)
    )
    return Chart("bars", title, unit, series=series, x=X.CATEGORY, x_names=tuple(places))


def _like(found: Figures) -> Chart:
    series: list[Series] = []
    for (name, (_, tau_s)), colour in zip(HADOOP.items(), (AT_BLUE, AT_ORANGE, AT_GREEN), strict=True):
        ends_s = found.hadoop_s[name]
        linear_s = [(place + 1) * tau_s for place in range(len(ends_s))]
        series.append(Series(name, range(len(ends_s)), list(ends_s), colour=colour, dash=SOLID, dotted=True))
        series.append(Series(f"{name}, linear sum", range(len(ends_s)), linear_s, colour=colour, dash=DOTTED))
    counts = tuple(str(place + 1) for place in range(max(len(each.xs) for each in series)))
    return Chart(
        "like", "like applications", _SECONDS, series=tuple(series), x=X.CATEGORY, x_label="instances", x_names=counts
    )


def _schedules(found: Figures) -> Chart:
    """Return a chart of two pairs of machines; each job has one bar in each pair."""
    lifted = ((3, found.plain), (0, found.by_vectors))
    series = tuple(
        Series(
            f"W{row + 1}",
            [arrival_s] * len(lifted),
            [lift + 1 - schedule.nodes[row] - 0.3 + 0.2 * row for lift, schedule in lifted],
            style=Style.SPAN,
            edge=[float(schedule.ends_s[row]) for _, schedule in lifted],
            colour=(AT_BLUE, AT_ORANGE, AT_GREEN, AT_INK)[row],
        )
        for row, (_, _, arrival_s) in enumerate(TABLE_3)
    )
    title = "two machines by list scheduling (above) and by vectors"
    machines = ((0.0, "machine 2"), (1.0, "machine 1"), (3.0, "machine 2"), (4.0, "machine 1"))
    return Chart("schedules", title, "", series=series, x=X.NUMBER, x_label=_SECONDS, y_names=machines)


def _cases(cases: Sequence[Compared]) -> Chart:
    series = [
        Series(
            model,
            [case.predicted[model] for case in cases],
            [case.measured.over.value for case in cases],
            style=Style.POINTS,
            edge=[case.measured.half for case in cases],
            colour=colour,
        )
        for model, colour in _MODELS.items()
    ]
    series.append(Series("as predicted", (1.0, 3.0), (1.0, 3.0), colour=AT_INK, dash=SOLID))
    title = "predicted and measured on this machine"
    return Chart("cases", title, "measured dilation", series=tuple(series), x=X.NUMBER, x_label="predicted dilation")
