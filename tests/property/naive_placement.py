"""First-fit and EDF written out instance by instance, in plain Python: slow, and easy to believe.

They work on rows of dataclasses and share nothing with the policies but the rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shared.policy_api.snapshot import Snapshot, WorkloadState
from shared.values.jobs import ConstraintKind
from sim_backend.conformance.clusters import NodeRow, WorkRow, rows_of
from sim_backend.conformance.verifier import sound_profile
from tests.simulation.constraint_judge import Instance, holds, penalty, running

ENOUGH = 1 - 1e-9
Places = tuple[tuple[int, float], ...]


@dataclass
class Naive:
    """The cluster while a decision is being made; `changes` as (workload, kind, places), `refused` the names, `placed`
    the nodes of what runs, by row."""

    seen: Snapshot
    nodes: list[NodeRow]
    work: list[WorkRow]
    free: list[tuple[float, float]]  # MiB, MHz
    now_s: float
    overhead_mib: float
    changes: list[tuple[str, str, Places]] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    placed: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, seen: Snapshot) -> Naive:
        """The state before any change."""
        nodes, work = rows_of(seen)
        free = zip(seen.nodes.free_memory_mib.tolist(), seen.nodes.free_cpu_mhz.tolist(), strict=True)
        return cls(seen, nodes, work, list(free), seen.now_s, seen.vm_overhead_mib, placed=running(seen))

    def row(self, job: WorkRow) -> int:
        """The row of a job."""
        return self.seen.workloads.names.index(job.name)

    def kept(self, job: WorkRow) -> bool:
        """Whether the job must not be moved."""
        keeps = [each for each in self.seen.constraints if each.kind is ConstraintKind.KEEP]
        return any(job.name in each.members for each in keeps)

    def allowed(self, job: WorkRow, node: int, own: list[int]) -> bool:
        """Whether every required rule holds for one more instance on the node; `own`: nodes of the job's others."""
        row = self.row(job)
        one, then = Instance(job.name, row, len(own), node), {**self.placed, row: (*own, node)}
        return all(holds(self.seen, each, one, then) for each in self.seen.constraints if not each.weight)

    def losses(self, job: WorkRow) -> list[int]:
        """The weights that one instance breaks on each node."""
        row = self.row(job)
        others = {other: nodes for other, nodes in self.placed.items() if other != row}
        if not any(each.weight for each in self.seen.constraints):
            return [0] * len(self.nodes)
        before = penalty(self.seen, others)
        return [penalty(self.seen, {**others, row: (node,)}) - before for node in range(len(self.nodes))]

    def allotment_mhz(self, job: WorkRow, node: int) -> float:
        """The rule for the CPU of an instance."""
        row = self.nodes[node]
        return min(job.max_mhz, job.vcpus * row.core_mhz, row.cores * row.core_mhz)

    def fits(self, job: WorkRow, node: int, there: list[int]) -> bool:
        """Whether one more instance may go to the node; `there`: nodes of the others."""
        row, (mib, mhz) = self.nodes[node], self.free[node]
        wants = self.allotment_mhz(job, node)
        return (
            row.schedulable
            and not row.draining
            and set(job.required_labels) <= set(row.labels)
            and not (job.spread and node in there)
            and wants > 0
            and wants >= job.min_mhz
            and mhz >= wants * ENOUGH
            and mib >= (job.memory_mib + self.overhead_mib) * ENOUGH
        )

    def shift(self, job: WorkRow, places: Places, sign: float) -> None:
        """Take (-1) or return (+1) the room of these instances."""
        for node, mhz in places:
            free_mib, free_mhz = self.free[node]
            self.free[node] = free_mib + sign * (job.memory_mib + self.overhead_mib), free_mhz + sign * mhz

    def find_fit(
        self, job: WorkRow, count: int, homes: Places = (), there: tuple[int, ...] = (), stay: tuple[int, ...] = ()
    ) -> Places | None:
        """Places for `count` instances, taken at once, or None and nothing taken. `stay`: those of `there` that are not
        to be left."""
        before, nodes, own, losses = list(self.free), list(there), list(stay), self.losses(job)
        chosen: dict[int, tuple[int, float]] = {}

        def sit(index: int, node: int) -> None:
            chosen[index] = self._sit(job, node, nodes)
            own.append(node)

        for index in range(count):
            home = homes[index][0] if homes else -1
            if home >= 0 and self.fits(job, home, nodes) and self.allowed(job, home, own):
                sit(index, home)
        for index in range(count if not (homes and self.kept(job)) else 0):
            if index not in chosen:
                able = [n for n in range(len(self.nodes)) if self.fits(job, n, nodes) and self.allowed(job, n, own)]
                if able:
                    sit(index, min(able, key=lambda node: (losses[node], node)))
        if len(chosen) < count:
            self.free = before
            return None
        return tuple(chosen[index] for index in range(count))

    def _sit(self, job: WorkRow, node: int, nodes: list[int]) -> tuple[int, float]:
        place = node, self.allotment_mhz(job, node)
        self.shift(job, (place,), -1.0)
        nodes.append(node)
        return place

    def drain(self) -> set[str]:
        """Move what is on draining nodes; the names of all that had something there."""
        concerned = set()
        for job in self.work:
            leaving = [node for node, _ in job.places if self.nodes[node].draining]
            if job.state is not WorkloadState.RUNNING or not leaving:
                continue
            concerned.add(job.name)
            there = tuple(node for node, _ in job.places)
            stay = tuple(node for node in there if not self.nodes[node].draining)
            bound = job.fixed or self.kept(job)
            found = None if bound else self.find_fit(job, len(leaving), there=there, stay=stay)
            if found is None:
                self.refused.add(job.name)
                continue
            rest = iter(found)
            places = tuple(next(rest) if self.nodes[node].draining else (node, mhz) for node, mhz in job.places)
            self.changes.append((job.name, "migrate", places))
            self.placed[self.row(job)] = tuple(node for node, _ in places)
        return concerned

    def asking(self) -> list[WorkRow]:
        """Jobs that may start now, in order of arrival; the others are refused."""
        found = []
        for job in sorted(self.work, key=lambda job: job.submit_s):
            if job.state is not WorkloadState.RUNNING:
                early = max(job.desired_start_s, job.not_before_s) > self.now_s
                if job.fixed or early or not sound_profile(job):
                    self.refused.add(job.name)
                else:
                    found.append(job)
        return found

    def begin(self, job: WorkRow) -> bool:
        """Start or resume the job if all of it fits."""
        suspended = job.state is WorkloadState.SUSPENDED
        places = self.find_fit(job, job.instances, job.places if suspended else ())
        if places is not None:
            self.changes.append((job.name, "resume" if suspended else "start", places))
            self.placed[self.row(job)] = tuple(node for node, _ in places)
        return places is not None


