"""Handles the jobs on a node that leaves service where placement does not."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.queries import is_busy, is_unknown, lost_mcycles_of
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.settings import ControllerSettings, Removal
from shared.policy_api.decision import Change, ChangeKind, Reason, ReasonCode
from shared.values.jobs import JobPhase

Lose = Callable[[JobEntry, float], None]
Apply = Callable[[Sequence[Change], float], object]
MOVING_FRAC = 0.5  # so much of the limit on emptying placement may take to move jobs of no queue
_DRAIN = Reason(ReasonCode.DRAIN)


class Drain:
    """Gives up or suspends jobs on nodes that leave service. `lose` gives up a job's VMs without saving them, `apply`
    makes changes the desired state. `lost_mcycles` counts the work that was given up."""

    def __init__(
        self, cluster: Cluster, unit_of_work: UnitOfWork, settings: ControllerSettings, lose: Lose, apply: Apply
    ) -> None:
        self.cluster, self.unit_of_work, self.settings = cluster, unit_of_work, settings
        self.lose, self.apply = lose, apply
        self.lost_mcycles = 0.0
        self._removal = {window.queue: window.removal for window in settings.windows}

    def begin(self, node: NodeEntry, now_s: float) -> None:
        """Running jobs whose window says so lose what they have not saved themselves."""
        for entry in self._jobs(node):
            if self._removal.get(entry.job.queue) is Removal.LOSE:
                lost = lost_mcycles_of(entry)
                self.lost_mcycles += lost
                why = f"{lost:.0f} Mcycles of work: {node.name} leaves service"
                self.unit_of_work.emit(now_s, "work-lost", entry.job.name, why)
                self.lose(entry, now_s)

    def waits(self, node: NodeEntry) -> bool:
        """Return whether all VMs on the node belong to jobs that it waits for."""
        jobs = [instance.job.job for instance in node.claimed.values()]
        return bool(jobs) and all(self._removal.get(job.queue) is Removal.WAIT for job in jobs)

    def go_on(self, node: NodeEntry, since_s: float, now_s: float) -> float:
        """Suspend to disk what placement has not moved in time. `since_s`: how long it had. Return the seconds until
        more is due (inf: nothing). Jobs of a queue are preempted at once: their window has decided that."""
        wait_s = math.inf
        changes = []
        for entry in self._jobs(node):
            grace_s = self._grace_s(entry)
            if since_s < grace_s:
                wait_s = min(wait_s, grace_s - since_s)
            elif self._can_be_suspended(entry):
                changes.append(Change(entry.job.name, entry.revision, ChangeKind.SUSPEND, (), _DRAIN))
        if changes:
            self.apply(changes, now_s)
        return wait_s

    def _grace_s(self, entry: JobEntry) -> float:
        removal = self._removal.get(entry.job.queue)
        if removal is Removal.CHECKPOINT:
            return 2.0 * self.settings.reconcile_s
        return math.inf if removal is Removal.WAIT else MOVING_FRAC * self.settings.power.drain_limit_s

    def _can_be_suspended(self, entry: JobEntry) -> bool:
        if not entry.released or entry.adopted:
            return False
        return not any(is_busy(self.cluster, one) or is_unknown(self.cluster, one) for one in entry.instances)

    def _jobs(self, node: NodeEntry) -> list[JobEntry]:
        """Return jobs that run on the node and are still wanted there, in the order of their submission."""
        found = {
            instance.job.job.name: instance.job
            for instance in node.claimed.values()
            if instance.job.phase is JobPhase.RUNNING
            and not instance.job.job.app
            and any(allotment.node == node.name for allotment in instance.job.allotments)
        }
        return sorted(found.values(), key=lambda entry: entry.order)
