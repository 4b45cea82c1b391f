"""Jobs drawn from a profile of arrivals and service times (batch-provisioning.txt section 5.1.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daemons.models.span_polynomial import SpanPolynomial
from shared.base.errors import InvalidValue

Floats = NDArray[np.float64]
JOBS_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class DrawnJobs:
    """One entry per job, in order of arrival: seconds since the begin, and the time it runs at full speed."""

    arrivals_s: Floats
    services_s: Floats


def draw_jobs(
    mean_s: float,
    profile: Sequence[float],
    duration_s: float,
    service_s: float,
    exponential: bool,
    rng: np.random.Generator,
) -> DrawnJobs:
    """Draw a Poisson process of rate 1 / (mean_s a(x)) for 0 <= x < duration_s, a(x) = c0 + c1 x + c2 x^2 ... being the
    profile, and service times of mean `service_s`, exponential or all equal.

    Exact: candidates at the highest rate are kept in proportion to the rate at their moment. O(candidates). Raises
    `InvalidValue` for a profile that is not above 0 everywhere, or that would produce more than `JOBS_MAX` jobs.
    """
    try:
        interval = SpanPolynomial.of(profile or [1.0], duration_s)
    except InvalidValue as error:
        raise InvalidValue("arrivals.profile", error.got, error.expected) from error
    _, least = interval.lowest()
    if not least > 0.0:
        raise InvalidValue("arrivals.profile", least, f"above 0 from 0 to {duration_s:g} s")
    if duration_s > JOBS_MAX * (mean_s * least):
        raise InvalidValue("arrivals.mean_s", mean_s, f"at most {JOBS_MAX} jobs in {duration_s:g} s")
    rate_max = 1.0 / (mean_s * least)
    times_s = np.sort(rng.uniform(0.0, duration_s, rng.poisson(rate_max * duration_s)))
    kept_s = times_s[rng.uniform(0.0, 1.0, times_s.size) * interval(times_s) <= least]
    services_s = rng.exponential(service_s, kept_s.size) if exponential else np.full(kept_s.size, service_s)
    return DrawnJobs(kept_s, services_s)
