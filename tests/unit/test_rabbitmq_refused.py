"""A broker that is away for days: what tries again and again to reach it does not grow."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator

import pytest

from shared.bus.rabbitmq import RabbitConnection, connect
from shared.errors import BusUnavailable
from tests.unit.shell_rig import wait_for


@pytest.fixture
def no_garbage_collector() -> Iterator[None]:
    """Whatever is freed is freed because nothing refers to it any more."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def connections() -> int:
    return sum(isinstance(each, RabbitConnection) for each in gc.get_objects())


@pytest.mark.usefixtures("no_garbage_collector")
def test_a_connection_that_could_not_be_made_leaves_nothing_behind() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    before = connections()

    for _ in range(5):
        with pytest.raises(BusUnavailable, match="nobody listens there"):
            connect(f"amqp://agent.n1:secret@127.0.0.1:{port}/")

    wait_for(lambda: connections() == before)  # their threads end by themselves
