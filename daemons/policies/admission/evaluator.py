"""The evaluator: a request, what stands, the pools; a verdict with its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from daemons.models.assurance.calendar import slot_count
from daemons.models.assurance.params import Params
from daemons.policies.admission import grid as grids
from daemons.policies.admission.layers import Layers, bounds, reserved, shortened
from daemons.policies.admission.sum_cache import CachedSums, StandingSums
from daemons.policies.admission.sums import PeakSum, Sum
from daemons.policies.admission.timeline import Stretch, end_s, first_clear, stretches
from shared.base.errors import InvalidValue
from shared.policy_api.admission import (
    AdmissionOutcome,
    AdmissionReason,
    Binding,
    ClassFigures,
    Grid,
    Offer,
    OfferedUnits,
    Pool,
    SlotFigures,
    Standing,
    Verdict,
)
from shared.policy_api.snapshot import Bools, Ints
from shared.values.reservation import Calendar, ServiceClass

_HOUR_S = 3_600.0  # the slots in which nothing stands


@dataclass(frozen=True, slots=True, eq=False)
class Needs:
    """What all promises of one resource need, in a stretch of time: classes by falling theta with the units that each
    needs, int64[slots]. units: the pool's; asking: where the request reserves any."""

    resource: str
    units: int
    classes: tuple[tuple[float, Ints, Sum | None], ...]
    asking: Bools

    @property
    def total(self) -> Ints:
        """Of all classes."""
        return np.asarray(sum((needed for _, needed, _ in self.classes), np.zeros(len(self.asking), dtype=np.int64)))

    @property
    def wrong(self) -> Bools:
        """Where the request would break a promise, or find one broken."""
        return np.asarray(self.asking & (self.total > self.units))


_Found = list[tuple[Stretch, list[Needs]]]


