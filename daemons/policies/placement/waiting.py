"""Which workloads ask for room, in what order, and which of them need not be tried."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from daemons.policies.placement.free_capacity import Shape, repeated
from shared.policy_api.decision import Reason, ReasonCode
from shared.policy_api.snapshot import Bools, Ints, Snapshot, WorkloadState

_FEW = 8
_FINITE = ("submit_s", "desired_start_s", "not_before_s", "max_mhz", "min_mhz", "memory_mib", "work_mcycles")
_NOT_NEGATIVE = ("min_mhz", "memory_mib", "work_mcycles", "done_mcycles")
_ABOVE_ZERO = ("max_mhz", "importance")
FIXED = Reason(ReasonCode.KEEP, (("fixed", 1.0),))


def profile_problem(snapshot: Snapshot, row: int) -> Reason | None:
    """BAD_PROFILE naming every number of the row that is not finite (field_not_finite=1) or out of range."""
    work = snapshot.workloads
    wrong: list[tuple[str, float]] = []
    for name in (*_FINITE, "done_mcycles", "importance"):
        value = getattr(work, name).item(row)
        if not math.isfinite(value):
            wrong.append((f"{name}_not_finite", 1.0))
        elif (value < 0.0 and name in _NOT_NEGATIVE) or (value <= 0.0 and name in _ABOVE_ZERO):
            wrong.append((name, value))
    goal_s = work.goal_s.item(row)
    if math.isnan(goal_s) or goal_s == -math.inf:
        wrong.append(("goal_s_not_finite", 1.0))
    if work.min_mhz.item(row) > work.max_mhz.item(row):
        wrong.append(("min_above_max", 1.0))
    wrong.extend(
        (name, float(value)) for name in ("vcpus", "instances") if (value := getattr(work, name).item(row)) < 1
    )
    return Reason(ReasonCode.BAD_PROFILE, tuple(wrong)) if wrong else None


def _suspects(snapshot: Snapshot, rows: Ints) -> Bools:
    """Return the rows for which `objection` may return a reason, bool[len(rows)]; no others."""
    work, now_s = snapshot.workloads, snapshot.now_s
    with np.errstate(all="ignore"):
        fine = np.isfinite(sum(getattr(work, name) for name in (*_FINITE, "done_mcycles", "importance")))
    fine &= ~work.fixed
    fine &= np.maximum(work.desired_start_s, work.not_before_s) <= now_s
    for name in _NOT_NEGATIVE:
        fine &= getattr(work, name) >= 0.0
    fine &= (work.max_mhz > 0.0) & (work.importance > 0.0) & (work.min_mhz <= work.max_mhz)
    fine &= (work.goal_s > -np.inf) & (work.vcpus >= 1) & (work.instances >= 1)
    return np.asarray(~fine[rows])


def objection(snapshot: Snapshot, row: int) -> Reason | None:
    """Return the reason why the workload is not tried at all: fixed, a bad profile, or not yet due."""
    work = snapshot.workloads
    if work.fixed[row]:
        return FIXED
    problem = profile_problem(snapshot, row)
    if problem is not None:
        return problem
    from_s = max(work.desired_start_s.item(row), work.not_before_s.item(row))
    if from_s > snapshot.now_s:
        return Reason(ReasonCode.NOT_YET, (("from_s", from_s), ("now_s", snapshot.now_s)))
    return None


def screen(snapshot: Snapshot, rows: Ints) -> tuple[Ints, dict[int, Reason]]:
    """Split rows into those to try, in order, and those refused at once with the reason."""
    again = repeated(snapshot.workloads.names)
    suspects = rows if rows.size <= _FEW or again else rows[_suspects(snapshot, rows)]
    refused: dict[int, Reason] = {}
    for row in suspects.tolist():
        if row in again:
            refused[row] = Reason(ReasonCode.BAD_PROFILE, (("name_repeated", 1.0),))
        elif (reason := objection(snapshot, row)) is not None:
            refused[row] = reason
    if refused:
        rows = rows[[row not in refused for row in rows.tolist()]]
    return rows, refused


def asking(snapshot: Snapshot) -> Ints:
    """Return the rows of the waiting and suspended jobs in order of arrival: submit_s, then row. Instances of web
    applications are not among them: `start_missing_replicas` handles those."""
    work = snapshot.workloads
    asks = work.state != WorkloadState.RUNNING.value
    if snapshot.web.names:
        asks &= work.app < 0
    rows: Ints = asks.nonzero()[0]
    if rows.size > 1:
        rows = rows[work.submit_s[rows].argsort(kind="stable")]
    return rows


class Pending:
    """Rows to be tried, in order, each followed by `placed` or, if it may rule out others, `strike`.

    A failure strikes out every later row that needs at least as much. That is sound as long as the room that the
    failure was found in only shrinks for the rows that come later. `tried` counts the rows handed out.
    """

    __slots__ = ("_alive", "_at", "_left", "_required_labels", "_rows", "_snapshot", "tried")

    def __init__(self, snapshot: Snapshot, rows: Ints) -> None:
        self._snapshot, self._rows = snapshot, rows
        self._alive = np.ones(rows.size, dtype=np.bool_)
        self._left = np.ones(rows.size, dtype=np.bool_)
        self._at = -1
        self.tried = 0
        self._required_labels: Ints | None = None

    def __iter__(self) -> Iterator[int]:
        rows, alive = self._rows, self._alive
        self._at = 0
        while self._at < rows.size:
            self._at += int(alive[self._at :].argmax())
            if not alive[self._at]:
                return
            self.tried += 1
            yield rows.item(self._at)
            self._at += 1

    def placed(self) -> None:
        """Record that the row just tried has its place."""
        self._left[self._at] = False

    @property
    def left(self) -> Ints:
        """Rows that were not placed."""
        return self._rows[self._left]

    def strike(self, shape: Shape, slots: int) -> None:
        """There is room for only `slots` instances of `shape`: drop the later rows that this rules out."""
        if self._at + 1 >= self._rows.size:
            return
        later, work = self._rows[self._at + 1 :], self._snapshot.workloads
        out = work.instances[later] > slots
        out &= work.memory_mib[later] + self._snapshot.vm_overhead_mib >= shape.memory_mib
        if shape.min_mhz > 0.0:  # a faster one could reach nodes that are too slow for this one
            out &= (work.max_mhz[later] == shape.max_mhz) & (work.vcpus[later] == shape.vcpus)
            out &= work.min_mhz[later] >= shape.min_mhz
        else:
            out &= (work.max_mhz[later] >= shape.max_mhz) & (work.vcpus[later] >= shape.vcpus)
        if shape.spread:
            out &= work.spread[later]
        if shape.required_labels:
            out &= self._same_needs()[self._at + 1 :]
        self._alive[self._at + 1 :] &= ~out

    def _same_needs(self) -> Bools:
        """Return the rows that require the same labels as the row being tried."""
        ids: dict[tuple[str, ...], int] = {}
        if self._required_labels is None:
            of = self._snapshot.workloads.required_labels
            self._required_labels = np.array(
                [ids.setdefault(of[row], len(ids)) for row in self._rows.tolist()], dtype=np.int64
            )
        return np.asarray(self._required_labels == self._required_labels[self._at])
