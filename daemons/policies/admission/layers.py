"""What a reservation asks of each class of service: its demand cut into the layers of its shares (section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from daemons.models.assurance.profile import Profile, from_demand
from daemons.policies.admission.grid import rows
from shared.policy_api.admission import Grid, Standing
from shared.policy_api.snapshot import Bools, Floats, Ints
from shared.values.reservation import Reservation, ResourceDemand, ServiceClass

_ROUNDING = 1e-9  # of a unit


@dataclass(frozen=True, slots=True, eq=False)
class Layers:
    """Of one resource, on a grid: guaranteed int64[slots], the peaks of what is guaranteed; predictable: for each theta
    the distribution of what is asked for with it."""

    guaranteed: Ints
    predictable: Mapping[float, Profile]

    def asking(self) -> Bools:
        """Return the slots in which any units are reserved, bool[slots]."""
        found = self.guaranteed > 0
        for profile in self.predictable.values():
            found |= profile.peaks() > 0
        return found


def bounds(reservation: Reservation, demand: ResourceDemand) -> tuple[int, ...]:
    """Return the units at which the shares of a demand begin and end, at most its peak: 0, the end of the first, and so
    on."""
    peak, ends = demand.peak, [0]
    sizes: tuple[int | None, ...] = demand.layers or tuple(share.units for share in reservation.shares)
    for units in sizes:
        ends.append(peak if units is None else min(peak, ends[-1] + units))
    return tuple(ends)


def reserved(reservation: Reservation, demand: ResourceDemand) -> int:
    """Return the number of units, from the first on, that cover all shares with a guarantee or a service
    probability."""
    ends = bounds(reservation, demand)
    promising = [
        end
        for share, (start, end) in zip(reservation.shares, pairwise(ends), strict=True)
        if share.service_class is not ServiceClass.BEST_EFFORT and end > start
    ]
    return max(promising, default=0)


def layers(one: Standing, grid: Grid, units: Mapping[str, float], cut: int | None = None) -> dict[str, Layers]:
    """Return the layers that a reservation requests, by resource; of its first `cut` units alone if that is given.
    units: the size of the pool's units of each resource, in which the layers are expressed, rounded up."""
    which = rows(one, grid)
    return {
        demand.resource: _of(one.reservation, demand, which, units.get(demand.resource, demand.unit), cut)
        for demand in one.reservation.demands
    }


def _of(reservation: Reservation, demand: ResourceDemand, which: Ints, unit: float, cut: int | None) -> Layers:
    profile = from_demand(demand)
    values = np.arange(profile.units + 1)
    if cut is not None:
        values = np.minimum(values, cut)
    guaranteed, predictable = np.zeros_like(values), dict[float, Ints]()
    for share, (start, end) in zip(reservation.shares, pairwise(bounds(reservation, demand)), strict=True):
        part = np.clip(values, start, end) - start
        if share.service_class is ServiceClass.GUARANTEED:
            guaranteed = guaranteed + part
        elif share.service_class is ServiceClass.PREDICTABLE:
            predictable[share.theta] = predictable.get(share.theta, np.zeros_like(values)) + part
    ratio = demand.unit / unit
    peaks = _resized(guaranteed, ratio)[profile.peaks()][which]
    found = {
        theta: _mapped(profile, _resized(part, ratio), which, unit)
        for theta, part in predictable.items()
        if part[-1] > 0
    }
    return Layers(peaks, found)


def _resized(values: Ints, ratio: float) -> Ints:
    """Convert the values to units of another size."""
    return values if ratio == 1.0 else np.ceil(values * ratio - _ROUNDING).astype(np.int64)


def _mapped(profile: Profile, values: Ints, which: Ints, unit: float) -> Profile:
    """Return the distribution of values[demand], `values` never falling, in the slots `which`."""
    pmf: Floats = np.zeros((profile.slots, int(values[-1]) + 1))
    np.add.at(pmf.T, values, profile.pmf.T)
    return Profile(pmf[which], profile.observations[which], profile.resource, unit)


def shortened(reservation: Reservation, cuts: Mapping[str, int]) -> Reservation:
    """Return the same reservation with shares of the first cuts[resource] units alone; the rest is best effort."""
    demands = []
    for demand in reservation.demands:
        cut = cuts.get(demand.resource, demand.peak)
        ends = bounds(reservation, demand)
        sizes = tuple(min(end, cut) - min(start, cut) for start, end in pairwise(ends))
        demands.append(replace(demand, layers=sizes))
    return replace(reservation, demands=tuple(demands))
