"""The demand profile of one application for one resource: a probability mass function per slot (section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Floats, Ints
from shared.values.reservation import DEMAND_MAX, SLOTS_MAX, SUM_ERROR_MAX, ResourceDemand, SlotDemand

CELLS_MAX = 1 << 25  # of one profile: 256 MiB


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """pmf: float64[slots, units + 1], probabilities of 0 .. units, scaled to sum to 1 in each row; observations:
    int64[slots], of how many slot instances each row is made (0: declared or assumed). `unit`: of what size one unit
    is, in whole servers, MHz or MiB. The arrays are read-only.

    Raises `InvalidValue` for probabilities that are negative, not finite, or do not sum to 1 within 1e-6."""

    pmf: Floats
    observations: Ints
    resource: str = "servers"
    unit: float = 1.0

    def __post_init__(self) -> None:
        pmf, observations = np.array(self.pmf, dtype=np.float64), np.array(self.observations, dtype=np.int64)
        if pmf.ndim != 2 or not 1 <= pmf.shape[0] <= SLOTS_MAX or not 1 <= pmf.shape[1] <= DEMAND_MAX + 1:
            raise InvalidValue("pmf", pmf.shape, f"1 to {SLOTS_MAX} slots of 0 to {DEMAND_MAX} units")
        if pmf.size > CELLS_MAX:
            raise InvalidValue("pmf", pmf.shape, f"at most {CELLS_MAX} probabilities: a larger unit or longer slots")
        if observations.shape != pmf.shape[:1] or (observations < 0).any():
            raise InvalidValue("observations", observations.shape, f"{pmf.shape[0]} numbers, 0 or above")
        totals = pmf.sum(axis=1)
        if not (np.isfinite(pmf).all() and (pmf >= 0.0).all() and (np.abs(totals - 1.0) <= SUM_ERROR_MAX).all()):
            raise InvalidValue("pmf", float(totals[np.abs(totals - 1.0).argmax()]), "probabilities that sum to 1")
        if not (np.isfinite(self.unit) and self.unit > 0.0):
            raise InvalidValue("unit", self.unit, "a finite number above 0")
        pmf /= totals[:, None]
        pmf.flags.writeable = observations.flags.writeable = False
        object.__setattr__(self, "pmf", pmf)
        object.__setattr__(self, "observations", observations)

    @property
    def slots(self) -> int:
        """How many slots there are."""
        return int(self.pmf.shape[0])

    @property
    def units(self) -> int:
        """The largest demand that the array has room for."""
        return int(self.pmf.shape[1]) - 1

    def mean(self) -> Floats:
        """Return the mean, float64[slots], units."""
        mean: Floats = self.pmf @ np.arange(self.units + 1.0)
        return mean

    def variance(self) -> Floats:
        """Return the population variance, float64[slots], units squared."""
        apart = np.arange(self.units + 1.0) - self.mean()[:, None]
        variance: Floats = (self.pmf * apart**2).sum(axis=1)
        return variance

    def peaks(self) -> Ints:
        """Return the largest demand with a probability above 0; int64[slots]."""
        peaks: Ints = self.units - np.argmax(self.pmf[:, ::-1] > 0.0, axis=1)
        return peaks

    def layer(self, lower: int, upper: int | None = None) -> Profile:
        """Return the part of the demand above `lower` units, up to `upper` (None: all of it): the demand that a share
        covers."""
        top = self.units if upper is None else upper
        if not 0 <= lower <= top:
            raise InvalidValue("lower", lower, f"0 to {top}")
        values = np.clip(np.arange(self.units + 1), lower, top) - lower
        pmf = np.zeros((self.slots, int(values[-1]) + 1))
        np.add.at(pmf.T, values, self.pmf.T)
        return Profile(pmf, self.observations, self.resource, self.unit)


def from_demand(demand: ResourceDemand) -> Profile:
    """Return the profile of the demand that a reservation announces."""
    width = max(len(slot.probabilities) for slot in demand.slots)
    pmf = np.zeros((len(demand.slots), width))
    for row, slot in zip(pmf, demand.slots, strict=True):
        row[: len(slot.probabilities)] = slot.probabilities
    observations = np.array([slot.observations for slot in demand.slots], dtype=np.int64)
    return Profile(pmf, observations, demand.resource, demand.unit)


def to_demand(profile: Profile) -> ResourceDemand:
    """Return a profile as the demand that a reservation announces; each slot up to its own peak."""
    slots = (
        SlotDemand(tuple(map(float, row[: peak + 1])), int(count))
        for row, peak, count in zip(profile.pmf, profile.peaks(), profile.observations, strict=True)
    )
    return ResourceDemand(profile.resource, tuple(slots), profile.unit)
