"""What others do to VMs of ours behind our back: noticed, told, and left alone for a while.

Whoever moves, stops, starts, pauses or resumes a VM by hand has a reason. A VM that was moved is wanted where it is
now. Then nothing is done to its workload until the hold is over, `hands_off_s` long and twice as long each time that it
happens again after one, so that no tug of war comes about. What Trimtab itself has ordered is told apart by what was
ordered last of each VM, not by what is said: a late answer is nobody else's doing.
"""

from __future__ import annotations

from daemons.controller.state import transitions
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import Instance, JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.queries import is_busy
from daemons.controller.state.tenancy import admits
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.values.records.cluster import HandsOff
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
    """Looks for what nobody has ordered, and keeps hands off it."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, settings: ControllerSettings) -> None:
        self.cluster, self.unit_of_work, self.settings = cluster, unit_of_work, settings

    # --- what we have ordered ---------------------------------------------------------------------------------------

    def ordered(self, instance: Instance, kind: ActionKind, node: str, to_node: str) -> None:
        """An order is about to be sent: where the VM may be seen by our own doing."""
        if kind in (ActionKind.START, ActionKind.RESUME, ActionKind.ADOPT):
            instance.places, instance.home, instance.said, instance.by_other = {node}, "", "", False
        elif kind is ActionKind.MIGRATE:
            instance.places = {node, to_node}

    def answered(self, instance: Instance, kind: ActionKind, node: str, outcome: Outcome, now: VmStatus | None) -> None:
        """How an order ended. Of one that failed it is not known what it has done: what is seen next is our doing."""
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
        """The node on which it lives its present life, if that is known for certain."""
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
        elif instance.home not in ("", name) and wanted != name:
            self._want_here(entry, index, node, now_s)  # our own migration came about after all
        instance.home = name
        beat, weighed = instance.beat, instance.weighed
        instance.beat, instance.weighed = status.state, status.cpu_mhz
        if beat is not None and beat is not status.state:
            what = "paused-by-other" if status.state is VmState.PAUSED else "resumed-by-other"
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
        self.note(entry, "moved-by-other", instance, f"{origin} to {node.name}{said}", now_s)

    def _want_here(self, entry: JobEntry, index: int, node: NodeEntry, now_s: float) -> None:
        """It exists here: what is wanted follows."""
        allotments = list(entry.allotments)
        allotments[index] = Allotment(node.name, self._mhz_on(entry, node, allotments[index].cpu_mhz))
        transitions.reallot(self.cluster, entry, allotments)
        entry.changed_s = now_s
        self.unit_of_work.change(entry)
        self.unit_of_work.place = True

    def _mhz_on(self, entry: JobEntry, node: NodeEntry, cpu_mhz: float) -> float:
        return cpu_mhz if node.inventory is None else min(cpu_mhz, entry.job.speed_on_mhz(node.inventory))

    def _reweighted(self, entry: JobEntry, instance: Instance, detail: str, now_s: float) -> None:
        """What decisions have set is put right, a few times."""
        if now_s - entry.reweighted_s > REWEIGHTS_S:
            entry.reweights, entry.reweighted_s = 0, now_s
        entry.reweights += 1
        if entry.reweights > REWEIGHTS_MAX:
            self.note(entry, "reweighted-by-other", instance, detail, now_s)
        else:
            self.unit_of_work.emit(now_s, "reweighted-by-other", instance.vm, f"{detail}; it is put right")

    # --- what is told -----------------------------------------------------------------------------------------------

    def stopped(self, instance: Instance, node: NodeEntry, detail: str, now_s: float) -> None:
        """Somebody else has stopped it: its job begins anew when the hold is over."""
        if not instance.job.over:
            self.note(instance.job, "stopped-by-other", instance, _on(node, detail), now_s)

    def started(self, instance: Instance, node: NodeEntry, status: VmStatus, detail: str, now_s: float) -> None:
        """Somebody else has brought it to life. A job of one instance that waits or is suspended runs from now on."""
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
            transitions.started_by_other(self.cluster, entry, Allotment(node.name, cpu_mhz), now_s)
        self.note(entry, "started-by-other", instance, _on(node, detail), now_s)

    def _may_run(self, entry: JobEntry, node: NodeEntry) -> bool:
        alone = len(entry.instances) == 1 and not entry.instances[0].ended
        beside = any(
            allotment.node == node.name
            for replica in (self.cluster.replicas[entry.job.app].values() if entry.job.app else ())
            for allotment in replica.allotments
        )
        return alone and not (beside or entry.held) and admits(self.cluster, node, entry.job.environment)

    def note(self, entry: JobEntry, what: str, instance: Instance, detail: str, now_s: float) -> None:
        """Tell of it, and keep hands off the workload from now on; for longer, when it happens again after a hold."""
        before, count = entry.hands_off, 1
        if before is not None and now_s < before.until_s + HOLD_MAX_S:
            count = before.count + (now_s >= before.until_s)
        hold_s = min(self.settings.hands_off_s * 2.0 ** min(count - 1, 30), HOLD_MAX_S)
        entry.hands_off = HandsOff(what, instance.vm, detail, now_s, now_s + hold_s, count)
        transitions.outdate(entry)
        self.unit_of_work.change(entry)
        self.unit_of_work.place = True
        self.unit_of_work.emit(now_s, what, instance.vm, f"{detail}; hands off {entry.job.name} for {hold_s:g} s")


def _on(node: NodeEntry, detail: str) -> str:
    return f"on {node.name}: {detail}" if detail else f"on {node.name}"


def why_left_alone(entry: JobEntry, now_s: float) -> Refusal:
    """Why a workload is left alone that somebody else has meddled with."""
    until_s, count = (entry.hands_off.until_s, entry.hands_off.count) if entry.hands_off is not None else (now_s, 0)
    numbers = (("seconds_left", max(0.0, until_s - now_s)), ("time", float(count)))
    return Refusal(entry.job.name, Reason(ReasonCode.HANDS_OFF, numbers))
