"""What every admission policy must do: run each of `CHECKS` on an instance, with a seed.

A check that fails raises `ContractViolation` with the broken rule, the seed and the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shared.base.errors import ContractViolation, InvalidInput
from shared.policy_api.admission import AdmissionOutcome, AdmissionReason, Pool, PoolStep, Standing, Verdict
from shared.policy_api.policies import AdmissionPolicy
from shared.values.reservation import Calendar, Reservation, ResourceDemand, ServiceClass, Share, SlotDemand

_CASES = 12
_SLOT_S = 21_600.0  # four slots in a day
_DAY_S = 86_400.0
_NOW_S = 2 * _DAY_S


@dataclass(frozen=True, slots=True)
class Case:
    """A request beside what stands."""

    request: Standing
    standing: tuple[Standing, ...]
    pools: tuple[Pool, ...]


@dataclass(frozen=True, slots=True)
class AdmissionSubject:
    """A policy under test, with the seed of the cases."""

    policy: AdmissionPolicy
    seed: int = 0

    def cases(self) -> Iterator[Case]:
        """Random ones, the same for the same seed: calendars, time zones, classes, one resource or two, reservations
        of the past, of now and of the future, pools that change, from far too small to ample."""
        rng = np.random.default_rng(self.seed)
        for number in range(_CASES):
            standing = tuple(_standing(rng, f"s{number}-{at}") for at in range(int(rng.integers(5))))
            yield Case(_standing(rng, "request"), standing, (_pool(rng, "servers"), _pool(rng, "memory")))

    def admit(self, case: Case, memory: Any = None) -> Verdict:
        """Return one verdict. Raise ContractViolation if the policy raises anything."""
        return self.ask(case, memory)[0]

    def ask(self, case: Case, memory: Any = None) -> tuple[Verdict, Any]:
        """Return one verdict and the policy's new memory. Raise ContractViolation if the policy raises anything."""
        try:
            return self.policy.admit(case.request, case.standing, case.pools, _NOW_S, {}, memory)
        except Exception as error:
            raise ContractViolation(f"{self.policy.name}: raises {error!r} for {case}") from error

    def expect(self, holds: bool, rule: str, case: Case | None = None) -> None:
        """Raise `ContractViolation` unless the rule holds."""
        if not holds:
            raise ContractViolation(f"{self.policy.name}, seed {self.seed}: {rule}; it saw {case}")


Check = Callable[[AdmissionSubject], None]


def _demand(rng: np.random.Generator, resource: str, slots: int) -> ResourceDemand:
    peak = int(rng.choice([0, 2, 5, 9]))
    rows = rng.dirichlet(np.ones(peak + 1), size=slots)
    return ResourceDemand(resource, tuple(SlotDemand(tuple(map(float, row / row.sum()))) for row in rows))


def _shares(rng: np.random.Generator) -> tuple[Share, ...]:
    guaranteed = Share(ServiceClass.GUARANTEED, int(rng.integers(3)))
    predictable = Share(ServiceClass.PREDICTABLE, int(rng.integers(4)), float(rng.choice([0.9, 0.99])))
    rest = Share(ServiceClass.PREDICTABLE, None, 0.8)
    kinds = ((guaranteed, predictable, rest), (guaranteed, predictable), (rest,), (Share(ServiceClass.BEST_EFFORT),))
    return kinds[int(rng.choice(4, p=[0.4, 0.3, 0.2, 0.1]))]


def _standing(rng: np.random.Generator, name: str) -> Standing:
    calendar = Calendar(str(rng.choice([one.value for one in Calendar])))
    slots = {Calendar.HOUR_OF_DAY: 4, Calendar.WORKDAYS: 8, Calendar.HOUR_OF_WEEK: 28}[calendar]
    resources = ("servers", "memory")[: int(rng.choice([1, 1, 2]))]
    start_s = float(rng.integers(0, 8)) * _DAY_S / 2
    end_s = None if rng.integers(2) else start_s + float(rng.integers(1, 40)) * _SLOT_S
    reservation = Reservation(
        name,
        tuple(_demand(rng, resource, slots) for resource in resources),
        _shares(rng),
        start_s=start_s,
        end_s=end_s,
        calendar=calendar,
        slot_s=_SLOT_S,
    )
    days = int(rng.choice([0, 0, 10, 100]))
    return Standing(reservation, float(rng.choice([0.0, 0.0, 7_200.0])), float(rng.choice([0.0, 0.2])), days)


def _pool(rng: np.random.Generator, resource: str) -> Pool:
    starts = (0.0, 3.5 * _DAY_S, 5.0 * _DAY_S)[: int(rng.integers(1, 4))]
    return Pool(
        resource,
        tuple(PoolStep(at_s, int(rng.choice([0, 6, 10, 15, 30], p=[0.1, 0.2, 0.3, 0.2, 0.2]))) for at_s in starts),
    )


