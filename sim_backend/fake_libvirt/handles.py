"""How calls reach the cluster: every method of the stand-in's objects goes through `call`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from sim_backend.fake_libvirt.connection import virConnect

P = ParamSpec("P")
R = TypeVar("R")


class Handle(Protocol):
    """An object of a connection; `subject` is what the script knows it by."""

    subject: str = ""

    @property
    def home_connection(self) -> virConnect:
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
