"""What migrations took against what was forecast, so that the next forecast is better.

For each VM, and each class of VMs, the logarithm of measured over forecast duration is averaged with exponential
weights, the newest counting most. One that is far off what is usual counts as the edge of it only (Huber, Robust
Estimation of a Location Parameter, 1964): a migration that met a broken link must not spoil the next forecasts. A VM's
own average counts against that of its class like its number of measurements against `PRIOR`, and so does the class
against no correction at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

FACTOR_MAX = 8.0  # and 1 / 8: what is further off was something else
NEWEST = 0.3  # the weight of a new measurement, once there are enough
SPREAD_PRIOR = 0.2  # of the logarithm
USUAL = 2.0  # spreads
PRIOR = 1.0  # measurements
ENTRIES_MAX = 20_000  # of VMs and classes; those that have not migrated for longest are forgotten
FEWEST_S = 0.05  # shorter durations say nothing of a ratio


class LearnedRatio(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The logarithm of measured over forecast: average, spread around it, and of how many."""

    log_ratio: float = 0.0
    spread: float = SPREAD_PRIOR
    count: int = 0

    def with_measured(self, log_ratio: float) -> LearnedRatio:
        """Return it with one more."""
        if self.count == 0:
            return LearnedRatio(log_ratio, SPREAD_PRIOR, 1)
        most = USUAL * self.spread
        off = min(most, max(-most, log_ratio - self.log_ratio))
        weight = max(NEWEST, 1.0 / (self.count + 1))
        spread = math.sqrt((1.0 - weight) * self.spread**2 + weight * off**2 * (1.0 + 1.0 / USUAL**2))
        return LearnedRatio(self.log_ratio + weight * off, max(spread, SPREAD_PRIOR / 4.0), self.count + 1)


NOTHING = LearnedRatio()


@dataclass(frozen=True, slots=True)
class MigrationHistory:
    """What was learned: ratios by VM and by class of VMs."""

    vms: Mapping[str, LearnedRatio] = field(default_factory=dict)
    classes: Mapping[str, LearnedRatio] = field(default_factory=dict)

    def factor(self, vm: str, vm_class: str = "") -> float:
        """Return what to multiply a forecast duration of a VM with, from 1 / `FACTOR_MAX` to `FACTOR_MAX`; 1 while
        nothing is known."""
        of_class, own = self.classes.get(vm_class, NOTHING), self.vms.get(vm, NOTHING)
        base = of_class.log_ratio * of_class.count / (of_class.count + PRIOR)
        mixed = (own.log_ratio * own.count + base * PRIOR) / (own.count + PRIOR)
        return math.exp(min(math.log(FACTOR_MAX), max(-math.log(FACTOR_MAX), mixed)))

    def spread(self, vm: str, vm_class: str = "") -> float:
        """Return the usual deviation of the logarithm of a VM's corrected forecasts."""
        own, of_class = self.vms.get(vm, NOTHING), self.classes.get(vm_class, NOTHING)
        return own.spread if own.count >= of_class.count or own.count > 3 else of_class.spread

    def with_measured(self, vm: str, vm_class: str, forecast_s: float, measured_s: float) -> MigrationHistory:
        """Return the history with one more migration. `forecast_s` is the uncorrected forecast. Figures that say
        nothing (not finite, or below `FEWEST_S`) change nothing."""
        if not (FEWEST_S <= forecast_s < math.inf and FEWEST_S <= measured_s < math.inf):
            return self
        log_ratio = min(math.log(FACTOR_MAX), max(-math.log(FACTOR_MAX), math.log(measured_s / forecast_s)))
        classes = _with(self.classes, vm_class, log_ratio) if vm_class else self.classes
        return MigrationHistory(_with(self.vms, vm, log_ratio), classes)


def _with(known: Mapping[str, LearnedRatio], name: str, log_ratio: float) -> dict[str, LearnedRatio]:
    made = {each: ratio for each, ratio in known.items() if each != name}
    made[name] = known.get(name, NOTHING).with_measured(log_ratio)
    while len(made) > ENTRIES_MAX:
        del made[next(iter(made))]
    return made
