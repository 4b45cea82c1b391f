"""`trimtab events`: what happens, as it happens, and what has happened."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from itertools import islice

import click

from daemons.cli.commands.store import CONFIG, URL_VARIABLE
from daemons.cli.connection import ControllerConnection, bus_options
from daemons.cli.history_options import moment, opened_history
from daemons.cli.numbers import Whole
from daemons.cli.output import output_option, put, wants_json
from daemons.cli.secret_options import without_password
from daemons.values.text_format import time_text
from shared.base.clock import SystemClock
from shared.base.errors import InvalidInput, Problem
from shared.base.printable import one_line
from shared.protocol.messages import Happened

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
PAST_MAX = 100_000  # events of the store that are printed


@click.command()
@click.option("--follow", is_flag=True, help="Go on with what happens from now on, until interrupted.")
@click.option("--since", metavar="TIME", help="What happened since: 90s, 15m, 2h, 3d, 1w, or a time with an offset.")
@click.option("--count", type=Whole(1), help="End after so many events.")
@click.option(
    "--store",
    "store_url",
    metavar="URL",
    envvar=URL_VARIABLE,
    callback=without_password,
    help=f"Of --since: the store to read; a URL with a password only as the variable {URL_VARIABLE}.",
)
@click.option(
    "--controller", default=CONFIG, show_default=True, metavar="FILE", help="Of --since: whose store to read."
)
@bus_options
@output_option
def events(
    line: ControllerConnection,
    follow: bool,
    since: str | None,
    count: int | None,
    store_url: str | None,
    controller: str,
) -> None:
    """Print what happens, one event per line, and what has happened.

    The past is in the controller's store, so `--since` is for a machine that can read it. With `--output json` one JSON
    object per line.
    """
    if not follow and since is None:
        raise click.UsageError("say --follow for what happens from now on, --since TIME for what happened, or both")
    try:
        for happened in islice(_told(line, follow, since, store_url, controller), count):
            as_json = json.dumps(asdict(happened), allow_nan=False) if wants_json() else ""
            put((as_json or events_line(happened)) + "\n")
    except KeyboardInterrupt:
        return  # how a follower is ended


def _told(
    line: ControllerConnection, follow: bool, since: str | None, store_url: str | None, controller: str
) -> Iterator[Happened]:
    if since is not None:
        with opened_history(controller, store_url, None) as reader:
            rows = reader.events(_since_s(since), math.inf, limit=PAST_MAX)
        for row in reversed(rows):
            yield Happened(row.at_s, row.what, row.subject, row.term, row.detail)
    if follow:
        with line:
            yield from line.follow()


def _since_s(text: str) -> float:
    """Return the time in seconds since the epoch that a duration ago was, or that is written out. Raises
    InvalidInput."""
    number, unit = text[:-1], text[-1:]
    if unit in _UNITS and number.isascii() and number.isdigit() and len(number) < 10:
        return SystemClock().now_s() - timedelta(**{_UNITS[unit]: int(number)}).total_seconds()
    found_s = moment("--since", text)
    if not math.isfinite(found_s):
        raise InvalidInput(Problem("--since", f"is {text!r}", "90s, 15m, 2h, 3d, 1w, or a time with an offset"))
    return found_s


def events_line(happened: Happened) -> str:
    """An event as people read it, in one line."""
    detail = f"  {happened.detail}" if happened.detail else ""
    return one_line(f"{time_text(happened.at_s)}  {happened.what}  {happened.subject}{detail}")
