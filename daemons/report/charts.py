"""What is shown of figures: charts and tables as plain values, before anybody draws or writes them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from daemons.values.text_format import is_known, significant_text, time_text
from shared.base.errors import InvalidValue

TABLE_ROWS_MAX = 200
NOTHING = "no data"


class Style(StrEnum):
    """How a series is drawn."""

    LINE = "line"
    STEP = "step"  # each value holds until the next one
    AREA = "area"  # a step filled down to 0
    BAR = "bar"  # beside those of the other series
    BAND = "band"  # filled between two edges
    POINTS = "points"
    SPAN = "span"  # a bar along x


class X(StrEnum):
    """What the values of x are."""

    TIME = "time"  # UTC seconds since the epoch
    NUMBER = "number"
    CATEGORY = "category"  # places 0, 1, ... of `x_names`


class Scale(StrEnum):
    """The scale of y; symmetric logarithms allow 0 and negative values."""

    LINEAR = "linear"
    LOG = "log"
    SYMLOG = "symlog"


@dataclass(frozen=True, slots=True)
class Series:
    """Values over x, in the order of x; None where nothing is known, which leaves a gap.

    edge: the lower edge of a BAND, the ends in x of SPANs, half the length of the error bars of POINTS (empty: none).
    colour, dash: places in the lists of the drawing, so that series that belong together look alike (None: by the
    place among the series of the chart). dotted: a mark on each value. stacked: bars on top of the series before.
    """

    name: str
    xs: Sequence[float]
    ys: Sequence[float | None]
    style: Style = Style.LINE
    edge: Sequence[float | None] = ()
    colour: int | None = None
    dash: int | None = None
    dotted: bool = False
    stacked: bool = False

    def __post_init__(self) -> None:
        if len(self.xs) != len(self.ys) or len(self.edge) not in (0, len(self.xs)):
            raise InvalidValue("ys", len(self.ys), f"as many as xs, {len(self.xs)}; edge none or as many")


@dataclass(frozen=True, slots=True)
class Mark:
    """A straight line at a value of y, or with `along_y` at one of x; unnamed ("") it is not in the legend."""

    name: str
    value: float
    along_y: bool = False
    colour: int | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """A pair of axes. `id`: ASCII letters, digits and '-'. `unit`: of y, in words. x_min, x_max, y_min, y_max: the
    visible range (None: from the values). symlog_linear: up to here, both ways from 0, symmetric logarithms are linear.
    zone: time zone of displayed times. `y_names`: places on y and their names."""

    id: str
    title: str
    unit: str
    series: tuple[Series, ...]
    x: X = X.TIME
    x_label: str = ""
    x_names: tuple[str, ...] = ()
    y_names: tuple[tuple[float, str], ...] = ()
    marks: tuple[Mark, ...] = ()
    x_min: float | None = None
    x_max: float | None = None
    y_min: float | None = None
    y_max: float | None = None
    scale: Scale = Scale.LINEAR
    symlog_linear: float = 1.0
    zone: str = "UTC"
    empty: str = NOTHING

    @property
    def is_empty(self) -> bool:
        """Whether there is no value at all."""
        return not any(known(series.ys) for series in self.series)


Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells, as many in each as there are columns. None: unknown. note: a remark on the table."""

    id: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


def known(values: Iterable[float | None]) -> list[float]:
    """Return the finite values."""
    return [value for value in values if is_known(value)]


# --- thinning -----------------------------------------------------------------------------------------------------


def thinned(series: Series, points_max: int) -> Series:
    """Thin a series to at most about `points_max` points (8 or more) that look the same. In each stretch of x the
    first, smallest, largest and last value are kept, and a gap in it. Bars and spans are left unchanged."""
    if len(series.xs) <= points_max or series.style in (Style.BAR, Style.SPAN):
        return series
    width = math.ceil(len(series.xs) / max(1, points_max // 5))
    kept: list[int] = []
    for begin in range(0, len(series.xs), width):
        kept += _kept(series, range(begin, min(begin + width, len(series.xs))))
    return replace(
        series,
        xs=[series.xs[at] for at in kept],
        ys=[series.ys[at] for at in kept],
        edge=[series.edge[at] for at in kept] if series.edge else (),
    )


def _kept(series: Series, stretch: range) -> list[int]:
    there = [at for at in stretch if is_known(series.ys[at])]
    gap = next((at for at in stretch if not is_known(series.ys[at])), None)
    chosen = set() if gap is None else {gap}
    if there:
        low = series.edge if series.style is Style.BAND and series.edge else series.ys
        chosen |= {there[0], there[-1], max(there, key=lambda at: series.ys[at] or 0.0)}
        chosen.add(min(there, key=lambda at: math.inf if low[at] is None else low[at] or 0.0))
    return sorted(chosen)


# --- in words -----------------------------------------------------------------------------------------------------


def cell_text(cell: Cell) -> str:
    """Return a cell's text for people; an unknown value is a dash. Texts come from users: see `plain_text`."""
    return plain_text(cell) if isinstance(cell, str) else significant_text(cell)


def plain_text(text: str) -> str:
    """Replace every non-printable character, such as those that control terminals and pages, with a question mark."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def in_words(chart: Chart) -> str:
    """Describe a chart for readers who cannot see it."""
    if chart.is_empty:
        return f"{chart.title}: {chart.empty}."
    parts = [_series_in_words(series) for series in chart.series]
    parts += [f"{mark.name}: {significant_text(mark.value)}" for mark in chart.marks if mark.name and not mark.along_y]
    return f"{chart.title}, in {chart.unit}. " + ". ".join(parts) + "."


def _series_in_words(series: Series) -> str:
    values = known(series.ys)
    if not values:
        return f"{series.name}: unknown"
    low, high, last = min(values), max(values), values[-1]
    if low == high:
        return f"{series.name}: {significant_text(low)}"
    return f"{series.name}: from {significant_text(low)} to {significant_text(high)}, last {significant_text(last)}"


def data_table(chart: Chart, rows_max: int = TABLE_ROWS_MAX) -> Table:
    """Return the values of a chart as a table, one row for each value of x; of more than `rows_max` rows, every nth."""
    columns = [dict(zip(series.xs, series.ys, strict=True)) for series in chart.series]
    places = sorted(set().union(*columns))
    step = max(1, math.ceil(len(places) / rows_max))
    rows = tuple((_place(chart, x), *(column.get(x) for column in columns)) for x in places[::step])
    note = f"Showing one in {step} of {len(places):,} rows." if step > 1 else ""
    head = {X.TIME: "time", X.NUMBER: chart.x_label or "x", X.CATEGORY: chart.x_label or "category"}[chart.x]
    names = tuple(series.name for series in chart.series)
    return Table(f"{chart.id}-data", f"{chart.title} ({chart.unit})", (head, *names), rows, note)


def _place(chart: Chart, x: float) -> Cell:
    if chart.x is X.TIME:
        return time_text(x, chart.zone)
    if chart.x is X.CATEGORY and 0 <= x < len(chart.x_names):
        return chart.x_names[int(x)]
    return x
