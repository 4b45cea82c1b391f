"""The sums of what stands, kept between requests: one more reservation is added to what is known of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from daemons.models.assurance.calendar import slot_count
from daemons.models.assurance.coupling import upper
from daemons.models.assurance.profile import Profile
from daemons.policies.admission.layers import Layers, layers
from daemons.policies.admission.sums import Sum
from shared.policy_api.admission import Grid, Standing
from shared.policy_api.snapshot import Ints

KEPT_MAX = 4  # from one request to the next
HELD_MAX = 16  # while one is judged
ADDED_MAX = 24  # of more than these, adding one by one takes longer than all anew

Key = tuple[str, float]  # resource, theta


@dataclass(frozen=True, slots=True, eq=False)
class CachedSums:
    """What `members` ask for together, on a grid, in units of these sizes by resource: guaranteed int64[slots] by
    resource, and for each resource and theta the sum of those that ask for it, `askers` (rows of members)."""

    grid: Grid
    units: Mapping[str, float]
    slots: int
    members: tuple[Standing, ...]
    guaranteed: Mapping[str, Ints]
    sums: Mapping[Key, Sum]
    askers: Mapping[Key, tuple[int, ...]]

    def guaranteed_of(self, resource: str) -> Ints:
        """Return the guaranteed units of one resource."""
        return self.guaranteed.get(resource, np.zeros(self.slots, dtype=np.int64))


class StandingSums:
    """What is known at first, of earlier requests, and what is found out by this one. The answer does not depend on it,
    but for rounding."""

    def __init__(self, kind: type[Sum], memory: object, grid: Grid, units: Mapping[str, float]) -> None:
        self._kind, self._grid, self._units = kind, grid, units
        self._slots = slot_count(grid.calendar, grid.slot_s)
        self._kept: list[CachedSums] = list(memory) if isinstance(memory, tuple) else []

    def layers(self, one: Standing, cut: int | None = None) -> dict[str, Layers]:
        """Return the layers that a reservation requests; of its first `cut` units alone if that is given."""
        return layers(one, self._grid, self._units, cut)

    def memory(self) -> tuple[CachedSums, ...]:
        """Return the sums to keep, the newest first."""
        kept: list[CachedSums] = []
        for one in self._kept:
            if len(kept) < KEPT_MAX and not any(other.members == one.members for other in kept):
                kept.append(one)
        return tuple(kept)

    def of(self, members: tuple[Standing, ...]) -> CachedSums:
        """Return the sums of some reservations."""
        for kept in self._kept:
            if kept.members is members and self._alike(kept):
                return kept
        best: CachedSums | None = None
        for kept in self._kept:
            if self._alike(kept) and _begins(kept.members, members):
                best = kept if best is None or len(kept.members) > len(best.members) else best
        if best is None or len(members) - len(best.members) > ADDED_MAX:
            found = self._whole(members)
        else:
            found = self._recoupled(best, members[: len(best.members)])
            for one in members[len(best.members) :]:
                found = self.added(found, one, self.layers(one))
        for (_, theta), whole in found.sums.items():
            whole.needed(theta)  # where to look for what one more needs
        self.keep(found)
        return found

    def among(self, members: tuple[Standing, ...], lasting: int) -> CachedSums:
        """Return the same, for members of which the first `lasting` will be requested again with other members."""
        if lasting < len(members):
            self.keep(self.of(members[:lasting]))
        return self.of(members)

    def keep(self, found: CachedSums) -> None:
        """Cache the sums, in place of the least recently used ones."""
        self._kept = [found, *(kept for kept in self._kept if kept is not found)][:HELD_MAX]

    def _alike(self, kept: CachedSums) -> bool:
        return (kept.grid, kept.units) == (self._grid, self._units)

    def added(self, kept: CachedSums, one: Standing, asked: Mapping[str, Layers]) -> CachedSums:
        """Return the sums with one more reservation, which requests these layers."""
        guaranteed, sums, askers = dict(kept.guaranteed), dict(kept.sums), dict(kept.askers)
        row, bound = len(kept.members), upper(one.coupling, one.observations)
        members = (*kept.members, one)
        for resource, parts in asked.items():
            guaranteed[resource] = kept.guaranteed_of(resource) + parts.guaranteed
            for theta, profile in parts.predictable.items():
                key = (resource, theta)
                before, rows = sums.get(key), askers.get(key, ())
                askers[key] = (*rows, row)
                if before is None:
                    sums[key] = self._kind.of(self._slots, (profile,), (bound,))
                    continue
                sums[key] = before.added(profile, bound)
        return CachedSums(self._grid, self._units, self._slots, members, guaranteed, sums, askers)

    def _whole(self, members: tuple[Standing, ...]) -> CachedSums:
        guaranteed: dict[str, Ints] = {}
        asking: dict[Key, list[tuple[int, Profile]]] = {}
        for row, one in enumerate(members):
            for resource, parts in self.layers(one).items():
                guaranteed[resource] = guaranteed.get(resource, 0) + parts.guaranteed
                for theta, profile in parts.predictable.items():
                    asking.setdefault((resource, theta), []).append((row, profile))
        askers = {key: tuple(row for row, _ in found) for key, found in asking.items()}
        sums = {
            key: self._kind.of(self._slots, [profile for _, profile in found], _bounds(members, askers[key]))
            for key, found in asking.items()
        }
        return CachedSums(self._grid, self._units, self._slots, members, guaranteed, sums, askers)

    def _recoupled(self, kept: CachedSums, members: tuple[Standing, ...]) -> CachedSums:
        """Return the sums of the same reservations with their current couplings, which newer observations may have
        changed."""
        sums = dict(kept.sums)
        for key, rows in kept.askers.items():
            bounds = _bounds(members, rows)
            if bounds != _bounds(kept.members, rows):
                sums[key] = sums[key].recoupled(bounds)
        return CachedSums(kept.grid, kept.units, kept.slots, members, kept.guaranteed, sums, kept.askers)


def _begins(some: tuple[Standing, ...], members: tuple[Standing, ...]) -> bool:
    """Return whether the first of the members hold the same reservations."""
    return len(some) <= len(members) and all(
        one is other or (one.utc_offset_s == other.utc_offset_s and _same(one, other))
        for one, other in zip(some, members, strict=False)
    )


def _same(one: Standing, other: Standing) -> bool:
    return one.reservation is other.reservation or one.reservation == other.reservation


def _bounds(members: tuple[Standing, ...], rows: tuple[int, ...]) -> tuple[float, ...]:
    return tuple(upper(members[row].coupling, members[row].observations) for row in rows)
