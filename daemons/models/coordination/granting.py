"""The provider's arbiter: which group gets how many units of which class, and who gives back what it borrowed."""

from __future__ import annotations

from collections.abc import Sequence

from daemons.models.coordination.matching import Assigned, Matching, Mover, bits
from shared.policy_api.coordination import Claim, Grants

Row = list[int]


def grant(claims: Sequence[Claim], free: Sequence[int]) -> Grants:
    """Share the provider's units between groups. free: units of each class that nobody has, in number.

    1. What is requested within lower bounds comes first: from free units; else from idle units that others hold beyond
       their firm bounds; else by exchange, where a group holds idle units of this class and another class that is
       left would do for it; else from idle units that others hold beyond their lower bounds.
    2. Lower bounds that are not requested stay reserved: nobody else is given what they need.
    3. Requests up to firm bounds: from what is free besides; else from idle units beyond the firm bounds of others.
    4. Requests beyond: from what is then free. Nothing is taken back for them.

    What is still short in 1 to 3 is owed by the same groups in the same order, from units that are not idle. Earlier
    claims come first; later ones give back first. Without any other change the next answer owes the same again: the
    caller takes it at the group's next timer, which comes within one lease unit. It asks again when units become free
    or idle while something is owed or a request is not met. O(paths x groups x classes).
    """
    return _Arbiter(claims, free).answer()


class _Lender:
    """What one group may have to give back, of one kind: idle units or those that are not. stock: units by class;
    lent: of these, what is called for; swapped: what is called for in exchange."""

    def __init__(self, stock: Row, group: Assigned) -> None:
        self.stock, self.group = stock, group
        self.lent = [0] * len(stock)
        self.swapped = [0] * len(stock)

    def call(self, kind: int, units: int) -> None:
        """Call units of a class back."""
        self.stock[kind] -= units
        self.lent[kind] += units

    def called(self) -> tuple[int, ...]:
        """Return all units that it must give, by class."""
        return tuple(lent + swapped for lent, swapped in zip(self.lent, self.swapped, strict=True))


class _Instead:
    """A lender that gives a unit of one class instead of one of another."""

    fits = 0  # nothing is assigned to it

    def __init__(self, lender: _Lender) -> None:
        self.lender = lender

    def targets(self, source: int) -> int:
        return bits(self.lender.lent) if self.lender.stock[source] else 0

    def limit(self, source: int, target: int) -> int:
        return min(self.lender.stock[source], self.lender.lent[target])

    def move(self, source: int, target: int, units: int) -> None:
        self.lender.call(source, units)
        self.lender.call(target, -units)


class _Exchange:
    """A group that gives units of one class and is assigned as many of another."""

    def __init__(self, lender: _Lender) -> None:
        self.lender = lender
        self.fits = lender.group.fits

    def targets(self, source: int) -> int:
        return self.fits if self.lender.stock[source] else 0

    def limit(self, source: int, target: int) -> int:
        del target
        return self.lender.stock[source]

    def move(self, source: int, target: int, units: int) -> None:
        self.lender.stock[source] -= units
        self.lender.swapped[source] += units
        self.lender.group.units[target] += units


class _Source:
    """What lenders have to give of each class while each keeps what is its own. keeps: by group."""

    def __init__(self, lenders: Sequence[_Lender], room: Row) -> None:
        self.lenders, self.room = lenders, room
        givers = [number for number, units in enumerate(room) if units > 0 and any(lenders[number].stock)]
        classes = range(len(lenders[0].stock)) if lenders else range(0)
        self.givers = [[number for number in givers if lenders[number].stock[kind]] for kind in classes]
        self.ends = bits([len(numbers) for numbers in self.givers])
        self.instead = {number: _Instead(lender) for number, lender in enumerate(lenders) if any(lender.lent)}

    def last(self, kind: int) -> int:
        """Return the last lender that can give a unit of the class; there must be one."""
        return self.givers[kind][-1]

    def most(self, kind: int) -> int:
        """Return the number of units of the class that the last lender can give."""
        number = self.last(kind)
        return min(self.room[number], self.lenders[number].stock[kind])

    def call(self, kind: int, units: int) -> None:
        """Call units of the class back from it."""
        number = self.last(kind)
        self.lenders[number].call(kind, units)
        self.instead.setdefault(number, _Instead(self.lenders[number]))
        self.room[number] -= units
        for other, numbers in enumerate(self.givers):
            while numbers and not self._can_give(numbers[-1], other):
                numbers.pop()
            if not numbers:
                self.ends &= ~(1 << other)

    def _can_give(self, number: int, kind: int) -> bool:
        return self.room[number] > 0 and self.lenders[number].stock[kind] > 0