class Evaluator:
    """One question: a request beside what stands. `kind` is how sums are had."""

    def __init__(
        self, kind: type[Sum], request: Standing, standing: Sequence[Standing], pools: Sequence[Pool], now_s: float,
        grid: Grid, memory: object,
    ) -> None:  # fmt: skip
        self.grid, self.request = grid, request
        self._slots = slot_count(grid.calendar, grid.slot_s)
        self._standing, self._pools = standing, {pool.resource: pool for pool in pools}
        self.sum_cache = StandingSums(kind, memory, grid, {pool.resource: pool.unit for pool in pools})
        self.from_s = max(now_s, request.reservation.start_s)
        self._asked = self.sum_cache.layers(request)
        reserving = (each.resource for each in request.reservation.demands if reserved(request.reservation, each))
        self.resources = tuple(reserving)

    def missing(self) -> str:
        """Return a resource that the request reserves and that has no pool, "": none."""
        return next((resource for resource in self.resources if resource not in self._pools), "")

    def judged(self) -> Verdict:
        """Return the verdict on a request that reserves part of the available resources."""
        while_s = self._stretches(end_s(self.request))
        found = [(stretch, self._needs(stretch, self._asked)) for stretch in reversed(while_s)][::-1]
        at, binding = self._binding(found)
        if not any(self._broken(stretch, needs) for stretch, all_needs in found for needs in all_needs):
            figures = tuple(one for needs in found[at][1] for one in figures_of(needs, found[at][0].from_s))
            return Verdict(AdmissionOutcome.ADMITTED, AdmissionReason.FITS, self.grid, figures=figures, binding=binding)
        offer = self._offer(found)
        outcome = AdmissionOutcome.OFFERED if offer else AdmissionOutcome.REFUSED
        figures = self._without(while_s[at])
        first_s = self._first_start(found)
        return Verdict(
            outcome,
            AdmissionReason.POOL_TOO_SMALL,
            self.grid,
            figures=figures,
            binding=binding,
            offer=offer,
            first_start_s=first_s,
        )

    def _stretches(self, until_s: float) -> list[Stretch]:
        return stretches(self._standing, tuple(self._pools.values()), self.from_s, until_s)

    def _needs(self, stretch: Stretch, asked: Mapping[str, Layers]) -> list[Needs]:
        """Return the needs with the request included, for each resource that it requests."""
        found = self.sum_cache.added(self.sum_cache.among(stretch.members, stretch.lasting), self.request, asked)
        if asked is self._asked:
            self.sum_cache.keep(found)
        return [
            needs_of(found, resource, self._pools[resource].units_at(stretch.from_s), asked[resource].asking())
            for resource in self.resources
            if resource in asked
        ]

    def _touched(self, stretch: Stretch) -> Bools:
        """Return the slots of a stretch in which the request is in force."""
        return grids.occurring(self.grid, stretch.from_s, min(stretch.until_s, end_s(self.request)))

    def _broken(self, stretch: Stretch, needs: Needs) -> bool:
        return bool((needs.wrong & self._touched(stretch)).any())

    def _binding(self, found: _Found) -> tuple[int, Binding | None]:
        """Return the index of the binding stretch and its binding slot: the one with the least units left over."""
        best: tuple[int, int, Binding] | None = None
        for at, (stretch, all_needs) in enumerate(found):
            touched = self._touched(stretch)
            for needs in all_needs:
                here = np.flatnonzero(touched & needs.asking)
                if not len(here):
                    continue
                spare = needs.units - needs.total[here]
                slot = int(here[spare.argmin()])
                if best is None or spare.min() < best[0]:
                    best = (int(spare.min()), at, _bound_at(needs, slot, stretch.from_s))
        return (0, None) if best is None else (best[1], best[2])

    def _without(self, stretch: Stretch) -> tuple[SlotFigures, ...]:
        """Return the figures of a stretch without the request."""
        kept, nowhere = self.sum_cache.among(stretch.members, stretch.lasting), np.zeros(self._slots, dtype=bool)
        return tuple(
            one
            for resource in self.resources
            for one in figures_of(
                needs_of(kept, resource, self._pools[resource].units_at(stretch.from_s), nowhere), stretch.from_s
            )
        )

    def _offer(self, found: _Found) -> Offer | None:
        cuts = {resource: self._largest(resource, found) for resource in self.resources}
        if not all(cuts.values()):
            return None
        offered = shortened(self.request.reservation, cuts)
        units = tuple(
            OfferedUnits(demand.resource, demand.layers, _sizes(bounds(self.request.reservation, asked)))
            for demand, asked in zip(offered.demands, self.request.reservation.demands, strict=True)
        )
        return Offer(offered, units)

    def _largest(self, resource: str, found: _Found) -> int:
        """Return the number of units of a resource, from the first on, that may be reserved. By bisection."""
        demand = next(each for each in self.request.reservation.demands if each.resource == resource)
        fits, most = 0, reserved(self.request.reservation, demand)
        own = [(stretch, needs) for stretch, every in found for needs in every if needs.resource == resource]
        broken = [stretch for stretch, needs in own if self._broken(stretch, needs)]
        if not broken:
            return most
        while most - fits > 1:
            middle = (fits + most) // 2
            fits, most = (middle, most) if self._fits(resource, middle, broken) else (fits, middle)
        # Less of what is known to be little coupled may need more elsewhere: what is left weighs more.
        while fits and self.request.observations and not self._fits(resource, fits, [stretch for stretch, _ in own]):
            fits -= 1
        return fits

    def _fits(self, resource: str, cut: int, while_s: list[Stretch]) -> bool:
        asked = {resource: self.sum_cache.layers(self.request, cut)[resource]}
        every = ((each, needs) for each in reversed(while_s) for needs in self._needs(each, asked))
        return not any(self._broken(each, needs) for each, needs in every)

    def _first_start(self, found: _Found) -> float | None:
        known, parts = {stretch.from_s: needs for stretch, needs in found}, []
        for stretch in reversed(self._stretches(math.inf)):
            needs = known.get(stretch.from_s) or self._needs(stretch, self._asked)
            parts.append((stretch, np.asarray(np.any([each.wrong for each in needs], axis=0))))
        return first_clear(self.grid, parts[::-1], self.from_s, end_s(self.request) - self.from_s)


def needs_of(kept: CachedSums, resource: str, units: int, asking: Bools) -> Needs:
    """Return the needs of one resource, from all cached sums."""
    classes: list[tuple[float, Ints, Sum | None]] = [(1.0, kept.guaranteed_of(resource), None)]
    thetas = sorted((theta for name, theta in kept.sums if name == resource), reverse=True)
    classes += [(theta, (whole := kept.sums[resource, theta]).needed(theta), whole) for theta in thetas]
    return Needs(resource, units, tuple(classes), asking)


