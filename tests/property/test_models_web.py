"""Utility of web applications rises with CPU and can be inverted, below the load as well as above."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from daemons.models.response import Hyperbola, MultiServer, ResponseModel
from daemons.models.web_utility import AppUtility, FlowUtility, flow_utility
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
    mhz = model.load_mhz + part * max(model.load_mhz, 1000.0)
    near = 1e-6 * (mhz - model.load_mhz)
    if isinstance(model, MultiServer):
        assume(abs(mhz - model.vcpu_mhz) > 2.0 * near)
    low, high = model.excess_s(np.array([mhz - near, mhz + near]))

    blur = 1e-14 * low / near
    assert (high - low) / (2.0 * near) == pytest.approx(model.slope(mhz), rel=1e-4, abs=blur)


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
