"""Where workloads may run, and where they would rather run, given what is placed.

Required: a mask of nodes for each workload, and relations between workloads (`relations`). Preferred: a penalty for
each node. What a rule is, says `shared.values.jobs.Constraint`. Everything is about a snapshot's rows; where a workload
runs is asked of the policy, which knows what it has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from daemons.models.placement_relations import Layout, Place, PlaceOf, Relation
from shared.policy_api.decision import Reason, ReasonCode
from shared.policy_api.snapshot import ELSEWHERE, Bools, Floats, Ints, Snapshot, WorkloadState
from shared.values.jobs import Constraint, ConstraintKind

KEEP_NAME = "keep"
_RELATIONS = (ConstraintKind.TOGETHER, ConstraintKind.APART)


@dataclass(slots=True, eq=False)
class PlacementRules:
    """The rules of a snapshot. masks: distinct sets of nodes, bool[n], and as lists; mask_of: by row, which of them.
    relations: the required ones by row; wishes: the preferred ones by row; fixed_costs: by row, the penalty of each
    node by preferences about nodes and labels, float64[n]; no_migration: rows that are never moved. contradictions: by
    row, why no placement can satisfy all that is required. offending: running rows for which a relation does not hold
    now."""

    masks: list[Bools]
    lists: list[list[bool]]
    mask_of: list[int]
    parts: dict[int, list[tuple[str, Bools]]]
    relations: dict[int, list[Relation]] = field(default_factory=dict)
    wishes: dict[int, list[Relation]] = field(default_factory=dict)
    fixed_costs: dict[int, Floats] = field(default_factory=dict)
    no_migration: set[int] = field(default_factory=set)
    contradictions: dict[int, Reason] = field(default_factory=dict)
    offending: frozenset[int] = frozenset()

    @property
    def preferring(self) -> bool:
        """Whether there is any preference."""
        return bool(self.wishes or self.fixed_costs)

    def concerns(self, row: int) -> bool:
        """Return whether any rule is about the workload, labels that it requires aside."""
        return row in self.parts or row in self.relations or self.prefers(row)

    def prefers(self, row: int) -> bool:
        """Return whether any preference is about the workload."""
        return row in self.wishes or row in self.fixed_costs

    def of(self, row: int) -> list[Relation]:
        """Return all relations that the workload is in, required and preferred."""
        return [*self.relations.get(row, ()), *self.wishes.get(row, ())]

    # --- required --------------------------------------------------------------------------------------------------

    def allowed(self, row: int) -> Bools:
        """Return the nodes that the workload may be on, regardless of other workloads, bool[n]."""
        return self.masks[self.mask_of[row]]

    def on(self, row: int, node: int) -> bool:
        """Return whether the workload may be on the node, regardless of other workloads."""
        return self.lists[self.mask_of[row]][node]

    def open_to(self, row: int, layout: Layout) -> Bools:
        """Return the nodes on which an instance of the workload keeps every required rule, given the places of the
        others, bool[n]."""
        mask, others = self.allowed(row), layout.without(row)
        for relation in self.relations.get(row, ()):
            more = relation.open_to(row, others.occupancy(relation))
            mask = mask if more is None else mask & more
        return mask

    def clashes(self, row: int, place: Place, layout: Layout) -> bool:
        """Return whether a relation forbids the workload this place, given the places of the others."""
        others = layout.without(row)
        relations = self.relations.get(row, ())
        return any(not relation.holds(row, place, others.occupancy(relation)) for relation in relations)

    def apart(self, row: int) -> bool:
        """Return whether two instances of the workload must never be in one domain of some kind."""
        return any(relation.alone and not relation.together for relation in self.relations.get(row, ()))

    def together(self, row: int) -> bool:
        """Return whether the instances of the workload must all be in one domain of some kind."""
        return any(relation.together and row in relation.rows for relation in self.relations.get(row, ()))

    def near(self, row: int, layout: Layout) -> set[int]:
        """Return the row, and all that are placed and kept together with it, directly or by others."""
        found, open_ = {row}, [row]
        while open_:
            this = open_.pop()
            for relation in self.relations.get(this, ()):
                if relation.together:
                    more = {o for o in relation.related(this) if o not in found and layout.place_of(o) is not None}
                    found |= more
                    open_ += more
        return found

    def broken(self, row: int, place: Place, layout: Layout) -> str:
        """Return the name of the first required rule that a workload in a place breaks ("": none). Whether a node may
        be used at all is not looked at."""
        for name, mask in self.parts.get(row, ()):
            if any(0 <= node < mask.size and not mask.item(node) for node in place):
                return name
        others = layout.without(row)
        for relation in self.relations.get(row, ()):
            if not relation.holds(row, place, others.occupancy(relation)):
                return _name(relation.together)
        return ""

    def misplaced(self, row: int, place: Place, layout: Layout) -> list[bool]:
        """Return which instances of a workload in a place break a required rule: all of them if they break one between
        each other. Whether a node may be used at all is not looked at."""
        masks = [mask for _, mask in self.parts.get(row, ())]
        masks += [mask for _, mask in self._open(row, layout)]
        wrong = [any(0 <= node < mask.size and not mask.item(node) for mask in masks) for node in place]
        stay = tuple(node for node, bad in zip(place, wrong, strict=True) if not bad)
        return [True] * len(place) if self.clashes(row, stay, layout) else wrong

    def _open(self, row: int, layout: Layout) -> Iterator[tuple[str, Bools]]:
        """Yield the nodes that each relation leaves to a workload, with its name, where it excludes any."""
        others = layout.without(row)
        for relation in self.relations.get(row, ()):
            open_ = relation.open_to(row, others.occupancy(relation))
            if open_ is not None:
                yield _name(relation.together), open_

    def obstacles(self, row: int, among: Bools, layout: Layout) -> tuple[tuple[str, float], ...]:
        """Return the required rules that exclude some of these nodes (bool[n]), each with how many it excludes; if none
        does, those between its own instances, with 0."""
        masks = [*self.parts.get(row, ()), *self._open(row, layout)]
        found: dict[str, Bools] = {}
        for name, mask in masks:
            found[name] = found.get(name, np.zeros_like(among)) | (among & ~mask)
        named = tuple((name, float(out.sum())) for name, out in found.items() if out.any())
        own = ("affinity" if self.together(row) else "", "anti_affinity" if self.apart(row) else "")
        return named or tuple((name, 0.0) for name in own if name)

    # --- preferred -------------------------------------------------------------------------------------------------

    def penalty(self, row: int, layout: Layout) -> Floats | None:
        """Return the weights of the preferences that one instance of the workload would break on each node, those of
        others about it included, float64[n] (None: 0 on all)."""
        found, others = self.fixed_costs.get(row), layout.without(row)
        for relation in self.wishes.get(row, ()):
            more = relation.costs(row, others.occupancy(relation))
            if more is not None:
                found = more if found is None else found + more
        return found

    def added_penalty(self, targets: Mapping[int, Place | None], layout: Layout) -> float:
        """Return by how much the broken preferences grow if workloads go to these places (None: nowhere)."""
        total, touched = 0.0, dict[int, Relation]()
        for row, place in targets.items():
            fixed = self.fixed_costs.get(row)
            if fixed is not None:
                before, after = (sum(fixed.item(n) for n in p or () if n >= 0) for p in (layout.place_of(row), place))
                total += after - before
            touched.update((id(relation), relation) for relation in self.wishes.get(row, ()))
        then = layout.after(targets)
        for relation in touched.values():
            total += relation.cost(then.occupancy(relation)) - relation.cost(layout.occupancy(relation))
        return total

    # --- several instances -----------------------------------------------------------------------------------------

    def choose(
        self,
        row: int,
        slots: Ints,
        count: int,
        layout: Layout,
        homes: Sequence[int] = (),
        rank: Floats | None = None,
        kept: Place = (),
    ) -> Place | None:
        """Return nodes for `count` instances, or None.

        slots: int64[n], how many each node could take. homes: a node for each instance that it goes to if it can.
        rank: float64[n], of nodes with the same penalty that with the lowest comes first (None: by row). kept: where
        other instances of the workload stay. O(count x nodes); with rules in two or more scopes it may miss a placement
        that there is.
        """
        left = np.where(self.open_to(row, layout), slots, 0)
        apart = [each for each in self.relations.get(row, ()) if each.alone and not each.together]
        together = [each for each in self.relations.get(row, ()) if each.together and row in each.rows]
        for relation in apart:
            left[np.isin(relation.domain, [relation.domain_of(node) for node in kept])] = 0
        base = self.penalty(row, layout)
        cost = np.zeros(left.size) if base is None else base.copy()
        order = np.lexsort((cost,) if rank is None else (rank, cost))
        near = np.array([node for node in homes if 0 <= node < left.size], dtype=np.int64)
        if together and not _gather(left, count, together, apart, np.concatenate([near, order]), kept):
            return None
        wishes = [each for each in self.wishes.get(row, ()) if row in each.rows and (each.together or each.alone)]
        chosen = [-1] * count

        def take(index: int, node: int) -> None:
            chosen[index] = node
            left[node] -= 1
            for relation in apart:
                left[relation.domain == relation.domain.item(node)] = 0
            for relation in wishes:
                same = relation.domain == relation.domain.item(node)
                np.add(cost, relation.weight, out=cost, where=~same if relation.together else same)

        for index, home in enumerate(homes[:count]):
            if 0 <= home < left.size and left[home] > 0:
                take(index, home)
        for index in range(count):
            if chosen[index] < 0:
                open_ = order[left[order] > 0]
                if not open_.size:
                    return None
                take(index, open_.item(int(cost[open_].argmin())))
        return tuple(chosen)

    # --- rules that do not hold now ----------------------------------------------------------------------------------

    def offenders(self, place_of: PlaceOf) -> set[int]:
        """Return the placed rows for which some relation does not hold. O(members of all relations)."""
        each = {id(relation): relation for relations in self.relations.values() for relation in relations}
        return {row for relation in each.values() for row in relation.offenders(place_of)}


def _name(together: bool) -> str:
    return "affinity" if together else "anti_affinity"


def _gather(
    left: Ints, count: int, together: Sequence[Relation], apart: Sequence[Relation], order: Ints, kept: Place
) -> bool:
    """Close all nodes but those of one domain that has room for all instances, the first of these in `order`; return
    whether there is one."""
    joint = np.zeros(left.size, dtype=np.int64)
    for relation in together:
        joint = np.unique(joint * relation.domains + relation.domain, return_inverse=True)[1]
    domains = int(joint.max(initial=-1)) + 1
    room = np.bincount(joint, left, domains)
    for relation in apart:
        pairs = np.unique((joint * relation.domains + relation.domain)[left > 0])
        room = np.minimum(room, np.bincount(pairs // relation.domains, minlength=domains))
    if any(not 0 <= node < left.size for node in kept):
        return False
    fits = room >= count
    if kept:
        fits &= np.isin(np.arange(domains), joint[list(kept)])
        if np.unique(joint[list(kept)]).size > 1:
            return False
    first = order[fits[joint[order]] & (left[order] > 0)][:1]
    if not first.size:
        return False
    left[joint != joint[first]] = 0
    return True


# --- reading a snapshot ----------------------------------------------------------------------------------------------


class _Builder:
    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot, work, nodes = snapshot, snapshot.workloads, snapshot.nodes
        self._row_of = {name: row for row, name in reversed(list(enumerate(work.names)))}
        self._node_of = {name: row for row, name in reversed(list(enumerate(nodes.names)))}
        self._rows_of_app: dict[str, list[int]] = {}
        for row in (work.app >= 0).nonzero()[0].tolist() if snapshot.web.names else ():
            self._rows_of_app.setdefault(snapshot.web.names[work.app.item(row)], []).append(row)
        self._labels = [frozenset(has) for has in nodes.labels]
        self._domains: dict[str, tuple[Ints, int]] = {}
        self._masks: dict[tuple[tuple[str, ...], tuple[str, ...], bool], Bools] = {}
        self.parts: dict[int, list[tuple[str, Bools]]] = {}
        self.relations: dict[int, list[Relation]] = {}
        self.wishes: dict[int, list[Relation]] = {}
        self.fixed_costs: dict[int, Floats] = {}
        self.no_migration: set[int] = set()

    def members(self, name: str) -> list[int]:
        if name in self.snapshot.web.names:
            return self._rows_of_app.get(name, [])
        return [self._row_of[name]] if name in self._row_of else []

    def restrict(self, rows: Iterable[int], name: str, mask: Bools) -> None:
        for row in rows:
            self.parts.setdefault(row, []).append((name, mask))

    def named(self, constraint: Constraint) -> Bools:
        """Return the nodes that PIN and FORBID are about, bool[n]."""
        every = constraint.kind is ConstraintKind.PIN
        key = constraint.nodes, constraint.labels, every
        if key not in self._masks:
            mask = np.zeros(len(self._labels), dtype=np.bool_)
            mask[[self._node_of[name] for name in constraint.nodes if name in self._node_of]] = True
            wanted = frozenset(constraint.labels)
            if wanted:
                suits = wanted.issubset if every else lambda has: not wanted.isdisjoint(has)
                mask |= np.fromiter(map(suits, self._labels), dtype=np.bool_, count=len(self._labels))
            self._masks[key] = mask
        return self._masks[key]

    def add(self, constraint: Constraint) -> None:
        if constraint.kind in _RELATIONS:
            self._relate(constraint)
            return
        rows = [row for name in dict.fromkeys(constraint.members) for row in self.members(name)]
        if constraint.kind is ConstraintKind.KEEP:
            self.no_migration.update(rows)
            return
        pin = constraint.kind is ConstraintKind.PIN
        mask = self.named(constraint) if pin else ~self.named(constraint)
        if constraint.weight:
            cost = np.where(mask, 0.0, float(constraint.weight))
            for row in rows:
                self.fixed_costs[row] = self.fixed_costs[row] + cost if row in self.fixed_costs else cost
        else:
            about = "label" if constraint.labels and not constraint.nodes else "node"
            self.restrict(rows, f"{about}_affinity" if pin else f"{about}_anti_affinity", mask)

    def _relate(self, constraint: Constraint) -> None:
        names = list(dict.fromkeys(constraint.members))
        others = dict.fromkeys((*names, *constraint.about))
        of = {row: at for at, name in enumerate(others) for row in self.members(name)}
        rows = frozenset(row for name in names for row in self.members(name))
        about = frozenset(row for name in constraint.about for row in self.members(name)) if constraint.about else rows
        if not rows or not about:
            return
        if len(of) == 1 and self.snapshot.workloads.instances.item(next(iter(of))) <= 1:
            return  # one VM alone
        alone = len(names) == 1 and not constraint.about
        domain, domains = self.domains(constraint.scope)
        together = constraint.kind is ConstraintKind.TOGETHER
        relation = Relation(
            together,
            rows,
            about,
            of=of,
            alone=alone,
            domain=domain,
            domains=domains,
            weight=float(constraint.weight),
        )
        kept = self.wishes if constraint.weight else self.relations
        for row in of:
            kept.setdefault(row, []).append(relation)

    def domains(self, scope: str) -> tuple[Ints, int]:
        """Return the domain of each node, int64[n], and their number."""
        if scope not in self._domains:
            labels = self.snapshot.nodes.labels
            ids: dict[tuple[str, str] | int, int] = {}
            found = [ids.setdefault(_value_of(labels[node], scope, node), len(ids)) for node in range(len(labels))]
            self._domains[scope] = np.array(found, dtype=np.int64), len(ids)
        return self._domains[scope]

    def keep(self) -> None:
        """Restrict those that must not be moved to where they are, or where their images are."""
        count, work = len(self._labels), self.snapshot.workloads
        for row in self.no_migration:
            if work.state.item(row) == WorkloadState.WAITING.value:
                continue
            first = work.first_instance.item(row)
            home = self.snapshot.instances.node[first : first + work.instances.item(row)].tolist()
            known = [node for node in home if 0 <= node < count]
            if known or not {*home} <= {ELSEWHERE}:  # else what it is to be kept on is not to be had any more
                mask = np.zeros(count, dtype=np.bool_)
                mask[known] = True
                self.restrict([row], KEEP_NAME, mask)

    # --- contradictions ----------------------------------------------------------------------------------------------

    def contradictions(self) -> dict[int, Reason]:
        """Return, by row, why no placement can satisfy what is required: rules about nodes leave none, or relations
        exclude each other."""
        found: dict[int, Reason] = {}
        for row in self.parts:
            own = self.own(row)
            if not own.any():
                found[row] = Reason(ReasonCode.CONTRADICTION, (("nodes_allowed", 0.0),))
        for row, relations in self.relations.items():
            for relation in relations:
                if not relation.together or row not in relation.rows:
                    continue
                open_ = np.ones(relation.domains, dtype=np.bool_)
                for other in relation.rows | relation.about if self.parts else ():
                    if other in self.parts:
                        open_ &= np.bincount(relation.domain[self.own(other)], minlength=relation.domains) > 0
                if (relation.domains and not open_.any()) or self._divided(row, relation, relations):
                    allowed = float(open_[relation.domain].sum()) if relation.domains else 0.0
                    numbers = (("members", float(len(relation.of))), ("nodes_allowed", allowed))
                    found.setdefault(row, Reason(ReasonCode.CONTRADICTION, numbers))
        return found

    def own(self, row: int) -> Bools:
        """Return the nodes that rules about nodes leave to a workload, bool[n]."""
        mask = np.ones(len(self._labels), dtype=np.bool_)
        for _, part in self.parts.get(row, ()):
            mask = mask & part
        return mask

    def _divided(self, row: int, near: Relation, relations: Sequence[Relation]) -> bool:
        """Return whether instances would have to be in one domain and in different ones at once."""
        work = self.snapshot.workloads
        k, app = work.instances.item(row), work.app.item(row)
        with_it = set(near.related(row))
        several = k > 1 or any(near.of[other] == near.of[row] for other in with_it)
        needed = max(k, 2)
        nodes, count = self.domains("")
        if several and (work.spread[row] or app >= 0) and _most_within(near, nodes, count) < needed:
            return True
        for far in relations:
            if far.together:
                continue
            most = _most_within(near, far.domain, far.domains)
            if far.alone and several and most < needed:
                return True
            if most < 2 and not with_it.isdisjoint(far.related(row)):
                return True
        return False


def _value_of(labels: Sequence[str], key: str, node: int) -> tuple[str, str] | int:
    """Return what stands for the domain of a node: the value of the label with this key, else the node."""
    for label in labels if key else ():
        name, _, value = label.partition("=")
        if name == key:
            return name, value
    return node


def _most_within(near: Relation, domain: Ints, domains: int) -> int:
    """Return the most domains of another kind that one domain of a relation has nodes in."""
    if not domain.size:
        return 0
    pairs = np.unique(near.domain * domains + domain)
    return int(np.bincount(pairs // domains).max(initial=0))


def _label_masks(snapshot: Snapshot) -> dict[tuple[str, ...], Bools]:
    """Return the nodes with all labels, bool[n], for each set of labels that a workload requires."""
    wanted = {needs for needs in snapshot.workloads.required_labels if needs}
    labels = [set(has) for has in snapshot.nodes.labels] if wanted else []
    return {needs: np.array([has.issuperset(needs) for has in labels], dtype=np.bool_) for needs in wanted}


def rules_of(snapshot: Snapshot, usable: Bools) -> PlacementRules:
    """Return the rules of a snapshot, given the nodes that may receive anything, bool[n]; constraints on names that it
    does not have are ignored."""
    builder = _Builder(snapshot) if snapshot.constraints else None
    parts: dict[int, list[tuple[str, Bools]]] = {}
    contradictions: dict[int, Reason] = {}
    if builder is not None:
        for constraint in snapshot.constraints:
            builder.add(constraint)
        contradictions, parts = builder.contradictions(), builder.parts
        builder.keep()
    if snapshot.migration is not None:
        for row in (snapshot.migration.of >= 0).nonzero()[0].tolist():
            able = snapshot.migration.fits[snapshot.migration.of.item(row)]
            parts.setdefault(row, []).append(("migration", able))
    needs, masks_of_needs = snapshot.workloads.required_labels, _label_masks(snapshot)
    masks, ids, mask_of = [usable], {usable.tobytes(): 0}, [0] * len(needs)
    for row in parts.keys() | {row for row, labels in enumerate(needs) if labels}:
        mask = usable
        for _, part in parts.get(row, ()):
            mask = mask & part
        if needs[row]:
            mask = mask & masks_of_needs[needs[row]]
        key = mask.tobytes()
        if key not in ids:
            ids[key] = len(masks)
            masks.append(mask)
        mask_of[row] = ids[key]
    lists = [mask.tolist() for mask in masks]
    rules = PlacementRules(masks, lists, mask_of, parts=parts, contradictions=contradictions)
    if builder is not None:
        rules.relations, rules.wishes = builder.relations, builder.wishes
        rules.fixed_costs, rules.no_migration = builder.fixed_costs, builder.no_migration
    if rules.relations:
        rules.offending = frozenset(rules.offenders(running_places(snapshot).get))
    return rules


def running_places(snapshot: Snapshot) -> dict[int, Place]:
    """Return the nodes of the instances of every running workload, by row; negative: unknown or not shown."""
    work, nodes = snapshot.workloads, snapshot.instances.node.tolist()
    rows = (work.state == WorkloadState.RUNNING.value).nonzero()[0]
    firsts, counts = work.first_instance[rows].tolist(), work.instances[rows].tolist()
    found = zip(rows.tolist(), firsts, counts, strict=True)
    return {row: tuple(nodes[first : first + max(count, 0)]) for row, first, count in found}
