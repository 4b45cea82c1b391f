"""Suspended on nodes that cannot save VMs to disk: frozen there, with its memory, to be resumed there alone. And what
runs on nodes that cannot migrate it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from daemons.controller.state.cluster import Cluster
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from shared.policy_api.decision import Change, ChangeKind
from shared.values.jobs import Allotment, Constraint, ConstraintKind, JobPhase
from shared.values.nodes import Ability, Node, NodeService
from shared.values.vms import VmState, VmStatus

HOME = "frozen on "  # begins labels: no node has one of its own with a space in it


def wanted_frozen_mib(cluster: Cluster, node: NodeEntry) -> float:
    """Memory that is, or will be, held by what is wanted suspended on a node; 0 where suspending frees it."""
    if node.inventory is None or not node.inventory.freezes:
        return 0.0
    found = 0.0
    for vm, status in node.vms.items():
        instance = cluster.instances.get(vm)
        kept = status.state is VmState.SUSPENDED if instance is None else instance.job.phase is JobPhase.SUSPENDED
        found += status.memory_mib if kept and status.managed else 0.0
    return found


def waiting_on(cluster: Cluster, node: NodeEntry) -> frozenset[str]:
    """Whose jobs can go on nowhere but on this node: environments that have nodes of their own, "" for others."""
    if node.inventory is None or not node.inventory.freezes:
        return frozenset()
    entries = [cluster.instances[vm].job for vm in node.vms if vm in cluster.instances]
    waiting = [entry for entry in entries if entry.phase is JobPhase.SUSPENDED and not entry.held]
    return frozenset(_whose(cluster, entry) for entry in waiting)


def _whose(cluster: Cluster, entry: JobEntry) -> str:
    home = cluster.environments.get(entry.job.environment)
    return entry.job.environment if home is not None and home.by_node else ""


def homes(cluster: Cluster, entry: JobEntry) -> tuple[str, ...]:
    """Return the node where each instance of a suspended job is frozen; () for a job that is not suspended, or has no
    frozen instance."""
    if entry.phase is not JobPhase.SUSPENDED:
        return ()
    found = tuple(_home(cluster, entry, at) for at in range(len(entry.instances)))
    return found if any(found) else ()


def _home(cluster: Cluster, entry: JobEntry, at: int) -> str:
    """Return the node on which an instance is frozen, "" where it is on none; the newest generation counts."""
    vm, best, newest = entry.instances[at].vm, "", -1
    for name in sorted(entry.instances[at].copies):
        node = cluster.nodes[name]
        status = node.vms[vm]
        if node.inventory is None or status.state is not VmState.SUSPENDED:
            continue
        if not (node.inventory.freezes or stays_with_disks(status)):
            continue
        if status.attempt == entry.attempt and status.generation > newest:
            best, newest = name, status.generation
    return best


def stays_with_disks(status: VmStatus) -> bool:
    """Return whether a suspended VM can be resumed only on its own node: it was adopted, or has disks that are stored
    there outside any pool of Trimtab and do not move with it."""
    return status.adopted or any(need.startswith("storage=") for need in status.migration_needs)


def lacking(cluster: Cluster) -> bool:
    """Return whether any node lacks an ability, or any suspended VM is bound to its node."""
    facts = (node.inventory for node in cluster.nodes.values())
    if any(fact is not None and not {*fact.abilities} >= {Ability.SAVE, Ability.MIGRATE} for fact in facts):
        return True
    return any(
        entry.phase is JobPhase.SUSPENDED and _has_bound_image(cluster, entry) for entry in cluster.active.values()
    )


def _has_bound_image(cluster: Cluster, entry: JobEntry) -> bool:
    return any(stays_with_disks(cluster.nodes[name].vms[one.vm]) for one in entry.instances for name in one.copies)


def labels_at_home(facts: Sequence[Node], frozen: Mapping[str, tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Return the labels of nodes: their own, and one for each job that is frozen there, which is what the job needs."""
    more: dict[str, list[str]] = {}
    for job, at in frozen.items():
        for name in sorted({*at} - {""}):
            more.setdefault(name, []).append(HOME + job)
    return tuple((*fact.labels, *more[fact.name]) if fact.name in more else fact.labels for fact in facts)


