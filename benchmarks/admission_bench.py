"""Admission: the 1,001st reservation beside 1,000, with all of a verdict's numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from benchmarks.runner import Figure, cpu_time_s
from daemons.models.assurance.profile import Profile, to_demand
from daemons.policies.admission.peak import Peak
from daemons.policies.admission.statistical import Statistical
from shared.base.errors import ContractViolation
from shared.policy_api.admission import AdmissionOutcome, Pool, PoolStep, Standing
from shared.policy_api.policies import AdmissionPolicy
from shared.values.reservation import Calendar, Reservation, ServiceClass, Share

ROUNDS = 7
STANDING, WEEK, UNITS_MAX = 1_000, 168, 8
SHARES = (Share(ServiceClass.GUARANTEED, 1), Share(ServiceClass.PREDICTABLE, None, 0.999))


def figures(say: Callable[[str], None]) -> Iterator[Figure]:
    """CPU time of one core."""
    say(f"a reservation beside {STANDING} of {WEEK} slots")
    *standing, last = _reservations()
    for policy in (Statistical(), Peak()):
        yield from _of(policy, standing, last)


def _of(policy: AdmissionPolicy, standing: list[Standing], last: Standing) -> Iterator[Figure]:
    bench = f"admission, {policy.name}"
    requests = [replace(last, reservation=replace(last.reservation, name=f"r{at}")) for at in range(ROUNDS)]
    ample = Pool("servers", (PoolStep(0.0, (UNITS_MAX + 1) * STANDING),))
    (_, figures_now), known = policy.figures(standing, [ample], 0.0, {}, None)
    tight = Pool("servers", (PoolStep(0.0, max(one.needed for one in figures_now) + 1),))

    def taken_ms(pool: Pool, expected: AdmissionOutcome, memory: Any) -> float:
        return (
            median(cpu_time_s(partial(_asked, policy, one, standing, pool, expected, memory)) for one in requests) * 1e3
        )

    once_s = cpu_time_s(partial(_asked, policy, last, standing, ample, AdmissionOutcome.ADMITTED, None))
    yield Figure(bench, "naive: the sums of all of them anew", once_s * 1e3, "ms")
    yield Figure(bench, "the 1,001st, admitted", taken_ms(ample, AdmissionOutcome.ADMITTED, known), "ms", most=50.0)
    refused_ms = taken_ms(tight, AdmissionOutcome.OFFERED, known)
    yield Figure(bench, "the 1,001st, not as a whole: with the largest share and the first start", refused_ms, "ms")


def _asked(
    policy: AdmissionPolicy,
    request: Standing,
    standing: list[Standing],
    pool: Pool,
    expected: AdmissionOutcome,
    memory: Any,
) -> None:
    verdict, _ = policy.admit(request, standing, [pool], 0.0, {}, memory)
    if verdict.outcome is not expected:
        raise ContractViolation(f"{verdict.outcome} instead of {expected}: {verdict.binding}")


def _reservations() -> list[Standing]:
    rng = np.random.default_rng(8)
    none = np.zeros(WEEK, dtype=np.int64)
    found = []
    for number in range(STANDING + 1):
        size = int(rng.integers(2, UNITS_MAX + 2))
        demand = to_demand(Profile(rng.dirichlet(np.full(size, 0.5), WEEK), none))
        calendar = Calendar.HOUR_OF_WEEK
        reservation = Reservation(f"a{number}", (demand,), SHARES, calendar=calendar)
        days = int(rng.integers(0, 200)) if number < STANDING else 0
        found.append(Standing(reservation, coupling=0.05, observations=days))
    return found
