"""The deadline window of a fault run, on days on which clocks are changed too: drawn from the seed.

Pure, as `fault_script` is. When things truly happen is drawn first; what local clocks show then follows from the known
moments of the changes alone, so that the controller's calendar is judged by something that has none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

OPENS_S, CLOSES_S, DEADLINE_S = 60, 3_600, 5_400
SHARE, TURN = 4, 1  # of so many runs with a window in a row, the one with that remainder
ZONE = "Europe/Berlin"
HOUR_S = 3_600
FORWARD_AT_S = 1_774_746_000  # 2026-03-29 01:00 UTC: 02:00 becomes 03:00
BACK_AT_S = 1_792_890_000  # 2026-10-25 01:00 UTC: 03:00 becomes 02:00


class ClockChange(StrEnum):
    """How a change of the clocks meets a window, in the order in which seeds rotate through them."""

    FORWARD = "clocks-put-forward"
    LEFT_OUT = "deadline-left-out"
    BACK = "clocks-put-back"
    TWICE = "deadline-comes-twice"


@dataclass(frozen=True, slots=True)
class FaultWindow:
    """A window that truly opens, takes no more jobs and has its deadline so many seconds after the run has begun, when
    clocks show `epoch_s`. The `_local_s` are what is configured: seconds of the local day. `change_s`: of the clocks.
    """

    opens_s: int = OPENS_S
    closes_s: int = CLOSES_S
    deadline_s: int = DEADLINE_S
    opens_local_s: int = OPENS_S
    closes_local_s: int = CLOSES_S
    deadline_local_s: int = DEADLINE_S
    zone: str = "UTC"
    epoch_s: int = 0
    change: ClockChange | None = None
    change_s: int = 0


def draw_window(seed: int, turn: int) -> FaultWindow:
    """Draw the window of a seed; `turn` selects the clock change among the seeds that have a window."""
    every = list(ClockChange)
    return changed_window(every[turn // SHARE % len(every)], seed) if turn % SHARE == TURN else FaultWindow()


def changed_window(change: ClockChange, seed: int) -> FaultWindow:
    """Return a window on a day with this clock change."""
    rng = Random(f"clocks {seed}")
    closes_s, deadline_s = CLOSES_S, DEADLINE_S
    match change:
        case ClockChange.FORWARD:
            change_s = rng.randint(OPENS_S + 300, DEADLINE_S - 300)
        case ClockChange.LEFT_OUT:
            change_s = deadline_s
        case ClockChange.BACK:
            change_s = rng.randint(900, 1_700)  # nothing is in the hour's second turn: of its times the first is meant
            closes_s = rng.choice((change_s - 60, change_s + HOUR_S + 60))
            deadline_s = change_s + HOUR_S + 1_860
        case ClockChange.TWICE:
            change_s = deadline_s + rng.randint(60, HOUR_S // 2)
    forward = change in (ClockChange.FORWARD, ClockChange.LEFT_OUT)
    window = FaultWindow(
        OPENS_S,
        closes_s,
        deadline_s,
        opens_local_s=_local_s(OPENS_S, change_s, forward),
        closes_local_s=_local_s(closes_s, change_s, forward),
        deadline_local_s=_local_s(deadline_s, change_s, forward),
        zone=ZONE,
        epoch_s=(FORWARD_AT_S if forward else BACK_AT_S) - change_s,
        change=change,
        change_s=change_s,
    )
    if change is not ClockChange.LEFT_OUT:
        return window
    return replace(window, deadline_local_s=2 * HOUR_S + rng.randint(1, HOUR_S - 1))


def _local_s(at_s: int, change_s: int, forward: bool) -> int:
    """Return the local time in seconds since midnight: 02:00 becomes 03:00, or 03:00 becomes 02:00."""
    before_s, after_s = (2 * HOUR_S, 3 * HOUR_S) if forward else (3 * HOUR_S, 2 * HOUR_S)
    return at_s - change_s + (before_s if at_s < change_s else after_s)
