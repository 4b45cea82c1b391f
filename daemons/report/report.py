"""A report as plain values: figures, sections of charts and tables. Its consumers draw and escape them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from daemons.report.charts import Cell, Chart, Table, cell_text, thinned
from daemons.values.text_format import is_known, time_text

JSON_POINTS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Figure:
    """One of the figures at the start of a report. value None: unknown. note: a remark on it."""

    name: str
    value: Cell
    unit: str = ""
    note: str = ""

    @property
    def text(self) -> str:
        """The value with its unit, for people."""
        return cell_text(self.value) if self.value is None or not self.unit else f"{cell_text(self.value)} {self.unit}"


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report. `id`: ASCII letters, digits and '-'. words: paragraphs."""

    id: str
    title: str
    words: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """A report on the span from `from_s` to `to_s`, UTC seconds since the epoch. zone: time zone of displayed times."""

    title: str
    from_s: float
    to_s: float
    zone: str
    figures: tuple[Figure, ...]
    sections: tuple[Section, ...]
    notes: tuple[str, ...] = ()

    @property
    def span_text(self) -> str:
        """From when to when, in words."""
        return f"{time_text(self.from_s, self.zone)} to {time_text(self.to_s, self.zone)} ({self.zone})"

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data; a long series has at most about 1,000 values, which include its extremes."""
        return {
            "title": self.title,
            "from_s": self.from_s,
            "to_s": self.to_s,
            "zone": self.zone,
            "notes": list(self.notes),
            "figures": [
                {"name": each.name, "value": _plain(each.value), "unit": each.unit, "note": each.note}
                for each in self.figures
            ],
            "sections": [_section(section) for section in self.sections],
        }


def _plain(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and not is_known(cell) else cell


def _section(section: Section) -> dict[str, Any]:
    return {
        "id": section.id,
        "title": section.title,
        "words": list(section.words),
        "charts": [_chart(chart) for chart in section.charts],
        "tables": [
            {
                "id": table.id,
                "caption": table.caption,
                "columns": list(table.columns),
                "rows": [[_plain(cell) for cell in row] for row in table.rows],
                "note": table.note,
            }
            for table in section.tables
        ],
    }


def _chart(chart: Chart) -> dict[str, Any]:
    series = [thinned(each, JSON_POINTS_MAX) for each in chart.series]
    return {
        "id": chart.id,
        "title": chart.title,
        "unit": chart.unit,
        "x": chart.x.value,
        "x_names": list(chart.x_names),
        "series": [
            {"name": each.name, "xs": list(each.xs), "ys": [y if is_known(y) else None for y in each.ys]}
            for each in series
        ],
        "marks": [{"name": mark.name, "value": mark.value} for mark in chart.marks],
    }
