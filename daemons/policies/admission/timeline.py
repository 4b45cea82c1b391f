"""Stretches of time in which reservations and pools stay as they are, and the first start at which a request fits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from daemons.models.assurance.calendar import DAY_S
from daemons.policies.admission.grid import last_end_s
from shared.policy_api.admission import Grid, Pool, Standing
from shared.policy_api.snapshot import Bools

_WEEK_S = 7 * DAY_S


@dataclass(frozen=True, slots=True)
class Stretch:
    """From `from_s` until `until_s` (inf: without end) `members` hold, the first `lasting` of them in all stretches."""

    from_s: float
    until_s: float
    members: tuple[Standing, ...]
    lasting: int


def end_s(one: Standing) -> float:
    """Return the end of the reservation; inf: never."""
    return math.inf if one.reservation.end_s is None else one.reservation.end_s


def stretches(standing: Sequence[Standing], pools: Sequence[Pool], from_s: float, until_s: float) -> list[Stretch]:
    """Return the stretches from `from_s` on, in order, until the one that `until_s` lies in or ends. Members that end
    last come first: the additional members of an earlier stretch are then at its end. O(stretches x reservations)."""
    edges = {from_s}
    for one in standing:
        edges.update(at for at in (one.reservation.start_s, end_s(one)) if from_s < at < until_s)
    for pool in pools:
        edges.update(step.from_s for step in pool.steps if from_s < step.from_s < until_s)
    starts = sorted(edges)
    ends = [*starts[1:], _next_change(standing, pools, starts[-1])]
    ordered = sorted(standing, key=lambda one: (-end_s(one), max(from_s, one.reservation.start_s)))
    always = [one for one in ordered if one.reservation.start_s <= from_s and end_s(one) >= ends[-1]]
    held = {id(one) for one in always}
    rest = [one for one in ordered if id(one) not in held]
    return [
        Stretch(
            start,
            end,
            (*always, *(one for one in rest if one.reservation.start_s < end and end_s(one) > start)),
            len(always),
        )
        for start, end in zip(starts, ends, strict=True)
    ]


def _next_change(standing: Sequence[Standing], pools: Sequence[Pool], after_s: float) -> float:
    changes = [at for one in standing for at in (one.reservation.start_s, end_s(one))]
    changes += [step.from_s for pool in pools for step in pool.steps]
    return min((at for at in changes if at > after_s), default=math.inf)


def first_clear(grid: Grid, parts: Sequence[tuple[Stretch, Bools]], from_s: float, lasting_s: float) -> float | None:
    """Return the first start from `from_s` on from which no slot that is wrong in its stretch is touched for
    `lasting_s` (inf: for ever); None if there is none. parts: stretches in order from `from_s` on, the last without
    end, with the slots that are wrong in each.

    A start before the end of a wrong slot within its duration fails. The end of the last such slot is therefore the
    next candidate. A start that fails for a week within a stretch fails until time leaves the stretch.
    """
    start_s, tried = from_s, (-1, from_s)
    while True:
        at, end = _last_wrong(grid, parts, start_s, start_s + lasting_s)
        if end is None:
            return start_s
        if end == math.inf:
            return None
        stretch = parts[at][0]
        within = end >= stretch.from_s and end + lasting_s < stretch.until_s
        tried = (at, end) if not within or tried[0] != at else tried
        if within and end - tried[1] > _WEEK_S:
            if stretch.until_s == math.inf:
                return None
            end = max(end, stretch.until_s - lasting_s)
        start_s = end


def _last_wrong(
    grid: Grid, parts: Sequence[tuple[Stretch, Bools]], from_s: float, until_s: float
) -> tuple[int, float | None]:
    """Return the stretch of the last wrong slot of that time, and the time at which the slot ends."""
    for at in range(len(parts) - 1, -1, -1):
        stretch, wrong = parts[at]
        low, high = max(from_s, stretch.from_s), min(until_s, stretch.until_s)
        if low < high:
            end = last_end_s(grid, wrong, low, high, stretch.until_s)
            if end is not None:
                return at, end
    return -1, None
