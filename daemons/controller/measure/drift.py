"""External changes to managed VMs: detection, events, and a pause of reconciliation.

An operator who moves, stops, starts, pauses or resumes a VM by hand has a reason. A VM that was moved is then wanted
where it is now. Reconciliation of its workload pauses for `external_change_pause_s`, which avoids a tug of war. The
pause doubles each time the change happens again after it. Trimtab's own operations are recognized by the last order for
each VM, not by reports: a late answer is no external change.
"""

from __future__ import annotations

from daemons.controller.state import transitions
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import Instance, JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.queries import is_busy
from daemons.controller.state.tenancy import admits
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.records.cluster import ReconciliationPause
from daemons.values.settings import ControllerSettings
from shared.policy_api.decision import Reason, ReasonCode, Refusal
from shared.values.actions import ActionKind, Outcome
from shared.values.jobs import Allotment, JobPhase
from shared.values.nodes import NodeCondition
from shared.values.vms import LIVE_STATES, VmState, VmStatus

HOLD_MAX_S = 86_400.0
REWEIGHTS_MAX = 3  # so many weights set by others within an hour are put right; then they are left alone too
REWEIGHTS_S = 3_600.0
TAKING = frozenset({ActionKind.STOP, ActionKind.SUSPEND, ActionKind.RELEASE})


