"""A load balancer that remembers what it is told and has the sites of the world route by it. Failures are scripted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from shared.effects import Backend, Balanced
from shared.errors import TransientError
from sim_backend.balancer import Balancer

NOBODY: Mapping[str, Balancer] = {}


class FakeBalancer:
    """Implements `shared.ports.LoadBalancer` for the applications of `sites`, by name; one without a site is drained at
    once. `calls`: what it was told, in order. `fail_next`: so many calls from now on do not reach it."""

    name = "fake"

    def __init__(self, sites: Mapping[str, Balancer] = NOBODY, now_s: Callable[[], float] = lambda: 0.0) -> None:
        self.tables: dict[str, tuple[Backend, ...]] = {}
        self.calls: list[tuple[str, tuple[Backend, ...]]] = []
        self.fail_next = 0
        self._sites, self._now_s = sites, now_s

    def set_backends(self, app: str, backends: Sequence[Backend]) -> Balanced:
        """See `LoadBalancer`."""
        if self.fail_next:
            self.fail_next -= 1
            raise TransientError("the balancer does not answer")
        table = tuple(backends)
        self.calls.append((app, table))
        before, self.tables[app] = self.tables.get(app), table
        site = self._sites.get(app)
        leaving = [backend.vm for backend in table if backend.drain]
        if site is None:
            return Balanced(app, True, tuple(leaving))
        if table != before:
            site.route(table)
        return Balanced(app, True, tuple(vm for vm in leaving if site.site.is_drained(vm, self._now_s())))

    def serving(self, app: str) -> frozenset[str]:
        """The instances that get new requests."""
        return frozenset(backend.vm for backend in self.tables.get(app, ()) if not backend.drain)
