"""Every registered admission policy keeps its contract, and each check finds the bug that it is there for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from daemons.policies.admission.statistical import Statistical
from shared.base.errors import ContractViolation
from shared.policy_api.admission import AdmissionOutcome, AdmissionReason, Pool, PoolStep, Standing, Verdict
from shared.ports.plugins import find_policy, names, policy_group
from sim_backend.conformance import admission_checks as checks
from sim_backend.conformance.admission_checks import CHECKS, AdmissionSubject, Check

Change = Callable[[Verdict, Standing], Verdict]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", names(policy_group("admission")))
def test_registered_policy(name: str, check: Check) -> None:
    """Each check, with two seeds."""
    for seed in range(2):
        check(AdmissionSubject(find_policy("admission", name), seed))


class Planted(Statistical):
    """The statistical policy, but for what it says, or for what it takes the pools for."""

    def __init__(self, change: Change | None = None, more_units: int = 0, lax: bool = False) -> None:
        self._change, self._more_units, self._lax = change, more_units, lax

    def check_params(self, params: Mapping[str, Any]) -> None:
        """Anything, when it is lax."""
        if not self._lax:
            super().check_params(params)

    def admit(
        self,
        request: Standing,
        standing: Sequence[Standing],
        pools: Sequence[Pool],
        now_s: float,
        params: Mapping[str, Any],
        memory: Any = None,
    ) -> tuple[Verdict, Any]:
        """Whatever was planted."""
        steps = [tuple(PoolStep(step.from_s, step.units + self._more_units) for step in pool.steps) for pool in pools]
        larger = [replace(pool, steps=own) for pool, own in zip(pools, steps, strict=True)]
        verdict, memory = super().admit(request, standing, larger, now_s, params, memory)
        return (self._change(verdict, request) if self._change else verdict), memory


class Moody:
    """Every other time it refuses what it would admit."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, verdict: Verdict, request: Standing) -> Verdict:
        del request
        self.asked += 1
        return replace(verdict, outcome=AdmissionOutcome.REFUSED) if self.asked % 2 else verdict


def generous(verdict: Verdict, request: Standing) -> Verdict:
    """It offers all that was asked for."""
    return replace(verdict, offer=replace(verdict.offer, reservation=request.reservation)) if verdict.offer else verdict


def mean(verdict: Verdict, request: Standing) -> Verdict:
    """It offers nothing at all."""
    if verdict.offer is None:
        return verdict
    none = tuple(replace(units, offered=(0,) * len(units.offered)) for units in verdict.offer.units)
    pairs = zip(request.reservation.demands, none, strict=True)
    demands = tuple(replace(demand, layers=units.offered) for demand, units in pairs)
    return replace(verdict, offer=replace(verdict.offer, units=none, reservation=_with(request, demands)))


def _with(request: Standing, demands: Any) -> Any:
    return replace(request.reservation, demands=demands)


def late(verdict: Verdict, request: Standing) -> Verdict:
    """It names a start one slot later."""
    del request
    return replace(verdict, first_start_s=verdict.first_start_s + 21_600.0) if verdict.first_start_s else verdict


def early(verdict: Verdict, request: Standing) -> Verdict:
    """It names the start that was asked for."""
    first_s = max(172_800.0, request.reservation.start_s) if verdict.first_start_s else None
    return replace(verdict, first_start_s=first_s)


def unsure(verdict: Verdict, request: Standing) -> Verdict:
    """It refuses what needs nothing."""
    del request
    nothing = verdict.reason is AdmissionReason.NEEDS_NOTHING
    return replace(verdict, outcome=AdmissionOutcome.REFUSED) if nothing else verdict


def miscounting(verdict: Verdict, request: Standing) -> Verdict:
    """Its figures are one unit too low."""
    del request
    figures = tuple(
        replace(one, classes=tuple(replace(each, needed=max(0, each.needed - 1)) for each in one.classes))
        for one in verdict.figures
    )
    return replace(verdict, figures=figures)


PLANTED: list[tuple[Check, Planted, str]] = [
    (checks.check_declarations, Planted(lax=True), "it takes the parameters"),
    (checks.check_same_again, Planted(Moody()), "then"),
    (checks.check_verdicts, Planted(miscounting), "does not add up|are not enough"),
    (checks.check_promises, Planted(more_units=2), "broke a promise"),
    (checks.check_offers, Planted(generous), "what it offers is"),
    (checks.check_offers, Planted(mean), "a unit more than it offers fits"),
    (checks.check_first_starts, Planted(late), "before the first start"),
    (checks.check_first_starts, Planted(early), "at its first start"),
    (checks.check_best_effort, Planted(unsure), "best effort is refused"),
]


@pytest.mark.parametrize(("check", "policy", "said"), PLANTED)
def test_planted_bug_is_found(check: Check, policy: Planted, said: str) -> None:
    """By its check, in words, within a few seeds."""
    with pytest.raises(ContractViolation, match=said):
        _run(check, policy)


def _run(check: Check, policy: Planted) -> None:
    for seed in range(8):
        check(AdmissionSubject(policy, seed))


def test_every_check_has_a_planted_bug() -> None:
    assert {check for check, _, _ in PLANTED} == set(CHECKS)
