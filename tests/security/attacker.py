"""Somebody with an account's credentials and their own client: `python -m tests.security.attacker URL ACT SECONDS`.

Prints how often it did what it was told to, and how often it was refused.
"""

from __future__ import annotations

import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pika  # type: ignore[import-untyped]
from pika import data

from shared.protocol.topology import CONTROLLER_QUEUE, DEAD, DEAD_QUEUE, REPORTS, REQUESTS, RESULTS
from tests.security.attacks import LARGE_VMS, Raw, costly_report, query

HUGE_BYTES = 64 << 20
FITTING_BYTES = 4 << 20
QUERIES_PER_S = 5_000
HEADER_BYTES = 120_000  # nearly a frame
LAZY = {"x-queue-mode": "lazy"}
STREAM = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 2_500_000_000}
CONNECTIONS = 600


class Attacker:
    """One account, with as many connections as it takes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.user = url.split("//")[1].split(":")[0]
        self._channel: Any = None

    def channel(self) -> Any:
        """A channel that is open, on a new connection where the last has ended."""
        if self._channel is None or self._channel.is_closed:
            self._channel = self.connect().channel()
        return self._channel

    def connect(self) -> Any:
        """One more connection."""
        return pika.BlockingConnection(pika.URLParameters(self._url + "?heartbeat=0&socket_timeout=5"))

    def publish(self, exchange: str, key: str, body: bytes, reply_to: str = "") -> None:
        """Send a body, persistent, as the account."""
        properties = pika.BasicProperties(user_id=self.user, delivery_mode=2, reply_to=reply_to or None)
        self.channel().basic_publish(exchange, key, body, properties)


def fill(
    attacker: Attacker, size_bytes: int, arguments: Mapping[str, Any] = LAZY, *, unacked: bool = False
) -> Callable[[], None]:
    """Fill a durable queue of its own; `unacked`: have it all delivered, and acknowledge nothing."""
    exchange, queue = f"reply.{attacker.user}.f", f"reply.{attacker.user}.fill"
    body = bytes(size_bytes)

    def hold() -> None:
        with suppress(pika.exceptions.AMQPError):
            for _ in attacker.connect().channel().consume(queue, inactivity_timeout=1.0):
                pass

    def act() -> None:
        channel = attacker.channel()
        channel.exchange_declare(exchange, "fanout")
        channel.queue_declare(queue, durable=True, arguments=dict(arguments))
        if unacked and threading.active_count() == 1:
            threading.Thread(target=hold, daemon=True).start()
        channel.queue_bind(queue, exchange)
        for _ in range(10):
            attacker.publish(exchange, "", body)

    return act


def connections(attacker: Attacker) -> Callable[[], None]:
    """Open connections and keep them."""
    held: list[Any] = []

    def act() -> None:
        if len(held) >= CONNECTIONS:
            time.sleep(0.1)
            return
        held.append(attacker.connect())

    return act


def queries(attacker: Attacker) -> Callable[[], None]:
    """Ask 5,000 times a second."""
    begun_s, asked = time.monotonic(), 0

    def act() -> None:
        nonlocal asked
        attacker.publish(REQUESTS, CONTROLLER_QUEUE, query(asked), f"reply.{attacker.user}")
        asked += 1
        ahead_s = asked / QUERIES_PER_S - (time.monotonic() - begun_s)
        if ahead_s > 0.01:
            time.sleep(ahead_s)

    return act


def large(attacker: Attacker, exchange: str, key: str) -> Callable[[], None]:
    """Send 600 bodies that cost much to read."""
    body, sent = costly_report("n1", LARGE_VMS), 0

    def act() -> None:
        nonlocal sent
        if sent >= 600:
            time.sleep(0.1)
            return
        attacker.publish(exchange, key, body)
        sent += 1

    return act


def headers(attacker: Attacker) -> Callable[[], None]:
    """Send short questions with as many headers as a frame holds."""
    plainly = data.encode_value

    def encode_value(pieces: list[bytes], value: Any) -> int:
        if not isinstance(value, Raw):
            return int(plainly(pieces, value))
        pieces.append(bytes(value))
        return len(value)

    data.encode_value = encode_value
    table = {"h": Raw(b"A" + struct.pack(">I", HEADER_BYTES) + b"V" * HEADER_BYTES)}
    properties, body = pika.BasicProperties(user_id=attacker.user, headers=table), query(1)
    return lambda: attacker.channel().basic_publish(REQUESTS, CONTROLLER_QUEUE, body, properties)


def dead_letters(attacker: Attacker) -> Callable[[], None]:
    """Push out of the dead letters what others have left there."""
    return lambda: attacker.publish(DEAD, DEAD_QUEUE, b"noise")


ACTS: dict[str, Callable[[Attacker], Callable[[], None]]] = {
    "fill-huge": lambda attacker: fill(attacker, HUGE_BYTES),
    "fill": lambda attacker: fill(attacker, FITTING_BYTES),
    "fill-unacked": lambda attacker: fill(attacker, FITTING_BYTES, unacked=True),
    "fill-stream": lambda attacker: fill(attacker, FITTING_BYTES, STREAM),
    "headers": headers,
    "connections": connections,
    "queries": queries,
    "dead-letters": dead_letters,
    "large-requests": lambda attacker: large(attacker, REQUESTS, CONTROLLER_QUEUE),
    "large-results": lambda attacker: large(attacker, RESULTS, CONTROLLER_QUEUE),
    "large-reports": lambda attacker: large(attacker, REPORTS, "report.n1"),
}


def main(url: str, act: str, seconds: str) -> None:
    """Do it again and again for so long, whatever comes of it."""
    once, end_s = ACTS[act](Attacker(url)), time.monotonic() + float(seconds)
    done = refused = 0
    while time.monotonic() < end_s:
        try:
            once()
            done += 1
        except (pika.exceptions.AMQPError, OSError):
            refused += 1
            time.sleep(0.01)
    with suppress(BrokenPipeError):
        print(done, refused, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
