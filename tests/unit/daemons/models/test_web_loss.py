"""What taking a node costs web applications: utility by their models, hour by hour, in currency."""

from __future__ import annotations

import numpy as np
import pytest

from daemons.models.web_loss import hourly_losses, utility_lost
from daemons.models.web_utility import AppUtility, app_utilities
from daemons.values.settings import PriceSettings
from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Floats, FlowColumns, WebColumns
from shared.ports.effects import Scraped
from shared.protocol.operator_messages import SubmitWeb
from shared.values.web_app import Flow, FlowSample, ModelForm, WebApp
from tests.support import parts
from tests.support.controller_harness import ControllerHarness

HOUR_S = 3600.0


def columns(goals_s: list[float], rates: list[float], work_mcycles: float = 50.0) -> tuple[WebColumns, FlowColumns]:
    """Applications of one flow each, by processor sharing."""
    count = len(goals_s)
    ones = np.ones(count)
    web = WebColumns(tuple(map(str, range(count))), 0 * np.arange(count), np.arange(count) + 9, 1e5 * ones, ones)
    flows = FlowColumns(
        tuple("f" * count),
        np.arange(count),
        np.array(goals_s),
        percentile=0.0 * ones,
        throughput=ones < 0,
        model=(ModelForm.PROCESSOR_SHARING,) * count,
        t_min_s=0.0 * ones,
        c_mhz_s=work_mcycles * ones,
        load_mhz=0.0 * ones,
        rate_per_s=np.array(rates),
        work_mcycles=work_mcycles * ones,
        response_factor=ones,
        expected_mhz=np.zeros_like(ones),
    )
    return web, flows


def apps(goals_s: list[float], rates: list[float]) -> tuple[AppUtility, ...]:
    return app_utilities(*columns(goals_s, rates), 2000.0)


def response_utility(goal_s: float, load_mhz: float, mhz: float, work_mcycles: float = 50.0) -> float:
    """By hand: u = (goal - work / (w - load)) / goal."""
    return (goal_s - work_mcycles / (mhz - load_mhz)) / goal_s


def test_one_application_loses_what_its_formula_says() -> None:
    lost = utility_lost(apps([0.1], [40.0]), 8_000.0, 2_000.0)
    assert lost == pytest.approx(response_utility(0.1, 2000.0, 8_000.0) - response_utility(0.1, 2000.0, 6_000.0))


def test_two_applications_are_kept_level() -> None:
    """Given two that differ only in their goal, then both stay at one utility with and without the node."""
    both = apps([0.1, 0.2], [40.0, 40.0])

    def level(mhz: float) -> float:
        # (mhz - both loads) is shared so that work / spare / goal is the same for both
        spare = mhz - 4_000.0
        return 1.0 - 50.0 / (spare * 2.0 / 3.0) / 0.1

    assert utility_lost(both, 10_000.0, 2_000.0) == pytest.approx(2.0 * (level(10_000.0) - level(8_000.0)), rel=1e-6)


def test_nothing_is_lost_without_demand_or_applications() -> None:
    assert utility_lost((), 8_000.0, 2_000.0) == 0.0
    assert utility_lost(apps([0.1], [0.0]), 300_000.0, 2_000.0) == 0.0


def test_the_more_demand_the_more_is_lost() -> None:
    web, flows = columns([0.1], [0.0])
    losses = hourly_losses(web, flows, 2000.0, np.array([[0.0], [40.0], [80.0], [110.0], [400.0]]), 8_000.0, 2_000.0)
    assert (np.diff(losses[:4]) > 0.0).all()
    assert np.isfinite(losses).all()
    assert losses[1] == pytest.approx(utility_lost(apps([0.1], [40.0]), 8_000.0, 2_000.0))


def test_the_last_node_takes_all_that_is_left() -> None:
    both = apps([0.1], [10.0])
    assert utility_lost(both, 1_000.0, 5_000.0) == utility_lost(both, 1_000.0, 1_000.0) > 0.0


@pytest.mark.parametrize(("total", "node"), [(-1.0, 1.0), (1.0, 0.0), (1.0, float("nan"))])
def test_sizes_that_cannot_be(total: float, node: float) -> None:
    with pytest.raises(InvalidValue):
        utility_lost((), total, node)


# --- in the controller -------------------------------------------------------------------------------------------

SHOP = WebApp(
    "shop",
    (Flow("browse", mean_s=0.1, work_mcycles=50.0),),
    500,
    max_mhz=4000.0,
    min_instances=0,
    max_instances=2,
    metrics_url="http://lb/m",
)


def measured(harness: ControllerHarness, rate: float) -> None:
    """What the counters say of the last minute."""
    harness.feed(
        Scraped(
            "shop", harness.now_s, (FlowSample("browse", 60.0, int(60 * rate), served=int(60 * rate), mean_s=0.05),)
        )
    )


def added(harness: ControllerHarness, hours: list[int]) -> Floats:
    view = parts.energy(harness.controller).prices.view(harness.now_s, HOUR_S)
    return view.added[hours]


def test_a_node_costs_what_the_demand_of_the_hour_before_makes_it_worth() -> None:
    """Given much demand in the first hour and little afterwards, then a node costs more in the first hour of the next
    day than in the hours between; per_utility times the utility lost."""
    harness = ControllerHarness(prices=PriceSettings(per_utility=10.0), decide_s=HOUR_S / 2).lead()
    harness.ask(SubmitWeb("w", SHOP))
    for half in range(6):
        measured(harness, 60.0 if half < 2 else 10.0)
        harness.now_s += HOUR_S / 2 - 1.0
        parts.energy(harness.controller).cycle(harness.now_s)
        harness.now_s += 1.0
    web, flows = columns([0.1], [0.0])
    web = WebColumns(web.names, web.min_instances, web.max_instances, np.array([8000.0]), web.importance)
    busy, calm = hourly_losses(web, flows, 1000.0, np.array([[60.0], [10.0]]), 8_000.0, 4_000.0)
    assert busy > calm
    assert added(harness, [0, 21, 22]) == pytest.approx([10.0 * calm, 10.0 * busy, 10.0 * calm])


def test_what_an_hour_demands_is_remembered_smoothly() -> None:
    """Given 60 requests a second on one day and 10 at the same hour of the next, then 45 are expected there."""
    harness = ControllerHarness(prices=PriceSettings(per_utility=10.0), decide_s=HOUR_S).lead()
    harness.ask(SubmitWeb("w", SHOP))
    measured(harness, 60.0)
    parts.energy(harness.controller).cycle(harness.now_s)
    harness.now_s = 86_500.0
    measured(harness, 10.0)  # the cycle is due, too
    web, flows = columns([0.1], [0.0])
    web = WebColumns(web.names, web.min_instances, web.max_instances, np.array([8000.0]), web.importance)
    (smooth,) = hourly_losses(web, flows, 1000.0, np.array([[45.0]]), 8_000.0, 4_000.0)
    assert added(harness, [0, 24]) == pytest.approx([10.0 * smooth] * 2)


def test_nothing_is_added_unless_utility_has_a_price() -> None:
    harness = ControllerHarness().lead()
    harness.ask(SubmitWeb("w", SHOP))
    measured(harness, 60.0)
    assert not added(harness, [0, 1, 2]).any()
    assert parts.energy(harness.controller).web_loss is None
