"""Messages whose headers, addresses and keys no library writes: each stays in the queue until somebody has read it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pika  # type: ignore[import-untyped]
import pytest
from pika import data
from pika.exceptions import AMQPConnectionError  # type: ignore[import-untyped]

from shared.protocol.operator_messages import Query
from shared.protocol.topology import CONTROLLER_QUEUE, REQUESTS
from tests.integration.private_broker import PrivateBroker
from tests.security.attacks import Raw, query
from tests.security.test_broker_attacks import led
from tests.support.shell_harness import RealRig
from tests.unit.shared.bus.rabbitmq.test_field_tables import nested

USER = "user.tom"


VALUES = {
    "a time beyond the calendar": b"T" + struct.pack(">Q", 2**63 - 1),
    "a time before it": b"T" + struct.pack(">Q", 2**64 - 1),
    "tables within tables": nested(b"F", 3_000),
    "arrays within arrays": nested(b"A", 3_000),
    "a decimal": b"D\xff" + struct.pack(">i", 1),
    "no UTF-8": b"S" + struct.pack(">I", 3) + b"\xff\xfe\xfd",
    "an array cut off": b"A" + struct.pack(">I", 1) + b"V",
    "not a number": b"d\x7f\xf8\x00\x00\x00\x00\x00\x00",
}


@pytest.fixture
def rig(tmp_path: Path, broker: PrivateBroker) -> Iterator[RealRig]:
    with led(tmp_path, broker, 1) as made:
        yield made


def test_no_message_ends_who_reads_it(rig: RealRig, monkeypatch: pytest.MonkeyPatch) -> None:
    plainly = data.encode_value

    def encode_value(pieces: list[bytes], value: Any) -> int:
        if not isinstance(value, Raw):
            return int(plainly(pieces, value))
        pieces.append(bytes(value))
        return len(value)

    monkeypatch.setattr(data, "encode_value", encode_value)
    for number, value in enumerate(VALUES.values()):
        _send(rig, number, CONTROLLER_QUEUE, headers={"h": Raw(value)})
    _send(rig, 100, CONTROLLER_QUEUE, reply_to=b"reply.\xff")
    _send(rig, 101, b"\xff", headers={"CC": [CONTROLLER_QUEUE]})
    _send(rig, 102, CONTROLLER_QUEUE, reply_to=f"reply.{USER}")

    assert rig.ask(Query("look", "status")).done
    assert rig.running[0].exit_status is None
    assert not rig.lines("not connected")


def _send(rig: RealRig, number: int, key: Any, **properties: Any) -> None:
    """A connection for each: the broker ends that of who sends what it cannot read itself."""
    connection = pika.BlockingConnection(pika.URLParameters(rig.bus.url(USER)))
    properties = {"user_id": USER, "delivery_mode": 2, **properties}
    with suppress(AMQPConnectionError):
        connection.channel().basic_publish(REQUESTS, key, query(number), pika.BasicProperties(**properties))
        connection.process_data_events(0.1)
    if connection.is_open:
        connection.close()
