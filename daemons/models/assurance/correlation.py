"""How demands vary together, measured (section 3.2, eqs. 5 and 6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc  # type: ignore[import-untyped]  # scipy has no types of its own

from daemons.models.assurance.build import Series
from daemons.models.assurance.normality import jarque_bera
from shared.policy_api.snapshot import Floats, Ints

_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """Of the measured sum in each slot, float64[slots]: mean, variance (population), rho (eq. 5), the p-value of its
    normality (NaN: not tested), the p-value of the hypothesis that the variance is no larger than that of independent
    demands (NaN: not tested), and int64[slots]: of how many instances that at least half of the applications have."""

    mean: Floats
    variance: Floats
    rho: Floats
    normality_p: Floats
    independence_p: Floats
    instances: Ints

    @property
    def sd(self) -> Floats:
        """Standard deviation, float64[slots]."""
        return np.sqrt(self.variance)


def measure(observed: Series) -> Measured:
    """Return the moments of the sums of a series.

    rho is a ratio of sums with population moments. The numerator is the sum of the products of two applications'
    deviations over all pairs and instances in which both were observed. The denominator is the sum of the products of
    their standard deviations over the same. Without gaps that is eq. 5, and eq. 6 gives the variance of the measured
    sum; with gaps, `mean` and `variance` are the values of eqs. 1 and 6. The tests use the sums of the observed
    deviations, each divided by its expected standard deviation. NaN for a slot in which nothing was observed.
    """
    rows = [_slot(observed.demand[:, observed.slot == slot].astype(np.float64)) for slot in range(observed.slots)]
    mean, variance, rho, normal, independent, count = (np.array(column) for column in zip(*rows, strict=True))
    return Measured(mean, variance, rho, normal, independent, count.astype(np.int64))


def _slot(demand: Floats) -> tuple[float, float, float, float, float, int]:
    """Return one slot's columns of `Measured`, from float64[applications, instances], negative where nothing was
    observed."""
    known = demand >= 0.0
    counts = known.sum(axis=1)
    here = counts > 0
    if not here.any():
        return np.nan, np.nan, np.nan, np.nan, np.nan, 0
    demand, known, counts = demand[here], known[here], counts[here]
    means = np.where(known, demand, 0.0).sum(axis=1) / counts
    apart = np.where(known, demand - means[:, None], 0.0)
    variances = (apart**2).sum(axis=1) / counts
    alone, pairs = variances @ known, np.maximum((np.sqrt(variances) @ known) ** 2 - variances @ known, 0.0)
    together, most = float((apart.sum(axis=0) ** 2 - (apart**2).sum(axis=0)).sum()), float(pairs.sum())
    independent = float(variances.sum())
    rho = together / most if most > _ROUNDING * max(1.0, independent) else 0.0
    variance = float(variance_of_sum(independent, np.sqrt(variances).sum(), rho))
    tested = 2 * known.sum(axis=0) >= len(demand)
    tests = _tests(apart.sum(axis=0)[tested], alone[tested], (alone + rho * pairs)[tested])
    return float(means.sum()), variance, rho, *tests, int(tested.sum())


def _tests(apart: Floats, independent: Floats, correlated: Floats) -> tuple[float, float]:
    """P-values of normality and of independence, from the deviation of each sum, its variance if demands are
    independent, and with their correlation; NaN where there is nothing to test."""
    normal = independence = np.nan
    varies = correlated > _ROUNDING
    if varies.any():
        normal = jarque_bera(apart[varies] / np.sqrt(correlated[varies]))[1]
    varies = independent > _ROUNDING
    if varies.sum() > 1:
        statistic = float((apart[varies] ** 2 / independent[varies]).sum())
        independence = float(chdtrc(int(varies.sum()) - 1, statistic))
    return normal, independence


def variance_of_sum(variance_sum: Floats | float, sd_sum: Floats | float, rho: Floats | float) -> Floats:
    """Variance of the sum if all pairs are correlated by rho (eq. 6), from the sums of variances and of standard
    deviations; 0 where so little is left of them that it is rounding."""
    pairs = pair_variance(variance_sum, sd_sum)
    found = np.asarray(variance_sum + rho * pairs)
    return np.where(found > _ROUNDING * (variance_sum + pairs), found, 0.0)


def pair_variance(variance_sum: Floats | float, sd_sum: Floats | float) -> Floats:
    """Return 2 sum over pairs of sd_a sd_b, from the sums of variances and of standard deviations."""
    return np.maximum(np.asarray(sd_sum) ** 2 - variance_sum, 0.0)
