"""First-fit and EDF written out instance by instance, in plain Python: slow, and easy to believe.

They work on rows of dataclasses and share nothing with the policies but the rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shared.policy_api.snapshot import Snapshot, WorkloadState
from sim_backend.conformance.clusters import NodeRow, WorkRow, rows_of
from sim_backend.conformance.verifier import sound_profile

ENOUGH = 1 - 1e-9
Places = tuple[tuple[int, float], ...]


@dataclass
class Naive:
    """The cluster while a decision is being made; `changes` as (workload, kind, places), `refused` the names."""

    nodes: list[NodeRow]
    work: list[WorkRow]
    free: list[tuple[float, float]]  # MiB, MHz
    now_s: float
    overhead_mib: float
    changes: list[tuple[str, str, Places]] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, seen: Snapshot) -> Naive:
        """The state before any change."""
        nodes, work = rows_of(seen)
        free = zip(seen.nodes.free_memory_mib.tolist(), seen.nodes.free_cpu_mhz.tolist(), strict=True)
        return cls(nodes, work, list(free), seen.now_s, seen.vm_overhead_mib)

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

    def find_fit(self, job: WorkRow, count: int, homes: Places = (), there: tuple[int, ...] = ()) -> Places | None:
        """Places for `count` instances, taken at once, or None and nothing taken."""
        before, nodes = list(self.free), list(there)
        chosen: dict[int, tuple[int, float]] = {}
        for index in range(count):
            if homes and self.fits(job, homes[index][0], nodes):
                chosen[index] = self._sit(job, homes[index][0], nodes)
        for index in range(count):
            free = [node for node in range(len(self.nodes)) if self.fits(job, node, nodes)]
            if index not in chosen and free:
                chosen[index] = self._sit(job, free[0], nodes)
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
            found = None if job.fixed else self.find_fit(job, len(leaving), there=there)
            if found is None:
                self.refused.add(job.name)
                continue
            rest = iter(found)
            places = tuple(next(rest) if self.nodes[node].draining else (node, mhz) for node, mhz in job.places)
            self.changes.append((job.name, "migrate", places))
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
            naive.changes.append((loser.name, "suspend", ()))
        assert naive.begin(job)
    return naive


def _would_fit(naive: Naive, job: WorkRow, losers: list[WorkRow]) -> bool:
    before = list(naive.free)
    for loser in losers:
        naive.shift(loser, loser.places, 1.0)
    fits = naive.find_fit(job, job.instances) is not None
    naive.free = before
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
