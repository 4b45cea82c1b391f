"""What a report is given is text in its pages, whatever is in it; pictures alone are markup."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from html.parser import HTMLParser
from itertools import count
from typing import Any

from markupsafe import Markup

from daemons.report.charts import Chart, Mark, Series, Table, X
from daemons.report.html import figure_html, html, main_html, table_html
from daemons.report.report import Figure, Report, Section

PICTURE = Markup("<svg></svg>")
CHART = Chart(
    "c",
    "c",
    "c",
    series=(Series("s", (0.0, 1.0), (0.5, None)),),
    x=X.CATEGORY,
    x_label="c",
    x_names=("c", "c"),
    y_names=((0.5, "c"),),
    marks=(Mark("m", 0.5),),
)
EMPTY = Chart("e", "e", "e", series=(), empty="e")
TABLE = Table("t", "t", ("t", "t", "t"), (("t", 1, "t"), ("t", 2, None)), "t")
FIGURES = (Figure("f", "f", "f", "f"), Figure("f", 1.5, "f"))
SECTION = Section("s", "s", ("s",), (CHART, EMPTY), (TABLE, Table("n", "n", (), ())))
REPORT = Report("r", 0.0, 1.0, "UTC", FIGURES, (SECTION,), ("r",))
KEPT = {"zone"}  # one that is none is refused before there is a report
# Of a chart or a table, not on every page: in pictures, or only where there is no value.
NOT_ALWAYS_SHOWN = {"id", "unit", "x_label", "x_names", "y_names", "marks", "empty"}


def hostile(value: Any, numbers: Iterator[int]) -> Any:
    """The same with markup, numbered, in the place of each text that is not empty."""
    if is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in fields(value) if each.name not in KEPT]
        return replace(value, **{name: hostile(getattr(value, name), numbers) for name in names})
    if isinstance(value, tuple):
        return tuple(hostile(each, numbers) for each in value)
    is_text = isinstance(value, str) and not isinstance(value, Enum) and value != ""
    return f"</td><script>alert('{next(numbers)}')</script>\"&amp;" if is_text else value


def texts(value: Any) -> Iterator[str]:
    """Each text in a value that every page shows."""
    if is_dataclass(value):
        for each in fields(value):
            if each.name not in KEPT | NOT_ALWAYS_SHOWN:
                yield from texts(getattr(value, each.name))
    elif isinstance(value, tuple):
        for one in value:
            yield from texts(one)
    elif isinstance(value, str) and value and not isinstance(value, Enum):
        yield value


class Read(HTMLParser):
    """The elements of a page, and all that it says, in texts and in attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.names: set[str] = set()
        self.said: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}
        self.said += [value for _, value in attrs if value]

    def handle_data(self, data: str) -> None:
        self.said.append(data)


def test_markup_in_any_text_of_a_report_is_shown_as_text() -> None:
    """Given `<script>` in every text, then no page has an element of it, and each text is there word for word."""
    numbers = count()
    report = hostile(REPORT, numbers)
    writers: tuple[Callable[[Report], str], ...] = (
        html,
        lambda one: main_html(one, None),
        lambda one: main_html(one, lambda _: PICTURE),
    )

    for written in writers:
        page = written(report)
        found, harmless = Read(page), Read(written(REPORT))
        said = "".join(found.said)

        assert "<script" not in page
        assert (found.tags, found.names) == (harmless.tags, harmless.names)
        shown = (report.figures, report.sections, report.notes)
        assert [text for text in texts(shown) if text not in said] == []
        assert (report.title in said) == (written is html)
    assert next(numbers) > 25


def test_parts_of_pages_are_markup_and_what_they_are_given_is_not() -> None:
    """What the portal puts into its own templates is not escaped once more there."""
    table, chart = hostile(TABLE, count()), hostile(CHART, count())

    for part in (table_html(table), figure_html(chart, None), figure_html(chart, lambda _: PICTURE)):
        assert isinstance(part, Markup)
        assert "<script" not in part
        assert "&lt;script&gt;" in part
    assert PICTURE in figure_html(chart, lambda _: PICTURE)
    assert "<td><svg" not in table_html(Table("t", "t", ("a", "b"), (("x", "<svg></svg>"),)))