def check_declarations(subject: AdmissionSubject) -> None:
    """Check that the policy has a name, takes no parameters, and refuses unknown parameters and a service probability
    of 1."""
    policy = subject.policy
    subject.expect(isinstance(policy.name, str) and policy.name != "", "it has no name")
    for params, refused in (
        ({}, False),
        ({"no-such-parameter": 1}, True),
        ({"predictable": [[1.0, 0.5]]}, True),
    ):
        try:
            policy.check_params(params)
        except InvalidInput:
            subject.expect(refused, f"it refuses the parameters {params}")
        else:
            subject.expect(not refused, f"it takes the parameters {params}")


def check_same_again(subject: AdmissionSubject) -> None:
    """Check that the verdict depends on the case alone, not on the policy's memory or on earlier requests, and that the
    policy does not change its arguments."""
    cases = list(subject.cases())
    before = [repr(case) for case in cases]
    first, memory = [], None
    for case in cases:
        verdict, memory = subject.ask(case, memory)
        first.append(verdict)
    for case, verdict, text in reversed(list(zip(cases, first, before, strict=True))):
        again = subject.admit(case)
        same = (again.outcome, again.reason, again.offer, again.first_start_s)
        told = (verdict.outcome, verdict.reason, verdict.offer, verdict.first_start_s)
        subject.expect(same == told, f"it said {told}, then {same}", case)
        subject.expect(repr(case) == text, "it changed the case", case)


def check_verdicts(subject: AdmissionSubject) -> None:
    """Check that a verdict has an offer exactly when its outcome is OFFERED. An admitted request has no first start and
    fits in the pool; the figures add up."""
    for case in subject.cases():
        verdict = subject.admit(case)
        offered = verdict.outcome is AdmissionOutcome.OFFERED
        subject.expect((verdict.offer is not None) == offered, f"{verdict.outcome} with offer {verdict.offer}", case)
        if verdict.outcome is AdmissionOutcome.ADMITTED:
            subject.expect(verdict.first_start_s is None, "it names a first start of what is admitted", case)
            fits = verdict.binding is None or verdict.binding.needed <= verdict.binding.units
            subject.expect(fits, f"it admits what does not fit: {verdict.binding}", case)
        for figures in verdict.figures:
            thetas = [one.theta for one in figures.classes]
            subject.expect(thetas == sorted(thetas, reverse=True), f"classes out of order: {figures}", case)
            for one, after in zip(figures.classes, figures.classes[1:], strict=False):
                subject.expect(after.left == one.left - one.needed, f"what is left does not add up: {figures}", case)
            for one in figures.classes:
                enough = one.left < one.needed or one.reached >= one.theta - 1e-9
                subject.expect(enough, f"{one.left} units are not enough: {figures}", case)


def check_promises(subject: AdmissionSubject) -> None:
    """Check that an admitted request breaks no promise that held before. With the request among the standing
    reservations, demand exceeds a pool only where it did without it."""
    for case in subject.cases():
        verdict = subject.admit(case)
        if verdict.outcome is not AdmissionOutcome.ADMITTED:
            continue
        later = (*case.standing, case.request)
        for at_s in _moments(case):
            kept = _short(subject, case.standing, case, at_s)
            lost = _short(subject, later, case, at_s)
            subject.expect(lost <= kept, f"from {at_s} on it broke a promise in {sorted(lost - kept)}", case)


def check_offers(subject: AdmissionSubject) -> None:
    """Check that an offer is admitted when requested, and that one more unit of a reduced resource is not."""
    for case in subject.cases():
        offer = subject.admit(case).offer
        if offer is None:
            continue
        again = replace(case, request=replace(case.request, reservation=offer.reservation))
        outcome = subject.admit(again).outcome
        subject.expect(outcome is AdmissionOutcome.ADMITTED, f"what it offers is {outcome}: {offer.units}", case)
        for row, units in enumerate(offer.units):
            if units.offered == units.asked:
                continue
            demands = list(offer.reservation.demands)
            demands[row] = replace(demands[row], layers=_one_more(units.offered, units.asked))
            more = replace(offer.reservation, demands=tuple(demands))
            verdict = subject.admit(replace(case, request=replace(case.request, reservation=more)))
            best_effort = _promised(more, row) == _promised(offer.reservation, row)
            refused = verdict.outcome is not AdmissionOutcome.ADMITTED or best_effort
            subject.expect(refused, f"a unit more than it offers fits: {offer.units}", case)


