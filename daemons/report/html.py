"""A report as one HTML file that needs nothing else: no script, no other file, light and dark, on paper and on a phone.

Everything that comes from the history is text, whatever is in it. The content security policy of the file allows its
own style sheet, named by its hash, and nothing else.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from html import escape

from daemons.report.charts import Cell, Chart, Table, cell_text, data_table, in_words, plain_text
from daemons.report.draw import can_draw, svg
from daemons.report.report import Report, Section
from daemons.report.themes import style_sheet

Picture = Callable[[Chart], str]

_STYLE = (
    f":root{{color-scheme:light dark;{style_sheet('light')}--paper:#ffffff;--ink:#1f2328;--muted:#59636e;"
    "--line:#d1d9e0;--link:#0550ae}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{style_sheet('dark')}--paper:#0d1117;--ink:#f0f6fc;"
    "--muted:#9198a1;--line:#3d444d;--link:#79b8ff}}"
    "body{margin:0 auto;padding:1rem;max-width:60rem;background:var(--paper);color:var(--ink);"
    "font:1rem/1.5 system-ui,sans-serif}"
    "h1{margin:0}h2{margin-top:2.5rem;border-bottom:1px solid var(--line)}a{color:var(--link)}"
    ":focus-visible{outline:3px solid var(--link);outline-offset:2px}"
    "nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;padding:0;list-style:none}"
    "dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(13rem,1fr));gap:.75rem;margin:0}"
    "dl div{border:1px solid var(--line);border-radius:.5rem;padding:.5rem .75rem}dt{color:var(--muted)}"
    "dd{margin:0}dd strong{font-size:1.25rem}small,figcaption,.note{color:var(--muted)}small{display:block}"
    "figure{margin:1rem 0}svg{display:block;max-width:100%;height:auto}"
    ".wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}"
    "caption{text-align:left;font-weight:600;padding:.5rem 0}"
    "th,td{padding:.25rem .75rem .25rem 0;border-bottom:1px solid var(--line);text-align:left;vertical-align:top;"
    "overflow-wrap:anywhere}th{font-weight:600}tbody th{font-weight:400}.n{text-align:right;white-space:nowrap}"
    "@media print{body{max-width:none}nav,details{display:none}figure,tr{break-inside:avoid}h2{break-after:avoid}}"
)


def html(report: Report) -> str:
    """The report as a whole file. Without matplotlib (extra `plots`) charts are tables, and it says so."""
    picture = _drawn if can_draw() else None
    digest = b64encode(sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    title = f"{report.title}, {report.span_text}"
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="generator" content="Trimtab">'
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><header><h1>{_text(report.title)}</h1><p>{_text(report.span_text)}</p></header>\n"
        f'<nav aria-label="Sections"><ul>{"".join(_link(section) for section in report.sections)}</ul></nav>\n'
        f"<main>\n{main_html(report, picture)}</main></body></html>\n"
    )


def main_html(report: Report, picture: Picture | None) -> str:
    """What a page of one's own puts below its heading: notes, figures, and a part for each section.

    `picture` gives the markup of a chart; None: there are only the tables of their values.
    """
    notes = [*report.notes, *([] if picture else ["No charts are drawn: matplotlib is not installed."])]
    parts = [f'<p class="note">{_text(note)}</p>\n' for note in notes]
    parts.append(f'<section aria-label="In short"><dl class="figures">{"".join(_figures(report))}</dl></section>\n')
    parts += [_section(section, picture) for section in report.sections]
    return "".join(parts)


def table_html(table: Table) -> str:
    """A table with its caption; numbers are set right."""
    if not table.rows:
        return f'<p class="note">{_text(table.caption)}: none.</p>\n'
    right = [all(not isinstance(row[at], str) for row in table.rows) for at in range(len(table.columns))]
    heads = zip(table.columns, right, strict=True)
    head = "".join(f'<th scope="col"{_right(is_right)}>{_text(name)}</th>' for name, is_right in heads)
    body = "".join(f"<tr>{_row(row, right)}</tr>\n" for row in table.rows)
    note = f'<p class="note">{_text(table.note)}</p>\n' if table.note else ""
    return (
        f'<div class="wide" role="region" aria-label="{_text(table.caption)}" tabindex="0">'
        f"<table><caption>{_text(table.caption)}</caption>"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n{note}"
    )


def figure_html(chart: Chart, picture: Picture | None) -> str:
    """A chart with its values as a table below it, which is open where there is no picture."""
    if chart.is_empty:
        return f'<p class="note">{_text(in_words(chart))}</p>\n'
    if picture is None:
        return table_html(data_table(chart))
    values = table_html(data_table(chart))
    more = f"<details><summary>{_text(chart.title)}: the values</summary>{values}</details>"
    return f"<figure>{picture(chart)}{more}</figure>\n"


def _drawn(chart: Chart) -> str:
    return svg(chart, "page")


def _link(section: Section) -> str:
    return f'<li><a href="#{_text(section.id)}">{_text(section.title)}</a></li>'


def _figures(report: Report) -> list[str]:
    return [
        f"<div><dt>{_text(each.name)}</dt><dd><strong>{_text(each.text)}</strong>"
        f"{f'<small>{_text(each.note)}</small>' if each.note else ''}</dd></div>"
        for each in report.figures
    ]


def _section(section: Section, picture: Picture | None) -> str:
    words = "".join(f"<p>{_text(word)}</p>\n" for word in section.words)
    charts = "".join(figure_html(chart, picture) for chart in section.charts)
    tables = "".join(table_html(table) for table in section.tables)
    id = _text(section.id)
    heading = f'<h2 id="{id}">{_text(section.title)}</h2>'
    return f'<section aria-labelledby="{id}">{heading}\n{words}{charts}{tables}</section>\n'


def _row(row: tuple[Cell, ...], right: list[bool]) -> str:
    first = f'<th scope="row">{_text(cell_text(row[0]))}</th>'
    others = zip(row[1:], right[1:], strict=True)
    return first + "".join(f"<td{_right(is_right)}>{_text(cell_text(cell))}</td>" for cell, is_right in others)


def _right(is_right: bool) -> str:
    return ' class="n"' if is_right else ""


def _text(text: str) -> str:
    """Text that stays text: escaped, and without signs that are none."""
    return escape(plain_text(text))
