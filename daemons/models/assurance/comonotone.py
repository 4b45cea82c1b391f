"""The worst case of dependence (section 3.2, "worst-case bound"), in closed form.

Of all joint distributions with given marginals the one that indexes every application by the same uniform number has
the largest covariance for all pairs at once (Hoeffding, 1940; Frechet, 1951), so that no linear program is needed. A
whole demand is the number of those k whose F(k) lies below the number, so the sum is the number of all F_a(k), of all
applications together, below it: the distribution function of the sum is the sorted list of all these F_a(k).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daemons.models.assurance.profile import Profile
from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Floats


def cdf_of(profile: Profile) -> Floats:
    """F(0) .. F(units - 1), float64[slots, units]; F is 1 from the peak on."""
    cdf: Floats = np.minimum(np.cumsum(profile.pmf[:, :-1], axis=1), 1.0)
    beyond = np.arange(profile.units) >= profile.peaks()[:, None]
    cdf[beyond] = 1.0
    return cdf


def merged(one: Floats, other: Floats) -> Floats:
    """Return the distribution function of the sum of two demands (or sums) in the worst case, from the distribution
    function of each."""
    return np.sort(np.concatenate([one, other], axis=-1), axis=-1, kind="stable")


def of_profiles(profiles: Sequence[Profile]) -> Floats:
    """F(0) .. F(units - 1) of the sum, float64[slots, units]. Raises `InvalidValue` for no profile at all."""
    if not profiles:
        raise InvalidValue("profiles", 0, "at least one application")
    return np.sort(np.concatenate([cdf_of(profile) for profile in profiles], axis=-1), axis=-1)


def pmf_of(cdf: Floats) -> Floats:
    """Probabilities of 0 .. units from F(0) .. F(units - 1)."""
    return np.diff(cdf, axis=-1, prepend=0.0, append=1.0)


def moments(cdf: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of each row."""
    pmf = pmf_of(cdf)
    values = np.arange(pmf.shape[-1], dtype=np.float64)
    mean: Floats = pmf @ values
    variance: Floats = (pmf * (values - mean[..., None]) ** 2).sum(axis=-1)
    return mean, variance


def covariance_max(one: Profile, other: Profile) -> Floats:
    """Return the largest covariance of two demands in each slot, float64[slots]."""
    both = moments(merged(cdf_of(one), cdf_of(other)))[1]
    return np.maximum((both - one.variance() - other.variance()) / 2.0, 0.0)
