"""One browser and one broker for all of these tests; an estate for each file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import chromium
from tests.integration.private_broker import PrivateBroker, private_broker


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, started when the first test asks for it."""
    with chromium() as running:
        yield running


@pytest.fixture(scope="session")
def broker() -> Iterator[PrivateBroker]:
    """A RabbitMQ for all tests of this process."""
    with private_broker() as running:
        yield running
