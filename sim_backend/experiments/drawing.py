"""What the pictures of all reproductions share, drawn with matplotlib (extra `plots`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from daemons.report.pictures import FILL_ALPHA

Axes = Any


def saved(paper: str, folder: Path, number: str, title: str, draw: Callable[[Axes], None], legend: bool = True) -> Path:
    """One figure of a paper with one pair of axes, as PAPER-figure-NUMBER.png; `paper` as on the command line."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5), dpi=120, layout="constrained")
    axes = figure.subplots()
    draw(axes)
    axes.set_title(f"{_SOURCES.get(paper, paper)}.txt, figure {number}: {title}")
    axes.grid(alpha=FILL_ALPHA)
    if legend:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small")  # beside the picture, not over it
    path = folder / f"{paper}-figure-{number}.png"
    figure.savefig(path)
    return path


_SOURCES = {"provisioning": "batch-provisioning"}  # papers whose short name is another


def name_axes(axes: Axes, x: str, y: str) -> None:
    """Name both axes."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
