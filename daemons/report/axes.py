"""One chart on one pair of matplotlib's axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from daemons.report.charts import Chart, Scale, Series, Style, X, known, thinned
from daemons.report.themes import DASHES, HATCHES, MARKERS, Theme, shown_text
from daemons.values.text_format import significant_text

Axes = Any
DAY_S = 86_400.0
FILL_ALPHA = 0.25
BARS_FRAC = 0.8  # of the distance of two places
NAMES_STRAIGHT_MAX = 60  # signs of all names on x together; more are turned
LEGEND_SIZE = 8.0
LEGEND_COLUMNS_MAX = 4
LEGEND_SIGN_PX, LEGEND_LINE_PX = 6.0, 53.0  # a sign of a name; the line before it and the room after it
LEGEND_BELOW_PT = 22.0  # the numbers on x
X_LABEL_PT = 14.0
NAMES_TURNED_DEG = 30.0
NAMES_SIGN_PT = 5.2


def draw_chart(axes: Axes, chart: Chart, theme: Theme, width_px: int, points_max: int) -> None:
    """Draw a chart `width_px` wide, of each series at most about `points_max` points; one without values says so in
    words."""
    axes.set_title(shown_text(chart.title, math.inf), color=theme.ink, fontsize=10.0, loc="left")
    if chart.is_empty:
        axes.set_axis_off()
        axes.text(0.5, 0.5, shown_text(chart.empty, math.inf), ha="center", va="center", transform=axes.transAxes)
        return
    handles = _draw_series(axes, chart, theme, points_max)
    handles += _draw_marks(axes, chart, theme)
    _scale(axes, chart)
    _name_axes(axes, chart)
    _limit(axes, chart)
    axes.grid(axis="y", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if len(handles) > 1:
        _legend(axes, chart, handles, width_px)


def _draw_series(axes: Axes, chart: Chart, theme: Theme, points_max: int) -> list[tuple[Any, str]]:
    handles = []
    bars = [place for place, series in enumerate(chart.series) if series.style is Style.BAR and not series.stacked]
    heights: dict[float, float] = {}
    for place, series in enumerate(chart.series):
        colour = theme.series[(place if series.colour is None else series.colour) % len(theme.series)]
        if not known(series.ys):
            continue
        if series.style is Style.BAR:
            drawn = _draw_bars(axes, chart, place, bars, colour, heights)
        else:
            drawn = _draw_line(axes, chart, thinned(series, points_max), place, colour)
        handles.append((drawn, shown_text(series.name)))
    return handles


def _draw_line(axes: Axes, chart: Chart, series: Series, place: int, colour: str) -> Any:
    xs, ys = _xs(chart, series.xs), _ys(series.ys)
    dash = DASHES[(place if series.dash is None else series.dash) % len(DASHES)]
    marker = MARKERS[place % len(MARKERS)]
    marked = {"marker": marker, "markersize": 4.0} if series.dotted else {}
    style: dict[str, Any] = {"color": colour, "linestyle": dash, "linewidth": 1.4, **marked}
    if series.style is Style.BAND:
        return axes.fill_between(xs, _ys(series.edge), ys, color=colour, alpha=FILL_ALPHA, linewidth=0.0)
    if series.style is Style.POINTS:
        spread = _ys(series.edge) if series.edge else None
        return axes.errorbar(xs, ys, spread, color=colour, marker=marker, markersize=3.0, linestyle="none", capsize=2.0)
    if series.style is Style.SPAN:
        long = [end - begin for begin, end in zip(xs, _xs(chart, known(series.edge)), strict=True)]
        return axes.barh(ys, long, left=xs, height=0.18, color=colour)
    if series.style is Style.LINE:
        return axes.plot(xs, ys, **style)[0]
    if series.style is Style.AREA:
        axes.fill_between(xs, ys, step="post", color=colour, alpha=FILL_ALPHA, linewidth=0.0)
    return axes.step(xs, ys, where="post", **style)[0]


def _draw_bars(
    axes: Axes, chart: Chart, place: int, beside: Sequence[int], colour: str, heights: dict[float, float]
) -> Any:
    """Bars beside those of the other series of bars, or on top of what is there already."""
    series = chart.series[place]
    width = BARS_FRAC * _distance(chart) / max(1, len(beside))
    shift = (beside.index(place) - (len(beside) - 1) / 2) * width if place in beside else 0.0
    xs = [x + shift for x in _xs(chart, series.xs)]
    ys = [0.0 if math.isnan(y) else y for y in _ys(series.ys)]
    bottoms = [heights.get(x, 0.0) if series.stacked else 0.0 for x in series.xs]
    heights.update({x: bottom + y for x, bottom, y in zip(series.xs, bottoms, ys, strict=True)})
    hatch = HATCHES[place % len(HATCHES)]
    return axes.bar(xs, ys, width, bottoms, color=colour, hatch=hatch, edgecolor="#ffffff", linewidth=0.4)


def _distance(chart: Chart) -> float:
    """Return the distance between two neighbouring bars, in units of the axes."""
    places = sorted({x for series in chart.series if series.style is Style.BAR for x in _xs(chart, series.xs)})
    return min((after - before for before, after in pairwise(places)), default=1.0)


def _draw_marks(axes: Axes, chart: Chart, theme: Theme) -> list[tuple[Any, str]]:
    handles = []
    for mark in chart.marks:
        colour = theme.muted if mark.colour is None else theme.series[mark.colour % len(theme.series)]
        draw = axes.axvline if mark.along_y else axes.axhline
        at = _xs(chart, (mark.value,))[0] if mark.along_y else mark.value
        drawn = draw(at, color=colour, linestyle=":", linewidth=1.0)
        if mark.name:
            handles.append((drawn, shown_text(mark.name)))
    return handles


def _xs(chart: Chart, xs: Sequence[float]) -> list[float]:
    """Values of x in units of the axes: those of times are days."""
    return [x / DAY_S for x in xs] if chart.x is X.TIME else [float(x) for x in xs]


def _ys(ys: Sequence[float | None]) -> list[float]:
    return [math.nan if y is None or not math.isfinite(y) else float(y) for y in ys]


def _scale(axes: Axes, chart: Chart) -> None:
    """Set the scale. Call it before places on y are named, since a new scale would undo that."""
    if chart.scale is Scale.SYMLOG:
        axes.set_yscale("symlog", linthresh=chart.symlog_linear)
    elif chart.scale is Scale.LOG:
        axes.set_yscale("log")
    else:
        return
    axes.yaxis.set_major_formatter(lambda value, _: significant_text(value))  # matplotlib's own are formulas


def _name_axes(axes: Axes, chart: Chart) -> None:
    axes.set_ylabel(shown_text(chart.unit))
    if chart.x_label:
        axes.set_xlabel(shown_text(chart.x_label))
    if chart.x is X.TIME:
        from matplotlib import dates

        untyped: Any = dates
        locator = untyped.AutoDateLocator(tz=chart.zone, maxticks=9)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(untyped.ConciseDateFormatter(locator, tz=chart.zone))
    elif chart.x is X.CATEGORY:
        names = [shown_text(name) for name in chart.x_names]
        turned = _are_turned(names)
        angle = NAMES_TURNED_DEG if turned else 0.0
        axes.set_xticks(range(len(names)), names, rotation=angle, ha="right" if turned else "center")
    if chart.y_names:
        axes.set_yticks([y for y, _ in chart.y_names], [shown_text(name) for _, name in chart.y_names])


def _are_turned(names: Sequence[str]) -> bool:
    return len(names) > 1 and sum(len(name) for name in names) > NAMES_STRAIGHT_MAX


def _limit(axes: Axes, chart: Chart) -> None:
    limits = [None if x is None else _xs(chart, (x,))[0] for x in (chart.x_min, chart.x_max)]
    if None in limits or limits[0] != limits[1]:
        axes.set_xlim(*limits)
    axes.set_ylim(chart.y_min, chart.y_max)


def _legend(axes: Axes, chart: Chart, handles: Sequence[tuple[Any, str]], width_px: int) -> None:
    """Below the chart, over nothing, in as many columns as there is room for."""
    from matplotlib.transforms import ScaledTranslation

    drawn, names = zip(*handles, strict=True)
    column_px = LEGEND_LINE_PX + LEGEND_SIGN_PX * max(len(name) for name in names)
    inches = (0.0, -_legend_below_pt(chart) / 72.0)
    axes.legend(
        drawn,
        names,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        bbox_transform=axes.transAxes + ScaledTranslation(*inches, axes.figure.dpi_scale_trans),
        borderaxespad=0.0,
        ncols=max(1, min(LEGEND_COLUMNS_MAX, len(names), int(width_px / column_px))),
        fontsize=LEGEND_SIZE,
        frameon=False,
    )


def _legend_below_pt(chart: Chart) -> float:
    """Return how far below the axes the legend fits: below the text there."""
    names = [shown_text(name) for name in chart.x_names] if chart.x is X.CATEGORY else []
    turned = math.sin(math.radians(NAMES_TURNED_DEG)) if _are_turned(names) else 0.0
    longest = max((len(name) for name in names), default=0)
    return LEGEND_BELOW_PT + (X_LABEL_PT if chart.x_label else 0.0) + turned * NAMES_SIGN_PT * longest
