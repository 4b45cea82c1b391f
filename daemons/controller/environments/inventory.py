"""What coordination sees of the cluster: which nodes there are to share, and what the environments do with theirs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from daemons.controller.environments.node_selection import RunningJob, Unit
from daemons.controller.state.availability import can_wake, is_available, is_empty
from daemons.controller.state.capabilities import waiting_on
from daemons.controller.state.cluster import Cluster
from daemons.controller.state.environment import EnvironmentEntry
from daemons.controller.state.jobs import JobEntry
from daemons.controller.state.nodes import NodeEntry
from daemons.controller.state.tenancy import runs
from daemons.values.settings import PowerSettings
from shared.policy_api.coordination import Party, WaitingJob
from shared.values.agreement import Agreement, VmTemplate
from shared.values.jobs import Job, JobPhase
from shared.values.nodes import Handover, Node, NodeCondition, NodeService

LOST_AFTER_S = 120.0  # a node that is silent for longer is not counted: another takes its place
SLACK = 1e-9
SPOILT_MAX = 3  # nodes on which its setup has failed for good: an environment gets no more until they are repaired
LEAST = 1e-3  # less MiB or MHz wanted on a node is a rounding error
System = tuple[str, str]  # type and version of an operating system
UnitsWanted = Callable[[str, Cluster], int]
_WAITS = (JobPhase.WAITING, JobPhase.SUSPENDED)


@dataclass(slots=True)
class Inventory:
    """The nodes that count, by who is to have them. systems: their classes, see `Claim`. held: by environment. free:
    what may be given away. spoilt: environments that have spoilt so many nodes that they are given none."""

    systems: list[System] = field(default_factory=list)
    held: dict[str, list[Unit]] = field(default_factory=dict)
    free: list[Unit] = field(default_factory=list)
    spoilt: frozenset[str] = frozenset()

    def copy(self) -> Inventory:
        """Return a copy that may be changed."""
        held = {name: list(units) for name, units in self.held.items()}
        return Inventory(self.systems, held, list(self.free), self.spoilt)

    def fits(self, agreement: Agreement) -> tuple[bool, ...]:
        """Return which classes its agreement allows."""
        return tuple(agreement.name not in self.spoilt and runs(agreement, system) for system in self.systems)

    def counted(self, units: Iterable[Unit]) -> tuple[int, ...]:
        """Return the number of units of each class."""
        counts = [0] * len(self.systems)
        for unit in units:
            counts[unit.kind] += 1
        return tuple(counts)


def stock_of(cluster: Cluster, power: PowerSettings, now_s: float) -> Inventory:
    """Return all nodes in their current state. O(nodes)."""
    stock = Inventory(spoilt=spoilt_by(cluster))
    kinds: dict[System, int] = {}
    for node in cluster.nodes.values():
        facts = node.inventory
        if facts is None or not (counts(node, power, now_s) if node.given else is_free(node, power)):
            continue
        kind = kinds.setdefault((facts.os_type, facts.os_version), len(kinds))
        unit = unit_of(node, kind, waiting_on(cluster, node))
        if node.given:
            stock.held.setdefault(node.given, []).append(unit)
        else:
            stock.free.append(unit)
    stock.systems = list(kinds)
    return stock


def spoilt_by(cluster: Cluster) -> frozenset[str]:
    """Environments whose setup has failed for good on so many nodes that it is taken to be at fault, not they."""
    failed = Counter(node.environment for node in cluster.nodes.values() if node.handover is Handover.FAILED)
    return frozenset(name for name, count in failed.items() if name and count >= SPOILT_MAX)


def unit_of(node: NodeEntry, kind: int, frozen: frozenset[str]) -> Unit:
    """Return a node as node selection sees it."""
    empty = is_empty(node) and not is_wanted(node)
    return Unit(
        node.name,
        kind,
        node.environment,
        settled=node.in_hand,
        awake=node.schedulable,
        idle=node.environment != node.given or empty,
        empty=empty,
        images=bool(node.vms),
        frozen=frozen,
    )


def is_wanted(node: NodeEntry) -> bool:
    """Something is to run on it."""
    return max(node.wanted_mib, node.wanted_mhz) > LEAST


def counts(node: NodeEntry, power: PowerSettings, now_s: float) -> bool:
    """Return whether the environment to which the node is assigned may count on it: no operator holds it back, nothing
    of it has failed, and it is up, asleep but can be woken, or unreachable only for a short time."""
    if node.held or node.service is NodeService.FAILED or node.handover is Handover.FAILED:
        return False
    if node.asleep:
        return can_wake(node, power)
    if node.condition is NodeCondition.OFF:
        return False
    return node.condition is NodeCondition.UP or now_s - node.seen_s < LOST_AFTER_S


def is_free(node: NodeEntry, power: PowerSettings) -> bool:
    """Return whether a node of no environment may be given to one."""
    return is_available(node, power) and node.handover is not Handover.FAILED


# --- environments --------------------------------------------------------------------------------------------------


def party_of(
    entry: EnvironmentEntry, cluster: Cluster, stock: Inventory, units_wanted: UnitsWanted, queue: tuple[int, int]
) -> Party:
    """Return an environment as its group's policy sees it; queue: see `queue_of`. O(nodes of the environment)."""
    agreement = entry.agreement
    _, idle = owned_and_idle(entry, cluster, stock)
    queued, biggest = queue
    return Party(
        entry.name,
        agreement.workload,
        agreement.lower,
        upper=agreement.upper,
        owned=entry.size,
        idle=min(idle, entry.size),
        wanted=0 if entry.batch else units_wanted(entry.name, cluster),
        queued=queued,
        biggest=biggest,
        batch=agreement.batch,
    )


