"""`trimtab events`: past events from the store, new ones from the bus."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from itertools import islice
from pathlib import Path

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
LAST = 20  # events that are printed without any option


@click.command()
@click.option("--follow", is_flag=True, help="Print new events until interrupted.")
@click.option(
    "--since", metavar="TIME", help="Print events since then: 90s, 15m, 2h, 3d, 1w, or a time with an offset."
)
@click.option(
    "--count",
    type=Whole(1),
    help=f"With --since or --follow: stop after so many events. Else: print the last so many.  [default: {LAST}]",
)
@click.option(
    "--store",
    "store_url",
    metavar="URL",
    envvar=URL_VARIABLE,
    callback=without_password,
    help=f"Read past events from this store. Pass a URL with a password in {URL_VARIABLE} only.",
)
@click.option(
    "--controller",
    default=CONFIG,
    show_default=True,
    metavar="FILE",
    help="Read past events from the store that this controller's configuration names.",
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
    """Print events, one per line: the last 20, those since a time, or new ones.

    Past events come from the controller's store, so only a machine that can read the store can print them. New events
    come over the bus. With `--output json` every line is a JSON object.

    \b
    Example:
      trimtab events --since 1h --follow
    """
    try:
        for happened in islice(_told(line, follow, since, count, (store_url, controller)), count):
            as_json = json.dumps(asdict(happened), allow_nan=False) if wants_json() else ""
            put((as_json or events_line(happened)) + "\n")
    except KeyboardInterrupt:
        return  # how a follower is ended


def _told(
    line: ControllerConnection, follow: bool, since: str | None, count: int | None, store: tuple[str | None, str]
) -> Iterator[Happened]:
    if since is not None:
        yield from _past(store, _since_s(since), PAST_MAX)
    elif not follow:
        yield from _past(store, 0.0, count or LAST)
    if follow:
        with line:
            yield from line.follow()


def _past(store: tuple[str | None, str], from_s: float, limit: int) -> Iterator[Happened]:
    """Yield the last events of a store (its URL, else its controller's file) from `from_s` on, oldest first. Raises
    InvalidInput."""
    url, controller = store
    if not url and not Path(controller).exists():
        expected = "the controller's file, or --store URL; `trimtab events --follow` needs neither"
        raise InvalidInput(Problem("--controller", f"{controller} does not exist", expected))
    with opened_history(controller, url, None) as reader:
        rows = reader.events(from_s, math.inf, limit=limit)
    for row in reversed(rows):
        yield Happened(row.at_s, row.what, row.subject, row.term, row.detail)


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
    """Return an event in one line for people."""
    detail = f"  {happened.detail}" if happened.detail else ""
    return one_line(f"{time_text(happened.at_s)}  {happened.what}  {happened.subject}{detail}")
