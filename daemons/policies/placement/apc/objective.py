"""Which of two placements is better: utilities in ascending order, then fewer disruptions, then preferred rules, then
more CPU used, then any rise of utilities by a start alone.

Only what differs is compared: utilities that both have take no part, so that the gain of one job among thousands is not
lost between neighbours that lie closer together than the tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence

from daemons.policies.placement.apc.state import State, Trial

_SAME = 1e-9
_RISE = 1e-6
_SAME_MHZ = 1e-6  # relative


def compare(new: Sequence[float], old: Sequence[float], tolerance: float) -> int:
    """Return 1 if `new` is better, -1 if worse, 0 if no two utilities at the same place in ascending order differ by
    more than the tolerance. Both have one entry for each workload concerned, in any order."""
    for mine, other in zip(sorted(new), sorted(old), strict=True):
        if mine > other + tolerance:
            return 1
        if other > mine + tolerance:
            return -1
    return 0


def utilities(state: State, trial: Trial | None, rows: Sequence[int]) -> list[float]:
    """Return the utilities of these jobs under a trial (None: in the current state), and the common level at the
    end."""
    if trial is None:
        return [state.utility(row) for row in rows] + [state.levels.level]
    found = [(trial.changed.get(row) or state.jobs[row]).utility(trial.level) for row in rows]
    found.append(trial.level)
    return found


def _yields(state: State, trial: Trial) -> bool:
    """Return whether only jobs without a goal are preempted, by jobs that have one and gain by it."""
    aims, changed = state.problem.aims, trial.changed
    losers = [row for row in trial.gone if changed[row].place is None]
    if not losers or any(aims[row] for row in losers):
        return False
    return any(aims[row] and changed[row].utility(trial.level) > state.utility(row) + _SAME for row in trial.come)


def harmless(state: State, new: Trial, floor: float) -> bool:
    """Return whether a trial is no worse than the current state, and pushes no utility below `floor` that is above
    it."""
    rows = list(new.changed)
    mine, now = utilities(state, new, rows), utilities(state, None, rows)
    held = min(mine, default=1.0) >= min(min(now, default=1.0), floor) - _SAME
    return held and compare(mine, now, state.problem.params.tolerance) >= 0


def better(state: State, new: Trial, old: Trial | None, floor: float) -> bool:
    """Return whether a trial is preferable to another, or to the current state.

    A trial that is only as good, but disturbs less or uses more CPU, must not push any utility below `floor` that is
    above it now. If jobs slow each other down by sharing, no trial may do that.
    """
    tolerance = state.problem.params.tolerance
    rows = list(new.changed) if old is None else list({**new.changed, **old.changed})
    mine, other = utilities(state, new, rows), utilities(state, old, rows)
    order = compare(mine, other, tolerance)
    if order:
        held = state.sharing is None or min(mine) >= min(min(other), floor) - _SAME
        return order > 0 and held
    if old is None and _yields(state, new):
        return min(mine) >= min(min(other), floor) - _SAME
    moves = 0 if old is None else old.moves
    if new.moves != moves:
        return new.moves < moves and min(mine) >= min(min(other), floor) - _SAME
    if old is not None and abs(new.penalty - old.penalty) > _SAME and _same_workloads(new, old):
        return new.penalty < old.penalty and min(mine) >= min(min(other), floor) - _SAME
    given_mhz = state.levels.given_mhz if old is None else old.given_mhz
    more = new.given_mhz > given_mhz * (1.0 + _SAME_MHZ)
    starts = not (new.moves or new.gone) and new.given_mhz >= given_mhz * (1.0 - _SAME_MHZ)
    if more or (starts and _rises(mine, other)):
        return min(mine) >= min(min(other), floor) - _SAME
    return False


def _same_workloads(new: Trial, old: Trial) -> bool:
    """Return whether two trials differ in places alone: the same come and go."""
    return {*new.come} == {*old.come} and {*new.gone} == {*old.gone}


def _rises(new: Sequence[float], old: Sequence[float]) -> bool:
    """Return whether some utility rises and none falls: without a disruption any rise is worth it, because rises
    accumulate. Both in the same order."""
    gains = [mine - other for mine, other in zip(new, old, strict=True)]
    return max(gains, default=0.0) > _RISE and min(gains, default=0.0) >= -_SAME
