"""A report as one self-contained HTML file: no script, no other file, light and dark, on paper and on a phone.

Everything from the history is treated as text: the templates escape all values except pictures. The CSP of the file
allows its own style sheet, named by its hash, and nothing else.
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
    """Return the templates, which are compiled once: everything is escaped, and a missing name is an error."""
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
    """Return the form of a value in a template: texts with printable characters only; pictures and parts unchanged."""
    return plain_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _of_numbers(table: Table) -> list[bool]:
    """Return for each column whether it has no text."""
    return [all(not isinstance(row[at], str) for row in table.rows) for at in range(len(table.columns))]


def _drawn(chart: Chart) -> Markup:
    return Markup(svg(chart, "page"))  # text in it was escaped when it was written as XML
