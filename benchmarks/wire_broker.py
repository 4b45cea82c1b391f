"""A private RabbitMQ for the benches of the wire, and what plain pika does on it: the baseline and the load."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pika  # type: ignore[import-untyped]

from shared.bus.broker_setup import Account, ManagementApi, definitions
from shared.protocol import topology
from shared.protocol.codec import encode
from shared.protocol.messages import Report
from tests.integration.debian import missing
from tests.integration.private_broker import PACKAGES, PrivateBroker, present

PASSWORD = "secret"
DRIVER = "driver"  # may speak for every agent: a load of 1,000 nodes needs no 1,000 connections
PREFETCH = 500

_VHOSTS = count(1)


class NoBroker(Exception):
    """There can be no RabbitMQ here; says why."""


@contextmanager
def broker() -> Iterator[PrivateBroker]:
    """A broker that is gone afterwards. Raises NoBroker where there can be none."""
    reason = missing(present, PACKAGES)
    if reason:
        raise NoBroker(reason)
    folder = Path(tempfile.mkdtemp(prefix="trimtab-bench-"))
    made = PrivateBroker(folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


def vhost(broker: PrivateBroker, users: Sequence[str], nodes: Sequence[str] = ()) -> str:
    """A fresh vhost with these users, the queues of these nodes, and the driver; returns its name."""
    name = f"bench-{next(_VHOSTS)}"
    wanted = definitions(name, [Account(user, PASSWORD) for user in (*users, DRIVER)], nodes)
    (driver,) = [user for user in wanted["users"] if user["name"] == DRIVER]
    driver["tags"] = "impersonator"  # the broker lets it set any user id; no user of Trimtab's may
    everything = {"user": DRIVER, "vhost": name, "configure": ".*", "write": ".*", "read": ".*"}
    wanted["permissions"] = [one for one in wanted["permissions"] if one["user"] != DRIVER] + [everything]
    ManagementApi(broker.management_url, broker.user, broker.password).apply(wanted)
    return name


class Driver:
    """A connection that publishes reports as their nodes' agents; `confirmed`: each is there when `put` returns."""

    def __init__(self, url: str, confirmed: bool = True) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel = self._connection.channel()
        if confirmed:
            self._channel.confirm_delivery()

    def send(self, reports: Iterable[Report]) -> None:
        """Publish each."""
        for report in reports:
            self.put(report.node, encode(report))

    def put(self, node: str, body: bytes) -> None:
        """Publish one body."""
        properties = pika.BasicProperties(content_type="application/msgpack", user_id=topology.agent_user(node))
        self._channel.basic_publish(topology.REPORTS, topology.report_key(node), body, properties)

    def wait(self, seconds: float) -> None:
        """Serve the connection for so long."""
        self._connection.process_data_events(seconds)

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


class BareConsumer:
    """Receives reports and does nothing with them: what pika costs by itself."""

    def __init__(self, url: str) -> None:
        self._queue = "reports.bare"
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel = self._connection.channel()
        self._channel.basic_qos(prefetch_count=PREFETCH)
        self._channel.queue_declare(self._queue, exclusive=True)
        self._channel.queue_bind(self._queue, topology.REPORTS, "report.#")

    def receive(self, expected: int) -> None:
        """Ask for deliveries and take so many."""
        received = 0

        def take(channel: Any, _method: Any, _properties: Any, _body: bytes) -> None:
            nonlocal received
            received += 1
            if received == expected:
                channel.stop_consuming()

        self._channel.basic_consume(self._queue, take, auto_ack=True)
        self._channel.start_consuming()

    def close(self) -> None:
        """End the connection."""
        self._connection.close()
