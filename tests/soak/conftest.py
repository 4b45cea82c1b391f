"""One broker for the tests on real daemons."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.private_broker import PrivateBroker, private_broker


@pytest.fixture(scope="session")
def broker() -> Iterator[PrivateBroker]:
    """A RabbitMQ, started when the first test asks for it."""
    with private_broker() as running:
        yield running
