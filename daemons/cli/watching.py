"""`--watch`: a view that is asked for and shown again and again, until the user interrupts it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from daemons.cli.connection import ControllerConnection
from daemons.cli.numbers import Number
from daemons.cli.output import print_result, redirected, results, say, wants_json
from daemons.values.text_format import time_text
from shared.base.errors import TransientError

EVERY_S = 2.0
LEAST_S, MOST_S = 0.5, 3_600.0

_Command = TypeVar("_Command", bound=Callable[..., Any])
Show = Callable[[RenderableType], None]


def _interval(context: click.Context, _: click.Parameter, value: float | None) -> float | None:
    if value is not None and wants_json():
        raise click.UsageError("--watch does not go with --output json, which prints one object.", context)
    return value


def watch_option(command: _Command) -> _Command:
    """Give a command that shows a view `--watch [S]`. It stands below `bus_options`: the command is called again and
    again with one connection, and prints through `emit`."""

    @functools.wraps(command)
    def run(line: ControllerConnection, *words: Any, watch: float | None, **options: Any) -> None:
        once = functools.partial(command, line, *words, **options)
        if watch is None:
            once()
        else:
            _repeat(line, once, watch)

    return click.option(
        "--watch",
        is_flag=False,
        flag_value=EVERY_S,
        type=Number(LEAST_S, MOST_S),
        metavar="[S]",
        callback=_interval,
        help=f"Show it again every S seconds ({EVERY_S:g}) until ctrl-c; the last option, or --watch=S.",
    )(run)  # type: ignore[return-value]  # click reads the options that it was given, not the signature


def _repeat(line: ControllerConnection, once: Callable[[], None], every_s: float) -> None:
    """Show a view until the user interrupts it; what fails for the moment is said, and the view asked for again."""
    console = results()
    try:
        with line, _redrawn(line, every_s) if console.is_terminal else _printed() as (show, trouble):
            while True:
                try:
                    with redirected(show):
                        once()
                except TransientError as error:
                    trouble(str(error))
                line.sleep(every_s)
    except KeyboardInterrupt:
        return  # how a watch is ended


@contextmanager
def _redrawn(line: ControllerConnection, every_s: float) -> Iterator[tuple[Show, Callable[[str], None]]]:
    """Redraw on a terminal: the new output replaces the old, above a line with the time or the problem."""
    shown: list[RenderableType] = []
    with Live(console=results(), auto_refresh=False, transient=False) as live:

        def foot(text: str) -> None:
            live.update(Group(*shown, Text(f"{time_text(line.now_s)}: {text}", style="dim")), refresh=True)

        def show(what: RenderableType) -> None:
            shown[:] = [what]
            foot(f"every {every_s:g} s, ctrl-c ends")

        yield show, foot


@contextmanager
def _printed() -> Iterator[tuple[Show, Callable[[str], None]]]:
    """Elsewhere: one after the other, a blank line between."""
    before: list[RenderableType] = []

    def show(what: RenderableType) -> None:
        print_result(Group(*before, what))
        before[:] = [""]

    yield show, lambda text: say(f"error: {text}")
