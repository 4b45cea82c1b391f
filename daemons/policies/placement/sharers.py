"""Where a job ends earliest beside those who share disks and networks with it: list scheduling on composed completion
times (d-factor.txt, section 6), for the simple policies.

Of the nodes that fit, the one where the last job of those there that load the same, the new one among them, ends first
(ties: where the new one ends first, then the first). CPU slows nobody down, allotments share it out. The `_COMPOSED`
nodes that promise the new job most are composed; no other can be better where nobody is in its way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from daemons.models.dilation import formula
from daemons.models.dilation.completion import composed
from daemons.models.dilation.formula import waiting
from daemons.models.neighbours import SLOWED_MIN, sound_parts, sound_servers
from daemons.policies.placement.free_capacity import Fit, FreeCapacity, Shape
from daemons.policies.placement.moves import find_fit, held
from shared.base.errors import Problem
from shared.policy_api.decision import Change, Reason
from shared.policy_api.snapshot import Bools, Floats, Ints, LoadingColumns, Snapshot, WorkloadState

OFF, COMPOSED = "off", "composed"
CHOICES = (OFF, COMPOSED)
_COMPOSED = 8
_LEFT_MIN_S = 1.0  # a job that has done all its declared work goes on for a while


def sharing_problems(params: Mapping[str, Any], where: str) -> list[Problem]:
    """Return the problems of the parameter `sharing`."""
    value = params.get("sharing", OFF)
    if isinstance(value, str) and value in CHOICES:
        return []
    return [Problem(f"{where}: sharing", f"{value!r} cannot be used", " or ".join(CHOICES))]


class Sharers:
    """Who is on every node while a decision is being made."""

    def __init__(self, snapshot: Snapshot, loading: LoadingColumns) -> None:
        self.snapshot = snapshot
        self._parts, self._servers, self._kind = sound_parts(loading), sound_servers(loading), loading.node_type
        self._uses: Bools = np.asarray(self._parts.any(axis=(0, 2)))
        count = len(snapshot.nodes.names)
        self._here: list[dict[int, list[float]]] = [{} for _ in range(count)]
        self._at: dict[int, list[int]] = {}
        self._loads: Floats = np.zeros((count, self._parts.shape[2]))
        self._waits: Floats = np.zeros_like(self._loads)
        for row in np.flatnonzero((snapshot.workloads.state == WorkloadState.RUNNING.value) & self._uses).tolist():
            self.take(row, *held(snapshot, row))

    def uses(self, row: int) -> bool:
        """Return whether the workload loads any shared resource."""
        return bool(self._uses[row])

    def take(self, row: int, nodes: Ints, cpu_mhz: Floats) -> None:
        """Record an instance of the workload on each of the nodes, with this CPU."""
        if not self._uses[row]:
            return
        for node, mhz in zip(nodes.tolist(), cpu_mhz.tolist(), strict=True):
            if 0 <= node < len(self._here):
                self._here[node].setdefault(row, []).append(self._left_s(row, mhz))
                self._at.setdefault(row, []).append(node)
                self._count(node, row, 1.0)

    def leave(self, row: int) -> None:
        """Record that the workload is on no node any more."""
        for node in self._at.pop(row, ()):
            self._here[node].pop(row, None)
            self._count(node, row, -1.0)

    def follow(self, changes: Iterable[Change]) -> None:
        """Record the placement after these changes."""
        rows = {name: row for row, name in reversed(list(enumerate(self.snapshot.workloads.names)))}
        nodes = {name: row for row, name in reversed(list(enumerate(self.snapshot.nodes.names)))}
        for change in changes:
            row = rows[change.workload]
            self.leave(row)
            at = np.array([nodes[given.node] for given in change.allotments], dtype=np.int64)
            self.take(row, at, np.array([given.cpu_mhz for given in change.allotments]))

    def slow(self, row: int, nodes: Ints) -> float:
        """Return the slowdown factor of the workload on its nodes."""
        kind = self._kind[nodes]
        p, servers = self._parts[kind, row], self._servers[kind]
        others = np.maximum(self._loads[nodes] - p, 0.0)
        return float((1.0 + (p * waiting(others, servers)).sum(axis=1)).max(initial=1.0))

    def with_slowdown(self, reason: Reason, row: int, nodes: Ints) -> Reason:
        """Return the reason, with the workload's slowdown if it is large enough to report."""
        slow = self.slow(row, nodes) if self.uses(row) else 1.0
        return Reason(reason.code, (*reason.numbers, ("slowed", slow))) if slow >= SLOWED_MIN else reason

    def find_fit(self, room: FreeCapacity, row: int, shape: Shape) -> Fit:
        """Return nodes where the instances fit and end first; for a suspended workload, the nodes of their images if
        possible; for one with rules, the first that they allow."""
        work = room.snapshot.workloads
        if not self._uses[row] or work.state.item(row) == WorkloadState.SUSPENDED.value or room.ruled(row) is not None:
            return find_fit(room, row, shape)
        count = work.instances.item(row)
        slots = room.slots(shape, count)
        total = int(slots.sum())
        if total < count:
            return Fit(None, total)
        if count > 1:
            return Fit(self._least_slowed(row, slots, count), total)
        return Fit(self._earliest(row, slots.nonzero()[0], room.allotment_mhz(shape)), total)

    def _earliest(self, row: int, nodes: Ints, cpu_mhz: Floats) -> Ints:
        slow = self._joined(row)[nodes]
        promised_s = self._left_s(row, 1.0) / cpu_mhz[nodes] * slow
        best = nodes[np.argsort(promised_s, kind="stable")[:_COMPOSED]]
        grades = [(*self._ends_s(row, node, cpu_mhz.item(node)), node) for node in best.tolist()]
        return np.array([min(grades)[-1]], dtype=np.int64)

    def _ends_s(self, row: int, node: int, cpu_mhz: float) -> tuple[float, float]:
        """Return the end time of the last job there that loads the same resources, and of the job itself."""
        kind = self._kind[node]
        mine = self._parts[kind, row]
        others = [other for other in self._here[node] if (self._parts[kind, other] * mine).any()]
        p, left_s = [mine], [self._left_s(row, cpu_mhz)]
        for other in others:
            p += [self._parts[kind, other]] * len(self._here[node][other])
            left_s += self._here[node][other]
        ends_s = composed(np.array(p), left_s, rates=partial(formula.dilation, servers=self._servers[kind]))
        return float(ends_s.max()), float(ends_s[0])

    def _least_slowed(self, row: int, slots: Ints, count: int) -> Ints:
        """Return one slot after the other on the node with the least slowdown for the next instance."""
        slow = self._joined(row)
        own = (self._parts[:, row] ** 2 / self._servers).sum(axis=1)[self._kind]
        rest = np.repeat(np.arange(slots.size), slots)
        before = np.arange(rest.size) - np.searchsorted(rest, rest)
        order = np.argsort(slow[rest] + before * own[rest], kind="stable")
        return rest[order[:count]]

    def _joined(self, row: int) -> Floats:
        """Return the slowdown factor of one more instance on each node, float64[n]."""
        return np.asarray(1.0 + (self._waits * self._parts[self._kind, row]).sum(axis=1))

    def _count(self, node: int, row: int, times: float) -> None:
        kind = self._kind[node]
        self._loads[node] = np.maximum(self._loads[node] + times * self._parts[kind, row], 0.0)
        self._waits[node] = waiting(self._loads[node], self._servers[kind])

    def _left_s(self, row: int, cpu_mhz: float) -> float:
        """Return the remaining isolated run time of an instance, in seconds."""
        work = self.snapshot.workloads
        left = work.work_mcycles.item(row) - work.done_mcycles.item(row)
        return max(left / cpu_mhz, _LEFT_MIN_S) if cpu_mhz > 0.0 and np.isfinite(left) else _LEFT_MIN_S


def sharers_of(snapshot: Snapshot, params: Mapping[str, Any], changes: Sequence[Change]) -> Sharers | None:
    """Return the sharing of resources after `changes`; None if it is not requested, or no profile is known."""
    loading = snapshot.loading
    if params.get("sharing", OFF) == OFF or loading is None or not loading.resources or not snapshot.nodes.names:
        return None
    sharers = Sharers(snapshot, loading)
    sharers.follow(changes)
    return sharers
