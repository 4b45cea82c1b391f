"""What the pictures of all reproductions share: drawn as every other picture is (`daemons/report/draw.py`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from daemons.report.draw import png_by

Axes = Any
WIDTH_PX, HEIGHT_PX = 1200, 600


def saved(paper: str, folder: Path, number: str, title: str, draw: Callable[[Axes], None], legend: bool = True) -> Path:
    """One figure of a paper with one pair of axes, as PAPER-figure-NUMBER.png; `paper` as on the command line."""
    words = f"{_SOURCES.get(paper, paper)}.txt, figure {number}: {title}"

    def draw_all(figure: Any) -> None:
        axes = figure.subplots()
        draw(axes)
        axes.set_title(words)
        axes.grid(linewidth=0.6)
        if legend:  # beside the picture, not over it
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small")

    path = folder / f"{paper}-figure-{number}.png"
    path.write_bytes(png_by(draw_all, f"{paper}-{number}", width_px=WIDTH_PX, height_px=HEIGHT_PX))
    return path


# Papers whose short name is another.
_SOURCES = {"provisioning": "batch-provisioning", "assurance": "statistical-assurance", "dfactor": "d-factor"}


def name_axes(axes: Axes, x: str, y: str) -> None:
    """Name both axes."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
