"""The provider's arbiter: which group gets how many units of which class, and who gives back what it borrowed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from daemons.policies.coordination.matching import Assigned, Matching, Mover
from shared.coordination import Claim, Grants

Row = list[int]


def grant(claims: Sequence[Claim], free: Sequence[int]) -> Grants:
    """Share the provider's units between groups. free: units of each class that nobody has, in number.

    1. What is wished within lower bounds comes first: from free units; else from idle units that others hold beyond
       their firm bounds; else by exchange, where a group holds idle units of this class and another class that is
       left would do for it; else from idle units that others hold beyond their lower bounds.
    2. Lower bounds that are not wished for stay reserved: nobody else is given what they need.
    3. Wishes up to firm bounds: from what is free besides; else from idle units beyond the firm bounds of others.
    4. Wishes beyond: from what is then free. Nothing is taken back for them.

    What is still short in 1 to 3 is owed by the same groups in the same order, from units that are not idle. Earlier
    claims come first; later ones give back first. Without any other change the next answer owes the same again, so the
    caller keeps since when each group owes, and takes the units when one lease unit is over. It asks again when units
    become free or idle while something is owed or a wish is not met. O(paths x groups x classes).
    """
    return _Desk(claims, free).answer()


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
        """All that it is to give, by class."""
        return tuple(lent + swapped for lent, swapped in zip(self.lent, self.swapped, strict=True))


class _Instead:
    """A lender that gives a unit of one class instead of one of another."""

    def __init__(self, lender: _Lender) -> None:
        self.lender = lender

    def targets(self, source: int) -> int:
        if not self.lender.stock[source]:
            return 0
        return sum(1 << kind for kind, units in enumerate(self.lender.lent) if units)

    def limit(self, source: int, target: int) -> int:
        return min(self.lender.stock[source], self.lender.lent[target])

    def move(self, source: int, target: int, units: int) -> None:
        self.lender.call(source, units)
        self.lender.call(target, -units)


class _Exchange:
    """A group that gives units of one class and is assigned as many of another."""

    def __init__(self, lender: _Lender) -> None:
        self.lender = lender

    def targets(self, source: int) -> int:
        return self.lender.group.fits if self.lender.stock[source] else 0

    def limit(self, source: int, target: int) -> int:
        del target
        return self.lender.stock[source]

    def move(self, source: int, target: int, units: int) -> None:
        self.lender.stock[source] -= units
        self.lender.swapped[source] += units
        self.lender.group.units[target] += units


class _Desk:
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
        self.short: dict[str, Row] = {}
        self.met = [0] * len(claims)

    def answer(self) -> Grants:
        self.short = self._wishes()
        for what in ("lower", "reserve"):
            self._serve(what)
        for what in ("lower", "reserve"):
            self._call(what, self.idle)
        self._serve("firm")
        self._call("firm", self.idle)
        self._serve("beyond")
        given = [self._give(index) for index in range(len(self.claims))]
        for what in ("lower", "reserve", "firm"):
            self._call(what, self.busy)
        return Grants(
            tuple(given),
            tuple(lender.called() for lender in self.idle),
            tuple(lender.called() for lender in self.busy),
        )

    def _wishes(self) -> dict[str, Row]:
        """How many units each group lacks, by what they are for."""
        known = list(zip(self.claims, self.held, strict=True))
        firm = [max(claim.lower, claim.firm) for claim in self.claims]
        return {
            "lower": [max(0, min(claim.wished, claim.lower) - held) for claim, held in known],
            "reserve": [max(0, claim.lower - max(claim.wished, held)) for claim, held in known],
            "firm": [
                max(0, min(claim.wished, top) - max(claim.lower, held))
                for (claim, held), top in zip(known, firm, strict=True)
            ],
            "beyond": [max(0, claim.wished - max(top, held)) for (claim, held), top in zip(known, firm, strict=True)],
        }

    def _serve(self, what: str) -> None:
        """From units that are free."""
        for index, units in enumerate(self.short[what]):
            if units:
                self._meet(what, index, self.matching.assign(index, units))

    def _meet(self, what: str, index: int, units: int) -> None:
        self.short[what][index] -= units
        if what != "reserve":
            self.met[index] += units

    def _call(self, what: str, lenders: Sequence[_Lender]) -> None:
        """From units that others hold."""
        for index in range(len(self.claims)):
            if self.short[what][index]:
                self._call_for(what, index, lenders, beyond_lower=False)
            if what == "lower" and self.short[what][index]:
                exchanges = [_Exchange(lender) for lender in lenders]
                self._meet(what, index, self.matching.assign(index, self.short[what][index], exchanges))
                self._call_for(what, index, lenders, beyond_lower=True)

    def _call_for(self, what: str, index: int, lenders: Sequence[_Lender], *, beyond_lower: bool) -> None:
        instead: list[Mover] = [_Instead(lender) for lender in lenders if any(lender.lent)]
        while self.short[what][index]:
            ends = list(self._ends(lenders, beyond_lower))
            path = self.matching.path(index, [any(row) for row in zip(*ends, strict=True)], instead) if ends else []
            if not path:
                return
            kind = path[-1][2]
            lender = next(number for number in reversed(range(len(ends))) if ends[number][kind])
            units = min(self.short[what][index], ends[lender][kind])
            units = self.matching.follow(index, path, units)
            lenders[lender].call(kind, units)
            self.matching.spare[kind] += units
            self._meet(what, index, units)

    def _ends(self, lenders: Sequence[_Lender], beyond_lower: bool) -> Iterator[Row]:
        """How many units of each class each group could give now."""
        for index, claim in enumerate(self.claims):
            keeps = claim.lower if beyond_lower else max(claim.lower, claim.firm)
            more = self.held[index] - keeps - sum(self.idle[index].lent) - sum(self.busy[index].lent)
            yield [min(stock, more) if more > 0 else 0 for stock in lenders[index].stock]

    def _give(self, index: int) -> tuple[int, ...]:
        """Of what is assigned, as much as is wished; the rest stays reserved."""
        group = self.matching.groups[index]
        left = self.met[index] + sum(self.idle[index].swapped)
        given = [0] * len(group.units)
        for kind in self.matching.order:
            given[kind] = min(left, group.units[kind])
            left -= given[kind]
            group.units[kind] -= given[kind]
        return tuple(given)
