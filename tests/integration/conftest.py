"""What the integration tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.machine import Machine, machine
from tests.integration.private_broker import PrivateBroker, private_broker


@pytest.fixture(scope="session")
def broker() -> Iterator[PrivateBroker]:
    """A RabbitMQ for all tests of this process, started when the first one asks for it."""
    with private_broker() as running:
        yield running


@pytest.fixture(scope="session")
def booted() -> Iterator[Machine]:
    """A machine in a container for all tests of this process, booted when the first one asks for it. Who changes it
    puts it back."""
    with machine() as running:
        yield running
