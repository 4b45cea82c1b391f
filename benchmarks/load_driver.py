"""`python -m benchmarks.load_driver URL NODES PERIOD_S TERM`: the reports of so many nodes, spread over the period.

One process and connection speak for all agents; the broker has to let the URL's user do that.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import count

from benchmarks.wire_broker import Driver
from benchmarks.wire_load import Load, report
from shared.base.clock import SystemClock

TURN_S = 0.05


def drive(driver: Driver, load: Load, period_s: float, term: int) -> None:
    """Send reports until the process is ended."""
    clock = SystemClock()
    names, begun_s = load.names, clock.monotonic_s()
    for turn in count(1):
        due = int(turn * TURN_S / period_s * load.nodes)
        for number in range(int((turn - 1) * TURN_S / period_s * load.nodes), due):
            seq, at = divmod(number, load.nodes)
            driver.send([report(names[at], seq + 1, clock.now_s(), term)])
        driver.wait(max(0.0, begun_s + turn * TURN_S - clock.monotonic_s()))


def main(words: Sequence[str]) -> None:
    """Drive as the words of the command say."""
    url, nodes, period_s, term = words
    drive(Driver(url, confirmed=False), Load(int(nodes)), float(period_s), int(term))


if __name__ == "__main__":
    main(sys.argv[1:])
