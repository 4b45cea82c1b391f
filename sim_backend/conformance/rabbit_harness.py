"""The harness of RabbitMQ: a vhost of its own on a broker that runs already, removed by `close`."""

from __future__ import annotations

import base64
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import quote

from shared.base.clock import SystemClock
from shared.base.errors import ContractViolation
from shared.bus.broker_setup import Account, ManagementApi, definitions
from shared.bus.rabbitmq.addresses import dead_message
from shared.bus.rabbitmq.bus import RabbitConnection, connect
from shared.ports.bus import Bus
from shared.protocol.dead_letter import DeadMessage
from shared.protocol.permissions import Grant, grant_of
from shared.protocol.topology import DEAD_LETTERS, DEAD_QUEUE

USERS = (
    "controller.a",
    "controller.b",
    "agent.n1",
    "agent.n2",
    "operator.ann",
    "web.shop",
    "owner.kim",
    "owner.lee",
    "user.joe",
)
PASSWORD = "secret"  # of the users that the harness makes on a broker under test
DEAD_MAX = 100

_NUMBERS: Iterator[int] = itertools.count(1)


@dataclass(frozen=True, slots=True)
class BrokerUnderTest:
    """Where a broker is. `restart` stops and starts it (None: it cannot be)."""

    host: str
    port: int
    management_url: str
    admin: str
    admin_password: str = field(repr=False)
    restart: Callable[[], None] | None = None


class RabbitHarness:
    """A `BusHarness` over RabbitMQ, in real time. Connections do not check what they may publish when `grant` is None:
    then all that refuses it is the broker."""

    enforces_permissions = True

    def __init__(self, broker: BrokerUnderTest, grant: Callable[[str], Grant] | None = grant_of) -> None:
        self.vhost = f"conformance-{os.getpid()}-{next(_NUMBERS)}"
        self.api = ManagementApi(broker.management_url, broker.admin, broker.admin_password)
        self._broker = broker
        self._grant = grant
        self._clock = SystemClock()
        self._connections: list[RabbitConnection] = []
        self.api.apply(definitions(self.vhost, [Account(user, PASSWORD) for user in USERS], queues=(DEAD_LETTERS,)))

    @property
    def supports_restart(self) -> bool:
        """Whether the broker can be restarted."""
        return self._broker.restart is not None

    def url(self, user: str) -> str:
        """Return the URL to which a user connects."""
        return f"amqp://{user}:{PASSWORD}@{self._broker.host}:{self._broker.port}/{self.vhost}"

    def connect(self, user: str) -> Bus:
        """Return a new connection."""
        connection = connect(self.url(user), grant=self._grant)
        self._connections.append(connection)
        return connection

    def settle(self, seconds: float) -> None:
        """Let real time pass."""
        self._clock.sleep(seconds)

    def kill(self, connection: Bus) -> None:
        """End a connection without a farewell."""
        if not isinstance(connection, RabbitConnection):
            raise ContractViolation(f"not a connection of this harness: {connection!r}")
        connection.kill()

    def restart_broker(self) -> None:
        """Stop the broker and start it again."""
        if self._broker.restart is None:
            raise ContractViolation("this broker cannot be restarted")
        self._broker.restart()

    def dead_letters(self) -> tuple[DeadMessage, ...]:
        """Return the messages in the dead queue and leave them there."""
        wanted = {"count": DEAD_MAX, "ackmode": "ack_requeue_true", "encoding": "base64"}
        found = self.api.call("POST", f"queues/{quote(self.vhost, safe='')}/{DEAD_QUEUE}/get", wanted)
        return tuple(
            dead_message(
                one["properties"].get("headers", {}),
                one["routing_key"],
                one["properties"].get("user_id", ""),
                base64.b64decode(one["payload"]),
            )
            for one in found
        )

    def close(self) -> None:
        """End every connection and remove the vhost."""
        for connection in self._connections:
            connection.kill()
        self.api.call("DELETE", f"vhosts/{quote(self.vhost, safe='')}")
