"""What becomes of an environment's workloads whose units are taken back (phoenixcloud.txt section 5.1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.environment import EnvironmentEntry
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.queries import lost_mcycles_of
from daemons.controller.state.unit_of_work import UnitOfWork
from shared.policy_api.decision import Change, ChangeKind, Reason, ReasonCode
from shared.values.agreement import OnReclaim
from shared.values.jobs import JobPhase

Apply = Callable[[Sequence[Change], float], Sequence[object]]
TakeBack = Callable[[JobEntry, float, bool], None]
HOUR_S = 3_600.0
_RECLAIMED = Reason(ReasonCode.RECLAIMED)


class Preemption:
    """Preempts workloads at once. `apply` makes changes the desired state and returns those that it has dropped;
    `take_back` gives up an attempt to run a job, without its saved VMs or with them."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, apply: Apply, take_back: TakeBack) -> None:
        self.cluster, self.unit_of_work, self._apply, self._take_back = cluster, unit_of_work, apply, take_back

    def jobs(self, entry: EnvironmentEntry, names: Iterable[str], now_s: float) -> None:
        """Suspend or kill these jobs of a batch environment, as its agreement says."""
        for name in names:
            job = self.cluster.active[name]
            if entry.agreement.batch.on_reclaim is OnReclaim.KILL:
                self._kill(entry, job, now_s)
            elif not job.released:
                self._without_blame(job, now_s, True)  # it does not run yet: nothing is lost
            else:
                self._suspend(entry, job, now_s)
        self.unit_of_work.change_environment(entry)

    def instances(self, nodes: Iterable[str], environment: str, now_s: float) -> None:
        """Instances of an environment's web applications on these nodes are stopped."""
        gone = frozenset(nodes)
        changes = [
            Change(replica.job.name, replica.revision, ChangeKind.STOP, (), _RECLAIMED)
            for replica in self.cluster.jobs_of(environment)
            if replica.job.app and replica.phase is JobPhase.RUNNING and any(a.node in gone for a in replica.allotments)
        ]
        if changes:
            self._apply(changes, now_s)

    def _suspend(self, entry: EnvironmentEntry, job: JobEntry, now_s: float) -> None:
        count = len({allotment.node for allotment in job.allotments})
        if self._apply((Change(job.job.name, job.revision, ChangeKind.SUSPEND, (), _RECLAIMED),), now_s):
            return
        entry.suspended += 1
        self.unit_of_work.emit(
            now_s, "job-suspended-for-environment", job.job.name, f"{entry.name}: from {count} nodes"
        )

    def _kill(self, entry: EnvironmentEntry, job: JobEntry, now_s: float) -> None:
        lost_node_hours = self._lost_node_hours(job)
        self._without_blame(job, now_s, False)
        entry.killed += 1
        entry.lost_node_hours += lost_node_hours
        told = f"{entry.name}: {lost_node_hours:.3f} node-hours of work are lost"
        self.unit_of_work.emit(now_s, "job-killed-for-environment", job.job.name, told)

    def _without_blame(self, job: JobEntry, now_s: float, keep_images: bool) -> None:
        """Requeue the job at its former place, without a failure or back-off; it waits only for units."""
        failures, not_before_s = job.failures, job.not_before_s
        self._take_back(job, now_s, keep_images)
        job.failures, job.not_before_s = failures, not_before_s

    def _lost_node_hours(self, job: JobEntry) -> float:
        """Return the time that the lost work took at its allotted speed, times its nodes, in node hours."""
        allotted_mhz = math.fsum(allotment.cpu_mhz for allotment in job.allotments)
        if allotted_mhz <= 0.0:
            return 0.0
        return lost_mcycles_of(job) / allotted_mhz * len({allotment.node for allotment in job.allotments}) / HOUR_S
