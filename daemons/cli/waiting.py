"""What a command that computes for long says meanwhile, on standard error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from daemons.cli.output import messages, say
from shared.base.clock import perf_s

FIRST_S = 5.0
EVERY_S = 30.0


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
