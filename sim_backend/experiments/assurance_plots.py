"""Figures 2 to 8 of statistical-assurance.txt, each once for every data set; of what is drawn at random, seed 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from daemons.report.themes import BLACK, BLUE, GREEN, ORANGE
from shared.snapshot import Floats, Ints
from sim_backend.experiments.assurance_policed import HEAD_ROOMS, POLICING, Policed
from sim_backend.experiments.assurance_settings import LOWER, PROMISED, UPPER
from sim_backend.experiments.assurance_simulated import PRECISION, Achieved, Perturbed
from sim_backend.experiments.assurance_sizes import Sized
from sim_backend.experiments.drawing import Axes, name_axes, saved

_saved = partial(saved, "assurance")
_COLOURS = (BLACK, ORANGE, BLUE, GREEN)
_STYLES = ("-", "--", "-.", ":")
_SLOT = "hour of the day"
_DEFAULT = HEAD_ROOMS[-1]


def _lines(axes: Axes, series: Mapping[str, Floats | Ints], y: str, promised: Sequence[float] = ()) -> None:
    for index, (label, values) in enumerate(series.items()):
        style = {"color": _COLOURS[index % 4], "linestyle": _STYLES[index // 4 % 4]}
        axes.plot(range(len(values)), values, marker=".", markersize=4, linewidth=1.0, label=label, **style)
    for theta in promised:
        axes.axhline(theta, color=BLACK, linewidth=0.6)
    name_axes(axes, _SLOT, y)


def draw_sizes(results: Sequence[Sized], folder: Path) -> list[Path]:
    """Figures 2 and 3."""
    pictures: list[Path] = []
    for each in results:
        name = each.name
        kinds = {"none": "without", "measured": "with", "worst": "with the largest"}
        deviations = {f"deviation, {kinds[kind]} covariance": values for kind, values in each.sd.items()}
        moments = partial(_lines, series={"mean": each.mean, **deviations}, y="servers")
        pictures.append(_saved(folder, f"2a-{name}", "mean and deviation of the demand", moments))
        rho = partial(_lines, series={name: each.rho}, y="rho")
        pictures.append(_saved(folder, f"2b-{name}", "correlation of the slots", rho, False))
        curves = {
            f"theta {theta:g}, {part:.2g} of the worst rho": values
            for theta, found in each.curves.items()
            for part, values in found.items()
        }
        flat = {"static": np.full(len(each.peaks), each.static), "slot peaks": each.peaks}
        sizes = partial(_lines, series={**flat, **curves}, y="servers")
        pictures.append(_saved(folder, f"3-{name}", "servers by correlation", sizes))
    return pictures


def draw_simulated(results: Sequence[Achieved], folder: Path) -> list[Path]:
    """Figure 4."""
    pictures: list[Path] = []
    for each in (each for each in results if each.seed == 0):
        for part, theta in zip("ab", PROMISED, strict=True):
            series = {
                "independent": each.independent[theta],
                "going together": each.together[theta],
                "going together, exact worst case": each.bounded[theta],
            }
            draw = partial(_lines, series=series, y="theta achieved", promised=(theta,))
            pictures.append(_saved(folder, f"4{part}-{each.name}", f"assurance achieved, promised {theta:g}", draw))
    return pictures


def draw_perturbed(results: Sequence[Perturbed], folder: Path) -> list[Path]:
    """Figure 5."""
    pictures: list[Path] = []
    for each in (each for each in results if each.seed == 0):
        found = {f"N = {history}, servers by {kind}": achieved for (kind, history), achieved in each.achieved.items()}
        means = {label: values.mean(axis=0) for label, values in found.items()}
        fifths = {label: np.percentile(values, 5.0, axis=0) for label, values in found.items()}
        for part, title, series in (("a", "mean of the test cases", means), ("b", "5-percentile of them", fifths)):
            draw = partial(_lines, series=series, y="theta achieved", promised=(PRECISION,))
            pictures.append(_saved(folder, f"5{part}-{each.name}", f"profiles of N days: {title}", draw))
    return pictures


def draw_policed(results: Sequence[Policed], folder: Path) -> list[Path]:
    """Figures 6 to 8, with the default head-room (-head-room) and without any."""
    pictures: list[Path] = []
    for each in (each for each in results if each.seed == 0):
        for head_room in HEAD_ROOMS:
            pictures += _policed(each, head_room, folder, "-head-room" if head_room == _DEFAULT else "")
    return pictures


def _policed(each: Policed, head_room: float, folder: Path, ending: str) -> list[Path]:
    pictures: list[Path] = []
    courses = {kind: each.courses[(head_room, kind), "lower"] for kind in POLICING}
    both = {kind: each.courses[(head_room, kind), "both"].left for kind in POLICING}
    honest = each.courses[(head_room, "none"), "honest"].left
    for index, (part, theta) in enumerate(zip("ab", (UPPER, LOWER), strict=True)):
        served = {kind: course.theta[:, index] for kind, course in courses.items()}
        draw = partial(_lines, series=served, y="theta achieved", promised=(theta,))
        pictures.append(_saved(folder, f"6{part}-{each.name}{ending}", f"class {theta:g}, by policing", draw))
        seen = {kind: np.sort(course.seen[..., index], axis=None) for kind, course in courses.items()}
        cdf = partial(_shares, series=seen, x="theta seen by an application in a slot", marked=theta)
        pictures.append(_saved(folder, f"7{part}-{each.name}{ending}", f"class {theta:g}, by policing", cdf))
    figures = [("b", "both classes misbehave", both)]
    if not ending:
        figures.append(("a", "nobody misbehaves", {"without policing": honest}))
    for part, title, counts in figures:
        spread = {label: np.repeat(np.arange(len(left)), left) for label, left in counts.items()}
        cdf = partial(_shares, series=spread, x="servers left for best effort", marked=None)
        pictures.append(_saved(folder, f"8{part}-{each.name}{ending}", title, cdf))
    return pictures


def _shares(axes: Axes, series: Mapping[str, Floats | Ints], x: str, marked: float | None) -> None:
    """Cumulative distributions of sorted values."""
    for (label, values), colour, style in zip(series.items(), _COLOURS, _STYLES, strict=False):
        part = np.arange(1, len(values) + 1) / len(values)
        axes.step(values, part, where="post", color=colour, linestyle=style, linewidth=1.0, label=label)
    if marked is not None:
        axes.axvline(marked, color=BLACK, linewidth=0.6)
    name_axes(axes, x, "part of all")
