"""`trimtab report`: service, cost and decisions of a span of time, on the terminal, as JSON, or as one HTML file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click
from rich.console import RenderableType
from rich.table import Table as RichTable

from daemons.cli.history_options import check_span, history_options, moment
from daemons.cli.output import emit, output_option
from daemons.cli.tables import Fitted, stacked
from daemons.report.charts import Table, cell_text
from daemons.report.cluster_report import cluster_report
from daemons.report.html import html
from daemons.report.report import Report
from daemons.store.reading import Reading
from shared.base.clock import SystemClock
from shared.base.errors import InvalidInput, InvalidValue, Problem
from shared.base.write_file import check_writable, write_file
from shared.values.utc import ago_s

EXPECTED = "a time such as 2026-11-01T08:00:00Z, seconds since the epoch, or how long ago: -7d, -12h, -30m, -2w"
ROWS_ON_TERMINAL = 12


@click.command()
@click.option("--from", "from_time", default="-7d", show_default=True, metavar="TIME", help="Start of the span.")
@click.option("--to", "to_time", default="now", show_default=True, metavar="TIME", help="End of the span.")
@click.option("--zone", default="UTC", show_default=True, help="Time zone of the printed times.")
@click.option(
    "--html",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the report with charts as one self-contained HTML file.",
)
@history_options
@output_option
def report(reader: Reading, from_time: str, to_time: str, zone: str, file: Path | None) -> None:
    """Report service, cost and decisions over a span of time, from the controller's store.

    TIME is ISO 8601 with an offset, seconds since the epoch, `now`, or how long ago: -7d, -12h, -30m, -2w.

    \b
    Example:
      trimtab report --from -30d --html report.html
    """
    now_s = SystemClock().now_s()
    from_s, to_s = (_time(where, text, now_s) for where, text in (("--from", from_time), ("--to", to_time)))
    check_span(from_s, to_s)
    if file is not None:
        check_writable("--html", file)
    try:
        found = cluster_report(reader, from_s, to_s, zone)
    except InvalidValue as error:
        raise InvalidInput(Problem(f"--{error.field}", f"is {error.got!r}", error.expected)) from error
    if file is not None:
        write_file("--html", file, html(found))
    emit(found.to_json() | ({"file": str(file)} if file else {}), lambda: _for_people(found, file))


def _time(where: str, text: str, now_s: float) -> float:
    if text == "now":
        return now_s
    ago = ago_s(text)
    if ago is not None:
        return now_s - ago
    try:
        return moment(where, text)
    except InvalidInput as error:
        raise InvalidInput(Problem(where, f"is {text!r}", EXPECTED)) from error


def _for_people(found: Report, file: Path | None) -> RenderableType:
    figures = RichTable("", "", "", title=f"{found.title}\n{found.span_text}", show_header=False)
    for each in found.figures:
        figures.add_row(each.name, each.text, each.note)
    shown: list[RenderableType] = [*found.notes, figures]
    shown += _tables(table for section in found.sections for table in section.tables)
    if file is not None:
        shown.append(f"written: {file}")
    return stacked(*shown)


def _tables(tables: Iterable[Table]) -> list[RenderableType]:
    shown: list[RenderableType] = []
    for table in tables:
        if not table.rows:
            continue
        rows = [[cell_text(cell) for cell in row] for row in table.rows[:ROWS_ON_TERMINAL]]
        shown.append(Fitted(table.caption, table.columns, rows))
        if len(table.rows) > ROWS_ON_TERMINAL:
            shown.append(f"{len(table.rows) - ROWS_ON_TERMINAL:,} more rows: --html or --output json has them")
    return shown
