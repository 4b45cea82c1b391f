"""What the integration tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest

from tests.integration.machine import Machine, machine
from tests.integration.package_build import Packages, build
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


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Packages]:
    """What builds the packages of this tree for a release, once for all tests of this process."""

    @cache
    def made(suite: str) -> Packages:
        return build(tmp_path_factory.mktemp(suite), suite)

    return made
