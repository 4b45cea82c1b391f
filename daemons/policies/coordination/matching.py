"""Units of several classes for groups that not every class will do: a maximum flow, kept up to date unit by unit.

What asks first is served first: later demands move what is assigned to other classes, but never take it away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

Step = tuple["Mover | None", int, int]  # who moves from which class to which; None: the demand itself


class Mover(Protocol):
    """Something that can free units of one class if it gets as many of another."""

    def targets(self, source: int) -> int:
        """The classes, as bits, that would do for units which it then frees of class `source`."""
        ...

    def limit(self, source: int, target: int) -> int:
        """How many units at most."""
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
        """What is assigned of the class."""
        del target
        return self.units[source]

    def move(self, source: int, target: int, units: int) -> None:
        """Assign units of another class instead."""
        self.units[source] -= units
        self.units[target] += units


class Matching:
    """Which units are assigned to whom. fits: per group and class whether it will do. supply: units per class.

    Classes that fewest groups can use are assigned first, of equal ones the first. `assign` takes O(groups x classes)
    per path, and rarely more than one or two paths.
    """

    def __init__(self, fits: Sequence[Sequence[bool]], supply: Sequence[int]) -> None:
        classes = range(len(supply))
        self.spare = list(supply)
        self.order = sorted(classes, key=lambda kind: (sum(row[kind] for row in fits), kind))
        self.groups = [Assigned(sum(1 << kind for kind in classes if row[kind]), len(supply)) for row in fits]

    def assign(self, group: int, units: int, movers: Iterable[Mover] = ()) -> int:
        """Assign up to so many more units to a group; how many it became. Others may help besides the groups."""
        left = units
        while left:
            path = self.path(group, [unit > 0 for unit in self.spare], movers)
            if not path:
                break
            left -= self.follow(group, path, min(left, self.spare[path[-1][2]]))
        return units - left

    def path(self, group: int, ends: Sequence[bool], movers: Iterable[Mover] = ()) -> list[Step]:
        """The shortest way for a group to a unit of a class in `ends`: empty when there is none."""
        seen = self.groups[group].fits
        fits = [kind for kind in self.order if seen >> kind & 1]
        came: dict[int, Step] = {kind: (None, -1, kind) for kind in fits}
        everyone = [*self.groups, *movers]
        for kind in (queue := fits):
            if ends[kind]:
                return _way(came, kind)
            for mover in everyone:
                if new := mover.targets(kind) & ~seen:
                    seen |= new
                    found = [other for other in self.order if new >> other & 1]
                    came.update({other: (mover, kind, other) for other in found})
                    queue.extend(found)
        return []

    def follow(self, group: int, path: Sequence[Step], units: int) -> int:
        """Assign up to so many units along a path, of the class at its end; how many it became."""
        for mover, source, target in path:
            if mover is not None:
                units = min(units, mover.limit(source, target))
        self.groups[group].units[path[0][2]] += units
        for mover, source, target in path:
            if mover is not None:
                mover.move(source, target, units)
        self.spare[path[-1][2]] -= units
        return units


def _way(came: dict[int, Step], kind: int) -> list[Step]:
    steps = [came[kind]]
    while steps[-1][0] is not None:
        steps.append(came[steps[-1][1]])
    return steps[::-1]
