"""Something that accepts connections and says nothing: whoever waits for it waits as long as was asked for."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from daemons.cli.connection import URL_VARIABLE
from daemons.cli.main import main
from shared.base.errors import BusUnavailable
from shared.bus.rabbitmq.bus import connect

PATIENCE_S = 8.0  # for a busy machine; the usual time is 10 s


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield silent.getsockname()[1]


@pytest.mark.parametrize(("answer_s", "opening_s"), [(0.3, None), (0.3, 0.3), (10.0, 0.3)])
def test_a_connection_gives_up_in_time(answer_s: float, opening_s: float | None, port: int) -> None:
    """Whichever limit comes first, with the same words."""
    begun_s = time.monotonic()

    with pytest.raises(BusUnavailable) as refused:
        connect(f"amqp://agent.n1:secret@127.0.0.1:{port}/", answer_s=answer_s, opening_s=opening_s)

    assert time.monotonic() - begun_s < PATIENCE_S
    words = "no answer within 0.3 s: is this a broker's port, and is the broker well?"
    assert str(refused.value) == f"127.0.0.1:{port} (vhost '/', user 'agent.n1'): {words}"


@pytest.mark.parametrize("scheme", ["amqp", "amqps"])
def test_a_command_waits_as_long_as_its_limit_says(scheme: str, port: int) -> None:
    begun_s = time.monotonic()

    said = CliRunner().invoke(
        main,
        ["status", "--timeout", "0.5", "--output", "json"],
        env={URL_VARIABLE: f"{scheme}://operator.ann:secret@127.0.0.1:{port}/"},
    )

    assert time.monotonic() - begun_s < PATIENCE_S
    assert said.exit_code == 1
    error = json.loads(said.stdout)["error"]
    assert error["code"] == BusUnavailable.code
    assert "no answer within 0.5 s" in error["message"]
