"""A report as one HTML file that needs nothing else: no script, no other file, light and dark, on paper and on a phone.

Everything that comes from the history is text, whatever is in it: the templates escape all that they are given but
pictures. The content security policy of the file allows its own style sheet, named by its hash, and nothing else.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from daemons.report.charts import Chart, Table, cell_text, data_table, in_words, plain_text
from daemons.report.draw import can_draw, svg
from daemons.report.report import Report
from daemons.report.themes import style_sheet

Picture = Callable[[Chart], Markup]

_TEMPLATES = Path(__file__).with_name("templates")


def html(report: Report) -> str:
    """Write the report as a whole file. Without matplotlib (extra `plots`) charts are tables, and it says so."""
    themes = {name: style_sheet(name) for name in ("light", "dark")}
    style = _environment().get_template("style.css").render(themes)
    digest = b64encode(sha256(style.encode()).digest()).decode()
    picture = _drawn if can_draw() else None
    return _environment().get_template("report.html").render(themes, report=report, picture=picture, style_hash=digest)


def main_html(report: Report, picture: Picture | None) -> Markup:
    """Make what a page of one's own puts below its heading: notes, figures, and a part for each section.

    `picture` gives the markup of a chart; None: there are only the tables of their values.
    """
    return _part("body", report, picture)


def table_html(table: Table) -> Markup:
    """Show a table with its caption; numbers are set right."""
    return _part("table", table)


def figure_html(chart: Chart, picture: Picture | None) -> Markup:
    """Show a chart with its values as a table below it, which is open where there is no picture."""
    return _part("figure", chart, picture)


def _part(name: str, *given: object) -> Markup:
    parts: Any = _environment().get_template("parts.html").module
    made: Markup = getattr(parts, name)(*given)
    return made


@cache
def _environment() -> jinja2.Environment:
    """The templates, which are compiled once: everything is escaped, and a name that is missing is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "cell": cell_text,
        "data_table": data_table,
        "in_words": in_words,
        "of_numbers": _of_numbers,
    }
    return environment


def _shown(value: object) -> object:
    """What a template shows: of a text only signs; pictures and parts as they are."""
    return plain_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _of_numbers(table: Table) -> list[bool]:
    """Of each column, whether there is no text in it."""
    return [all(not isinstance(row[at], str) for row in table.rows) for at in range(len(table.columns))]


def _drawn(chart: Chart) -> Markup:
    return Markup(svg(chart, "page"))  # text in it was escaped when it was written as XML
