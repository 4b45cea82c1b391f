"""What the pictures of all reproductions share: charts as PNG files, one for each figure of a paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from daemons.report.charts import Chart
from daemons.report.draw import png
from shared.base.write_file import write_file

WIDTH_PX, HEIGHT_PX = 1200, 600
PANEL_HEIGHT_PX = 400  # of one of several below each other
COLUMN_PX = 336  # of one of several in a row


def saved(
    paper: str, folder: Path, number: str, charts: Chart | Sequence[Chart], title: str = "", columns: int = 1
) -> Path:
    """Save one figure of a paper as PAPER-figure-NUMBER.png and return its path. `paper` is the name on the command
    line. `title` applies to several charts, which are stacked or in rows of `columns`. Needs matplotlib. Raises
    InvalidInput when the file cannot be written."""
    source = f"{_SOURCES.get(paper, paper)}.txt, figure {number}"
    if isinstance(charts, Chart):
        picture = png(replace(charts, title=f"{source}: {charts.title}"), width_px=WIDTH_PX, height_px=HEIGHT_PX)
    else:
        width_px = WIDTH_PX if columns == 1 else COLUMN_PX * columns
        height_px = PANEL_HEIGHT_PX if len(charts) > columns else HEIGHT_PX
        words = f"{source}: {title}"
        picture = png(charts, width_px=width_px, height_px=height_px, title=words, columns=columns)
    path = folder / f"{paper}-figure-{number}.png"
    write_file("--plots", path, picture)
    return path


# Papers whose short name is another.
_SOURCES = {"provisioning": "batch-provisioning", "assurance": "statistical-assurance", "dfactor": "d-factor"}
