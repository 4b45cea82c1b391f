"""What planning sees of the cluster: values made from the controller's tables."""

from __future__ import annotations

from collections.abc import Iterable

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import Instance, JobEntry
from daemons.controller.state.queries import is_busy, is_stale, is_unknown, last_node
from daemons.controller.state.vm_terms import can_fail_over, fails_over, stays_off
from daemons.planning.observed import Headroom, ObservedInstance, ObservedWorkload, PlannedAction, VmCopy
from shared.policy_api.decision import Change, ChangeKind
from shared.values.jobs import Allotment, JobPhase
from shared.values.vms import VmState


def observed(cluster: Cluster, entry: JobEntry) -> ObservedWorkload:
    """Return the actual and the desired state of a job."""
    return _observed(cluster, entry, entry.phase, entry.attempt, entry.allotments)


def observed_after(cluster: Cluster, entry: JobEntry, change: Change) -> ObservedWorkload:
    """Return the actual state of a job and the state that a change not yet made would want."""
    ends = {ChangeKind.SUSPEND: JobPhase.SUSPENDED, ChangeKind.STOP: JobPhase.WAITING}
    phase = ends.get(change.kind, JobPhase.RUNNING)
    attempt = entry.attempt + (change.kind is ChangeKind.START)
    return _observed(cluster, entry, phase, attempt, change.allotments)


def _observed(
    cluster: Cluster, entry: JobEntry, phase: JobPhase, attempt: int, wanted: tuple[Allotment, ...]
) -> ObservedWorkload:
    instances = []
    for index, instance in enumerate(entry.instances):
        allotment = wanted[index] if wanted else None
        instances.append(
            ObservedInstance(
                instance.vm,
                allotment.node if allotment else last_node(instance) if phase is JobPhase.SHUT_OFF else "",
                allotment.cpu_mhz if allotment else 0.0,
                memory_mib=instance.memory_mib,
                copies=_copies(cluster, instance),
                busy=is_busy(cluster, instance),
                unknown=is_unknown(cluster, instance),
                issued=instance.issued_attempt == attempt,
                ended=instance.ended,
                adopted=bool(entry.adopted),
                definition=entry.definition_digest,
                defined=bool(entry.adopted) and entry.taken,
                anew=allotment is not None and allotment.node == entry.failover_to,
                guards=fails_over(entry),
                stays_off=stays_off(entry),
            )
        )
    ends = phase is JobPhase.SHUT_OFF and entry.released
    return ObservedWorkload(entry.job.name, phase, attempt, tuple(instances), ends)


def _copies(cluster: Cluster, instance: Instance) -> tuple[VmCopy, ...]:
    copies = []
    for name in sorted(instance.copies):
        node = cluster.nodes[name]
        status = node.vms[instance.vm]
        frozen = status.state is VmState.SUSPENDED and node.inventory is not None and node.inventory.freezes
        held_mib = float(status.memory_mib) if frozen else 0.0
        seen = status.state, status.attempt, status.generation, status.cpu_mhz
        guarded = status.failover if can_fail_over(node) else fails_over(instance.job)
        off = status.stays_off if status.adopted else stays_off(instance.job)  # a driver that tells nothing of it
        more = is_stale(instance, status), guarded, off
        copies.append(VmCopy(name, *seen, node.usable, held_mib, status.definition, *more))
    return tuple(copies)


def headrooms(cluster: Cluster, needs: Iterable[PlannedAction]) -> dict[str, Headroom]:
    """Live totals of the nodes that the needs touch. A node that takes no VMs has no room for them."""
    rooms: dict[str, Headroom] = {}
    for need in needs:
        for name in (need.node, need.to_node):
            node = cluster.nodes.get(name)
            if node is not None and node.usable and name not in rooms:
                memory_mib = node.room_mib() if node.schedulable else -1.0
                rooms[name] = Headroom(memory_mib, node.room_mhz(), node.actions, node.migrations)
    return rooms
