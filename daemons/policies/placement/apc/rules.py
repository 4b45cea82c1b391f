"""Where workloads may run: labels, pins and bans as a mask of nodes per workload; groups as checks while placing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from daemons.policies.placement.apc.problem import RUNNING, Problem
from daemons.policies.placement.free_capacity import repeated
from shared.policy_api.decision import Reason, ReasonCode
from shared.policy_api.snapshot import ELSEWHERE, Bools, Snapshot
from shared.values.jobs import Constraint, ConstraintKind

Place = tuple[int, ...]
PlaceOf = Callable[[int], Place | None]


@dataclass(frozen=True, slots=True)
class AffinityGroup:
    """Workloads that share a node, or never do. `rows`: members' rows; `of`: the member that a row belongs to. With
    several members in an anti-affinity group, instances of one member may share a node (`alone`: they may not)."""

    together: bool
    rows: tuple[int, ...]
    of: dict[int, int]
    alone: bool


@dataclass(slots=True, eq=False)
class Rules:
    """masks: distinct sets of nodes, bool[n], and as lists; mask_of: by row, which of them. groups: by row. keep: rows
    that are never moved. contradictions: by row, why no placement can satisfy all that is asked."""

    masks: list[Bools]
    lists: list[list[bool]]
    mask_of: list[int]
    groups: dict[int, list[AffinityGroup]]
    no_migration: set[int]
    contradictions: dict[int, Reason]

    def allowed(self, row: int) -> Bools:
        """Return the nodes that the workload may be on, regardless of groups, bool[n]."""
        return self.masks[self.mask_of[row]]

    def on(self, row: int, node: int) -> bool:
        """Return whether the workload may be on the node, regardless of groups."""
        return self.lists[self.mask_of[row]][node]

    def clashes(self, row: int, place: Place, place_of: PlaceOf) -> bool:
        """Return whether a group forbids the workload this place, given the places of the others."""
        return any(_clash(group, row, place, place_of) for group in self.groups.get(row, ()))


def _clash(group: AffinityGroup, row: int, place: Place, place_of: PlaceOf) -> bool:
    if group.together and len(set(place)) > 1:
        return True
    if group.alone and not group.together and len(set(place)) < len(place):
        return True
    nodes = set(place)
    for other in group.rows:
        if other == row or (not group.together and not group.alone and group.of[other] == group.of[row]):
            continue
        there = place_of(other)
        if there and (nodes != set(there) if group.together else not nodes.isdisjoint(there)):
            return True
    return False


class _Builder:
    def __init__(self, problem: Problem) -> None:
        self.problem, self.snapshot = problem, problem.snapshot
        work, nodes = self.snapshot.workloads, self.snapshot.nodes
        twice = repeated(work.names)
        self.row_of = {name: row for row, name in enumerate(work.names) if row not in twice}
        self.node_of = {name: row for row, name in reversed(list(enumerate(nodes.names)))}
        self.app_of = {name: row for row, name in reversed(list(enumerate(self.snapshot.web.names)))}
        self.own: dict[int, Bools] = {}
        self.groups: dict[int, list[AffinityGroup]] = {}
        self.no_migration: set[int] = set()
        self.contradictions: dict[int, Reason] = {}

    def members(self, name: str) -> list[int]:
        if name in self.app_of:
            rows: list[int] = (self.snapshot.workloads.app == self.app_of[name]).nonzero()[0].tolist()
            return rows
        return [self.row_of[name]] if name in self.row_of else []

    def restrict(self, rows: Iterable[int], mask: Bools) -> None:
        for row in rows:
            self.own[row] = self.own[row] & mask if row in self.own else mask

    def named(self, names: Iterable[str]) -> Bools:
        mask = np.zeros(len(self.snapshot.nodes.names), dtype=np.bool_)
        mask[[self.node_of[name] for name in names if name in self.node_of]] = True
        return mask

    def add(self, constraint: Constraint) -> None:
        members = [self.members(name) for name in dict.fromkeys(constraint.members)]
        rows = [row for its in members for row in its]
        if constraint.kind is ConstraintKind.PIN:
            self.restrict(rows, self.named(constraint.nodes))
        elif constraint.kind is ConstraintKind.FORBID:
            self.restrict(rows, ~self.named(constraint.nodes))
        elif constraint.kind is ConstraintKind.KEEP:
            self.no_migration.update(rows)
        else:
            of = {row: at for at, its in enumerate(members) for row in its}
            group = AffinityGroup(constraint.kind is ConstraintKind.TOGETHER, tuple(rows), of, len(members) == 1)
            for row in rows:
                self.groups.setdefault(row, []).append(group)

    def contradict(self) -> None:
        """Record rules that no placement can satisfy: node affinity and anti-affinity leave no node, or groups exclude
        each other."""
        for row, mask in self.own.items():
            if not mask.any():
                self.contradictions[row] = Reason(ReasonCode.CONTRADICTION, (("nodes_allowed", 0.0),))
        for row, groups in self.groups.items():
            for group in groups:
                if not group.together:
                    continue
                apart = {o for g in groups if not g.together for o in g.rows if o != row and g.of[o] != g.of[row]}
                both = apart.intersection(group.rows)
                common = np.ones(len(self.snapshot.nodes.names), dtype=np.bool_)
                for other in group.rows:
                    common &= self.own.get(other, common)
                if both or (common.size and not common.any()) or self._divided(row, group):
                    numbers = (("members", float(len(group.rows))), ("nodes_allowed", float(common.sum())))
                    self.contradictions.setdefault(row, Reason(ReasonCode.CONTRADICTION, numbers))

    def _divided(self, row: int, group: AffinityGroup) -> bool:
        """Return whether instances would have to be spread and together at once."""
        apart = any(g.alone and not g.together and row in g.rows for g in self.groups[row])
        several = self.problem.k[row] > 1 or sum(group.of[o] == group.of[row] for o in group.rows) > 1
        return several and (apart or self.problem.spread[row] or self.problem.is_replica[row])


def _label_masks(snapshot: Snapshot, rows: Iterable[int]) -> dict[tuple[str, ...], Bools]:
    labels = [set(has) for has in snapshot.nodes.labels]
    masks: dict[tuple[str, ...], Bools] = {}
    for row in rows:
        needs = snapshot.workloads.required_labels[row]
        if needs and needs not in masks:
            masks[needs] = np.array([has.issuperset(needs) for has in labels], dtype=np.bool_)
    return masks


def rules_of(problem: Problem) -> Rules:
    """Return the rules of a snapshot; constraints on names that it does not have are ignored."""
    snapshot = problem.snapshot
    builder = _Builder(problem)
    if snapshot.constraints:
        for constraint in snapshot.constraints:
            builder.add(constraint)
        builder.contradict()
    needs = snapshot.workloads.required_labels
    masks_of_needs = _label_masks(snapshot, range(len(needs)))
    for row in builder.no_migration:
        known = [node for node in problem.home[row] if 0 <= node < len(snapshot.nodes.names)]
        if known or not {*problem.home[row]} <= {ELSEWHERE}:  # else what it is to be kept on is not to be had any more
            home = np.zeros(len(snapshot.nodes.names), dtype=np.bool_)
            home[known] = True
            builder.restrict([row], home)
    if snapshot.migration is not None:
        for row in (snapshot.migration.of >= 0).nonzero()[0].tolist():
            builder.restrict([row], snapshot.migration.fits[snapshot.migration.of.item(row)])
    masks, ids, mask_of = [problem.usable], {problem.usable.tobytes(): 0}, [0] * len(needs)
    special = set(builder.own) | {row for row, labels in enumerate(needs) if labels}
    for row in special:
        mask = problem.usable & builder.own[row] if row in builder.own else problem.usable
        if needs[row]:
            mask = mask & masks_of_needs[needs[row]]
        key = mask.tobytes()
        if key not in ids:
            ids[key] = len(masks)
            masks.append(mask)
        mask_of[row] = ids[key]
    return Rules(
        masks, [mask.tolist() for mask in masks], mask_of, builder.groups, builder.no_migration, builder.contradictions
    )


def to_leave(problem: Problem, rules: Rules) -> list[int]:
    """Return the rows of the workloads that may be changed and are on a node that they should leave."""
    if len(rules.masks) == 1 and not any(problem.leaving):
        return []
    return [row for row, movable in enumerate(problem.movable) if movable and misplaced(problem, rules, row)]


def misplaced(problem: Problem, rules: Rules, row: int) -> bool:
    """Return whether a running workload is on a node that it should leave: one that is drained, or that it may not be
    on."""
    return problem.state[row] == RUNNING and any(
        problem.leaving[node] or not rules.on(row, node) for node in problem.home[row]
    )
