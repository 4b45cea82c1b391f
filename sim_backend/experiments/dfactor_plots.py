"""Figures of d-factor.txt from our figures, and the real measurement, drawn with matplotlib (extra `plots`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from daemons.models.dilation.list_scheduling import Rule, Schedule
from daemons.report.themes import BLACK, BLUE, GREEN, ORANGE
from sim_backend.experiments.dfactor_figures import (
    FILECOMP_BESIDE_CPU_S,
    FILECOMP_BESIDE_IO_S,
    HADOOP,
    HADOOP_ENDS_S,
    TABLE_3,
    Figures,
)
from sim_backend.experiments.dfactor_measured import FORMULA, LINEAR, PRODUCT_FORM, SETS, Compared, Measured, compared
from sim_backend.experiments.dfactor_scheduling import KINDS, OPTIMUM, Scheduled, of, ratio
from sim_backend.experiments.drawing import Axes, name_axes, saved

_saved = partial(saved, "dfactor")
_MODELS = {FORMULA: (BLUE, "o"), PRODUCT_FORM: (GREEN, "s"), LINEAR: (ORANGE, "^")}
_RULES = {Rule.LOADING.value: ORANGE, Rule.COMPOSED.value: BLUE, OPTIMUM: BLACK}
_SECONDS = "time (s)"


def draw_figures(results: Sequence[Figures], folder: Path) -> list[Path]:
    """Figures 4 to 8."""
    (found,) = results
    filebench = {
        f"{name}: {what}": ends_s[row]
        for name, ends_s in found.filebench_s.items()
        for row, what in enumerate(("fileserver", "varmail"))
    }
    comp = {"+ STD-CPU": found.filecomp_s[0], "+ STD-I/O": found.filecomp_s[1]}
    measured = {"+ STD-CPU": FILECOMP_BESIDE_CPU_S, "+ STD-I/O": FILECOMP_BESIDE_IO_S}
    pairs = {name: max(ends_s) for name, ends_s in found.pairs_s.items()}
    return [
        _saved(folder, "4", "standard jobs of 100 s", partial(_bars, {"D-factor": pairs}), legend=False),
        _saved(folder, "5", "FileComp", partial(_bars, {"D-factor": comp, "measured in the paper": measured})),
        _saved(folder, "6", "FileBench", partial(_bars, {"D-factor": filebench}), legend=False),
        _saved(folder, "7a", "like applications", partial(_draw_like, found)),
        _saved(
            folder, "7b", "unlike ones", partial(_bars, {"ours": found.hadoop_ends_s, "the paper's": HADOOP_ENDS_S})
        ),
        _saved(folder, "8", "two machines by list scheduling (above) and by vectors", partial(_draw_schedules, found)),
    ]


def draw_scheduling(results: Sequence[Sequence[Scheduled]], folder: Path) -> list[Path]:
    """Makespans against plain list scheduling."""
    shown = {rule: {f"{size}\n{load}": ratio(of(results, size, load), rule) for size, load in KINDS} for rule in _RULES}

    def draw(axes: Axes) -> None:
        _bars(shown, axes, list(_RULES.values()))
        axes.set_ylabel("makespan / plain list")

    return [_saved(folder, "sets", "12 jobs on 4 machines", draw)]


def draw_measured(results: Sequence[Measured], folder: Path) -> list[Path]:
    """Predicted against measured dilations, with intervals."""
    (found,) = results
    cases = [case for size in (2, 3) if SETS[size][0] in found.runs for case in compared(found, size)]
    return [_saved(folder, "measured", "predicted and measured on this machine", partial(_draw_cases, cases))]


def _bars(values: Mapping[str, Mapping[str, float]], axes: Axes, colours: Sequence[str] = (BLUE, ORANGE)) -> None:
    width = 0.8 / len(values)
    for number, (label, bars) in enumerate(values.items()):
        at = [place + (number - (len(values) - 1) / 2) * width for place in range(len(bars))]
        axes.bar(at, list(bars.values()), width=width, color=colours[number], label=label)
        axes.set_xticks(range(len(bars)), list(bars))
    axes.set_ylabel(_SECONDS)


def _draw_like(found: Figures, axes: Axes) -> None:
    for (name, (_, tau_s)), colour in zip(HADOOP.items(), (BLUE, ORANGE, GREEN), strict=True):
        counts = range(1, len(found.hadoop_s[name]) + 1)
        axes.plot(counts, found.hadoop_s[name], color=colour, marker="o", label=name)
        axes.plot(counts, [n * tau_s for n in counts], color=colour, linestyle=":", label=f"{name}, linear sum")
    axes.set_xticks(range(1, 5))
    name_axes(axes, "instances", _SECONDS)


def _draw_schedules(found: Figures, axes: Axes) -> None:
    for lift, schedule in ((3, found.plain), (0, found.by_vectors)):
        _draw_schedule(schedule, lift, axes)
    axes.set_yticks([0, 1, 3, 4], ["machine 2", "machine 1"] * 2)
    axes.set_xlabel(_SECONDS)


def _draw_schedule(schedule: Schedule, lift: int, axes: Axes) -> None:
    for row, (_, _, arrival_s) in enumerate(TABLE_3):
        at = lift + 1 - schedule.nodes[row] - 0.3 + 0.2 * row
        end_s = float(schedule.ends_s[row])
        label = f"W{row + 1}" if lift == 0 else None
        colour = (BLUE, ORANGE, GREEN, BLACK)[row]
        axes.barh(at, end_s - arrival_s, left=arrival_s, height=0.18, color=colour, label=label)


def _draw_cases(cases: Sequence[Compared], axes: Axes) -> None:
    for model, (colour, marker) in _MODELS.items():
        axes.errorbar(
            [case.predicted[model] for case in cases],
            [case.measured.over.value for case in cases],
            yerr=[case.measured.half for case in cases],
            color=colour,
            marker=marker,
            linestyle="none",
            capsize=2,
            label=model,
        )
    axes.plot([1.0, 3.0], [1.0, 3.0], color=BLACK, linewidth=0.8)
    name_axes(axes, "predicted dilation", "measured dilation")
