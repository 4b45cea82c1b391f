"""What is attacked: a portal, and a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.private_broker import PrivateBroker, private_broker
from tests.security.server import Attacked, attacked


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """With TLS, for one file of tests."""
    with attacked(tmp_path_factory.mktemp("attacked")) as made:
        yield made


@pytest.fixture(scope="session")
def broker() -> Iterator[PrivateBroker]:
    """A RabbitMQ of its own, with the longest message that docs/how-to/broker.md has."""
    with private_broker() as running:
        running.ctl("eval", "application:set_env(rabbit, max_message_size, 4194304).")
        yield running
