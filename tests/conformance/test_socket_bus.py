"""The bus server does what every bus must."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from sim_backend.conformance.bus_checks import CHECKS
from sim_backend.conformance.bus_harness import BusHarness
from tests.conformance.socket_bus_rig import SocketHarness


@pytest.fixture
def harness() -> Iterator[SocketHarness]:
    made = SocketHarness()
    yield made
    made.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_bus_server(check: Callable[[BusHarness], None], harness: SocketHarness) -> None:
    check(harness)