def apart(at: tuple[str, ...]) -> bool:
    """Return whether all instances are frozen, each on a node of its own."""
    return len(at) > 1 and len(set(at)) == len(at) and "" not in at


def keeps_of(cluster: Cluster, jobs: Iterable[JobEntry]) -> list[Constraint]:
    """Running jobs that cannot be moved are not to be."""
    running = [entry for entry in jobs if not entry.job.app and entry.phase is JobPhase.RUNNING]
    return [Constraint(ConstraintKind.KEEP, (entry.job.name,)) for entry in running if _runs_bound(cluster, entry)]


def stays_on_draining(cluster: Cluster, entry: JobEntry) -> bool:
    """Return whether a running job is on a draining node that cannot migrate it: it stays until its end."""
    return not entry.job.app and any(
        is_bound(cluster, a.node) and cluster.nodes[a.node].service is NodeService.DRAINING for a in entry.allotments
    )


def _runs_bound(cluster: Cluster, entry: JobEntry) -> bool:
    return any(is_bound(cluster, allotment.node) for allotment in entry.allotments)


def keeps_memory(cluster: Cluster, entry: JobEntry) -> bool:
    """Return whether a running job keeps its memory for its lifetime: it keeps it while suspended and cannot be
    moved."""
    if entry.job.app or entry.phase is not JobPhase.RUNNING or not entry.allotments:
        return False
    facts = [cluster.nodes[a.node].inventory for a in entry.allotments if is_bound(cluster, a.node)]
    return len(facts) == len(entry.allotments) and all(fact is not None and fact.freezes for fact in facts)


def is_bound(cluster: Cluster, name: str) -> bool:
    """Return whether what runs on a node cannot be migrated away from it."""
    node = cluster.nodes.get(name)
    return node is not None and node.inventory is not None and Ability.MIGRATE not in node.inventory.abilities


def settled(cluster: Cluster, entry: JobEntry, change: Change) -> Change | None:
    """Return a change in a form that nodes without some abilities can carry out: a frozen VM is resumed where it is. A
    web instance that cannot be moved is stopped, and another one is started. None if the change is impossible."""
    if change.kind is ChangeKind.RESUME:
        at = homes(cluster, entry)
        return change if not at else _at_home(cluster, at, change)
    if change.kind is ChangeKind.MIGRATE and len(change.allotments) == len(entry.allotments):
        pairs = zip(entry.allotments, change.allotments, strict=True)
        if any(before.node != after.node and is_bound(cluster, before.node) for before, after in pairs):
            return replace(change, kind=ChangeKind.STOP, allotments=()) if entry.job.app else None
    return change


def _at_home(cluster: Cluster, at: tuple[str, ...], change: Change) -> Change | None:
    """Return the allotments, each on its instance's own node: the nodes are the same in another order, or have the
    capacity. None if they do not."""
    if len(at) != len(change.allotments):
        return None
    given = list(change.allotments)
    placed: list[Allotment | None] = [None] * len(at)
    for index, home in enumerate(at):
        own = next((one for one in given if one.node == home or not home), None)
        if own is not None:
            given.remove(own)
            placed[index] = own
    for index, home in enumerate(at):
        if placed[index] is None:
            own, node = given.pop(), cluster.nodes[home]
            here_mhz = sum(one.cpu_mhz for one in placed if one is not None and one.node == home)
            coming_mhz = node.wanted_mhz + here_mhz + own.cpu_mhz
            if node.inventory is None or coming_mhz > node.inventory.cpu_mhz * (1.0 + 1e-9):
                return None
            placed[index] = Allotment(home, own.cpu_mhz)
    return replace(change, allotments=tuple(one for one in placed if one is not None))