class _Arbiter:
    """The work on one answer."""

    def __init__(self, claims: Sequence[Claim], free: Sequence[int]) -> None:
        self.matching = Matching([claim.fits for claim in claims], free)
        self.claims = claims
        self.held = [sum(claim.held) for claim in claims]
        groups = self.matching.groups
        self.idle = [_Lender(list(claim.idle), group) for claim, group in zip(claims, groups, strict=True)]
        self.busy = [
            _Lender([have - idle for have, idle in zip(claim.held, claim.idle, strict=True)], group)
            for claim, group in zip(claims, groups, strict=True)
        ]
        self.short = self._shortfalls()
        self.met = [0] * len(claims)

    def answer(self) -> Grants:
        self._serve("lower")
        self._serve("reserve")
        self._call("lower", self.idle)
        self._call("reserve", self.idle)
        self._serve("firm")
        self._call("firm", self.idle)
        self._serve("beyond")
        given = tuple(self._give(index) for index in range(len(self.claims)))
        taken = tuple(lender.called() for lender in self.idle)
        for what in ("lower", "reserve", "firm"):
            self._call(what, self.busy)
        return Grants(given, taken, tuple(lender.called() for lender in self.busy))

    def _shortfalls(self) -> dict[str, Row]:
        """Return the number of units that each group lacks, by purpose."""
        short: dict[str, Row] = {"lower": [], "reserve": [], "firm": [], "beyond": []}
        for claim, held in zip(self.claims, self.held, strict=True):
            first, top = claim.lower, max(claim.lower, claim.firm)
            short["lower"].append(max(0, min(claim.requested, first) - held))
            short["reserve"].append(max(0, first - max(claim.requested, held)))
            short["firm"].append(max(0, min(claim.requested, top) - max(first, held)))
            short["beyond"].append(max(0, claim.requested - max(top, held)))
        return short

    def _serve(self, what: str) -> None:
        """Meet shortfalls of this kind from free units."""
        for index, units in enumerate(self.short[what]):
            if units:
                self._meet(what, index, self.matching.assign(index, units))

    def _meet(self, what: str, index: int, units: int) -> None:
        self.short[what][index] -= units
        if what != "reserve":
            self.met[index] += units

    def _call(self, what: str, lenders: Sequence[_Lender]) -> None:
        """Meet shortfalls of this kind from units that other groups hold."""
        if not any(self.short[what]):
            return
        self._call_from(what, self._source(lenders, beyond_lower=False), ())
        if what != "lower" or not any(self.short[what]):
            return
        exchanges = [_Exchange(lender) for lender in self.idle]
        if lenders is self.busy:
            exchanges += [_Exchange(lender) for lender in self.busy]
        for index, units in enumerate(self.short[what]):
            if units:
                self._meet(what, index, self.matching.assign(index, units, exchanges))
        for beyond_lower in (False, True):
            self._call_from(what, self._source(lenders, beyond_lower=beyond_lower), exchanges)

    def _source(self, lenders: Sequence[_Lender], *, beyond_lower: bool) -> _Source:
        room = []
        for index, claim in enumerate(self.claims):
            keeps = claim.lower if beyond_lower else max(claim.lower, claim.firm)
            room.append(self.held[index] - keeps - sum(self.idle[index].lent) - sum(self.busy[index].lent))
        return _Source(lenders, room)

    def _call_from(self, what: str, source: _Source, exchanges: Sequence[Mover]) -> None:
        for index in range(len(self.claims)):
            while source.ends and self.short[what][index]:
                path = self.matching.path(index, source.ends, [*source.instead.values(), *exchanges])
                if not path:
                    break
                kind = path[-1][2]
                units = min(self.short[what][index], source.most(kind))
                units = self.matching.follow(index, path, units)
                source.call(kind, units)
                self.matching.spare[kind] += units
                self._meet(what, index, units)

    def _give(self, index: int) -> tuple[int, ...]:
        """Give as many of the assigned units as were requested; the rest stays reserved."""
        group = self.matching.groups[index]
        left = self.met[index] + sum(self.idle[index].swapped)
        given = [0] * len(group.units)
        for kind in self.matching.order if left else ():
            given[kind] = min(left, group.units[kind])
            left -= given[kind]
            group.units[kind] -= given[kind]
        return tuple(given)
