"""The utility's demand profile: the sum of the applications' demands in each slot (section 3.2), kept so that one more
application is cheap to add."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daemons.models.assurance import comonotone, convolution, normal_form
from daemons.models.assurance.correlation import pair_variance, variance_of_sum
from daemons.models.assurance.loss import gamma_of, theta_of
from daemons.models.assurance.profile import Profile
from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Utility:
    """The sum of `applications` demands for one resource in units of one size. pmf: float64[slots, n + 1], n at least
    the largest of `peaks`, if they are independent; worst_cdf: float64[slots, sum of units], F(0), F(1), ... if they
    vary together as much as can be; mean, variance_sum (sum of variances), sd_sum (sum of standard deviations):
    float64[slots]; peaks: int64[slots], the sum of the peaks, from which on all is served."""

    pmf: Floats
    worst_cdf: Floats
    mean: Floats
    variance_sum: Floats
    sd_sum: Floats
    peaks: Ints
    applications: int
    resource: str = "servers"
    unit: float = 1.0

    @property
    def slots(self) -> int:
        """How many slots there are."""
        return int(self.pmf.shape[0])

    def added(self, profile: Profile) -> Utility:
        """Return the sum with one more application. Raises `InvalidValue` if its calendar, resource or unit differs."""
        _check_alike(self, profile)
        variance = profile.variance()
        return Utility(
            convolution.convolved(self.pmf, profile.pmf),
            comonotone.merged(self.worst_cdf, comonotone.cdf_of(profile)),
            self.mean + profile.mean(),
            variance_sum=self.variance_sum + variance,
            sd_sum=self.sd_sum + np.sqrt(variance),
            peaks=self.peaks + profile.peaks(),
            applications=self.applications + 1,
            resource=self.resource,
            unit=self.unit,
        )

    def worst_pmf(self) -> Floats:
        """Return the distribution of the sum if the demands vary together as much as possible."""
        return comonotone.pmf_of(self.worst_cdf)

    def worst_rho(self) -> Floats:
        """Return rho (eq. 5) in the worst case; 0 if fewer than two demands vary."""
        pairs = pair_variance(self.variance_sum, self.sd_sum)
        together = comonotone.moments(self.worst_cdf)[1] - self.variance_sum
        varies = pairs > 1e-12 * np.maximum(1.0, self.variance_sum)
        return np.divide(together, pairs, out=np.zeros_like(pairs), where=varies)

    def sd(self, rho: Floats | float = 0.0) -> Floats:
        """Standard deviation of the sum if all pairs are correlated by rho (eq. 6); float64[slots]."""
        return np.sqrt(variance_of_sum(self.variance_sum, self.sd_sum, rho))

    def theta_independent(self, gamma: float | Floats) -> Floats:
        """Return the service probability of gamma units in each slot if demands are independent."""
        return theta_of(self.pmf, gamma)

    def theta_worst(self, gamma: float | Floats) -> Floats:
        """Return the service probability of gamma units in each slot if demands vary together as much as possible."""
        return theta_of(self.worst_pmf(), gamma)

    def theta_normal(self, gamma: float | Floats, rho: Floats | float = 0.0) -> Floats:
        """Return the service probability of gamma units by the normal form (eq. 8), with pairs correlated by rho."""
        return normal_form.theta(np.asarray(gamma), self.mean, self.sd(rho), self.peaks.astype(np.float64))

    def gamma_independent(self, theta: float) -> Ints:
        """Return the least units with a service probability of theta in each slot if demands are independent."""
        return gamma_of(self.pmf, theta, self.peaks)

    def gamma_worst(self, theta: float) -> Ints:
        """Return the least units with a service probability of theta if demands vary together as much as possible."""
        return gamma_of(self.worst_pmf(), theta, self.peaks)

    def gamma_normal(self, theta: float, rho: Floats | float = 0.0) -> Ints:
        """Return the least units with a service probability of theta by the normal form, with pairs correlated by rho;
        theta = 1: the sum of peaks."""
        return normal_form.gamma(theta, self.mean, self.sd(rho), self.peaks)


def empty(slots: int, resource: str = "servers", unit: float = 1.0) -> Utility:
    """Return the sum of no applications."""
    zeros = np.zeros(slots)
    none = np.zeros(slots, dtype=np.int64)
    return Utility(
        np.ones((slots, 1)),
        np.empty((slots, 0)),
        zeros,
        variance_sum=zeros,
        sd_sum=zeros,
        peaks=none,
        applications=0,
        resource=resource,
        unit=unit,
    )


def utility(profiles: Sequence[Profile]) -> Utility:
    """Return the sum of applications. Raises `InvalidValue` for an empty sequence (see `empty`), or if slots, resources
    or units differ."""
    if not profiles:
        raise InvalidValue("profiles", 0, "at least one application")
    for profile in profiles[1:]:
        _check_alike(profiles[0], profile)
    variances = np.stack([profile.variance() for profile in profiles])
    return Utility(
        convolution.of_profiles(profiles),
        comonotone.of_profiles(profiles),
        np.sum([profile.mean() for profile in profiles], axis=0),
        variance_sum=variances.sum(axis=0),
        sd_sum=np.sqrt(variances).sum(axis=0),
        peaks=np.sum([profile.peaks() for profile in profiles], axis=0),
        applications=len(profiles),
        resource=profiles[0].resource,
        unit=profiles[0].unit,
    )


def _check_alike(one: Utility | Profile, other: Profile) -> None:
    if one.slots != other.slots:
        raise InvalidValue("slots", other.slots, f"{one.slots}, as the others have")
    if (one.resource, one.unit) != (other.resource, other.unit):
        raise InvalidValue("resource", f"{other.resource} of {other.unit:g}", f"{one.resource} of {one.unit:g}")