def owned_and_idle(entry: EnvironmentEntry, cluster: Cluster, stock: Inventory) -> tuple[int, int]:
    """Return the units that an environment has, those on their way to it included, and how many of them are idle."""
    if entry.by_node:
        held = stock.held.get(entry.name, ())
        return len(held), sum(unit.idle for unit in held)
    return entry.size, max(0, entry.size - vms_used(entry, cluster))


def like(entry: EnvironmentEntry, cluster: Cluster, stock: Inventory) -> Node | None:
    """Return the smallest of its nodes, or, while it has none, of those that it might get; None where its units are
    VMs."""
    if not entry.by_node:
        return None
    fits = stock.fits(entry.agreement)
    units = stock.held.get(entry.name) or [unit for unit in stock.free if fits[unit.kind]]
    nodes = (cluster.nodes[unit.name].inventory for unit in units)
    return min((node for node in nodes if node is not None), key=lambda n: (n.usable_mib, n.cpu_mhz), default=None)


def queue_of(
    entry: EnvironmentEntry, cluster: Cluster, node: Node | None, now_s: float, *, arrived: bool
) -> tuple[int, int]:
    """Return how many units all waiting jobs of an environment need together, and how many the largest of them needs
    alone. Each is counted with units for itself: nodes like `node`, or VMs. arrived: include those that came in at this
    instant. Jobs that an operator holds, or that wait for others or for their start time, do not wait for units. O(jobs
    of the environment)."""
    if not entry.batch:
        return 0, 0
    parts = [units for _, units in _queued(entry, cluster, node, now_s, arrived=arrived)]
    return math.ceil(math.fsum(parts) - SLACK), math.ceil(max(parts, default=0.0) - SLACK)


def waiting_of(entry: EnvironmentEntry, cluster: Cluster, node: Node | None, now_s: float) -> tuple[WaitingJob, ...]:
    """Return the same jobs one by one, in the order of their submission, except those that came in at this instant."""
    found = sorted(_queued(entry, cluster, node, now_s, arrived=False), key=lambda one: one[0].order)
    return tuple(
        WaitingJob(
            units,
            now_s - max(job.accepted_s, job.job.desired_start_s),
            None if job.job.goal_s is None else job.job.goal_s - now_s,
        )
        for job, units in found
    )


def quiet_s(entry: EnvironmentEntry, cluster: Cluster, now_s: float) -> float:
    """Return the seconds since a job of an environment last came in or ended; inf where there was none. O(jobs of
    it)."""
    came_s = [job.accepted_s for job in cluster.jobs_of(entry.name) if not job.job.app]
    return now_s - max((*came_s, cluster.last_ended_s.get(entry.name, -math.inf)))


def _queued(
    entry: EnvironmentEntry, cluster: Cluster, node: Node | None, now_s: float, *, arrived: bool
) -> Iterator[tuple[JobEntry, float]]:
    """Yield the jobs that wait for units, and how many each needs with units for itself."""
    for job in cluster.jobs_of(entry.name):
        if job.phase not in _WAITS or job.held or job.awaits:
            continue
        if job.job.desired_start_s <= now_s and (arrived or job.accepted_s < now_s):
            yield job, share_of(job.job, node, cluster.vm_overhead_mib)


def share_of(job: Job, node: Node | None, overhead_mib: float) -> float:
    """Return how many units a job needs with units for itself: nodes like `node`, or VMs."""
    if job.spread or node is None:
        return float(job.instances)
    return job.instances / max(1, slots(node, job.memory_mib + overhead_mib, job.speed_on_mhz(node)))


def slots(node: Node, memory_mib: float, cpu_mhz: float) -> int:
    """Return how many VMs of that size an empty node takes."""
    by_memory = node.usable_mib / memory_mib if memory_mib > 0.0 else math.inf
    by_cpu = node.cpu_mhz / cpu_mhz if cpu_mhz > 0.0 else math.inf
    least = min(by_memory, by_cpu)
    return math.floor(least + SLACK) if least < math.inf else 0


def vms_used(entry: EnvironmentEntry, cluster: Cluster) -> int:
    """Return how many VMs of an environment run, are assigned to run, or may run."""
    return sum(_vms(job) for job in cluster.jobs_of(entry.name))


def _vms(job: JobEntry) -> int:
    if job.phase is JobPhase.RUNNING:
        return job.job.instances
    return sum(bool(instance.may_run_on) for instance in job.instances)


def tenants(entry: EnvironmentEntry, cluster: Cluster) -> list[RunningJob]:
    """Return the jobs of a batch environment that run or are assigned to run. O(jobs of it)."""
    return [
        RunningJob(job.job.name, job.wanted_s, job.order, frozenset(a.node for a in job.allotments))
        for job in cluster.jobs_of(entry.name)
        if job.phase is JobPhase.RUNNING and not job.job.app
    ]


def vm_room(cluster: Cluster, stock: Inventory, template: VmTemplate) -> list[int]:
    """Return how many VMs of a template each node of no environment takes when it is empty, most first."""
    facts = (cluster.nodes[unit.name].inventory for unit in stock.free)
    memory_mib = template.memory_mib + cluster.vm_overhead_mib
    return sorted((slots(node, memory_mib, template.max_mhz) for node in facts if node is not None), reverse=True)


def nodes_for(room: Sequence[int], vms: int) -> int:
    """Return how many nodes hold this many VMs, filling the largest nodes first."""
    nodes = 0
    while vms > 0 and nodes < len(room):
        vms -= room[nodes]
        nodes += 1
    return nodes
