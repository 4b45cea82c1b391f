"""Demand profiles from observations (sections 6.1 and 6.2): one demand per application and slot instance, the largest
of its samples, and the frequencies of these in each slot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daemons.models.assurance.calendar import THURSDAY, instance_of, slot_count, slot_of_instance
from daemons.models.assurance.migration import Demand, with_migration
from daemons.models.assurance.profile import CELLS_MAX, Profile
from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Floats, Ints
from shared.values.reservation import DEMAND_MAX, Calendar

Whole = NDArray[np.integer[Any]]  # int32 or int64
UNOBSERVED = -1
INSTANCES_MAX = 10_000_000  # between the first and the last
DENSE_MAX = 1 << 29  # demands, applications x instances
_AT_ONCE = 1 << 21  # samples
_STEPS = 1_000_000  # of one percent, and of 1: utilisation is taken to six decimals
_TIMES_MAX_S = 1e12


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """demand: int32[applications, instances], `UNOBSERVED` where there is none. instance: int64[instances], ascending
    numbers of the slot instances that any application has; slot: int64[instances], the slot of each, of `slots`."""

    demand: Demand
    instance: Ints
    slot: Ints
    slots: int

    def with_migration(self) -> Series:
        """Return the demands after the migration rule; instances that no application was observed in are skipped."""
        return replace(self, demand=with_migration(self.demand))

    def between(self, first: int, last: int) -> Series:
        """Return the instances numbered `first` .. `last` - 1."""
        kept = slice(*np.searchsorted(self.instance, (first, last)).tolist())
        return replace(self, demand=self.demand[:, kept], instance=self.instance[kept], slot=self.slot[kept])

    @property
    def missing(self) -> int:
        """How many demands of an application in an instance were not observed."""
        return int((self.demand < 0).sum())


def needed_units(utilisation_percent: Floats, cpus: Ints, target: float) -> Ints:
    """Return k = max(1, ceil(U cpus / target)) as int64 (section 6.1), computed in whole numbers: floating point errs
    for targets of 0.3, 0.6 or 0.8. Utilisation in percent of `cpus` and `target` (above 0, at most 1) count to six
    decimals.

    Raises `InvalidValue` for a utilisation that is negative, not finite or above 10,000 %, or cpus below 0.
    """
    if not 1.0 / _STEPS <= target <= 1.0:
        raise InvalidValue("target", target, "above 0, at most 1")
    percent, count = np.asarray(utilisation_percent, dtype=np.float64), np.asarray(cpus, dtype=np.int64)
    if not ((percent >= 0.0) & (percent <= 10_000.0)).all():
        raise InvalidValue("utilisation_percent", "outside its range", "numbers from 0 to 10,000")
    if count.size and not (count.min() >= 0 and count.max() <= DEMAND_MAX):
        raise InvalidValue("cpus", "outside its range", f"whole numbers from 0 to {DEMAND_MAX}")
    used = np.rint(percent * _STEPS).astype(np.int64) * count
    units: Ints = np.maximum(1, -(-used // (100 * round(target * _STEPS))))
    return units


def series(
    local_s: Floats,
    application: Whole,
    units: Whole,
    applications: int,
    calendar: Calendar = Calendar.HOUR_OF_DAY,
    slot_s: float = 3_600.0,
    weekday: int = THURSDAY,
    at_once: int = _AT_ONCE,
) -> Series:
    """Return one demand per application and slot instance, from samples in any order: local seconds since the midnight
    of a day that is `weekday` (0 Monday), the number of the application (0 .. applications - 1) and its demand. Samples
    are processed `at_once` at a time, which bounds the memory needed besides the arrays given.

    Raises `InvalidValue` for a time that is not finite or beyond 1e12 s, an application or demand out of range, or a
    span of more than 10,000,000 instances.
    """
    slots = slot_count(calendar, slot_s)
    local_s, application, units = np.asarray(local_s, np.float64), np.asarray(application), np.asarray(units)
    _check(local_s, application, units, applications)
    if not local_s.size:
        none = np.empty(0, dtype=np.int64)
        return Series(np.empty((applications, 0), dtype=np.int32), none, none, slots)
    first, last = (int(instance_of(np.array(edge), slot_s)) for edge in (local_s.min(), local_s.max()))
    span = last - first + 1
    if span > INSTANCES_MAX or span * applications > DENSE_MAX:
        raise InvalidValue("local_s", f"{span} slots", f"at most {min(INSTANCES_MAX, DENSE_MAX // applications)}")
    demand = np.full(applications * span, UNOBSERVED, dtype=np.int32)
    for at in range(0, local_s.size, at_once):
        part = slice(at, at + at_once)
        key = application[part].astype(np.int64) * span + (instance_of(local_s[part], slot_s) - first)
        np.maximum.at(demand, key, units[part].astype(np.int32))
    table = demand.reshape(applications, span)
    seen = np.flatnonzero((table >= 0).any(axis=0))
    instance = seen + first
    kept = table if seen.size == span else table[:, seen]
    return Series(kept, instance, slot_of_instance(instance, calendar, slot_s, weekday), slots)


def _check(local_s: Floats, application: Whole, units: Whole, applications: int) -> None:
    if not local_s.shape == application.shape == units.shape or local_s.ndim != 1:
        raise InvalidValue("samples", (local_s.shape, application.shape, units.shape), "three columns of one length")
    if not local_s.size:
        return
    if not (local_s.min() >= -_TIMES_MAX_S and local_s.max() <= _TIMES_MAX_S):  # NaN is neither
        raise InvalidValue("local_s", "outside its range", f"finite seconds, at most {_TIMES_MAX_S:g} from 0")
    if application.min() < 0 or application.max() >= applications:
        raise InvalidValue("application", int(application.max()), f"0 to {applications - 1}")
    if not (units.min() >= 0 and units.max() <= DEMAND_MAX):
        raise InvalidValue("units", float(units.min()), f"demands from 0 to {DEMAND_MAX}")


def profile_of(
    demand: Demand, slot: Ints, slots: int, resource: str = "servers", unit: float = 1.0
) -> tuple[Profile, int]:
    """Return the profile of one application from its demands int[instances] (negative: not observed), and the number of
    slots in which it was never observed. In those slots it is assumed to need its peak, with 0 observations, so the
    service level is never overstated.

    Raises `InvalidValue` if there is no observation at all, or slots x units exceed 2^25.
    """
    known = demand >= 0
    if not known.any():
        raise InvalidValue("demand", "no observation", "at least one for every application")
    values, where = np.asarray(demand[known], dtype=np.int64), slot[known]
    width = int(values.max()) + 1
    if width * slots > CELLS_MAX:
        raise InvalidValue(
            "demand", width - 1, f"at most {CELLS_MAX // slots - 1} units in {slots} slots: a larger unit"
        )
    counts = np.bincount(where * width + values, minlength=slots * width).reshape(slots, width).astype(np.float64)
    observations = counts.sum(axis=1)
    empty = observations == 0.0
    counts[empty, -1] = 1.0
    pmf = counts / np.where(empty, 1.0, observations)[:, None]
    return Profile(pmf, observations.astype(np.int64), resource, unit), int(empty.sum())


def profiles(observed: Series, resource: str = "servers", unit: float = 1.0) -> list[Profile]:
    """Return the profile of each application of a series, see `profile_of`."""
    return [profile_of(row, observed.slot, observed.slots, resource, unit)[0] for row in observed.demand]
