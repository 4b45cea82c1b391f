"""Prices, energy and costs in the closed loop: a feed that fails, and a controller that is killed and comes again."""

from __future__ import annotations

import math

import pytest

from agents.core.settings import AgentSettings
from daemons.controller.core.controller import Controller
from daemons.values.records.cluster import CostRecord
from daemons.values.settings import ControllerSettings, Draw, PowerSettings, PriceSettings
from shared.base.errors import InvalidValue
from shared.ports.effects import Effect, Publish
from shared.protocol.messages import Happened
from shared.values.nodes import Node
from sim_backend.fakes.price_feed import DAY_S, PUBLISHED_S, FakePrices, FeedFault
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings
from tests.support import parts

HOUR_S = 3600.0
CYCLE_S = 900.0
DAYS = 12
STARTS = tuple(HOUR_S * at for at in range(-24 * DAYS, 24 * DAYS))


def price_at(start_s: float) -> float:
    """Negative in the first hours of the day, dearer day by day."""
    return (start_s % DAY_S / HOUR_S - 3.0) / 100.0 + start_s / DAY_S / 1000.0


def feed(*faults: FeedFault) -> FakePrices:
    return FakePrices(STARTS, tuple(map(price_at, STARTS)), DAYS * DAY_S, faults)


def cost_of_kw(from_s: float, to_s: float) -> float:
    """By hand, hour by hour."""
    parts = ((max(from_s, start), min(to_s, start + HOUR_S), price_at(start)) for start in STARTS)
    return math.fsum((end - begin) / HOUR_S * price for begin, end, price in parts if end > begin)


class Loop(ClosedLoop):
    """Notes the events about prices."""

    def __init__(self, nodes: list[Node], settings: LoopSettings) -> None:
        super().__init__(nodes, settings)
        self.told: list[str] = []

    def note(self, _shell: object, effect: Effect) -> None:
        message = effect.message if isinstance(effect, Publish) else None
        if isinstance(message, Happened) and message.subject == "prices":
            self.told.append(message.what)


def loop_of(prices: FakePrices) -> Loop:
    """Two idle nodes that draw 100 W each; little happens, so that days pass quickly."""
    settings = ControllerSettings(
        report_s=300.0,
        reconcile_s=300.0,
        probe_s=300.0,
        unreachable_after_s=1000.0,
        decide_s=CYCLE_S,
        prices=PriceSettings(shape="series", per_kwh=0.5),
        power=PowerSettings(draws={"default": Draw(100.0, 200.0, 5.0)}),
    )
    loop = Loop(
        [Node(f"n{at}", 4, 1000.0, memory_mib=4000) for at in (1, 2)],
        LoopSettings(settings, AgentSettings(report_s=300.0)),
    )
    for controller in loop.controllers.values():
        controller.read_prices, controller.on_effect = prices, loop.note
    return loop


def costs(loop: ClosedLoop) -> list[CostRecord]:
    return [record for record in loop.store.records() if isinstance(record, CostRecord)]


@pytest.mark.full
def test_every_cycle_costs_what_its_hours_cost() -> None:
    loop = loop_of(feed())
    loop.run_until(1.2 * DAY_S)
    found = costs(loop)
    assert len(found) == int(1.2 * DAY_S / CYCLE_S)
    for record in found[1:]:
        assert record.span_s == CYCLE_S
        assert record.kwh == pytest.approx(0.2 * CYCLE_S / HOUR_S)
        assert record.cost == pytest.approx(0.2 * cost_of_kw(record.at_s, record.at_s + CYCLE_S))
        assert (record.static_kwh, record.static_cost) == (record.kwh, record.cost)
        assert record.in_service_node_s == record.node_s == 2 * CYCLE_S
    assert min(record.cost for record in found) < 0.0 < max(record.cost for record in found)
    assert loop.told == []


@pytest.mark.full
def test_a_feed_that_stops_and_goes_back_is_told_and_costs_are_forecast() -> None:
    """Given a feed that stops before it has tomorrow's prices, then it is told when the day ends; one that goes back to
    the day before is told once, and what was known stays."""
    stopped = FeedFault("stopped", DAY_S + HOUR_S, 2 * DAY_S + PUBLISHED_S)
    loop = loop_of(feed(stopped, FeedFault("back", 3.7 * DAY_S, 3.9 * DAY_S)))
    loop.run_until(2 * DAY_S + HOUR_S)
    assert loop.told == ["prices-stale"]
    (record,) = (one for one in costs(loop) if one.at_s < 2 * DAY_S + HOUR_S / 2 <= one.at_s + CYCLE_S)
    yesterday, before = cost_of_kw(DAY_S, DAY_S + CYCLE_S), cost_of_kw(0.0, CYCLE_S)
    assert record.cost == pytest.approx(0.2 * (yesterday + before) / 2)
    loop.run_until(4 * DAY_S)
    assert loop.told == ["prices-stale", "prices-fresh", "prices-went-back"]
    assert costs(loop)[-1].cost == pytest.approx(0.2 * cost_of_kw(costs(loop)[-1].at_s, costs(loop)[-1].at_s + CYCLE_S))


def test_a_killed_controller_goes_on_with_the_days_that_are_stored() -> None:
    loop = loop_of(feed(FeedFault("silent", 0.0, 2 * HOUR_S)))
    loop.run_until(HOUR_S + 400.0)
    loop.controllers["a"].restart()
    loop.run_until(5 * HOUR_S)
    assert loop.told == ["prices-stale", "prices-stale", "prices-fresh"]
    core = loop.controllers["a"].core
    assert isinstance(core, Controller)
    ((_, day),) = parts.energy(core).days.items()
    found = costs(loop)
    assert day.kwh == pytest.approx(math.fsum(record.kwh for record in found))
    assert day.span_s == pytest.approx(math.fsum(record.span_s for record in found))
    assert 5 * HOUR_S - 400.0 - CYCLE_S < day.span_s <= 5 * HOUR_S - 400.0  # the cycle that it died in is lost


def test_a_feed_publishes_as_a_market_does() -> None:
    prices = feed()
    assert prices(PUBLISHED_S - 1.0).until_s == DAY_S
    assert prices(PUBLISHED_S).until_s == 2 * DAY_S
    assert prices(PUBLISHED_S) is prices(DAY_S)
    assert prices(DAY_S / 2).starts_s == STARTS[24 * DAYS : 24 * DAYS + 24]
    with pytest.raises(InvalidValue):
        FeedFault("odd", 0.0, 1.0)
