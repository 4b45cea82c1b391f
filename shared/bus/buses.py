"""Chooses the bus of a URL by its scheme: the one place that does, for daemons, agents and commands."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol
from urllib.parse import urlsplit

from shared.config.broker_url import Tls
from shared.ports import plugins
from shared.ports.bus import Bus

ANSWER_S = 10.0  # how long a broker may take to answer a call
AMQP = ("amqp", "amqps")


class ConnectBus(Protocol):
    """Opens a connection as the user of a URL.

    `answer_s`: seconds that the broker may take to answer a call. `opening_s`: seconds until the connection must be
    open (None: twice `answer_s`). Raises InvalidValue for a URL or for TLS files that cannot be used, BusUnavailable
    when there is no connection in time.
    """

    def __call__(
        self, url: str, tls: Tls | None = None, *, answer_s: float = ANSWER_S, opening_s: float | None = None
    ) -> Bus:
        """Return an open connection."""
        ...


def find_bus(url: str) -> ConnectBus:
    """Return what connects to the broker of a URL: RabbitMQ for `amqp` and `amqps`, else the entry point of the group
    `trimtab.buses` that is named like the scheme. Imports the bus only now. Raises InvalidInput for a scheme without
    one."""
    scheme = urlsplit(url).scheme
    found: Any = (
        import_module("shared.bus.rabbitmq.bus").connect
        if scheme in AMQP
        else plugins.find_driver(plugins.BUSES, "bus.url", scheme)
    )
    connect: ConnectBus = found
    return connect
