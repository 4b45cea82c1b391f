"""What a command that computes or waits for long says meanwhile, on standard error."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from daemons.cli.connection import ControllerConnection
from daemons.cli.output import messages, say, wants_json
from shared.base.clock import perf_s
from shared.base.errors import TransientError

FIRST_S = 5.0
EVERY_S = 30.0
LOOK_S = 1.0  # between two looks at what is waited for

_Command = TypeVar("_Command", bound=Callable[..., Any])


class NotYet(TransientError):
    """What was waited for has not come: in time, or because something else was requested meanwhile. The operation may
    still be on its way."""

    code = "not-yet"


@dataclass(frozen=True, slots=True)
class Look:
    """How far something is. text, ended: what comes after its name in a sentence ("": nothing is said). done: it is as
    far as was waited for; ended: why it never will be ("": it may)."""

    text: str
    done: bool = False
    ended: str = ""


@contextmanager
def saying_what_goes_on(
    text: str, first_s: float = FIRST_S, every_s: float = EVERY_S
) -> Iterator[Callable[[str], None]]:
    """Show `text`, and later what the result is called with: on a terminal all the time, elsewhere in a line once it
    has taken `first_s`, and every `every_s` from then on."""
    console = messages()
    if console.is_terminal:
        with console.status(text) as status:
            yield lambda now: status.update(now)
        return
    current = [text]
    ended = threading.Event()
    begun_s = perf_s()

    def remind() -> None:
        wait_s = first_s
        while not ended.wait(wait_s):
            say(f"{current[0]}: {perf_s() - begun_s:.0f} s so far")
            wait_s = every_s

    thread = threading.Thread(target=remind, name="what goes on", daemon=True)
    thread.start()
    try:
        yield lambda now: current.__setitem__(0, now)
    finally:
        ended.set()
        thread.join()


def wait_option(what: str) -> Callable[[_Command], _Command]:
    """Give a command `--wait/--no-wait`; it is handed `wait`, by default whether somebody watches (`is_watched`)."""
    return click.option(
        "--wait/--no-wait",
        default=None,
        callback=lambda _context, _option, value: is_watched() if value is None else value,
        help=f"Show progress until {what}.  [default: wait on a terminal, unless -o json]",
    )


def is_watched() -> bool:
    """Return whether a person watches the output of the current command."""
    return sys.stdout.isatty() and not wants_json()


def wait_for_all(
    line: ControllerConnection,
    looks: Mapping[str, Callable[[], Look]],
    limit_s: float | None,
    goes_on: str,
    every_s: float = LOOK_S,
) -> dict[str, Look]:
    """Look again and again until each name is done or has ended, or for `limit_s` (None: without a limit); say each
    change in a line. Returns the last look of each. A look whose question is not answered is repeated. `goes_on`: what
    is said when the user interrupts the wait."""
    until_s = math.inf if limit_s is None else line.now_s + limit_s
    found: dict[str, Look] = {}
    said: dict[str, str] = {}
    try:
        while True:
            for name, look in looks.items():
                if name not in found or not (found[name].done or found[name].ended):
                    found[name] = _looked(look, found.get(name), said)
                    _say_change(said, name, found[name].ended or found[name].text)
            left_s = until_s - line.now_s
            if left_s <= 0.0 or all(each.done or each.ended for each in found.values()):
                return found
            line.sleep(min(every_s, left_s))
    except KeyboardInterrupt:
        say(goes_on)
        raise


def _looked(look: Callable[[], Look], before: Look | None, said: dict[str, str]) -> Look:
    """Return the result of a look; if there is no answer, the previous result."""
    try:
        return look()
    except TransientError as error:
        _say_change(said, "still waiting:", str(error))
        return before or Look("")


def _say_change(said: dict[str, str], name: str, text: str) -> None:
    if text and said.get(name) != text:
        said[name] = text
        say(f"{name} {text}")
