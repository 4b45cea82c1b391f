"""The in-process bus does what every bus must."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sim_backend.bus.faults import BusFaults
from sim_backend.conformance.bus_checks import CHECKS
from sim_backend.conformance.bus_harness import BusHarness
from sim_backend.conformance.memory_harness import MemoryHarness

PLANS = {
    "plain": None,
    "plan without faults": BusFaults(),
    "fixed latency": BusFaults(latency_s=(0.01, 0.01)),
    "varying latency": BusFaults(seed=7, latency_s=(0.0, 0.2)),
}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_memory_bus(check: Callable[[BusHarness], None], plan: str) -> None:
    """Every check holds, with and without latency."""
    check(MemoryHarness(PLANS[plan]))
