"""Constraints on where workloads run, written out instance by instance: slow, and easy to believe.

Shares nothing with the policies but what `Constraint` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shared.policy_api.snapshot import Snapshot, WorkloadState
from shared.values.jobs import Constraint, ConstraintKind

Nodes = Mapping[int, tuple[int, ...]]  # of every workload that runs, by row


@dataclass(frozen=True, slots=True)
class Instance:
    """One VM: the member of a constraint that it belongs to, its workload's row, its number and its node."""

    member: str
    row: int
    index: int
    node: int


def domain(seen: Snapshot, node: int, scope: str) -> tuple[str, str]:
    """What counts as one place for a scope: the value of the node's label, else the node."""
    if node < 0:
        return "unseen", str(node)
    for label in seen.nodes.labels[node]:
        if scope and label.split("=")[0] == scope:
            return scope, label[len(scope) + 1 :]
    return "node", seen.nodes.names[node]


def rows_of_member(seen: Snapshot, name: str) -> list[int]:
    """The rows of a job, or of an application's instances; a name stands for its first row."""
    if name in seen.web.names:
        app = seen.web.names.index(name)
        first = {each: row for row, each in reversed(list(enumerate(seen.workloads.names)))}
        return [row for row in first.values() if seen.workloads.app.item(row) == app]
    return [seen.workloads.names.index(name)] if name in seen.workloads.names else []


def instances_of(seen: Snapshot, names: tuple[str, ...], placed: Nodes) -> list[Instance]:
    """Every placed instance of these members."""
    return [
        Instance(name, row, index, node)
        for name in dict.fromkeys(names)
        for row in rows_of_member(seen, name)
        for index, node in enumerate(placed.get(row, ()))
    ]


def holds(seen: Snapshot, constraint: Constraint, one: Instance, placed: Nodes) -> bool:
    """Whether a constraint holds for one instance, given where all are. KEEP is not looked at."""
    members, about = constraint.members, constraint.about or constraint.members
    if constraint.kind is ConstraintKind.KEEP or one.member not in (*members, *about):
        return True
    if constraint.kind in (ConstraintKind.PIN, ConstraintKind.FORBID):
        name, labels = seen.nodes.names[one.node], seen.nodes.labels[one.node]
        wanted = [label in labels for label in constraint.labels]
        if constraint.kind is ConstraintKind.PIN:
            return name in constraint.nodes or (bool(wanted) and all(wanted))
        return name not in constraint.nodes and not any(wanted)
    mine = domain(seen, one.node, constraint.scope)
    for other in instances_of(seen, (*members, *about), placed):
        if (other.row, other.index) == (one.row, one.index):
            continue
        same = domain(seen, other.node, constraint.scope) == mine
        if constraint.kind is ConstraintKind.TOGETHER:
            related = one.member in members or other.member in members
            if related and not same:
                return False
        elif constraint.kind is ConstraintKind.APART:
            related = one.member in members and other.member in about
            if not constraint.weight:  # what is required is kept by both sides, a preference is the members' own
                related |= one.member in about and other.member in members
            alone = len(set(members)) == 1 and not constraint.about
            if related and same and (alone or other.member != one.member):
                return False
    return True


def broken(seen: Snapshot, placed: Nodes) -> Iterator[tuple[Constraint, Instance]]:
    """Every required constraint that does not hold for an instance."""
    for constraint in seen.constraints:
        if constraint.weight or constraint.kind is ConstraintKind.KEEP:
            continue
        for one in instances_of(seen, (*constraint.members, *constraint.about), placed):
            if one.node >= 0 and not holds(seen, constraint, one, placed):
                yield constraint, one


def penalty(seen: Snapshot, placed: Nodes) -> int:
    """The weights of all preferences that do not hold, once for each instance of the members whose preference it is."""
    total = 0
    for constraint in seen.constraints:
        if not constraint.weight:
            continue
        for one in instances_of(seen, constraint.members, placed):
            if one.node >= 0 and not holds(seen, constraint, one, placed):
                total += constraint.weight
    return total


def newly_broken(seen: Snapshot, before: Nodes, after: Nodes) -> Iterator[str]:
    """Every required constraint that an instance breaks where it has come to; what was so before may stay."""
    names = seen.workloads.names
    for constraint, one in broken(seen, after):
        if one.row not in before or before[one.row][one.index] != one.node:
            where = seen.nodes.names[one.node]
            yield f"{constraint.kind.value} {constraint.members} forbids {names[one.row]} on {where}"
    for constraint in seen.constraints:
        if constraint.kind is not ConstraintKind.KEEP:
            continue
        for one in instances_of(seen, constraint.members, after):
            if one.row in before and before[one.row] != after[one.row]:
                yield f"keep forbids to move {names[one.row]}"
            elif one.row not in before and not _at_image(seen, one):
                yield f"keep {constraint.members} forbids {names[one.row]} on {seen.nodes.names[one.node]}"


def _at_image(seen: Snapshot, one: Instance) -> bool:
    """Whether an instance is resumed where its image is, or has no image in reach."""
    work = seen.workloads
    if work.state.item(one.row) != WorkloadState.SUSPENDED.value:
        return True
    first, count = work.first_instance.item(one.row), work.instances.item(one.row)
    images = seen.instances.node[first : first + count].tolist()
    return all(image < 0 for image in images) or images[one.index] == one.node


def running(seen: Snapshot) -> dict[int, tuple[int, ...]]:
    """Where everything runs now."""
    work, found = seen.workloads, {}
    for row in range(len(work.names)):
        if work.state.item(row) == WorkloadState.RUNNING.value:
            first, count = work.first_instance.item(row), work.instances.item(row)
            found[row] = tuple(seen.instances.node[first : first + count].tolist())
    return found
