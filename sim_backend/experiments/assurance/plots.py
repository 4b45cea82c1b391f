"""Figures 2 to 8 of statistical-assurance.txt, each once for every data set; of what is drawn at random, seed 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from daemons.report.charts import Chart, Mark, Series, Style, X
from daemons.report.themes import AT_BLUE, AT_GREEN, AT_INK, AT_ORANGE
from shared.policy_api.snapshot import Floats, Ints
from sim_backend.experiments.assurance.policed import HEAD_ROOMS, POLICING, Policed
from sim_backend.experiments.assurance.settings import LOWER, PROMISED, UPPER
from sim_backend.experiments.assurance.simulated import PRECISION, Achieved, Perturbed
from sim_backend.experiments.assurance.sizes import Sized
from sim_backend.experiments.drawing import saved

_saved = partial(saved, "assurance")
_COLOURS = (AT_INK, AT_ORANGE, AT_BLUE, AT_GREEN)
_SLOT = "hour of the day"
_ACHIEVED = "theta achieved"
_DEFAULT = HEAD_ROOMS[-1]


def _by_slot(title: str, unit: str, named: Mapping[str, Floats | Ints], promised: Sequence[float] = ()) -> Chart:
    """Return a chart with one line per name. The lines of each group of four share a style and differ in colour."""
    series = tuple(
        Series(name, range(len(values)), values.tolist(), colour=_COLOURS[place % 4], dash=place // 4, dotted=True)
        for place, (name, values) in enumerate(named.items())
    )
    marks = tuple(Mark("", theta, colour=AT_INK) for theta in promised)
    return Chart("slots", title, unit, series=series, x=X.NUMBER, x_label=_SLOT, marks=marks)


def draw_sizes(results: Sequence[Sized], folder: Path) -> list[Path]:
    """Draw figures 2 and 3."""
    pictures: list[Path] = []
    for each in results:
        name = each.name
        kinds = {"none": "without", "measured": "with", "worst": "with the largest"}
        deviations = {f"deviation, {kinds[kind]} covariance": values for kind, values in each.sd.items()}
        moments = _by_slot("mean and deviation of the demand", "servers", {"mean": each.mean, **deviations})
        pictures.append(_saved(folder, f"2a-{name}", moments))
        rho = _by_slot("correlation of the slots", "rho", {name: each.rho})
        pictures.append(_saved(folder, f"2b-{name}", rho))
        curves = {
            f"theta {theta:g}, {part:.2g} of the worst rho": values
            for theta, found in each.curves.items()
            for part, values in found.items()
        }
        flat = {"static": np.full(len(each.peaks), each.static), "slot peaks": each.peaks}
        sizes = _by_slot("servers by correlation", "servers", {**flat, **curves})
        pictures.append(_saved(folder, f"3-{name}", sizes))
    return pictures


def draw_simulated(results: Sequence[Achieved], folder: Path) -> list[Path]:
    """Figure 4."""
    pictures: list[Path] = []
    for each in (each for each in results if each.seed == 0):
        for part, theta in zip("ab", PROMISED, strict=True):
            named = {
                "independent": each.independent[theta],
                "going together": each.together[theta],
                "going together, exact worst case": each.bounded[theta],
            }
            chart = _by_slot(f"assurance achieved, promised {theta:g}", _ACHIEVED, named, (theta,))
            pictures.append(_saved(folder, f"4{part}-{each.name}", chart))
    return pictures


def draw_perturbed(results: Sequence[Perturbed], folder: Path) -> list[Path]:
    """Figure 5."""
    pictures: list[Path] = []
    for each in (each for each in results if each.seed == 0):
        found = {f"N = {history}, servers by {kind}": achieved for (kind, history), achieved in each.achieved.items()}
        means = {label: values.mean(axis=0) for label, values in found.items()}
        fifths = {label: np.percentile(values, 5.0, axis=0) for label, values in found.items()}
        for part, title, named in (("a", "mean of the test cases", means), ("b", "5-percentile of them", fifths)):
            chart = _by_slot(f"profiles of N days: {title}", _ACHIEVED, named, (PRECISION,))
            pictures.append(_saved(folder, f"5{part}-{each.name}", chart))
    return pictures


def draw_policed(results: Sequence[Policed], folder: Path) -> list[Path]:
    """Draw figures 6 to 8, with the default headroom (file suffix `-head-room`) and without any."""
    pictures: list[Path] = []
    for each in (each for each in results if each.seed == 0):
        for headroom in HEAD_ROOMS:
            pictures += _policed(each, headroom, folder, "-head-room" if headroom == _DEFAULT else "")
    return pictures


def _policed(each: Policed, headroom: float, folder: Path, ending: str) -> list[Path]:
    pictures: list[Path] = []
    courses = {kind: each.courses[(headroom, kind), "lower"] for kind in POLICING}
    both = {kind: each.courses[(headroom, kind), "both"].left for kind in POLICING}
    honest = each.courses[(headroom, "none"), "honest"].left
    for index, (part, theta) in enumerate(zip("ab", (UPPER, LOWER), strict=True)):
        served = {kind: course.theta[:, index] for kind, course in courses.items()}
        title = f"class {theta:g}, by policing"
        pictures.append(_saved(folder, f"6{part}-{each.name}{ending}", _by_slot(title, _ACHIEVED, served, (theta,))))
        seen = {kind: np.sort(course.seen[..., index], axis=None) for kind, course in courses.items()}
        shares = _shares(title, seen, "theta seen by an application in a slot", (theta,))
        pictures.append(_saved(folder, f"7{part}-{each.name}{ending}", shares))
    figures = [("b", "both classes misbehave", both)]
    if not ending:
        figures.append(("a", "nobody misbehaves", {"without policing": honest}))
    for part, title, counts in figures:
        spread = {label: np.repeat(np.arange(len(left)), left) for label, left in counts.items()}
        shares = _shares(title, spread, "servers left for best effort")
        pictures.append(_saved(folder, f"8{part}-{each.name}{ending}", shares))
    return pictures


def _shares(title: str, named: Mapping[str, Floats | Ints], x_label: str, marked: Sequence[float] = ()) -> Chart:
    """Cumulative distributions of sorted values."""
    series = tuple(
        Series(name, values.tolist(), _parts(len(values)), style=Style.STEP, colour=colour)
        for (name, values), colour in zip(named.items(), _COLOURS, strict=False)
    )
    marks = tuple(Mark("", theta, along_y=True, colour=AT_INK) for theta in marked)
    return Chart("shares", title, "part of all", series=series, x=X.NUMBER, x_label=x_label, marks=marks)


def _parts(count: int) -> list[float]:
    return [place / count for place in range(1, count + 1)]
