"""The load balancer in fault runs: what scripts have of it, and that a balancer that was forgotten is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim_backend.faults.load_balancer import AWAY, RESTARTED, balancer_of
from sim_backend.faults.run import run_seed
from sim_backend.loop.closed_loop import LoopSettings

SEED = 9  # nothing of its application changes after the balancer has begun anew


def never_again(settings: LoopSettings) -> LoopSettings:
    """Nothing is told again unless it has changed."""
    balancer = replace(settings.controller.balancer, resend_s=0.0)
    return replace(settings, controller=replace(settings.controller, balancer=balancer))


def test_seeds_have_a_balancer_or_none() -> None:
    found = [balancer_of(seed) for seed in range(40)]
    assert found == [balancer_of(seed) for seed in range(40)]
    assert 10 <= sum(bool(each) for each in found) <= 35


@pytest.mark.full
def test_a_balancer_that_begins_anew_serves_again() -> None:
    outcome = run_seed(SEED)
    assert {AWAY, RESTARTED} <= outcome.faults.keys()
    assert outcome.violations == ()


@pytest.mark.full
def test_a_controller_that_tells_nothing_again_is_found() -> None:
    found = run_seed(SEED, change=never_again).violations
    assert [violation.invariant for violation in found] == ["not-converged"]
    assert "is served by []" in found[0].detail