def figures_of(needs: Needs, from_s: float) -> tuple[SlotFigures, ...]:
    """Return one entry for each slot."""
    left, columns = np.full(len(needs.asking), needs.units, dtype=np.int64), []
    for theta, needed, whole in needs.classes:
        given = np.maximum(left, 0)
        reached = PeakSum(needed).reached(given) if whole is None else whole.reached(given)
        kind = ServiceClass.GUARANTEED if whole is None else ServiceClass.PREDICTABLE
        columns.append(
            [
                ClassFigures(kind, theta, *figures)
                for figures in zip(needed.tolist(), left.tolist(), reached.tolist(), strict=True)
            ]
        )
        left = left - needed
    return tuple(
        SlotFigures(needs.resource, slot, from_s, needs.units, classes)
        for slot, classes in enumerate(zip(*columns, strict=True))
    )


def _bound_at(needs: Needs, slot: int, from_s: float) -> Binding:
    lowest = next((each for each in reversed(needs.classes) if each[1][slot] > 0), needs.classes[0])
    kind = ServiceClass.GUARANTEED if lowest[2] is None else ServiceClass.PREDICTABLE
    return Binding(needs.resource, slot, from_s, kind, lowest[0], int(needs.total[slot]), needs.units)


def _sizes(ends: Sequence[int]) -> tuple[int, ...]:
    return tuple(end - start for start, end in pairwise(ends))


class Evaluation:
    """What all policies of this role do alike; `kind` is what they differ in."""

    name = ""
    kind: type[Sum]

    def check_params(self, params: Mapping[str, Any]) -> None:
        """Prices that are unknown or rise with falling assurance are refused."""
        Params.of(params)

    def admit(
        self,
        request: Standing,
        standing: Sequence[Standing],
        pools: Sequence[Pool],
        now_s: float,
        params: Mapping[str, Any],
        memory: Any = None,
    ) -> tuple[Verdict, Any]:
        """See `shared.policy_api.policies.AdmissionPolicy`."""
        del params
        alive = [one for one in standing if end_s(one) > now_s]
        try:
            grid = grids.common([*alive, request])
        except InvalidValue as error:
            own = grids.common([request])
            return Verdict(AdmissionOutcome.REFUSED, AdmissionReason.CALENDARS, own, detail=str(error)), memory
        if end_s(request) <= now_s:
            return Verdict(AdmissionOutcome.REFUSED, AdmissionReason.OVER, grid), memory
        evaluator = Evaluator(self.kind, request, alive, pools, now_s, grid, memory)
        if not evaluator.resources:
            return Verdict(AdmissionOutcome.ADMITTED, AdmissionReason.NEEDS_NOTHING, grid), memory
        if missing := evaluator.missing():
            return Verdict(AdmissionOutcome.REFUSED, AdmissionReason.NO_POOL, grid, detail=missing), memory
        return evaluator.judged(), evaluator.sum_cache.memory()

    def figures(
        self,
        standing: Sequence[Standing],
        pools: Sequence[Pool],
        from_s: float,
        params: Mapping[str, Any],
        memory: Any = None,
    ) -> tuple[tuple[Grid, tuple[SlotFigures, ...]], Any]:
        """See `shared.policy_api.policies.AdmissionPolicy`."""
        del params
        held = tuple(one for one in standing if one.reservation.start_s <= from_s < end_s(one))
        grid = grids.common(held) if held else Grid(Calendar.HOUR_OF_DAY, _HOUR_S)
        slots = slot_count(grid.calendar, grid.slot_s)
        sum_cache = StandingSums(self.kind, memory, grid, {pool.resource: pool.unit for pool in pools})
        kept, nowhere = sum_cache.of(held), np.zeros(slots, dtype=bool)
        found: Iterable[SlotFigures] = (
            one
            for pool in pools
            for one in figures_of(needs_of(kept, pool.resource, pool.units_at(from_s), nowhere), from_s)
        )
        return (grid, tuple(found)), sum_cache.memory()