class Drift:
    """Detects changes that nothing has ordered, and pauses reconciliation of what they affect."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, settings: ControllerSettings) -> None:
        self.cluster, self.unit_of_work, self.settings = cluster, unit_of_work, settings

    # --- what we have ordered ---------------------------------------------------------------------------------------

    def ordered(self, instance: Instance, kind: ActionKind, node: str, to_node: str) -> None:
        """Note where an order that is about to be sent may make the VM appear."""
        instance.settles = False
        if kind in (ActionKind.START, ActionKind.RESUME, ActionKind.ADOPT):
            instance.places, instance.home, instance.said, instance.by_other = {node}, "", "", False
        elif kind is ActionKind.MIGRATE:
            instance.places = {node, to_node}

    def answered(self, instance: Instance, kind: ActionKind, node: str, outcome: Outcome, now: VmStatus | None) -> None:
        """Handle the end of an order. The effect of a failed order is unknown: what is seen next counts as caused by
        it."""
        done = outcome is Outcome.OK
        live = done and now is not None and now.state in LIVE_STATES
        instance.beat, instance.weighed = (now.state, now.cpu_mhz) if live and now is not None else (None, None)
        if done and kind is ActionKind.MIGRATE:
            instance.places.discard(node)
        elif done and kind in TAKING:
            instance.places, instance.home, instance.by_other = set(), "", False

    # --- what is seen -----------------------------------------------------------------------------------------------

    def look(self, entry: JobEntry, now_s: float) -> None:
        """Compare where and how the VMs of a job run with what was ordered."""
        if entry.phase is not JobPhase.RUNNING or not entry.released:
            return
        for index, instance in enumerate(entry.instances):
            if instance.ended or is_busy(self.cluster, instance):
                continue
            node = self._where(entry, instance)
            if node is not None:
                self._look(entry, index, node, node.vms[instance.vm], now_s)

    def _where(self, entry: JobEntry, instance: Instance) -> NodeEntry | None:
        """Return the node on which its current generation lives, if that is certain."""
        for name in sorted(instance.copies):
            node = self.cluster.nodes[name]
            status = node.vms[instance.vm]
            now = status.generation == instance.generation and status.attempt == entry.attempt
            if now and status.state in LIVE_STATES and node.condition is NodeCondition.UP:
                return node
        return None

    def _look(self, entry: JobEntry, index: int, node: NodeEntry, status: VmStatus, now_s: float) -> None:
        instance, name = entry.instances[index], node.name
        wanted = entry.allotments[index].node
        if name not in instance.places and instance.home != name:
            self._moved(entry, index, node, now_s)
        elif wanted != name and (instance.settles or instance.home not in ("", name)):
            self._want_here(entry, index, node, now_s)  # our own migration came about after all
        if instance.settles:
            instance.settles = False
            self.unit_of_work.change(entry)
        instance.home = name
        beat, weighed = instance.beat, instance.weighed
        instance.beat, instance.weighed = status.state, status.cpu_mhz
        if beat is not None and beat is not status.state:
            what = "paused-externally" if status.state is VmState.PAUSED else "resumed-externally"
            self.note(entry, what, instance, f"on {name}", now_s)
        elif weighed is not None and weighed != status.cpu_mhz and not self._is_wanted(entry, index, status):
            self._reweighted(entry, instance, f"on {name}: {weighed:g} to {status.cpu_mhz:g} MHz", now_s)

    def _is_wanted(self, entry: JobEntry, index: int, status: VmStatus) -> bool:
        return status.cpu_mhz == entry.allotments[index].cpu_mhz

    def _moved(self, entry: JobEntry, index: int, node: NodeEntry, now_s: float) -> None:
        instance = entry.instances[index]
        origin = instance.home or entry.allotments[index].node
        said = f"; {instance.said}" if instance.said else ""
        instance.places, instance.beat, instance.weighed, instance.said = {node.name}, None, None, ""
        self._want_here(entry, index, node, now_s)
        self.note(entry, "moved-externally", instance, f"{origin} to {node.name}{said}", now_s)

    def _want_here(self, entry: JobEntry, index: int, node: NodeEntry, now_s: float) -> None:
        """Make the observed node of the VM the desired one."""
        allotments = list(entry.allotments)
        allotments[index] = Allotment(node.name, self._mhz_on(entry, node, allotments[index].cpu_mhz))
        transitions.reallot(self.cluster, entry, allotments)
        entry.changed_s = now_s
        self.unit_of_work.change(entry)
        self.unit_of_work.place = True

    def _mhz_on(self, entry: JobEntry, node: NodeEntry, cpu_mhz: float) -> float:
        return cpu_mhz if node.inventory is None else min(cpu_mhz, entry.job.speed_on_mhz(node.inventory))

    def _reweighted(self, entry: JobEntry, instance: Instance, detail: str, now_s: float) -> None:
        """Have the decided CPU weight restored, the first few times; then pause reconciliation."""
        if now_s - entry.reweighted_s > REWEIGHTS_S:
            entry.reweights, entry.reweighted_s = 0, now_s
        entry.reweights += 1
        if entry.reweights > REWEIGHTS_MAX:
            self.note(entry, "cpu-changed-externally", instance, detail, now_s)
        else:
            self.unit_of_work.emit(now_s, "cpu-changed-externally", instance.vm, f"{detail}; it is put right")

    # --- what is told -----------------------------------------------------------------------------------------------

    def stopped(self, instance: Instance, node: NodeEntry, detail: str, now_s: float) -> None:
        """Note that a VM was stopped externally; its job restarts when the pause ends."""
        if not instance.job.over:
            self.note(instance.job, "stopped-externally", instance, _on(node, detail), now_s)

    def started(self, instance: Instance, node: NodeEntry, status: VmStatus, detail: str, now_s: float) -> None:
        """Note that a VM was started externally. A job of one instance that waits or is suspended runs from now on."""
        entry = instance.job
        if entry.phase is JobPhase.SHUT_OFF:
            return  # an adopted VM is its owner's to start
        now = status.generation == instance.generation and status.attempt == entry.attempt
        if now and node.name in instance.places and not instance.home and entry.phase is JobPhase.RUNNING:
            return  # our own order came about after all
        instance.by_other = True
        instance.beat = instance.weighed = None
        if now and entry.phase in (JobPhase.WAITING, JobPhase.SUSPENDED) and self._may_run(entry, node):
            cpu_mhz = self._mhz_on(entry, node, status.cpu_mhz or entry.job.max_mhz)
            instance.places, instance.home = {node.name}, node.name
            transitions.started_externally(self.cluster, entry, Allotment(node.name, cpu_mhz), now_s)
        self.note(entry, "started-externally", instance, _on(node, detail), now_s)

    def _may_run(self, entry: JobEntry, node: NodeEntry) -> bool:
        alone = len(entry.instances) == 1 and not entry.instances[0].ended
        beside = any(
            allotment.node == node.name
            for replica in (self.cluster.replicas[entry.job.app].values() if entry.job.app else ())
            for allotment in replica.allotments
        )
        return alone and not (beside or entry.held) and admits(self.cluster, node, entry.job.environment)

    def note(self, entry: JobEntry, what: str, instance: Instance, detail: str, now_s: float) -> None:
        """Report an external change and pause reconciliation of the workload; the pause is longer when the change
        repeats after one."""
        before, count = entry.reconciliation_paused, 1
        if before is not None and now_s < before.until_s + HOLD_MAX_S:
            count = before.count + (now_s >= before.until_s)
        hold_s = min(self.settings.external_change_pause_s * 2.0 ** min(count - 1, 30), HOLD_MAX_S)
        entry.reconciliation_paused = ReconciliationPause(what, instance.vm, detail, now_s, now_s + hold_s, count)
        transitions.outdate(entry)
        self.unit_of_work.change(entry)
        self.unit_of_work.place = True
        self.unit_of_work.emit(
            now_s, what, instance.vm, f"{detail}; reconciliation paused {entry.job.name} for {hold_s:g} s"
        )


def _on(node: NodeEntry, detail: str) -> str:
    return f"on {node.name}: {detail}" if detail else f"on {node.name}"


def why_left_alone(entry: JobEntry, now_s: float) -> Refusal:
    """Return why reconciliation of a workload is paused after an external change."""
    until_s, count = (
        (entry.reconciliation_paused.until_s, entry.reconciliation_paused.count)
        if entry.reconciliation_paused is not None
        else (now_s, 0)
    )
    numbers = (("seconds_left", max(0.0, until_s - now_s)), ("time", float(count)))
    return Refusal(entry.job.name, Reason(ReasonCode.RECONCILIATION_PAUSED, numbers))
