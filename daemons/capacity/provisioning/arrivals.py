"""When jobs arrive in a simulated period with a deadline: many runs at once, in intervals from its begin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daemons.capacity.provisioning.file import Scenario, expected_arrivals

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]


@dataclass(frozen=True, slots=True)
class ArrivalProcess:
    """Arrivals up to the end of submission, of mean gap mean_s a(x).

    draw: of a generator and a number of runs, float64[runs, k], the times in intervals of each run, ascending, with
    infinity after the last one. expected: about how many there are.
    """

    draw: Draw
    expected: float


def thesis_arrivals(scenario: Scenario, begin: float = 0.0) -> ArrivalProcess:
    """Return arrivals by next = x + z a(x), z exponential, x the arrival before (`begin`, in intervals, at first); the
    first one after the end of submission and all later ones do not count (batch-provisioning.txt section 5.1.1)."""
    mean_s, end_s, interval_s = scenario.arrivals.mean_s, scenario.submission_end_s, scenario.period.interval_s

    def draw(rng: np.random.Generator, runs: int) -> Floats:
        at_s = np.full(runs, begin * interval_s)
        found: list[Floats] = []
        while at_s.size and np.isfinite(at_s).any():
            known = np.isfinite(at_s)
            factor = scenario.gap_factor(np.where(known, at_s, 0.0))
            at_s = np.where(known, at_s + rng.exponential(mean_s, runs) * factor, np.inf)
            at_s[at_s > end_s] = np.inf
            found.append(at_s)
        return np.column_stack(found) / interval_s if found else np.full((runs, 0), np.inf)

    return ArrivalProcess(draw, _expected(scenario))


def _expected(scenario: Scenario) -> float:
    arrivals, period = scenario.arrivals, scenario.period
    return expected_arrivals(arrivals.profile, arrivals.mean_s, period.interval_s, period.submission_end)