def check_first_starts(subject: AdmissionSubject) -> None:
    """Check that the whole request fits at its first start and at no earlier start. Tries the first and last few
    moments between the requested start and the first start."""
    for case in subject.cases():
        verdict = subject.admit(case)
        if verdict.reason is not AdmissionReason.POOL_TOO_SMALL:
            continue
        first_s = verdict.first_start_s
        begins_s = max(_NOW_S, case.request.reservation.start_s)
        if first_s is not None:
            outcome = subject.admit(_moved(case, first_s)).outcome
            subject.expect(outcome is AdmissionOutcome.ADMITTED, f"at its first start {first_s} it is {outcome}", case)
        last_s = begins_s + 14 * _DAY_S if first_s is None else first_s
        tries = np.arange(begins_s, last_s, _SLOT_S / 3)
        for at_s in {*tries[:5].tolist(), *tries[-5:].tolist()}:
            outcome = subject.admit(_moved(case, at_s)).outcome
            fits = outcome is AdmissionOutcome.ADMITTED
            subject.expect(not fits, f"it fits at {at_s}, before the first start {first_s}", case)


def check_best_effort(subject: AdmissionSubject) -> None:
    """Check that a request that reserves nothing is admitted, even without any pool."""
    for case in subject.cases():
        reservation = replace(case.request.reservation, shares=(), start_s=0.0, end_s=None)
        demands = tuple(replace(demand, layers=()) for demand in reservation.demands)
        request = replace(case.request, reservation=replace(reservation, demands=demands))
        outcome = subject.admit(replace(case, request=request, pools=())).outcome
        subject.expect(outcome is AdmissionOutcome.ADMITTED, f"best effort is {outcome}", case)


def _moments(case: Case) -> list[float]:
    """Return the times from now on at which reservations or pools change."""
    edges = {_NOW_S, *(step.from_s for pool in case.pools for step in pool.steps)}
    for one in (*case.standing, case.request):
        edges.update((one.reservation.start_s, one.reservation.end_s or _NOW_S))
    return sorted(at for at in edges if at >= _NOW_S)


def _short(
    subject: AdmissionSubject, standing: tuple[Standing, ...], case: Case, at_s: float
) -> set[tuple[str, float]]:
    """Return the hours in which demand exceeds a pool, from `at_s` to the next change but for at most a week. Each is a
    pair of resource and start of the hour in absolute seconds."""
    (grid, figures), _ = subject.policy.figures(standing, case.pools, at_s, {}, None)
    until_s = min((after for after in _moments(case) if after > at_s), default=at_s + 8 * _DAY_S)
    week = 7 * _DAY_S
    per_week, per_day = round(week / grid.slot_s), round(_DAY_S / grid.slot_s)
    found = set()
    short = {(one.resource, one.slot) for one in figures if one.needed > one.units}
    first = int((at_s + grid.utc_offset_s) // grid.slot_s)
    last = -int(-(until_s + grid.utc_offset_s) // grid.slot_s)
    for number in range(first, min(last, first + per_week)):
        day, within = (number // per_day + 3) % 7, number % per_day
        slot = {
            Calendar.HOUR_OF_DAY: within,
            Calendar.WORKDAYS: within + (per_day if day >= 5 else 0),
            Calendar.HOUR_OF_WEEK: day * per_day + within,
        }[grid.calendar]
        for resource in {name for name, _ in short}:
            if (resource, slot) in short:
                start_s = number * grid.slot_s - grid.utc_offset_s
                hours = (start_s + hour for hour in np.arange(0.0, grid.slot_s, 3_600.0).tolist())
                found |= {(resource, hour_s) for hour_s in hours if at_s <= hour_s < until_s}
    return found


def _one_more(offered: tuple[int, ...], asked: tuple[int, ...]) -> tuple[int, ...]:
    grown = list(offered)
    for at, (have, want) in enumerate(zip(offered, asked, strict=True)):
        if have < want:
            grown[at] += 1
            break
    return tuple(grown)


def _promised(reservation: Reservation, row: int) -> int:
    pairs = zip(reservation.shares, reservation.demands[row].layers, strict=True)
    return sum(units for share, units in pairs if share.service_class is not ServiceClass.BEST_EFFORT)


def _moved(case: Case, start_s: float) -> Case:
    """Return the case with another start for the request; the remaining duration stays the same."""
    reservation = case.request.reservation
    begins_s = max(_NOW_S, reservation.start_s)
    end_s = None if reservation.end_s is None else start_s + (reservation.end_s - begins_s)
    return replace(case, request=replace(case.request, reservation=replace(reservation, start_s=start_s, end_s=end_s)))


CHECKS: tuple[Check, ...] = (
    check_declarations,
    check_same_again,
    check_verdicts,
    check_promises,
    check_offers,
    check_first_starts,
    check_best_effort,
)
