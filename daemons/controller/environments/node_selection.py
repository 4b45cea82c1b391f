"""Node selection: which nodes an environment gets, which it gives up, and whose jobs are preempted. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

Order = tuple[int, float, int]


@dataclass(frozen=True, slots=True)
class Unit:
    """A node as seen in a choice between nodes. kind: its class. holder: the environment whose workloads may run on it
    now ("": those of no environment). settled: it is not on its way between holders. awake: in service and up. idle:
    nothing of the environment that it is assigned to runs or is wanted on it; empty: no managed VM is or may be on it.
    images: saved VMs are stored on it. frozen: the environments with jobs that can continue only there ("": jobs of
    others without nodes of their own)."""

    name: str
    kind: int = 0
    holder: str = ""
    settled: bool = True
    awake: bool = True
    idle: bool = True
    empty: bool = True
    images: bool = False
    frozen: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that may be preempted. nodes: where it is or is wanted. arrival: its place in the queue."""

    name: str
    start_s: float
    arrival: int
    nodes: frozenset[str]


def arriving(free: Sequence[Unit], environments: Sequence[str], counts: Sequence[int]) -> tuple[str, ...]:
    """Return the names of counts[k] units of each class k. Units on which jobs of the environments are frozen come
    first, units with frozen jobs of others last; then those that the environments still hold, then those that are
    easiest to reassign."""

    def trouble(unit: Unit) -> tuple[int, bool, bool, bool, bool, bool, str]:
        return (
            _claims(unit, environments),
            unit.holder not in environments,
            not unit.awake,
            not unit.empty,
            not unit.settled,
            unit.images,
            unit.name,
        )

    left = list(counts)
    chosen: list[str] = []
    if not any(left):
        return ()
    for unit in sorted(free, key=trouble):
        if left[unit.kind] > 0:
            left[unit.kind] -= 1
            chosen.append(unit.name)
    return tuple(chosen)


def _claims(unit: Unit, environments: Sequence[str]) -> int:
    """Return 0 where jobs of the environments are frozen there, 1 where none are, 2 where only jobs of others are."""
    return 0 if not unit.frozen.isdisjoint(environments) else 2 if unit.frozen else 1


def claims_first(units: Sequence[Unit], environment: str) -> list[Unit]:
    """Return units sorted: those on which jobs of the environment are frozen first, those with frozen jobs of others
    last; then those that it still holds."""
    return sorted(units, key=lambda unit: (_claims(unit, (environment,)), unit.holder != environment))


def idle_first(units: Sequence[Unit], environment: str) -> list[Unit]:
    """Return the idle units in the order in which they are given up: those that have not come yet, then those without
    saved VMs; the last by name first."""
    last_first = sorted((unit for unit in units if unit.idle), key=lambda unit: unit.name, reverse=True)

    def worth(unit: Unit) -> tuple[bool, bool, bool]:
        return unit.holder == environment and unit.awake, environment in unit.frozen, unit.images and not unit.frozen

    return sorted(last_first, key=worth)


def exchanges(held: Mapping[str, Sequence[Unit]], free: Sequence[Unit]) -> tuple[tuple[str, str], ...]:
    """Return the node exchanges that let frozen jobs continue, with the new environment of each node ("": none). An
    idle node with frozen jobs of others, and none of its holder, is exchanged for an idle node of theirs. That node has
    the same class and no frozen job of theirs. O(n) for n nodes where no job is frozen."""
    has = {who: [unit for unit in units if unit.idle and unit.settled and unit.awake] for who, units in held.items()}
    has[""] = [unit for unit in free if unit.idle and unit.settled and unit.awake]
    moves: dict[str, str] = {}
    for holder, unit in [(holder, unit) for holder, units in has.items() for unit in units if unit.frozen]:
        for who in sorted(unit.frozen) if holder not in unit.frozen and unit.name not in moves else ():
            for other in has.get(who, ()):
                if other.kind == unit.kind and other.name not in moves and who not in other.frozen:
                    moves[unit.name], moves[other.name] = who, holder
                    break
            if unit.name in moves:
                break
    return tuple(moves.items())


def evicted(
    tenants: Sequence[RunningJob], nodes: Sequence[str], needed: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which jobs are preempted until at least `needed` of the nodes are vacated, and which nodes these are;
    nodes that are already vacant come first.

    Where every node has one job, in the order of phoenixcloud.txt section 5.1: the smallest first, of equal ones the
    one that started last, then the one that arrived last. Where jobs share nodes, the node comes first whose jobs are
    smallest together. O(n log n) for n pairs of a job and a node.
    """
    crowd: dict[str, dict[str, RunningJob]] = {name: {} for name in nodes}
    for tenant in tenants:
        for name in tenant.nodes & crowd.keys():
            crowd[name][tenant.name] = tenant
    heap = [(_cost(on.values()), name) for name, on in crowd.items()]
    heapq.heapify(heap)
    left: list[str] = []
    freed: dict[str, None] = {}
    while heap and len(freed) < needed:
        cost, name = heapq.heappop(heap)
        if name in freed or cost != _cost(crowd[name].values()):
            continue  # it has been freed, or stands here again at less
        for tenant in sorted(crowd[name].values(), key=_order):
            left.append(tenant.name)
            for other in sorted(tenant.nodes & crowd.keys()):
                del crowd[other][tenant.name]
                if crowd[other]:
                    heapq.heappush(heap, (_cost(crowd[other].values()), other))
                else:
                    freed[other] = None
        freed[name] = None
    return tuple(left), tuple(freed)


def _order(tenant: RunningJob) -> Order:
    return len(tenant.nodes), -tenant.start_s, -tenant.arrival


def _cost(tenants: Collection[RunningJob]) -> tuple[int, tuple[Order, ...]]:
    return sum(len(tenant.nodes) for tenant in tenants), tuple(sorted(map(_order, tenants)))


def fitted(requested: Sequence[int], held: Sequence[int], total: int, lower: int, first: int) -> tuple[int, ...]:
    """Return the sizes of a group's parties when it has `total` units in all, of which each party holds `held` now.
    Each gets its request as far as the units go, or as far as its lower bound where they are yet to come. What is not
    granted is cut where it is not held, then anywhere; the party `first` is cut last."""
    sizes = list(requested)
    excess = sum(requested) - max(total, min(sum(requested), lower))
    order = sorted(range(len(sizes)), key=lambda party: party == first)
    for kept in (held, [0] * len(sizes)):
        for party in order:
            cut = max(0, min(excess, sizes[party] - kept[party]))
            sizes[party] -= cut
            excess -= cut
    return tuple(sizes)


def pending(requested: Sequence[int], sizes: Sequence[int], firm: int, batch: int | None) -> tuple[int, ...]:
    """Return the part of an ungranted request that still stands: all of it for a web environment. For the batch
    environment, whose index is `batch`, it stands up to the group's firm bound; its manager requests the rest again."""
    if batch is None:
        return tuple(requested)
    others = sum(requested) - requested[batch]
    stands = max(sizes[batch], min(requested[batch], firm - others))
    return tuple(stands if party == batch else size for party, size in enumerate(requested))
