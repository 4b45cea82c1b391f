"""The bus of a URL is found by its scheme."""

from __future__ import annotations

import pytest

from shared.base.errors import InvalidInput
from shared.bus.buses import find_bus
from shared.bus.rabbitmq import bus as rabbitmq
from sim_backend.bus_server import client


@pytest.mark.parametrize("url", ["amqp://u:p@host/", "amqps://u:p@host/"])
def test_amqp_is_rabbitmq(url: str) -> None:
    assert find_bus(url) is rabbitmq.connect


def test_other_schemes_are_entry_points() -> None:
    assert find_bus("unix://agent.n1@/bus.socket") is client.connect


def test_a_scheme_without_a_bus_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"bus\.url: there is no 'nats' \(expected one of .*unix"):
        find_bus("nats://u@host")
