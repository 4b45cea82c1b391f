"""Which reckoning of the assurance is used in which slot."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from daemons.models.assurance import comonotone, normality
from daemons.models.assurance.aggregate import Utility
from daemons.models.assurance.correlation import Measured
from daemons.models.assurance.loss import theta_at_least, theta_of
from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Bools, Floats, Ints

CORRELATED = 0.05  # chance over all slots together to take independent demands for correlated ones


class Method(StrEnum):
    """How the distribution of the sum is had."""

    AUTO = "auto"
    CONVOLUTION = "convolution"  # exact for independent demands
    NORMAL = "normal"  # eq. 8 with the measured correlation
    WORST_CASE = "worst-case"  # comonotone
    MIXTURE = "mixture"  # of the first and the third, as much of each as gives the measured variance


@dataclass(frozen=True, slots=True, eq=False)
class Assurance:
    """The assurance of a utility's slots by the methods chosen. methods: one for each slot, none of them auto; rho:
    float64[slots], what the normal form and the mixture take; rejected: bool[slots], where the normal form was asked
    for and normality is rejected; weight: float64[slots], how much of the mixture is the worst case."""

    utility: Utility
    methods: tuple[Method, ...]
    rho: Floats
    rejected: Bools
    weight: Floats

    def theta(self, gamma: float | Floats) -> Floats:
        """Return the part of the demand that is served on average with gamma units (one number, or one for each
        slot)."""
        units = np.broadcast_to(np.asarray(gamma, dtype=np.float64), (self.utility.slots,))
        found = np.empty(self.utility.slots)
        for method, rows in self._rows().items():
            if method is Method.NORMAL:
                found[rows] = self.utility.theta_normal(units, self.rho)[rows]
                continue
            apart = together = np.zeros(0)
            if method is not Method.WORST_CASE:
                found[rows] = apart = theta_of(self.utility.pmf[rows], units[rows])
            if method is not Method.CONVOLUTION:
                worst = comonotone.pmf_of(self.utility.worst_cdf[rows])
                found[rows] = together = theta_of(worst, units[rows])
            if method is Method.MIXTURE:
                found[rows] = (1.0 - self.weight[rows]) * apart + self.weight[rows] * together
        return found

    def gamma(self, theta: float) -> Ints:
        """Return the least whole units of each slot with a service probability of theta (0 < theta <= 1; 1: the sum of
        peaks)."""
        return theta_at_least(theta, self.utility.peaks, lambda units: self.theta(units.astype(np.float64)))

    def _rows(self) -> dict[Method, NDArray[np.int64]]:
        names = np.array([method.value for method in self.methods])
        return {method: np.flatnonzero(names == method.value) for method in Method if method.value in names}


def assurance(utility: Utility, measured: Measured | None = None, method: Method = Method.AUTO) -> Assurance:
    """Return the service probability by one method for all slots, or by the automatic choice for each slot:

    convolution if independence is not rejected; else the normal form with the measured rho, if the measured sums do not
    reject it; else the mixture. Without measurements of how demands vary together: the worst case.

    Raises `InvalidValue` for the normal form or the mixture without measurements.
    """
    slots = utility.slots
    if measured is None:
        if method in (Method.NORMAL, Method.MIXTURE):
            raise InvalidValue("method", method.value, "auto, convolution or worst-case: no correlation was measured")
        chosen = Method.WORST_CASE if method is Method.AUTO else method
        return Assurance(
            utility, (chosen,) * slots, np.full(slots, np.nan), np.zeros(slots, dtype=bool), np.zeros(slots)
        )
    rho = np.where(np.isnan(measured.rho), 0.0, measured.rho)
    not_normal = measured.normality_p < normality.LEVEL
    if method is not Method.AUTO:
        rejected = not_normal if method is Method.NORMAL else np.zeros(slots, dtype=bool)
        return Assurance(utility, (method,) * slots, rho, rejected, _weight(utility, rho))
    methods = tuple(_chosen(utility, measured, slot) for slot in range(slots))
    return Assurance(utility, methods, rho, np.zeros(slots, dtype=bool), _weight(utility, rho))


def _chosen(utility: Utility, measured: Measured, slot: int) -> Method:
    if utility.applications < 2 or utility.variance_sum[slot] == 0.0:
        return Method.CONVOLUTION  # nothing that could vary together
    p = measured.independence_p[slot]
    if np.isnan(p):
        return Method.WORST_CASE
    if p >= CORRELATED / utility.slots:
        return Method.CONVOLUTION
    normal_p = measured.normality_p[slot]
    return Method.MIXTURE if np.isnan(normal_p) or normal_p < normality.LEVEL else Method.NORMAL


def _weight(utility: Utility, rho: Floats) -> Floats:
    """Return the measured part of the worst-case rho, 0..1."""
    most = utility.worst_rho()
    return np.clip(np.divide(rho, most, out=np.zeros_like(most), where=most > 0.0), 0.0, 1.0)