def first_fit(seen: Snapshot) -> Naive:
    """What first-fit should decide."""
    naive = Naive.of(seen)
    naive.drain()
    naive.refused |= {job.name for job in naive.asking() if not naive.begin(job)}
    return naive


def earliest_goal_first(seen: Snapshot) -> Naive:
    """What EDF with preemption should decide."""
    naive = Naive.of(seen)
    concerned = naive.drain()
    running = [job for job in naive.work if job.state is WorkloadState.RUNNING and not (job.fixed or job.stays)]
    order = sorted(range(len(running)), key=lambda i: (running[i].goal_s, running[i].submit_s, i), reverse=True)
    runners = [running[i] for i in order if running[i].name not in concerned]
    for job in sorted(naive.asking(), key=lambda job: job.goal_s):
        if naive.begin(job):
            continue
        losers = _losers(naive, job, [runner for runner in runners if runner.goal_s > job.goal_s])
        if losers is None:
            naive.refused.add(job.name)
            continue
        for loser in losers:
            runners.remove(loser)
            naive.shift(loser, loser.places, 1.0)
            del naive.placed[naive.row(loser)]
            naive.changes.append((loser.name, "suspend", ()))
        assert naive.begin(job)
    return naive


def _would_fit(naive: Naive, job: WorkRow, losers: list[WorkRow]) -> bool:
    before, placed = list(naive.free), dict(naive.placed)
    for loser in losers:
        naive.shift(loser, loser.places, 1.0)
        del naive.placed[naive.row(loser)]
    homes = job.places if job.state is WorkloadState.SUSPENDED else ()
    fits = naive.find_fit(job, job.instances, homes) is not None
    naive.free, naive.placed = before, placed
    return fits


def _losers(naive: Naive, job: WorkRow, later: list[WorkRow]) -> list[WorkRow] | None:
    """Latest goals first until the job fits; then, earliest goal first, those it fits without are let go."""
    count = next((n for n in range(1, len(later) + 1) if _would_fit(naive, job, later[:n])), 0)
    if count == 0:
        return None
    losers = later[:count]
    for loser in reversed(later[:count]):
        without = [other for other in losers if other is not loser]
        if _would_fit(naive, job, without):
            losers = without
    return losers
