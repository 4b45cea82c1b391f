"""Charts as SVG or PNG: the one drawing code. matplotlib (extra `plots`) is imported only when something is drawn.

The same chart gives the same bytes. In SVG, text is text, nothing needs a style sheet or a script, and there is a title
and a description for who does not see it. Threads may draw; one at a time does, since matplotlib's settings are global.
"""

from __future__ import annotations

import io
import math
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from daemons.report.axes import draw_chart
from daemons.report.charts import Chart, in_words
from daemons.report.themes import THEMES, Theme, shown_text
from daemons.report.vector import accessible
from shared.base.errors import InvalidValue

WIDTH_PX, HEIGHT_PX = 720, 280
DPI = 100.0
SVG_POINTS_PER_PX = 2  # of a series; more are left out
PNG_POINTS_PER_PX = 16  # they make the file no larger, and clouds of points stay dense
_LOCK = threading.Lock()


def can_draw() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def svg(
    charts: Chart | Sequence[Chart],
    theme: str = "light",
    width_px: int = WIDTH_PX,
    height_px: int = HEIGHT_PX,
    title: str = "",
    columns: int = 1,
) -> str:
    """Draw one or more charts below each other, or in rows of `columns`, as an SVG document without XML declaration.

    theme: `light`, `dark`, or `page`: light, with colours that a page's style sheet may replace (`--chart-ink`,
    `--chart-muted`, `--chart-grid`, `--chart-0` to `--chart-7`). width_px, height_px: of a row. title: above several.
    Raises ModuleNotFoundError without matplotlib (see `can_draw`), `InvalidValue` for an unknown theme.
    """
    panels = _panels(charts)
    chosen = _theme(theme)
    with _drawing(panels[0].id, chosen):
        figure = _figure(panels, chosen, (width_px, height_px), title, columns, SVG_POINTS_PER_PX)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    words = " ".join(in_words(chart) for chart in panels)
    size = (width_px, height_px * _rows(panels, columns))
    return accessible(file.getvalue(), panels[0].id, title or panels[0].title, words, size, chosen)


def png(
    charts: Chart | Sequence[Chart],
    theme: str = "light",
    width_px: int = WIDTH_PX,
    height_px: int = HEIGHT_PX,
    title: str = "",
    columns: int = 1,
) -> bytes:
    """Draw the same as a PNG file, which has no description: put it beside the picture (`charts.in_words`)."""
    panels = _panels(charts)
    chosen = _theme(theme)
    with _drawing(panels[0].id, chosen):
        figure = _figure(panels, chosen, (width_px, height_px), title, columns, PNG_POINTS_PER_PX)
        file = io.BytesIO()
        figure.savefig(file, format="png", facecolor=chosen.paper, metadata={"Software": None})
    return file.getvalue()


def _panels(charts: Chart | Sequence[Chart]) -> list[Chart]:
    panels = [charts] if isinstance(charts, Chart) else list(charts)
    if not panels:
        raise InvalidValue("charts", 0, "at least one")
    return panels


def _rows(panels: Sequence[Chart], columns: int) -> int:
    if columns < 1:
        raise InvalidValue("columns", columns, "at least 1")
    return math.ceil(len(panels) / columns)


def _theme(name: str) -> Theme:
    if name not in THEMES:
        raise InvalidValue("theme", name, f"one of {', '.join(THEMES)}")
    return THEMES[name]


@contextmanager
def _drawing(salt: str, theme: Theme) -> Iterator[None]:
    import matplotlib as mpl

    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": salt,
        "text.parse_math": False,  # names are anybody's: a dollar sign is one
        "axes.unicode_minus": True,
        "font.size": 9.0,
        "text.color": theme.ink,
        "axes.labelcolor": theme.muted,
        "axes.edgecolor": theme.muted,
        "xtick.color": theme.muted,
        "ytick.color": theme.muted,
        "grid.color": theme.grid,
        "axes.facecolor": "none",
        "path.simplify": False,
        "timezone": "UTC",
    }
    with _LOCK, mpl.rc_context(settings), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of signs that a font lacks: in SVG the reader's has them
        yield


def _figure(
    panels: Sequence[Chart], theme: Theme, row_px: tuple[int, int], title: str, columns: int, points_per_px: int
) -> Any:
    """Lay out the figure. row_px: width and height of a row."""
    from matplotlib.figure import Figure

    rows = _rows(panels, columns)
    size = (row_px[0] / DPI, row_px[1] * rows / DPI)
    figure = Figure(figsize=size, dpi=DPI, layout="constrained")
    every = figure.subplots(rows, columns, squeeze=False).ravel()
    width_px = row_px[0] // columns
    for axes, chart in zip(every, panels, strict=False):
        draw_chart(axes, chart, theme, width_px, points_per_px * width_px)
    for axes in every[len(panels) :]:
        axes.set_axis_off()
    if title:
        figure.suptitle(shown_text(title, math.inf), color=theme.ink)
    return figure
