"""What planning sees of the cluster: values made from the controller's tables."""

from __future__ import annotations

from collections.abc import Iterable

from daemons.entries import Instance, JobEntry
from daemons.planning.sight import Copy, InstanceSight, Need, Room, WorkloadSight
from daemons.state import Cluster
from shared.decision import Change, ChangeKind
from shared.model import Allotment, JobPhase, NodeCondition, VmState, VmStatus


def sight_of(cluster: Cluster, entry: JobEntry) -> WorkloadSight:
    """A job as it is and as it is wanted."""
    return _sight(cluster, entry, entry.phase, entry.attempt, entry.allotments)


def sight_after(cluster: Cluster, entry: JobEntry, change: Change) -> WorkloadSight:
    """A job as it is and as a change that has not been made would want it."""
    ends = {ChangeKind.SUSPEND: JobPhase.SUSPENDED, ChangeKind.STOP: JobPhase.WAITING}
    phase = ends.get(change.kind, JobPhase.RUNNING)
    attempt = entry.attempt + (change.kind is ChangeKind.START)
    return _sight(cluster, entry, phase, attempt, change.allotments)


def _sight(
    cluster: Cluster, entry: JobEntry, phase: JobPhase, attempt: int, wanted: tuple[Allotment, ...]
) -> WorkloadSight:
    sights = []
    for index, instance in enumerate(entry.instances):
        allotment = wanted[index] if wanted else None
        sights.append(
            InstanceSight(
                instance.vm,
                allotment.node if allotment else "",
                allotment.cpu_mhz if allotment else 0.0,
                instance.memory_mib,
                _copies(cluster, instance),
                is_busy(cluster, instance),
                is_unknown(cluster, instance),
                instance.issued_attempt == attempt,
                instance.ended,
                bool(entry.adopted),
                entry.definition_digest,
            )
        )
    return WorkloadSight(entry.job.name, phase, attempt, tuple(sights))


def _copies(cluster: Cluster, instance: Instance) -> tuple[Copy, ...]:
    copies = []
    for name in sorted(instance.copies):
        node = cluster.nodes[name]
        status = node.vms[instance.vm]
        frozen = status.state is VmState.SUSPENDED and node.inventory is not None and node.inventory.freezes
        held_mib = float(status.memory_mib) if frozen else 0.0
        seen = status.state, status.attempt, status.generation, status.cpu_mhz
        copies.append(Copy(name, *seen, node.usable, held_mib, status.definition, is_stale(instance, status)))
    return tuple(copies)


def is_stale(instance: Instance, status: VmStatus) -> bool:
    """Whether what a node has saved of a VM lies beside disks that the VM has run without since: it is of no use."""
    return status.state is VmState.SUSPENDED and 0 < status.disks < instance.disks


def is_busy(cluster: Cluster, instance: Instance) -> bool:
    """An operation on the VM is under way, by our order or an older leader's."""
    if instance.in_flight is not None:
        return True
    for name in (*instance.copies, *instance.may_run_on):
        node = cluster.nodes[name]
        if instance.vm in node.under_way:
            return True
        status = node.vms.get(instance.vm)
        if status is not None and status.busy:
            return True
    return False


def is_unknown(cluster: Cluster, instance: Instance) -> bool:
    """The VM may be on a node of which nothing is known, or whose word on it has not come yet; or it has left with
    nobody knowing where to."""
    if (instance.sought and cluster.untold) or instance.left or instance.awaited:
        return True
    for name in instance.may_run_on:
        if name not in instance.copies or cluster.nodes[name].condition is not NodeCondition.UP:
            return True
    return False


def rooms_of(cluster: Cluster, needs: Iterable[Need]) -> dict[str, Room]:
    """Live totals of the nodes that the needs touch. A node that takes no VMs has no room for them."""
    rooms: dict[str, Room] = {}
    for need in needs:
        for name in (need.node, need.to_node):
            node = cluster.nodes.get(name)
            if node is not None and node.usable and name not in rooms:
                memory_mib = node.room_mib() if node.schedulable else -1.0
                rooms[name] = Room(memory_mib, node.room_mhz(), node.actions, node.migrations)
    return rooms
