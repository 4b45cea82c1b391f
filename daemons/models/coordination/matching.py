"""Units of several classes for groups that not every class will do: a maximum flow, kept up to date unit by unit.

What asks first is served first: later demands move what is assigned to other classes, but never take it away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Step = tuple["Mover | None", int, int]  # who moves from which class to which; None: the demand itself


class Mover(Protocol):
    """Something that can free units of one class if it gets as many of another, of those in `fits` (bits)."""

    fits: int

    def targets(self, source: int) -> int:
        """Return the classes, as bits, that could replace the units of class `source` that it would free."""
        ...

    def limit(self, source: int, target: int) -> int:
        """Return the largest number of units that can move."""
        ...

    def move(self, source: int, target: int, units: int) -> None:
        """Free so many units of `source` and use as many of `target`."""
        ...


class Assigned:
    """The units that are assigned to one group, by class. fits: the classes that will do, as bits."""

    __slots__ = ("fits", "units")

    def __init__(self, fits: int, classes: int) -> None:
        self.fits = fits
        self.units = [0] * classes

    def targets(self, source: int) -> int:
        """Any class that fits."""
        return self.fits if self.units[source] else 0

    def limit(self, source: int, target: int) -> int:
        """Return the number of units assigned of the class."""
        del target
        return self.units[source]

    def move(self, source: int, target: int, units: int) -> None:
        """Assign units of another class instead."""
        self.units[source] -= units
        self.units[target] += units


class Matching:
    """Which units are assigned to whom. fits: per group and class whether it will do. supply: units per class.

    Classes that fewest groups can use are assigned first, of equal ones the first. A path takes O(groups x classes)
    where something has to move, O(classes) where a unit of a class that fits is there or where no path is.
    """

    def __init__(self, fits: Sequence[Sequence[bool]], supply: Sequence[int]) -> None:
        classes = range(len(supply))
        self.spare = list(supply)
        self.order = sorted(classes, key=lambda kind: (sum(row[kind] for row in fits), kind))
        self.groups = [Assigned(sum(1 << kind for kind in classes if row[kind]), len(supply)) for row in fits]
        self._links = [0] * len(supply)  # at least the classes to which something assigned of this one could move

    def assign(self, group: int, units: int, movers: Sequence[Mover] = ()) -> int:
        """Assign up to so many more units to a group; how many it became. Others may help besides the groups."""
        left = units
        while left:
            path = self.path(group, bits(self.spare), movers)
            if not path:
                break
            left -= self.follow(group, path, min(left, self.spare[path[-1][2]]))
        return units - left

    def path(self, group: int, ends: int, movers: Sequence[Mover] = ()) -> list[Step]:
        """Return the shortest path from a group to a unit of a class in `ends` (bits); empty if there is none."""
        fits = self.groups[group].fits
        if fits & ends:
            return [(None, -1, next(kind for kind in self.order if fits & ends & 1 << kind))]
        if not movers and not self._reached(fits) & ends:
            return []
        return self._search(fits, ends, [*self.groups, *movers])

    def follow(self, group: int, path: Sequence[Step], units: int) -> int:
        """Assign up to so many units along a path, of the class at its end; how many it became."""
        for mover, source, target in path:
            if mover is not None:
                units = min(units, mover.limit(source, target))
        self.groups[group].units[path[0][2]] += units
        self._links[path[0][2]] |= self.groups[group].fits
        for mover, source, target in path:
            if mover is not None:
                mover.move(source, target, units)
                self._links[target] |= mover.fits
        self.spare[path[-1][2]] -= units
        return units

    def _reached(self, fits: int) -> int:
        """Return the classes that may be on a path, possibly too many."""
        seen = todo = fits
        while todo:
            kind = todo.bit_length() - 1
            new = self._links[kind] & ~seen
            seen |= new
            todo = todo & ~(1 << kind) | new
        return seen

    def _search(self, fits: int, ends: int, everyone: Sequence[Mover]) -> list[Step]:
        queue = [kind for kind in self.order if fits >> kind & 1]
        came: dict[int, Step] = {kind: (None, -1, kind) for kind in queue}
        seen = fits
        for kind in queue:
            if ends >> kind & 1:
                return _way(came, kind)
            for mover in everyone:
                if new := mover.targets(kind) & ~seen:
                    seen |= new
                    found = [other for other in self.order if new >> other & 1]
                    came.update({other: (mover, kind, other) for other in found})
                    queue.extend(found)
        self._refresh()
        return []

    def _refresh(self) -> None:
        self._links = [0] * len(self.spare)
        for group in self.groups:
            for kind, units in enumerate(group.units):
                if units:
                    self._links[kind] |= group.fits


def bits(units: Sequence[int]) -> int:
    """Return the classes with at least one unit, as bits."""
    return sum(1 << kind for kind, number in enumerate(units) if number > 0)


def _way(came: dict[int, Step], kind: int) -> list[Step]:
    steps = [came[kind]]
    while steps[-1][0] is not None:
        steps.append(came[steps[-1][1]])
    return steps[::-1]
