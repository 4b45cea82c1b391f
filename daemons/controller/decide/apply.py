"""Changes made the desired state: what still holds of them, and in which order they would be carried out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from daemons.controller.measure.drift import why_left_alone
from daemons.controller.reconcile.observed import headrooms, observed_after
from daemons.controller.reconcile.reconciler import ceilings_of
from daemons.controller.state import transitions
from daemons.controller.state.capabilities import settled
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.migration_fit import misfit
from daemons.controller.state.tenancy import Units, admits
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.state.vm_terms import is_kept
from daemons.planning import order
from daemons.planning.diff import diff
from daemons.planning.observed import Headroom, PlannedAction
from daemons.values.settings import ControllerSettings
from shared.policy_api.decision import Change, ChangeKind, Plan, Reason, ReasonCode, Refusal
from shared.values.jobs import JobPhase


class DesiredState:
    """Makes changes what is wanted; one whose workload has changed since it was decided on is dropped."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, settings: ControllerSettings) -> None:
        self.cluster, self.unit_of_work, self.settings = cluster, unit_of_work, settings
        self._ranks = 0

    def plan(self, changes: Sequence[Change]) -> Plan:
        """Return the order in which unapplied changes would be carried out in the current state."""
        needs: list[PlannedAction] = []
        holdings: dict[str, Headroom] = {}
        for change in changes:
            entry = self.cluster.active.get(change.workload)
            if entry is None or entry.revision != change.revision:
                continue
            needs += diff(observed_after(self.cluster, entry, change)).needs
            for instance in entry.instances:
                holdings[instance.vm] = Headroom(instance.memory_mib, instance.cpu_mhz)
        return order.plan(needs, headrooms(self.cluster, needs), holdings, ceilings_of(self.settings.limits))

    def apply(self, changes: Sequence[Change], now_s: float) -> list[Refusal]:
        """Make changes the desired state; returns those dropped because their workload has changed since."""
        dropped = []
        crowded, units = self._crowded(changes), Units(self.cluster)
        for change in changes:
            entry = self.cluster.active.get(change.workload)
            stale = entry is None or entry.over or entry.revision != change.revision or change.workload in crowded
            if entry is not None and entry.left_alone(now_s) and change.reason.code is not ReasonCode.OPERATOR:
                dropped.append(why_left_alone(entry, now_s))
                continue
            ends = change.kind in (ChangeKind.SUSPEND, ChangeKind.STOP)
            if entry is not None and is_kept(entry) and ends and change.reason.code is not ReasonCode.OPERATOR:
                dropped.append(Refusal(change.workload, Reason(ReasonCode.ADOPTED)))
                continue
            unfit = "" if entry is None or stale else misfit(self.cluster, entry, change)
            if unfit:
                dropped.append(Refusal(change.workload, Reason(ReasonCode.MIGRATION_FIT)))
                self.unit_of_work.emit(now_s, "migration-unfit", change.workload, unfit)
                continue
            made = None if entry is None or stale else settled(self.cluster, entry, change)
            if entry is None or made is None or not self._lawful(entry, made) or not _entitled(entry, made, units):
                dropped.append(Refusal(change.workload, Reason(ReasonCode.STALE)))
                self.unit_of_work.emit(now_s, "change-stale", change.workload, change.kind.value)
                continue
            self._change(entry, made, now_s)
        return dropped

    def _lawful(self, entry: JobEntry, change: Change) -> bool:
        expected = {
            ChangeKind.START: (JobPhase.WAITING,),
            ChangeKind.RESUME: (JobPhase.SUSPENDED,),
            ChangeKind.SUSPEND: (JobPhase.RUNNING,),
            ChangeKind.MIGRATE: (JobPhase.RUNNING,),
            ChangeKind.RESIZE: (JobPhase.RUNNING,),
            ChangeKind.STOP: (JobPhase.RUNNING,),
        }
        if change.kind is (ChangeKind.SUSPEND if entry.job.app else ChangeKind.STOP):
            return False  # jobs are suspended, instances of web applications stopped
        ends = change.kind in (ChangeKind.SUSPEND, ChangeKind.STOP)
        counts = len(change.allotments) == (0 if ends else entry.job.instances)
        known = all(self._may_be_on(entry, allotment.node) for allotment in change.allotments)
        clear = change.kind is not ChangeKind.START or entry.clear
        return entry.phase in expected[change.kind] and counts and known and clear

    def _may_be_on(self, entry: JobEntry, name: str) -> bool:
        """Return whether the job may be placed on the node: it is assigned there already, or the node serves its
        environment. The node may have been reassigned since the decision was requested."""
        here = any(allotment.node == name for allotment in entry.allotments)
        node = self.cluster.nodes.get(name)
        return node is not None and (here or admits(self.cluster, node, entry.job.environment))

    def _crowded(self, changes: Sequence[Change]) -> frozenset[str]:
        """Changes that would bring two instances of a web application to one node: the other has come there since."""
        wanted = {change.workload: change for change in changes}
        apps = {entry.job.app for name in wanted if (entry := self.cluster.active.get(name)) is not None}
        crowded = set()
        for app in apps - {""}:
            places: dict[str, list[str]] = {}
            for replica in self.cluster.replicas[app].values():
                change = wanted.get(replica.job.name)
                for allotment in replica.allotments if change is None else change.allotments:
                    places.setdefault(allotment.node, []).append(replica.job.name)
            crowded |= {name for names in places.values() if len(names) > 1 for name in names if name in wanted}
        return frozenset(crowded)

    def _change(self, entry: JobEntry, change: Change, now_s: float) -> None:
        match change.kind:
            case ChangeKind.START:
                _begin_anew(entry)
                transitions.start(self.cluster, entry, change.allotments, now_s)
            case ChangeKind.RESUME:
                transitions.resume(self.cluster, entry, change.allotments, now_s)
            case ChangeKind.SUSPEND:
                transitions.suspend(self.cluster, entry, change.allotments)
                self.unit_of_work.emit(now_s, "job-suspended", entry.job.name, str(change.reason))
            case ChangeKind.STOP:
                transitions.stop(self.cluster, entry, change.allotments)
                self.unit_of_work.emit(now_s, "web-instance-stopped", entry.job.name, str(change.reason))
            case _:
                transitions.reallot(self.cluster, entry, change.allotments)
        if change.kind is not ChangeKind.RESIZE:
            entry.changed_s = now_s
        self._ranks += 1
        entry.wanted_rank = self._ranks
        self.unit_of_work.change(entry)


def _entitled(entry: JobEntry, change: Change, units: Units) -> bool:
    """Return whether the job's environment has units left for a start or resume; other jobs may have started since."""
    return change.kind not in (ChangeKind.START, ChangeKind.RESUME) or units.take(entry)


def _begin_anew(entry: JobEntry) -> None:
    """Start a new attempt; guests start from their last checkpoint."""
    entry.attempt += 1
    step = entry.job.checkpoint_mcycles
    saved_mcycles = math.floor(entry.done_mcycles / step) * step if step > 0 else 0.0
    for instance in entry.instances:
        instance.ended = instance.sought = False
        instance.done_mcycles = saved_mcycles
        instance.counter_node, instance.counter_generation, instance.counter_s = "", -1, 0.0
