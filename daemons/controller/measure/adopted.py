"""The lifecycle of adopted VMs: they run or are off as their operators and owners want.

An adopted VM whose guest shuts down, crashes or loses its host is shut off. Its definition stays where it is. What its
terms say decides whether it is started again there. One that its owner starts, stops or shuts down by hand is followed:
that is what is wanted from then on. Only an operator can release it.
"""

from __future__ import annotations

import math

from daemons.controller.state import transitions
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import Instance, JobEntry
from daemons.controller.state.migration_fit import pages_lacking_on
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.queries import is_busy, is_stale, is_unknown, last_node
from daemons.controller.state.unit_of_work import UnitOfWork
from daemons.controller.state.vm_terms import note_exit, restarts, runs
from daemons.values.records.cluster import FailoverFacts
from daemons.values.settings import ControllerSettings
from shared.values.failover import start_needs
from shared.values.jobs import Allotment
from shared.values.nodes import NodeCondition
from shared.values.vms import LIVE_STATES, OFF_STATES, VmState, VmStatus


class AdoptedVms:
    """Moves jobs of adopted VMs into and out of the phase `shut-off`. `homeless`: those that are wanted to run and are
    defined on no node that is up."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork, settings: ControllerSettings) -> None:
        self.cluster, self.unit_of_work, self.settings = cluster, unit_of_work, settings
        self.homeless: dict[str, JobEntry] = {}
        self._news = False

    def take_news(self) -> bool:
        """Return whether one of `homeless` was looked at since this was asked last."""
        news, self._news = self._news, False
        return news

    def lost(self, entry: JobEntry, now_s: float) -> None:
        """Note that a VM no longer runs, and whether it is wanted to run still; one whose adoption had not completed is
        released."""
        (instance,) = entry.instances
        had_run, ran_s = entry.released, now_s - entry.wanted_s
        unstarted = self._has_lost_its_start(entry, instance)
        self.unit_of_work.change(entry)
        self.unit_of_work.place = True
        if not transitions.shut_off(self.cluster, entry, now_s):
            self.unit_of_work.emit(now_s, "adoption-failed", entry.job.name, f"{entry.adopted} was not taken over")
            return
        # A guest that crashes again and again is started less and less often; that hosts fail is no fault of its own,
        # unless they do as soon as it runs there.
        unexplained = had_run and instance.exit is None and self._is_off_beside_its_host(instance)
        with_host = unstarted or (had_run and instance.exit is None and not unexplained)
        soon = ran_s < (self.settings.retry_s if with_host else self.settings.retry_max_s)
        entry.crashes = entry.crashes + 1 if soon else 1
        # The first time it is started again at once, unless what stopped it is yet to be told.
        entry.not_before_s = now_s + max(self._back_off_s(entry.crashes - 1), self.settings.retry_s * unexplained)
        if had_run or unstarted:
            entry.lost_with_host = with_host
        if had_run:
            note_exit(entry)
        self.unit_of_work.emit(now_s, "adopted-vm-off", entry.job.name, f"{entry.adopted}: {self._why(entry)}")

    def _has_lost_its_start(self, entry: JobEntry, instance: Instance) -> bool:
        """Return whether the host of a VM that was to be started there has failed since: it would not be asked for
        again. A saved image that was to be resumed is taken up where it lies."""
        if entry.released or entry.resuming:
            return False
        nodes = [self.cluster.nodes.get(allotment.node) for allotment in entry.allotments]
        return instance.host_restarted or any(n is None or n.condition is not NodeCondition.UP for n in nodes)

    def _is_off_beside_its_host(self, instance: Instance) -> bool:
        """Return whether a node on which a VM stopped reports it, and has not restarted: its event says how it came to
        that, and may be later than the report or a result."""
        if instance.host_restarted:
            return False
        nodes = [self.cluster.nodes[name] for name in instance.copies]
        return any(node.condition is NodeCondition.UP and node.vms[instance.vm].state in OFF_STATES for node in nodes)

    def _back_off_s(self, failures: int) -> float:
        wait_s = self.settings.retry_s * 2.0 ** min(failures - 1, 30) if failures else 0.0
        return min(self.settings.retry_max_s, wait_s)

    def follow(self, entry: JobEntry, now_s: float) -> float:
        """Take in a VM that runs again, or whose saved image is there again; start one that is wanted to run. Return
        when to look again (inf: when something changes)."""
        (instance,) = entry.instances
        self.homeless.pop(entry.job.name, None)
        if is_busy(self.cluster, instance):
            return math.inf
        self._release_where_off(instance)
        entry.taken = entry.taken or bool(instance.copies)
        off: tuple[NodeEntry, VmStatus] | None = None
        for name in sorted(instance.copies):
            node = self.cluster.nodes[name]
            status = node.vms[instance.vm]
            if status.attempt != entry.attempt or node.condition is not NodeCondition.UP:
                continue
            if status.state in LIVE_STATES and not status.busy:
                if not entry.released:
                    self._runs(entry, instance, node, status.cpu_mhz, now_s)
                return math.inf
            if status.state is VmState.SUSPENDED and not is_stale(instance, status):
                transitions.found_saved(entry)
                self.unit_of_work.change(entry)
                return math.inf
            if status.state in OFF_STATES and (off is None or status.generation > off[1].generation):
                off = node, status
        nowhere = not (instance.copies or instance.may_run_on or is_unknown(self.cluster, instance))
        if entry.released and (off is not None or nowhere):
            transitions.is_off(entry)
            self.unit_of_work.change(entry)
        if not restarts(entry):
            return math.inf
        if now_s < entry.not_before_s:
            return entry.not_before_s
        if off is None:
            self.homeless[entry.job.name], self._news = entry, True
            return math.inf
        if pages_lacking_on(self.cluster, instance, off[0].name):
            return now_s + self.settings.retry_s  # its node would refuse; an alarm says why it is off
        self.start(entry, *off, now_s)
        return math.inf

    def _release_where_off(self, instance: Instance) -> None:
        """Release the claim on nodes that report a VM as off: an order that was not carried out may have left it."""
        for name in sorted(instance.may_run_on):
            node = self.cluster.nodes.get(name)
            status = None if node is None or node.condition is not NodeCondition.UP else node.vms.get(instance.vm)
            if status is not None and status.state in OFF_STATES and not status.busy:
                self.cluster.release(instance, name)
                self.unit_of_work.change(instance.job)

    def start(self, entry: JobEntry, node: NodeEntry, status: VmStatus, now_s: float) -> None:
        """Want a VM that is shut off to run where its definition is, with the CPU that it had last."""
        most_mhz = entry.job.max_mhz if node.inventory is None else entry.job.speed_on_mhz(node.inventory)
        allotment = Allotment(node.name, min(status.cpu_mhz or most_mhz, most_mhz))
        transitions.start_adopted(self.cluster, entry, allotment, now_s)
        self.unit_of_work.change(entry)

    def _runs(self, entry: JobEntry, instance: Instance, node: NodeEntry, cpu_mhz: float, now_s: float) -> None:
        most_mhz = entry.job.max_mhz if node.inventory is None else entry.job.speed_on_mhz(node.inventory)
        instance.places, instance.home, instance.beat, instance.weighed = {node.name}, node.name, None, None
        runs(entry)
        allotment = Allotment(node.name, min(cpu_mhz or most_mhz, most_mhz))
        transitions.run_again(self.cluster, entry, allotment, now_s)
        self.unit_of_work.change(entry)
        self.unit_of_work.place = True
        self.unit_of_work.emit(now_s, "adopted-vm-on", entry.job.name, f"{entry.adopted} on {node.name}")

    def _why(self, entry: JobEntry) -> str:
        (instance,) = entry.instances
        where = last_node(instance)
        return f"shut off on {where}" if where else "shut off"


def is_left(instance: Instance, node: str, status: VmStatus) -> bool:
    """Return whether a definition on a node is what a failover has left there: a newer one is, or may be, on another.
    One that is older because a start here has failed is not."""
    older = status.adopted and status.generation < instance.generation
    return older and (node in instance.job.left_on or bool((instance.copies | instance.may_run_on) - {node}))


def note_failover(instance: Instance, node: str, status: VmStatus) -> bool:
    """Take in what a failover of an adopted VM depends on; return whether it has changed. A definition that is left
    from before a failover says nothing."""
    if not status.adopted or status.state is VmState.INCOMING or is_left(instance, node, status):
        return False
    needs = start_needs(status.migration_needs) or (instance.failover.needs if instance.failover else ())
    found = FailoverFacts(status.failover, status.autostart, status.host_files, needs, node)
    changed = found != (instance.failover or FailoverFacts())
    if changed:
        instance.failover = found
    return changed


def is_lost(cluster: Cluster, instance: Instance) -> bool:
    """Return whether the definition of an adopted VM is nowhere where it could be seen: its node reports without it, or
    does not take part any more. A node that is off or silent has it still, as far as is known, and a report that is
    older than the end of the VM says nothing of what is left."""
    if instance.copies:
        return False
    node = cluster.nodes.get(last_node(instance))
    return node is None or (node.condition is NodeCondition.UP and node.seen_s > instance.job.wanted_s)
