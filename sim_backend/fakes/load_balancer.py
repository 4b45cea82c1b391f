"""A load balancer that remembers its configuration, makes the sites of the world route by it and reports their
measurements. Failures are scripted."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shared.base.errors import TransientError
from shared.ports.effects import Backend, Balance, Balanced
from shared.values.web_app import FlowSample
from sim_backend.world.entry_router import Balancer

NOBODY: Mapping[str, Balancer] = {}


class FakeBalancer:
    """Implements `shared.ports.controller.LoadBalancer` for the applications of `sites`, by name. The instances of an
    application without a site are drained at once. `tables`, `orders`: the last configuration of each application.
    `calls`: all configurations, in order. `fail_next`: number of calls from now on that fail."""

    name = "fake"
    measures = True

    def __init__(self, sites: Mapping[str, Balancer] = NOBODY, now_s: Callable[[], float] = lambda: 0.0) -> None:
        self.tables: dict[str, tuple[Backend, ...]] = {}
        self.orders: dict[str, Balance] = {}
        self.calls: list[tuple[str, tuple[Backend, ...]]] = []
        self.fail_next = 0
        self._sites, self._now_s = sites, now_s

    def set_backends(self, order: Balance) -> Balanced:
        """See `LoadBalancer`."""
        self._reach()
        app, table = order.app, order.backends
        self.calls.append((app, table))
        self.orders[app] = order
        before, self.tables[app] = self.tables.get(app), table
        site = self._sites.get(app)
        leaving = [backend.vm for backend in table if backend.drain]
        if site is None:
            return Balanced(app, True, tuple(leaving))
        if table != before:
            site.route(table)
        return Balanced(app, True, tuple(vm for vm in leaving if site.site.is_drained(vm, self._now_s())))

    def measure(self, app: str, now_s: float) -> FlowSample | None:
        """See `LoadBalancer`; nothing of an application without a site."""
        del now_s
        self._reach()
        site = self._sites.get(app)
        return site.measure() if site is not None else None

    def restart(self) -> None:
        """Restart the load balancer, which loses its configuration."""
        for app in self.tables:
            if app in self._sites:
                self._sites[app].route(())
        self.tables.clear()
        self.orders.clear()

    def _reach(self) -> None:
        if self.fail_next:
            self.fail_next -= 1
            raise TransientError("the balancer does not answer")

    def serving(self, app: str) -> frozenset[str]:
        """Return the instances that get new requests."""
        return frozenset(backend.vm for backend in self.tables.get(app, ()) if not backend.drain)
