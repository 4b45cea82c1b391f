"""Arrivals that follow a declared rate at random: what exact models are compared with."""

from __future__ import annotations

import numpy as np

from daemons.capacity.provisioning.arrivals import ArrivalProcess, Floats, _expected
from daemons.capacity.provisioning.file import Scenario
from daemons.models.span_polynomial import SpanPolynomial


def poisson_arrivals(scenario: Scenario) -> ArrivalProcess:
    """A Poisson process of rate 1 / (mean_s a(x)), by thinning one of the highest rate."""
    mean_s, end_s, interval_s = scenario.arrivals.mean_s, scenario.submission_end_s, scenario.period.interval_s
    _, least = SpanPolynomial.of(scenario.arrivals.profile, end_s).lowest()

    def draw(rng: np.random.Generator, runs: int) -> Floats:
        count = rng.poisson(end_s / (mean_s * least), runs)
        most = int(count.max(initial=0))
        at_s = rng.random((runs, most)) * end_s
        kept = rng.random((runs, most)) * scenario.gap_factor(at_s) < least
        kept &= np.arange(most) < count[:, None]
        at_s[~kept] = np.inf
        at_s.sort(axis=1)
        return at_s[:, : int(kept.sum(axis=1).max(initial=0))] / interval_s

    return ArrivalProcess(draw, _expected(scenario))
