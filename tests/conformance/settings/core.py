"""A controller's core made from the text of its file, and what it did."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, TypeVar

from daemons.config.controller import ControllerConfig
from daemons.drivers.load_balancers import make_balancer
from daemons.drivers.power import make_driver
from daemons.service.settings_from_config import settings_of
from shared.ports import effects as fx
from shared.protocol.messages import Happened, Order
from tests.conformance.settings.row import Given
from tests.support.controller_harness import ControllerHarness

H = TypeVar("H", bound=ControllerHarness)

# What others see; what is stored and what is computed from is left out.
_SEEN = (fx.Publish, fx.Power, fx.Balance, fx.StartTimer, fx.DeadLetter, fx.Exit, fx.Scrape, fx.ReadPrices)


class Recorded(ControllerHarness):
    """A controller of which everything that others see is kept, with its time."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.seen: list[tuple[float, str]] = []
        self.ordered: list[tuple[float, str, str, str]] = []
        self.happened: list[tuple[float, str, str, str]] = []
        super().__init__(*arguments, **settings)

    def carry(self, effects: list[fx.Effect]) -> None:
        self.seen += [(self.now_s, repr(effect)) for effect in effects if isinstance(effect, _SEEN)]
        for effect in effects:
            if isinstance(effect, fx.Publish) and isinstance(order := effect.message, Order):
                self.ordered.append((self.now_s, order.action.kind.value, order.action.vm, order.action.node))
            if isinstance(effect, fx.Publish) and isinstance(event := effect.message, Happened):
                self.happened.append((self.now_s, event.what, event.subject, event.detail))
        super().carry(effects)


def made(given: Given, kind: type[H], nodes: Iterable[str] = ("n1", "n2")) -> H:
    """A controller with all that its file says, as `daemons.service.main.build` makes it."""
    config = given.read(ControllerConfig)
    balancer = make_balancer(config.balancer)
    settings = settings_of(config, make_driver(config.power), balancer.measures)
    return kind(nodes, **{each.name: getattr(settings, each.name) for each in fields(settings)})


def led(given: Given, nodes: Iterable[str] = ("n1", "n2")) -> Recorded:
    """The same, leading over nodes that have reported."""
    harness = made(given, Recorded, nodes)
    harness.lead()
    return harness
