"""Options of commands that look back: of which store, and from when to when."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import wraps
from typing import Any

import click

from daemons.cli.commands.store import store_options, whole_url
from daemons.cli.numbers import plain_number
from daemons.config.controller import ControllerConfig
from daemons.store.reading import Reading, reading
from shared.base.errors import InvalidInput, Problem
from shared.config.toml import load

CALENDAR_END_S = 253_370_764_800.0  # 9999-01-01: a day before the last that some time zone can tell
EXPECTED = "a time with an offset such as 2026-11-01T08:00:00Z, or seconds since the epoch"
Command = Callable[..., None]


def span_options(command: Command) -> Command:
    """Give a command `--from` and `--to`; it is handed `from_s` and `to_s`."""

    @wraps(command)
    def run(from_time: str, to_time: str, **options: Any) -> None:
        command(**options, from_s=moment("--from", from_time), to_s=moment("--to", to_time))

    run = click.option("--to", "to_time", required=True, metavar="TIME", help="End of the span, exclusive.")(run)
    return click.option(
        "--from", "from_time", required=True, metavar="TIME", help="Start of the span: ISO 8601 or epoch seconds."
    )(run)


def moment(where: str, text: str) -> float:
    """Return a time that a user wrote, in seconds since the epoch. Raises `InvalidInput`."""
    at_s = plain_number(text)
    if math.isnan(at_s):
        at_s = _calendar_s(where, text)
    if not abs(at_s) < CALENDAR_END_S:
        raise InvalidInput(Problem(where, f"is {text!r}", EXPECTED))
    return at_s


def _calendar_s(where: str, text: str) -> float:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(Problem(where, f"is {text!r}", EXPECTED)) from error
    if at.tzinfo is None:
        raise InvalidInput(Problem(where, f"is {text!r}, without an offset", EXPECTED))
    return at.timestamp()


def check_span(from_s: float, to_s: float) -> None:
    """Raise `InvalidInput` unless there is time between the two."""
    if not 0.0 <= from_s < to_s < float("inf"):
        raise InvalidInput(Problem("--to", f"is {to_s:g}, --from is {from_s:g}", "a later time than --from"))


def history_options(command: Command) -> Command:
    """Give a command the options that say whose history; it is handed `reader`, which is closed after it."""

    @wraps(command)
    def run(config: str, url: str | None, password_file: str | None, **options: Any) -> None:
        with opened_history(config, url, password_file) as reader:
            command(reader=reader, **options)

    return store_options("--store", "url", metavar="URL")(run)


@contextmanager
def opened_history(config: str, url: str | None, password_file: str | None) -> Iterator[Reading]:
    """Open the store of a URL, or that of a configuration, for reading."""
    if url:
        whole = whole_url(url, password_file or "")
    else:
        file = load(config, ControllerConfig).store
        whole = whole_url(file.url, password_file or file.password_file)
    with reading(whole) as reader:
        yield reader
