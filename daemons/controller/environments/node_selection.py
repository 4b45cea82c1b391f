"""Pure: which nodes an environment is given, which it gives up, and whose jobs give way."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

Order = tuple[int, float, int]


@dataclass(frozen=True, slots=True)
class Unit:
    """A node as it stands in a choice between nodes. kind: its class. holder: whose workloads may run on it now ("":
    those of no environment). settled: it is not on its way from one holder to another. awake: in service and up.
    idle: nothing of who is to have it runs on it, or is wanted there; empty: no VM of ours is or may be on it.
    images: saved VMs lie on it. frozen: the environments with jobs that can go on nowhere but there ("": others
    have some)."""

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
    """A job that would have to give way. nodes: where it is or is wanted. arrival: its place in the queue."""

    name: str
    start_s: float
    arrival: int
    nodes: frozenset[str]


def arriving(free: Sequence[Unit], environments: Sequence[str], counts: Sequence[int]) -> tuple[str, ...]:
    """Names of counts[k] units of each class k, those first on which jobs of the environments are frozen, last those on
    which jobs of others are; else those that they have still, then those that take least to be handed over."""

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
    """0: jobs of the environments are frozen there; 1: none are; 2: only jobs of others."""
    return 0 if not unit.frozen.isdisjoint(environments) else 2 if unit.frozen else 1


def claims_first(units: Sequence[Unit], environment: str) -> list[Unit]:
    """Those first on which jobs of the environment are frozen, last those on which jobs of others are; else those that
    it has still."""
    return sorted(units, key=lambda unit: (_claims(unit, (environment,)), unit.holder != environment))


def idle_first(units: Sequence[Unit], environment: str) -> list[Unit]:
    """The idle ones in the order in which they are given up: those that have not come yet, then those without saved
    VMs; the last by name first."""
    last_first = sorted((unit for unit in units if unit.idle), key=lambda unit: unit.name, reverse=True)

    def worth(unit: Unit) -> tuple[bool, bool, bool]:
        return unit.holder == environment and unit.awake, environment in unit.frozen, unit.images and not unit.frozen

    return sorted(last_first, key=worth)


def exchanges(held: Mapping[str, Sequence[Unit]], free: Sequence[Unit]) -> tuple[tuple[str, str], ...]:
    """Which nodes change hands so that frozen jobs go on, and who is to have them ("": nobody): an idle node on which
    jobs of others are frozen, and none of who has it, against an idle one of theirs, of its class, on which none of
    theirs are. O(n) for n nodes where no job is frozen."""
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
    """Whose jobs give way, until at least `needed` of the nodes have nobody left, and which nodes these are; first
    those that nobody is on any more.

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
    """The sizes of a group's parties when it has `total` units in all, of which each party holds `held` now: its
    request as far as the units go, and as far as its lower bound, where they are yet to come. What is not granted is
    cut where it is not held, else anywhere; the party `first` is cut last."""
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
    """What still stands of a request that was not granted: of a web environment all of it, of the batch environment,
    whose index is `batch`, as far as the group's firm bound goes; beyond that its manager asks again."""
    if batch is None:
        return tuple(requested)
    others = sum(requested) - requested[batch]
    stands = max(sizes[batch], min(requested[batch], firm - others))
    return tuple(stands if party == batch else size for party, size in enumerate(requested))
