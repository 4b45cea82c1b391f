"""Utility of web applications rises with CPU and can be inverted, below the load as well as above."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from daemons.models.response import FlowFigures, Hyperbola, MultiServer, ResponseModel, model_of
from daemons.models.web_utility import (
    AppColumns,
    AppUtility,
    FlowUtility,
    app_columns,
    app_utilities,
    flow_utility,
    throughput_utility,
)
from shared.policy_api.snapshot import FlowColumns, WebColumns
from shared.values.web_app import ModelForm
from tests.extent import examples

steady = settings(max_examples=examples(100))
loads = st.floats(1.0, 1e6) | st.just(0.0)
models = st.builds(Hyperbola, st.floats(1e-2, 1e5), loads) | st.builds(
    MultiServer, st.floats(1e-2, 1e5), loads, st.floats(500.0, 5000.0)
)
flows = st.builds(
    flow_utility, models, st.floats(1e-3, 100.0), st.floats(0.0, 10.0), st.floats(0.01, 0.999) | st.just(0.0)
)
apps = st.builds(AppUtility, st.lists(flows, min_size=1, max_size=3).map(tuple), st.just(np.inf), st.floats(0.1, 10.0))
allotments = st.floats(0.0, 1e7)


@steady
@given(model=models, parts=st.lists(st.floats(1e-6, 1e3), min_size=2, max_size=20))
def test_more_cpu_never_makes_a_request_slower(model: ResponseModel, parts: list[float]) -> None:
    scale = max(model.load_mhz, 1000.0)
    mhz = model.load_mhz + scale * np.sort(parts)

    excess = model.excess_s(mhz)

    assert (np.diff(excess) <= 1e-12 * excess[:-1]).all()
    assert (excess >= model.least_s).all()


@steady
@given(model=models, part=st.floats(1e-6, 1e2))
def test_the_allotment_of_a_response_time_gives_that_time(model: ResponseModel, part: float) -> None:
    mhz = np.array([model.load_mhz + part * max(model.load_mhz, 1000.0)])
    excess = model.excess_s(mhz)
    assume(float(excess[0]) > model.least_s * (1.0 + 1e-9))

    back = model.mhz(excess)

    np.testing.assert_allclose(model.excess_s(back), excess, rtol=1e-8)


@steady
@given(model=models, part=st.floats(1e-3, 1e2))
def test_the_slope_is_that_of_the_excess(model: ResponseModel, part: float) -> None:
    load_mhz = float(model.load_mhz)
    mhz = load_mhz + part * max(load_mhz, 1000.0)
    near = 1e-6 * (mhz - load_mhz)
    if isinstance(model, MultiServer):
        assume(abs(mhz - float(model.vcpu_mhz)) > 2.0 * near)
    low, high = model.excess_s(np.array([mhz - near, mhz + near]))

    blur = 1e-14 * low / near
    assert (high - low) / (2.0 * near) == pytest.approx(float(model.slope(np.asarray(mhz))), rel=1e-4, abs=blur)


@steady
@given(flow=flows, one=allotments, other=allotments)
def test_utility_rises_with_cpu(flow: FlowUtility, one: float, other: float) -> None:
    low, high = sorted((one, other))

    below, above = flow.utility(np.array([low, high]))

    assert np.isfinite(below)
    assert below <= above + 1e-12 * (1.0 + abs(above))
    assert above <= 1.0
    if high < flow.late_mhz and (high - low) * flow.late_slope > 1e-9 * abs(below):
        assert below < above


@steady
@given(app=apps, mhz=allotments)
def test_the_allotment_of_a_utility_gives_that_utility(app: AppUtility, mhz: float) -> None:
    utility = float(app.utility(mhz))

    reached = float(app.utility(app.mhz(utility)))

    assert reached == pytest.approx(utility, rel=1e-6, abs=1e-6)


@steady
@given(app=apps, utility=st.floats(-1e6, 1.0), cap=st.floats(1.0, 1e6))
def test_what_can_be_reached_is_reached(app: AppUtility, utility: float, cap: float) -> None:
    capped = AppUtility(app.flows, cap, app.importance)

    mhz = float(capped.mhz(utility))

    assert 0.0 <= mhz <= cap
    reached = float(capped.utility(mhz))
    wanted = min(utility, capped.best)
    assert reached >= wanted - 1e-6 * (1.0 + abs(wanted))


@steady
@given(app=apps, values=st.lists(allotments, min_size=1, max_size=5))
def test_many_at_once_as_one_at_a_time(app: AppUtility, values: list[float]) -> None:
    together = app.utility(np.array(values))

    assert together.tolist() == [float(app.utility(value)) for value in values]
    np.testing.assert_allclose(app.mhz(together), [float(app.mhz(one)) for one in together], rtol=1e-12)


@steady
@given(
    several=st.lists(apps | st.just(AppUtility((), 1000.0, 2.0)), max_size=6), values=st.lists(allotments, min_size=1)
)
def test_applications_side_by_side_are_as_each_alone(several: list[AppUtility], values: list[float]) -> None:
    columns = AppColumns.of(several)
    late = [max((flow.late_mhz for flow in app.flows), default=0.0) for app in several]

    assert columns.utility(np.array([values] * len(several)).reshape(-1, len(values))).tolist() == [
        app.utility(values).tolist() for app in several
    ]
    assert columns.best.tolist() == [app.best for app in several]
    assert columns.late_mhz.tolist() == late


figures = st.tuples(
    st.sampled_from(ModelForm),
    st.booleans(),
    st.floats(1e-3, 100.0),  # goal
    st.floats(1e-2, 1e5),  # work
    loads,
    st.floats(0.0, 1e3),  # rate
    st.sampled_from((0.0, 0.5, 0.99)),
    st.floats(0.1, 10.0),
)


@steady
@given(rows=st.lists(figures, min_size=1, max_size=12), apps_count=st.integers(1, 4), vcpu_mhz=st.floats(500.0, 5000.0))
def test_the_flows_of_a_snapshot_are_as_each_made_alone(
    rows: list[tuple[ModelForm, bool, float, float, float, float, float, float]], apps_count: int, vcpu_mhz: float
) -> None:
    """One flow at a time, in a plain loop."""
    forms, throughput, goal, work, load, rate, percentile, factor = zip(*rows, strict=True)
    app = [row % apps_count for row in range(len(rows))]
    sums = [sum(r * w for r, w, of in zip(rate, work, app, strict=True) if of == each) for each in range(apps_count)]
    web = WebColumns(
        tuple("abcd"[:apps_count]),
        *(np.ones(apps_count, dtype=np.int64),) * 2,
        np.full(apps_count, 1e4),
        np.linspace(1.0, 2.0, apps_count),
    )
    flows = FlowColumns(
        tuple("abcdefghijkl"[: len(rows)]),
        np.array(app),
        np.array(goal),
        percentile=np.array(percentile),
        throughput=np.array(throughput),
        model=forms,
        t_min_s=np.full(len(rows), 0.01),
        c_mhz_s=np.full(len(rows), 7.0),
        load_mhz=np.array(load),
        rate_per_s=np.array(rate),
        work_mcycles=np.array(work),
        response_factor=np.array(factor),
        expected_mhz=np.zeros(len(factor)),
    )

    found = app_utilities(web, flows, vcpu_mhz)

    alone: list[list[FlowUtility]] = [[] for _ in range(apps_count)]
    for row, of in enumerate(app):
        stated = load[row] > 0.0 or forms[row] is ModelForm.SHIFTED_HYPERBOLA
        load_mhz = load[row] if stated else sums[of]
        model = model_of(forms[row], FlowFigures(load_mhz, 7.0, work[row], vcpu_mhz))
        if throughput[row]:
            one = throughput_utility(goal[row], work[row], max(0.0, load_mhz - rate[row] * work[row]))
        else:
            one = flow_utility(model, goal[row], 0.01, percentile[row], factor[row])
        alone[of].append(one)
    assert [each.flows for each in found] == [tuple(own) for own in alone]
    at_once, one_by_one = app_columns(web, flows, vcpu_mhz), AppColumns.of(found)
    given_mhz = np.tile([0.0, 0.5, 1.0, 1e3, 1e5], (apps_count, 1))
    assert len(at_once) == len(one_by_one) == apps_count
    assert at_once.utility(given_mhz).tolist() == one_by_one.utility(given_mhz).tolist()
    assert at_once.late_mhz.tolist() == one_by_one.late_mhz.tolist()
    assert at_once.best.tolist() == one_by_one.best.tolist()
