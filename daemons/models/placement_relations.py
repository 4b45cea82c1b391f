"""Workloads that share a domain of nodes (a node, a rack, a zone), or never do, and where they run while a decision is
being made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from shared.policy_api.snapshot import Bools, Floats, Ints

Place = tuple[int, ...]
PlaceOf = Callable[[int], Place | None]
Members = Counter[int]
UNSEEN = -1  # the domain of nodes that are not shown
_NONE: Members = Counter()


@dataclass(frozen=True, slots=True, eq=False)
class Occupancy:
    """What of a relation is where: by domain, how many instances each member has there, of `rows` (held) and of `about`
    (seen), and how many of all rows (total). Never changed once made."""

    held: Mapping[int, Members]
    seen: Mapping[int, Members]
    total: Mapping[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Relation:
    """Workloads that share a domain of nodes, or never do. rows: whose rule it is; about: with regard to whom; of: the
    member that a row belongs to; domain: int64[n], of each node; domains: their number; weight: 0 if it is required.

    Together, rows go with each other and with `about`. Apart, a row keeps away from the rows of other members in
    `about`; `alone`: from every other row, and its own instances from each other. Functions about a row are given the
    occupancy without that row.
    """

    together: bool
    rows: frozenset[int]
    about: frozenset[int]
    of: Mapping[int, int]
    alone: bool
    domain: Ints
    domains: int
    weight: float

    def related(self, row: int) -> Iterator[int]:
        """Yield the other rows that a row must be together with, or apart from."""
        own, mine = row in self.rows, self.of[row]
        found = (self.rows | self.about if own else self.rows) if self.together else self._apart(row)
        for other in found:
            if other != row and (self.together or self.alone or self.of[other] != mine):
                yield other

    def _apart(self, row: int) -> frozenset[int]:
        if row not in self.rows:
            return self.rows
        return self.about | self.rows if row in self.about else self.about

    def domain_of(self, node: int) -> int:
        """Return the domain of a node, `UNSEEN` for one that is not shown."""
        return self.domain.item(node) if 0 <= node < self.domain.size else UNSEEN

    def occupancy(self, place_of: PlaceOf) -> Occupancy:
        """Return what is where. O(members)."""
        held: dict[int, Members] = {}
        seen: dict[int, Members] = {}
        total: dict[int, int] = {}
        for row, member in self.of.items():
            place = place_of(row)
            for at in map(self.domain_of, place) if place else ():
                total[at] = total.get(at, 0) + 1
                for rows, counts in ((self.rows, held), (self.about, seen)):
                    if row in rows:
                        counts.setdefault(at, Counter())[member] += 1
        return Occupancy(held, seen, total)

    def changed(self, occupied: Occupancy, moves: Mapping[int, tuple[Place, Place]]) -> Occupancy:
        """Return the occupancy after rows go from a place to another."""
        held, seen, total = dict(occupied.held), dict(occupied.seen), dict(occupied.total)
        copied: set[tuple[bool, int]] = set()
        for row, (was, now) in moves.items():
            for sign, place in ((-1, was), (1, now)):
                for at in map(self.domain_of, place):
                    total[at] = total.get(at, 0) + sign
                    if not total[at]:
                        del total[at]
                    for first, rows, counts in ((True, self.rows, held), (False, self.about, seen)):
                        if row in rows:
                            if (first, at) not in copied or at not in counts:
                                copied.add((first, at))
                                counts[at] = Counter(counts.get(at, _NONE))
                            _count(counts, at, self.of[row], sign)
        return Occupancy(held, seen, total)

    # --- required ----------------------------------------------------------------------------------------------------

    def taken(self, row: int, others: Occupancy) -> set[int]:
        """Return the domains that others take, so that a row must be there, or must not."""
        own, mine = row in self.rows, self.of[row]
        if self.together:
            return {*(others.total if own else others.held)}
        found: set[int] = set()
        for counts, related in ((others.seen, own), (others.held, row in self.about)):
            if related:
                found.update(at for at, here in counts.items() if self.alone or len(here) > (mine in here))
        return found

    def holds(self, row: int, place: Place, others: Occupancy) -> bool:
        """Return whether the relation holds for a workload in a place."""
        mine = {self.domain_of(node) for node in place}
        if not mine:
            return True
        if self.together:
            taken = self.taken(row, others)
            return not (row in self.rows and len(mine) > 1) and (not taken or mine == taken)
        if self.alone and len(mine) < len(place):
            return False
        return mine.isdisjoint(self.taken(row, others) - {UNSEEN})

    def open_to(self, row: int, others: Occupancy) -> Bools | None:
        """Return the nodes on which an instance of the workload keeps the relation, bool[n] (None: all)."""
        taken = self.taken(row, others)
        if not taken:
            return None
        if self.together:
            (first, *more) = taken
            return np.asarray(self.domain == first) if not more else np.zeros(self.domain.size, dtype=np.bool_)
        closed = np.zeros(self.domains + 1, dtype=np.bool_)
        closed[list(taken)] = True
        closed[UNSEEN] = False
        return np.asarray(~closed[self.domain])

    def offenders(self, place_of: PlaceOf) -> Iterator[int]:
        """Yield the placed rows for which the relation does not hold; what is on nodes that are not shown does not
        count. O(members)."""
        occupied = self.occupancy(place_of)
        at = {row: {n for n in map(self.domain_of, place_of(row) or ()) if n != UNSEEN} for row in self.of}
        if self.together:
            used, held_at = occupied.total.keys() - {UNSEEN}, occupied.held.keys() - {UNSEEN}
            for row, domains in at.items():  # a member must be with all, what it is about with the members
                apart = len(used) > 1 if row in self.rows else any(len(held_at) > (one in held_at) for one in domains)
                if domains and apart:
                    yield row
            return
        for row, domains in at.items():
            mine = self.of[row]
            for domain in domains:
                about, held = occupied.seen.get(domain, _NONE), occupied.held.get(domain, _NONE)
                own = row in self.rows and self._broken(Counter([mine]), about)
                if own or (row in self.about and len(held) > (mine in held)):
                    yield row
                    break

    # --- preferred ---------------------------------------------------------------------------------------------------

    def cost(self, occupied: Occupancy) -> float:
        """Return the sum of the weights of all instances for which the preference does not hold. O(domains)."""
        held = {at: here for at, here in occupied.held.items() if at != UNSEEN}
        if self.together:
            return self.weight * sum(here.total() for here in held.values()) if len(occupied.total) > 1 else 0.0
        return self.weight * sum(self._broken(here, occupied.seen.get(at, _NONE)) for at, here in held.items())

    def costs(self, row: int, others: Occupancy) -> Floats | None:
        """Return what one instance of the workload adds to `cost` on each node, float64[n] (None: nothing anywhere).
        O(domains + n)."""
        own, mine = row in self.rows, self.of[row]
        if self.together:
            return self._together_costs(own, others)
        added = np.zeros(self.domains + 1)
        for at in others.held.keys() | others.seen.keys():
            here, about = others.held.get(at, _NONE), others.seen.get(at, _NONE)
            after = self._broken(here, about, mine if own else None, mine if row in self.about else None)
            added[at] = after - self._broken(here, about)
        added[UNSEEN] = 0.0
        return self.weight * added[self.domain] if added.any() else None

    def _together_costs(self, own: bool, others: Occupancy) -> Floats | None:
        """Return `costs` of a relation that brings workloads together."""
        if not others.total:
            return None
        mine = self.weight if own else 0.0
        (first, *more) = others.total
        if more or first == UNSEEN:
            return np.full(self.domain.size, mine) if mine else None
        return np.where(self.domain == first, 0.0, mine + self.weight * others.held.get(first, _NONE).total())

    def _broken(self, held: Members, about: Members, one_held: int | None = None, one_about: int | None = None) -> int:
        """Return how many of the instances in one domain have there what they keep apart from; with one more instance
        of a member in either."""
        total = held.total() + (one_held is not None)
        members = len(about) + (one_about is not None and one_about not in about)
        if self.alone:
            return total if about.total() + (one_about is not None) > 1 else 0
        if members != 1:
            return total if members else 0
        (only,) = about or (one_about,)
        return total - held[only] - (one_held is not None and one_held == only) if only is not None else 0


def _count(counts: dict[int, Members], at: int, member: int, sign: int) -> None:
    """Count one instance of a member more or less; what is not there has no entry."""
    counts[at][member] += sign
    if not counts[at][member]:
        del counts[at][member]
    if not counts[at]:
        del counts[at]


class Layout:
    """Where workloads run while a decision is being made, by `place_of`. Occupancies are kept until it `changed`."""

    __slots__ = ("_known", "place_of")

    def __init__(self, place_of: PlaceOf, known: Mapping[int, Occupancy] | None = None) -> None:
        self.place_of, self._known = place_of, dict(known or {})

    def changed(self) -> None:
        """Forget what is where: something runs elsewhere from now on."""
        self._known = {}

    def moved(self, row: int, was: Place, now: Place, relations: Iterable[Relation]) -> None:
        """Record that a workload runs elsewhere from now on; `relations`: all that it is in."""
        for relation in relations:
            occupied = self._known.get(id(relation))
            if occupied is not None:
                self._known[id(relation)] = relation.changed(occupied, {row: (was, now)})

    def copy(self, place_of: PlaceOf) -> Layout:
        """Return the layout of the same places, which will be changed apart from this one."""
        return Layout(place_of, self._known)

    def occupancy(self, relation: Relation) -> Occupancy:
        """Return what of a relation is where."""
        if id(relation) not in self._known:
            self._known[id(relation)] = relation.occupancy(self.place_of)
        return self._known[id(relation)]

    def after(self, targets: Mapping[int, Place | None]) -> Layout:
        """Return the layout once workloads have gone to these places (None: nowhere). It follows changes of
        `targets`."""
        return _After(self, targets)

    def without(self, row: int) -> Layout:
        """Return the layout of all other workloads."""
        return self if self.place_of(row) is None else _After(self, {row: None})


class _After(Layout):
    """A layout with a few changes."""

    __slots__ = ("_base", "_targets")

    def __init__(self, base: Layout, targets: Mapping[int, Place | None]) -> None:
        super().__init__(self._place)
        self._base, self._targets = base, targets

    def _place(self, row: int) -> Place | None:
        return self._targets[row] if row in self._targets else self._base.place_of(row)

    def occupancy(self, relation: Relation) -> Occupancy:
        occupied = self._base.occupancy(relation)
        moves = {
            row: (self._base.place_of(row) or (), place or ())
            for row, place in self._targets.items()
            if row in relation.of
        }
        return relation.changed(occupied, moves) if moves else occupied
