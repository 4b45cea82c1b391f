"""Web applications: known figures, every kind of goal, overload, saturation."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from daemons.models.response import FlowFigures, Hyperbola, MultiServer, model_of
from daemons.models.web_utility import AppUtility, FlowUtility, app_utilities, flow_utility, throughput_utility
from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import FlowColumns, WebColumns
from shared.values.web_app import ModelForm

INF, NAN = float("inf"), float("nan")
FIVE = flow_utility(Hyperbola(16_500.0, 30_000.0), goal_s=1.0, t_min_s=0.175)


def _erlang_c_s(servers: int, rate: float, service_s: float) -> float:
    """Mean response time of M/M/c, summed term by term."""
    offered = rate * service_s
    terms = [1.0]
    for k in range(1, servers + 1):
        terms.append(terms[-1] * offered / k)
    last = terms[-1] / (1.0 - offered / servers)
    waits = last / (sum(terms[:-1]) + last)
    return service_s + waits * service_s / (servers - offered)


def test_experiment_five() -> None:
    app = AppUtility((FIVE,), 130_000.0, 1.0)

    assert float(app.utility(50_000.0)) == pytest.approx(0.0, abs=1e-15)
    assert float(app.utility(130_000.0)) == pytest.approx(0.66, abs=1e-15)
    assert app.best == float(app.utility(1e9)) == float(app.utility(130_000.0))
    assert app.mhz(np.array([0.0, 0.66, 0.9])).tolist() == pytest.approx([50_000.0, 130_000.0, 130_000.0])


def test_overload_keeps_a_gradient() -> None:
    mhz = np.array([0.0, 10_000.0, 29_999.0, 30_000.0, 31_000.0, 31_600.0, 31_700.0, 32_000.0])

    utility = FIVE.utility(mhz)

    assert np.isfinite(utility).all()
    assert (np.diff(utility) > 0.0).all()
    np.testing.assert_allclose(FIVE.mhz(utility), mhz, rtol=1e-12, atol=1e-6)
    assert FIVE.response_s(mhz)[:4].tolist() == [INF] * 4
    assert float(FIVE.mhz(-1e9)) == float(FIVE.mhz(-INF)) == 0.0


def test_the_bend_is_smooth() -> None:
    bend = FIVE.late_mhz

    below, above = (FIVE.utility(bend + side) for side in (-1e-3, 1e-3))

    assert float(FIVE.utility(bend)) == pytest.approx(FIVE.late)
    assert (FIVE.late - below) == pytest.approx(above - FIVE.late, rel=1e-4)
    assert FIVE.late == pytest.approx((1.0 - 0.175 - 10.0) / 1.0)


def test_processor_sharing_by_hand() -> None:
    """100 requests/s of 20 Mcycles use 2,000 MHz; at 4,000 MHz a request takes 20 / 2,000 s beside 3 ms of waiting."""
    model = model_of(ModelForm.PROCESSOR_SHARING, FlowFigures(load_mhz=2000.0, work_mcycles=20.0))
    flow = flow_utility(model, goal_s=0.026, t_min_s=0.003)

    assert float(flow.response_s(4000.0)) == pytest.approx(0.013)
    assert float(flow.utility(4000.0)) == pytest.approx(0.5)


def test_a_percentile_of_a_queue_in_order_of_arrival() -> None:
    """M/M/1: the response time is exponential, so 95 % of requests take at most ln 20 mean times."""
    flow = flow_utility(Hyperbola(20.0, 2000.0), goal_s=0.05, percentile=0.95)

    assert float(flow.response_s(4000.0)) == pytest.approx(0.01 * np.log(20.0))
    assert float(flow.mhz(0.0)) == pytest.approx(2000.0 + 20.0 / (0.05 / np.log(20.0)))


def test_throughput_counts_what_can_be_answered() -> None:
    """40 Mcycles a request, 1,000 MHz used up by other flows."""
    flow = throughput_utility(goal_per_s=50.0, work_mcycles=40.0, others_mhz=1000.0)

    assert float(flow.utility(3000.0)) == pytest.approx(0.0, abs=1e-12)
    assert float(flow.utility(5000.0)) == pytest.approx(0.5)  # 100 requests/s
    assert float(flow.utility(2000.0)) == pytest.approx(-1.0)  # 25 requests/s
    assert float(flow.utility(INF)) == 1.0


@pytest.mark.parametrize("servers", [1, 2, 4, 16])
@pytest.mark.parametrize("busy", [0.3, 0.7, 0.95])
def test_many_servers_as_erlang(servers: int, busy: float) -> None:
    """Within 2.5 % of the exact M/M/c response time, exactly for one server."""
    vcpu_mhz, work = 2500.0, 50.0
    rate = busy * servers * vcpu_mhz / work
    model = MultiServer(work, rate * work, vcpu_mhz)

    found = float(model.excess_s(np.array([servers * vcpu_mhz]))[0])

    assert found == pytest.approx(_erlang_c_s(servers, rate, work / vcpu_mhz), rel=1e-9 if servers == 1 else 0.025)


def test_no_request_is_faster_than_one_vcpu() -> None:
    model = MultiServer(50.0, 1000.0, 2500.0)
    single = model.excess_s(np.array([1001.0, 2000.0, 2500.0]))
    flow = flow_utility(model, goal_s=0.04, t_min_s=0.005)

    assert single.tolist() == (50.0 / (np.array([1001.0, 2000.0, 2500.0]) - 1000.0)).tolist()
    assert float(model.excess_s(np.array([1e9]))[0]) == pytest.approx(50.0 / 2500.0)
    assert model.mhz(np.array([0.02, 0.01, 0.0, -1.0])).tolist() == [INF] * 4
    assert float(flow.utility(INF)) == pytest.approx(1.0 - 0.025 / 0.04)
    assert float(flow.mhz(0.9)) == INF


def test_many_servers_without_requests() -> None:
    model = MultiServer(50.0, 0.0, 2500.0)

    assert model.excess_s(np.array([1000.0, 2500.0, 9999.0])).tolist() == [0.05, 0.02, 0.02]
    assert model.mhz(np.array([0.05, 0.02])).tolist() == [1000.0, 2500.0]


def test_as_happy_as_the_unhappiest_flow() -> None:
    quick, slow = (flow_utility(Hyperbola(20.0, 2000.0), goal_s=goal) for goal in (0.01, 0.1))
    app = AppUtility((slow, quick), INF, 2.0)

    assert float(app.utility(3000.0)) == float(quick.utility(3000.0)) * 2.0 == pytest.approx(-2.0)
    assert float(app.utility(6000.0)) == float(quick.utility(6000.0)) / 2.0 == pytest.approx(0.25)
    assert float(app.mhz(0.25)) == pytest.approx(6000.0)


def test_without_flows_and_without_values() -> None:
    idle = AppUtility((), 1000.0, 1.0)
    app = AppUtility((FIVE,), 130_000.0, 1.0)

    assert (idle.utility([0.0, 5.0]).tolist(), idle.mhz([0.5]).tolist(), idle.best) == ([1.0, 1.0], [0.0], 1.0)
    assert app.utility(np.empty(0)).shape == app.mhz(np.empty(0)).shape == (0,)
    assert np.isnan(app.utility(NAN))
    assert np.isnan(app.mhz(NAN))


def test_importance_one_changes_no_bit() -> None:
    mhz = np.linspace(0.0, 2e5, 100)

    assert AppUtility((FIVE,), INF, 1.0).utility(mhz).tolist() == FIVE.utility(mhz).tolist()


@pytest.mark.parametrize("goal_s", [0.0, -1.0, INF, NAN])
def test_goals_that_are_none_are_refused(goal_s: float) -> None:
    with pytest.raises(InvalidValue):
        flow_utility(Hyperbola(1.0, 1.0), goal_s)
    with pytest.raises(InvalidValue):
        throughput_utility(goal_s, 1.0, 1.0)


@pytest.mark.parametrize("percentile", [1.0, -0.1, NAN])
def test_percentiles_that_are_none_are_refused(percentile: float) -> None:
    with pytest.raises(InvalidValue, match="percentile"):
        flow_utility(Hyperbola(1.0, 1.0), 1.0, percentile=percentile)


@pytest.mark.parametrize("form", ModelForm)
def test_missing_figures_are_refused(form: ModelForm) -> None:
    whole = FlowFigures(1.0, 1.0, 1.0, 1.0)
    needed = {
        ModelForm.SHIFTED_HYPERBOLA: ("load_mhz", "c_mhz_s"),
        ModelForm.PROCESSOR_SHARING: ("load_mhz", "work_mcycles"),
        ModelForm.MULTI_SERVER: ("load_mhz", "work_mcycles", "vcpu_mhz"),
    }

    model_of(form, whole)

    for name in needed[form]:
        for bad in (NAN, INF, -1.0):
            with pytest.raises(InvalidValue):
                model_of(form, dataclasses.replace(whole, **{name: bad}))


def test_a_tiny_request_beside_a_huge_load_stays_finite() -> None:
    flow = flow_utility(Hyperbola(1e-9, 1e9), goal_s=10.0)

    assert np.isfinite(flow.utility(np.array([0.0, 1e9, 2e9]))).all()
    assert (np.diff(flow.utility(np.array([0.0, 1e9, 2e9]))) > 0.0).all()


def _columns() -> tuple[WebColumns, FlowColumns]:
    """Two applications: one of two flows by processor sharing, one as in Experiment Five."""
    web = WebColumns(("shop", "five"), np.array([1, 1]), np.array([4, 25]), np.array([INF, 130_000.0]), np.ones(2))
    flows = FlowColumns(
        names=("browse", "buy", "all", "feed"),
        app=np.array([0, 0, 1, 0]),
        goal=np.array([0.05, 0.2, 1.0, 100.0]),
        percentile=np.array([0.0, 0.9, 0.0, 0.0]),
        throughput=np.array([False, False, False, True]),
        model=(
            ModelForm.PROCESSOR_SHARING,
            ModelForm.MULTI_SERVER,
            ModelForm.SHIFTED_HYPERBOLA,
            ModelForm.PROCESSOR_SHARING,
        ),
        t_min_s=np.array([0.0, 0.01, 0.175, 0.0]),
        c_mhz_s=np.array([NAN, NAN, 16_500.0, NAN]),
        load_mhz=np.array([0.0, 0.0, 30_000.0, 0.0]),
        rate_per_s=np.array([50.0, 10.0, 0.0, 20.0]),
        work_mcycles=np.array([20.0, 80.0, 0.0, 10.0]),
        response_factor=np.ones(4),
        expected_mhz=np.zeros(4),
    )
    return web, flows


def test_applications_of_a_snapshot() -> None:
    shop, five = app_utilities(*_columns(), vcpu_mhz=np.array([2500.0, 3900.0]))

    browse, buy, feed = shop.flows
    assert (browse.model, buy.model) == (Hyperbola(20.0, 2000.0), MultiServer(80.0, 2000.0, 2500.0))
    assert (feed.model, feed.goal_s) == (Hyperbola(10.0, 1800.0), 0.01)
    assert buy.tail == pytest.approx(np.log(10.0))
    assert (five.flows[0], five.max_mhz) == (FIVE, 130_000.0)


def test_a_stated_load_goes_before_the_sum() -> None:
    web, flows = _columns()
    stated = dataclasses.replace(flows, load_mhz=np.array([2600.0, 0.0, 30_000.0, 2600.0]))

    browse, buy, feed = app_utilities(web, stated, 2500.0)[0].flows

    assert [flow.model.load_mhz for flow in (browse, buy, feed)] == [2600.0, 2000.0, 2400.0]


def test_work_not_known_is_refused() -> None:
    web, flows = _columns()

    with pytest.raises(InvalidValue):
        app_utilities(web, dataclasses.replace(flows, work_mcycles=np.array([NAN, 80.0, 0.0, 10.0])), 2500.0)


def test_a_flow_is_a_plain_value() -> None:
    assert dataclasses.replace(FIVE) == FIVE
    assert isinstance(FIVE, FlowUtility)
