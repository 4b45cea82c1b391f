"""The lifecycle of adopted VMs: their owners start and stop them, and the controller follows.

An adopted VM whose guest shuts down, crashes or loses its host is shut off. Its definition stays where it is, and it is
not wanted anywhere. It counts again once it is seen running. Only an operator can release it.
"""

from __future__ import annotations

from daemons.controller.state import transitions
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import Instance, JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.queries import is_stale
from daemons.controller.state.unit_of_work import UnitOfWork
from shared.values.jobs import Allotment
from shared.values.nodes import NodeCondition
from shared.values.vms import LIVE_STATES, VmState


class AdoptedVms:
    """Moves jobs of adopted VMs into and out of the phase `shut-off`."""

    def __init__(self, cluster: Cluster, unit_of_work: UnitOfWork) -> None:
        self.cluster, self.unit_of_work = cluster, unit_of_work

    def lost(self, entry: JobEntry, now_s: float) -> None:
        """Note that a VM no longer runs; one whose adoption had not completed is released."""
        taken = transitions.shut_off(self.cluster, entry, now_s)
        self.unit_of_work.change(entry)
        self.unit_of_work.place = True
        if taken:
            self.unit_of_work.emit(now_s, "adopted-vm-off", entry.job.name, f"{entry.adopted}: {self._why(entry)}")
        else:
            self.unit_of_work.emit(now_s, "adoption-failed", entry.job.name, f"{entry.adopted} was not taken over")

    def follow(self, entry: JobEntry, now_s: float) -> None:
        """Take in a VM that runs again, or whose saved image is there again."""
        (instance,) = entry.instances
        for name in sorted(instance.copies):
            node = self.cluster.nodes[name]
            status = node.vms[instance.vm]
            if status.attempt != entry.attempt or node.condition is not NodeCondition.UP:
                continue
            if status.state in LIVE_STATES and not status.busy:
                self._runs(entry, instance, node, status.cpu_mhz, now_s)
                return
            if status.state is VmState.SUSPENDED and not is_stale(instance, status):
                transitions.found_saved(entry)
                self.unit_of_work.change(entry)
                return

    def _runs(self, entry: JobEntry, instance: Instance, node: NodeEntry, cpu_mhz: float, now_s: float) -> None:
        most_mhz = entry.job.max_mhz if node.inventory is None else entry.job.speed_on_mhz(node.inventory)
        instance.places, instance.home, instance.beat, instance.weighed = {node.name}, node.name, None, None
        allotment = Allotment(node.name, min(cpu_mhz or most_mhz, most_mhz))
        transitions.run_again(self.cluster, entry, allotment, now_s)
        self.unit_of_work.change(entry)
        self.unit_of_work.place = True
        self.unit_of_work.emit(now_s, "adopted-vm-on", entry.job.name, f"{entry.adopted} on {node.name}")

    def _why(self, entry: JobEntry) -> str:
        (instance,) = entry.instances
        where = last_node(instance)
        return f"shut off on {where}" if where else "shut off"


def last_node(instance: Instance) -> str:
    """Return the node on which a VM is defined, or was seen last ("": not known)."""
    return next(iter(sorted(instance.copies)), instance.home or instance.counter_node)


def is_lost(cluster: Cluster, instance: Instance) -> bool:
    """Return whether the definition of an adopted VM is nowhere where it could be seen: its node reports without it, is
    off, or does not take part any more. A report that is older than the end of the VM says nothing of what is left."""
    if instance.copies:
        return False
    node = cluster.nodes.get(last_node(instance))
    if node is None or node.condition is not NodeCondition.UP:
        return node is None or node.condition is not NodeCondition.UNKNOWN
    return node.seen_s > instance.job.wanted_s
