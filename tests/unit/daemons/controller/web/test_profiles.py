"""What windows of measurements say of the work of requests."""

from __future__ import annotations

import math

import pytest

from daemons.controller.web.profiles import estimates_of
from daemons.values.records.cluster import FlowWork, WorkWindow
from shared.values.web_app import Flow, WebApp


def app(*flows: Flow) -> WebApp:
    """An application of these flows."""
    return WebApp("shop", flows, 1000, max_mhz=4000.0, max_instances=4)


def window(mcycles: float, **served: int) -> WorkWindow:
    """A minute in which so much was used, and so many requests of each flow answered."""
    return WorkWindow(60.0, mcycles, 2, tuple(FlowWork(name, count) for name, count in served.items()))


def test_declared_work_is_taken_off_first() -> None:
    """Rates that never vary tell the work of the one flow that does not declare it."""
    shop = app(Flow("browse", mean_s=0.2, work_mcycles=60.0), Flow("buy", mean_s=0.6))
    for count in (1, 5):
        found = estimates_of(shop, [window(60.0 * 500 + 170.0 * 40, browse=500, buy=40)] * count)
        assert set(found) == {"buy"}
        assert found["buy"].work_mcycles == pytest.approx(170.0)
        assert found["buy"].windows == count
    assert estimates_of(app(Flow("browse", mean_s=0.2, work_mcycles=60.0)), [window(100.0, browse=1)]) == {}


def test_flows_that_cannot_be_told_apart_share_their_average() -> None:
    """Two flows that rise and fall together need as much as both on average, and how sure that is is not known."""
    shop = app(Flow("browse", mean_s=0.2), Flow("buy", mean_s=0.6))
    found = estimates_of(
        shop, [window(50.0 * 300 * k + 200.0 * 100 * k, browse=300 * k, buy=100 * k) for k in (1, 2, 3, 1, 2)]
    )
    for name in ("browse", "buy"):
        assert found[name].work_mcycles == pytest.approx(35_000 / 400)
        assert math.isinf(found[name].half_width_frac)


def test_nothing_is_said_of_what_was_not_seen() -> None:
    """No windows, no requests, or no CPU left over: no estimate."""
    shop = app(Flow("browse", mean_s=0.2, work_mcycles=60.0), Flow("buy", mean_s=0.6))
    assert estimates_of(shop, []) == {}
    assert estimates_of(shop, [window(6000.0, browse=100, buy=0)] * 5) == {}
    assert estimates_of(shop, [window(5000.0, browse=100, buy=10)] * 5) == {}
