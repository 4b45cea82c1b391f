"""How calls reach the cluster: every method of the stand-in's objects goes through `call`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast

from sim_backend.fake_libvirt.events import Dispatcher
from sim_backend.fake_libvirt.faults import Script
from sim_backend.fake_libvirt.host import Host, Listener, Peers

P = ParamSpec("P")
R = TypeVar("R")


class Server(Peers, Protocol):
    """The cluster, as connections see it."""

    @property
    def script(self) -> Script:
        """The faults that calls are to meet."""
        ...

    @property
    def events(self) -> Dispatcher:
        """What carries events to callbacks."""
        ...

    def perform(self, connection: Connection, call: str, subject: str, do: Callable[[], R]) -> R:
        """Carry out a call with what the script has for it."""
        ...


class Connection(Listener, Protocol):
    """What handles need of the connection that they were got from."""

    @property
    def cluster(self) -> Server:
        """The cluster that it leads into."""
        ...

    @property
    def host(self) -> Host:
        """The host that it leads to."""
        ...

    @property
    def open_(self) -> bool:
        """Whether it has been neither closed nor broken."""
        ...

    def check(self) -> None:
        """Raise libvirtError unless it works."""
        ...


class Handle(Protocol):
    """An object of a connection; `subject` is what the script knows it by."""

    subject: str = ""

    @property
    def home_connection(self) -> Connection:
        """The connection that it was got from."""
        ...


H = TypeVar("H", bound=Handle)


def call(method: Callable[Concatenate[H, P], R]) -> Callable[Concatenate[H, P], R]:
    """Carry it out with the cluster's lock held, on a connection that works, with what the script has for it."""

    @wraps(method)
    def carried_out(self: H, *args: P.args, **kwargs: P.kwargs) -> R:
        connection = self.home_connection

        def do() -> R:
            return method(self, *args, **kwargs)

        return connection.cluster.perform(connection, method.__name__, self.subject, do)

    return cast(Callable[Concatenate[H, P], R], carried_out)
