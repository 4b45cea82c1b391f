"""What windows of measurements say of the work of requests."""

from __future__ import annotations

import math
from random import Random

import pytest

from daemons.controller.state.web_app import WorkProfile
from daemons.controller.web.profiles import work_profile
from daemons.values.records.cluster import FlowWork, WorkWindow
from shared.values.web_app import Flow, WebApp


def app(*flows: Flow) -> WebApp:
    """An application of these flows."""
    return WebApp("shop", flows, 1000, max_mhz=4000.0, max_instances=4)


def window(mcycles: float, **served: int) -> WorkWindow:
    """A minute in which so much was used, and so many requests of each flow answered."""
    return WorkWindow(60.0, mcycles, 2, tuple(FlowWork(name, count) for name, count in served.items()))


def test_one_window_leaves_declared_work_and_tells_that_of_the_others() -> None:
    shop = app(Flow("browse", mean_s=0.2, work_mcycles=60.0), Flow("buy", mean_s=0.6))
    found = work_profile(shop, [window(60.0 * 500 + 170.0 * 40, browse=500, buy=40)]).flows
    assert set(found) == {"buy"}
    assert found["buy"].work_mcycles == pytest.approx(170.0)
    assert found["buy"].windows == 1
    assert work_profile(app(Flow("browse", mean_s=0.2, work_mcycles=60.0)), [window(100.0, browse=1)]) == WorkProfile()


def test_rates_that_never_vary_leave_declared_work_as_it_is() -> None:
    """Only their sum is known then: it is met, by the flow of which nothing was declared."""
    shop = app(Flow("browse", mean_s=0.2, work_mcycles=60.0), Flow("buy", mean_s=0.6))
    found = work_profile(shop, [window(66.0 * 500 + 200.0 * 40, browse=500, buy=40)] * 8).flows
    assert 500 * found["browse"].work_mcycles + 40 * found["buy"].work_mcycles == pytest.approx(41_000.0, rel=1e-6)


def test_all_flows_are_estimated_together_whatever_is_declared() -> None:
    """Rates that vary on their own tell both, the one that is declared a tenth too low too."""
    rng = Random(1)
    shop = app(Flow("browse", mean_s=0.2, work_mcycles=60.0), Flow("buy", mean_s=0.6))
    windows = []
    for _ in range(40):
        browse, buy = rng.randrange(400, 600), rng.randrange(30, 60)
        windows.append(window((66.0 * browse + 200.0 * buy) * (1.0 + rng.gauss(0.0, 0.005)), browse=browse, buy=buy))
    found = work_profile(shop, windows).flows
    assert found["browse"].work_mcycles == pytest.approx(66.0, rel=0.02)
    assert found["buy"].work_mcycles == pytest.approx(200.0, rel=0.05)
    assert found["browse"].half_width_frac < 0.05


def test_flows_that_rise_and_fall_together_keep_the_ratio_that_was_declared() -> None:
    """Given that all work was declared a third too high, then the sum is right, and so is each."""
    shop = app(Flow("browse", mean_s=0.2, work_mcycles=90.0), Flow("buy", mean_s=0.6, work_mcycles=270.0))
    rates = [200, 300, 400, 500, 300, 200, 450, 350]
    found = work_profile(shop, [window(60.0 * 5 * n + 180.0 * n, browse=5 * n, buy=n) for n in rates]).flows
    assert found["browse"].work_mcycles == pytest.approx(60.0, rel=0.05)
    assert found["buy"].work_mcycles == pytest.approx(180.0, rel=0.2)


def test_flows_that_cannot_be_told_apart_share_their_average() -> None:
    """Two flows that rise and fall together need as much as both on average, and how sure that is is not known."""
    shop = app(Flow("browse", mean_s=0.2), Flow("buy", mean_s=0.6))
    found = work_profile(
        shop, [window(50.0 * 300 * k + 200.0 * 100 * k, browse=300 * k, buy=100 * k) for k in (1, 2, 3, 1, 2)]
    ).flows
    for name in ("browse", "buy"):
        assert found[name].work_mcycles == pytest.approx(35_000 / 400)
        assert math.isinf(found[name].half_width_frac)


def test_nothing_is_said_of_what_was_not_seen() -> None:
    """No windows, no requests: no estimate."""
    shop = app(Flow("browse", mean_s=0.2, work_mcycles=60.0), Flow("buy", mean_s=0.6))
    assert work_profile(shop, []) == WorkProfile()
    assert "buy" not in work_profile(shop, [window(6000.0, browse=100, buy=0)] * 5).flows


def test_what_instances_use_beside_their_requests_is_told_where_rates_vary() -> None:
    """Each of two instances uses 25 MHz; 1,500 Mcycles are that for a minute."""
    shop = app(Flow("browse", mean_s=0.2, work_mcycles=60.0))
    found = work_profile(shop, [window(66.0 * n + 60.0 * 50.0, browse=n) for n in (100, 200, 400, 100, 300, 200)])
    assert found.flows["browse"].work_mcycles == pytest.approx(66.0, rel=0.02)
    assert found.background_mhz == pytest.approx(50.0, rel=0.1)
    same = work_profile(shop, [window(66.0 * 300 + 60.0 * 50.0, browse=300)] * 6)
    assert same.background_mhz == 0.0  # part of the requests' work then


def test_no_background_is_told_where_the_work_of_a_flow_is_not() -> None:
    shop = app(Flow("browse", mean_s=0.2))
    found = work_profile(shop, [window(66.0 * n + 60.0 * 50.0, browse=n) for n in (100, 200)])
    assert (found.flows["browse"].windows, found.background_mhz) == (2, 0.0)
