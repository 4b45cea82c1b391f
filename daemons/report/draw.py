"""Charts as SVG or PNG: the one drawing code. matplotlib (extra `plots`) is imported only when something is drawn.

The same chart gives the same bytes. In SVG, text is text, nothing needs a style sheet or a script, and there is a title
and a description for who does not see it. Threads may draw; one at a time does, since matplotlib's settings are global.
"""

from __future__ import annotations

import io
import math
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from daemons.report.axes import draw_chart
from daemons.report.charts import Chart, in_words
from daemons.report.themes import THEMES, Theme, shown_text
from daemons.report.vector import accessible
from shared.errors import InvalidValue

WIDTH_PX, HEIGHT_PX = 720, 280
DPI = 100.0
_LOCK = threading.Lock()


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def svg(
    charts: Chart | Sequence[Chart],
    theme: str = "light",
    width_px: int = WIDTH_PX,
    height_px: int = HEIGHT_PX,
    title: str = "",
) -> str:
    """One or more charts below each other as an SVG document without XML declaration.

    theme: `light`, `dark`, or `page`: light, with colours that a page's style sheet may replace (`--chart-ink`,
    `--chart-muted`, `--chart-grid`, `--chart-0` to `--chart-7`). height_px: of each chart. title: above several.
    Raises ModuleNotFoundError without matplotlib (see `can_draw`), `InvalidValue` for a theme that is none.
    """
    panels = _panels(charts)
    chosen = _theme(theme)
    with _drawing(panels[0].id, chosen):
        figure = _figure(panels, chosen, width_px, height_px, title)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    words = " ".join(in_words(chart) for chart in panels)
    size = (width_px, height_px * len(panels))
    return accessible(file.getvalue(), panels[0].id, title or panels[0].title, words, size, chosen)


def png(
    charts: Chart | Sequence[Chart],
    theme: str = "light",
    width_px: int = WIDTH_PX,
    height_px: int = HEIGHT_PX,
    title: str = "",
) -> bytes:
    """The same as a PNG file, which has no description: give it beside the picture (`charts.in_words`)."""
    panels = _panels(charts)
    chosen = _theme(theme)
    with _drawing(panels[0].id, chosen):
        return _png(_figure(panels, chosen, width_px, height_px, title), chosen)


def png_by(
    draw: Callable[[Any], None], id: str, theme: str = "light", width_px: int = WIDTH_PX, height_px: int = HEIGHT_PX
) -> bytes:
    """A PNG file of what a chart cannot say: `draw` is given a matplotlib figure, with the theme's settings."""
    from matplotlib.figure import Figure

    chosen = _theme(theme)
    with _drawing(id, chosen):
        figure = Figure(figsize=(width_px / DPI, height_px / DPI), dpi=DPI, layout="constrained")
        draw(figure)
        return _png(figure, chosen)


def _png(figure: Any, theme: Theme) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", facecolor=theme.paper, metadata={"Software": None})
    return file.getvalue()


def _panels(charts: Chart | Sequence[Chart]) -> list[Chart]:
    panels = [charts] if isinstance(charts, Chart) else list(charts)
    if not panels:
        raise InvalidValue("charts", 0, "at least one")
    return panels


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


def _figure(panels: Sequence[Chart], theme: Theme, width_px: int, height_px: int, title: str) -> Any:
    from matplotlib.figure import Figure

    size = (width_px / DPI, height_px * len(panels) / DPI)
    figure = Figure(figsize=size, dpi=DPI, layout="constrained")
    every = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    for axes, chart in zip(every, panels, strict=True):
        draw_chart(axes, chart, theme, width_px)
    if title:
        figure.suptitle(shown_text(title, math.inf), color=theme.ink)
    return figure
