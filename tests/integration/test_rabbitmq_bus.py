"""RabbitMQ behind the port does what every bus must, and what is its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from sim_backend.conformance.bus_checks import CHECKS
from sim_backend.conformance.bus_harness import BusHarness
from sim_backend.conformance.rabbit_harness import RabbitHarness
from tests.integration.private_broker import PrivateBroker, under_test


@pytest.fixture
def harness(broker: PrivateBroker) -> Iterator[RabbitHarness]:
    """A vhost of its own."""
    made = RabbitHarness(under_test(broker))
    yield made
    made.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_rabbitmq_bus(check: Callable[[BusHarness], None], harness: RabbitHarness) -> None:
    """Every check of the suite holds."""
    check(harness)
