"""A broker that is away for days: what tries again and again to reach it does not grow."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator

import pytest

from shared.base.errors import BusUnavailable
from shared.bus.rabbitmq.bus import RabbitConnection, connect
from tests.support.shell_harness import wait_for


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
