"""The limits of overload protection against a search over loads, and what no figure may do to them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemons.models.overload import FlowLoad, greatest_load_mhz, limits_of
from daemons.models.response import FlowFigures, model_of
from shared.values.web_app import QUEUE_MAX, Limits, ModelForm
from tests.extent import examples

STEPS = 4_000
RATES = st.floats(0.1, 1_000.0)
FLOWS = st.builds(
    FlowLoad,
    RATES,
    st.floats(1.0, 200.0),
    st.floats(0.0, 0.2),
    st.floats(0.05, 5.0),
    st.sampled_from((0.0, 0.5, 0.9, 0.99)),
    st.sampled_from((ModelForm.PROCESSOR_SHARING, ModelForm.MULTI_SERVER)),
)
ANY = st.floats(allow_nan=True, allow_infinity=True)


def response_s(flow: FlowLoad, mhz: float, vcpu_mhz: float, load_mhz: float) -> float:
    """What the goal is about: the mean, or the percentile of an exponential tail."""
    return flow.t_min_s + tail_of(flow) * (mean_s(flow, mhz, vcpu_mhz, load_mhz) - flow.t_min_s)


def tail_of(flow: FlowLoad) -> float:
    return -math.log1p(-flow.percentile) if flow.percentile else 1.0


def mean_s(flow: FlowLoad, mhz: float, vcpu_mhz: float, load_mhz: float) -> float:
    figures = FlowFigures(load_mhz, flow.work_mcycles, flow.work_mcycles, vcpu_mhz)
    return flow.t_min_s + float(model_of(flow.form, figures).excess_s(np.array([mhz]))[0])


def naive(flows: list[FlowLoad], mhz: float, vcpu_mhz: float) -> float:
    """Requests under way at the greatest of many loads at which every flow meets its goal; 0 where none does."""
    total = sum(flow.rate_per_s for flow in flows)
    work = sum(flow.rate_per_s * flow.work_mcycles for flow in flows) / total
    loads = mhz * (1.0 - np.logspace(-9.0, 0.0, STEPS))
    met, in_progress = np.ones(STEPS, dtype=bool), np.zeros(STEPS)
    for flow in flows:
        times = np.array([flow.t_min_s + excess_s(flow, mhz, vcpu_mhz, load) for load in loads])
        met &= flow.t_min_s + tail_of(flow) * (times - flow.t_min_s) <= (flow.goal_s or 0.0)
        in_progress += flow.rate_per_s / total * times * loads / work
    return float(in_progress[met].max(initial=0.0))


def excess_s(flow: FlowLoad, mhz: float, vcpu_mhz: float, load_mhz: float) -> float:
    """The formulas of the papers, written down again."""
    servers, busy = mhz / vcpu_mhz, load_mhz / mhz
    if flow.form is not ModelForm.MULTI_SERVER or servers <= 1.0:
        return flow.work_mcycles / (mhz - load_mhz)
    waits = busy ** (math.sqrt(2.0 * (servers + 1.0)) - 1.0) / (servers * (1.0 - busy))
    return float(flow.work_mcycles / vcpu_mhz * (1.0 + waits))


@settings(max_examples=examples(25))
@given(st.lists(FLOWS, min_size=1, max_size=3), st.floats(200.0, 20_000.0), st.sampled_from((1_000.0, 3_000.0)))
def test_as_many_are_let_in_as_a_search_finds(flows: list[FlowLoad], mhz: float, vcpu_mhz: float) -> None:
    """The limit is what the search finds, or as many as use all of the CPU where that is more."""
    vcpus = math.ceil(mhz / vcpu_mhz)
    found = limits_of(flows, mhz, vcpu_mhz, vcpus, 1).instance_max
    assert found is not None
    total = sum(flow.rate_per_s for flow in flows)
    work = sum(flow.rate_per_s * flow.work_mcycles for flow in flows) / total
    alone = sum(flow.rate_per_s * mean_s(flow, mhz, vcpu_mhz, 0.0) for flow in flows) / total
    multi = any(flow.form is ModelForm.MULTI_SERVER for flow in flows)
    least = max(mhz / work * alone, vcpus if multi else 0.0)
    searched = naive(flows, mhz, vcpu_mhz)
    expected = max(searched, math.ceil(least - 1e-6))
    assert found == pytest.approx(expected, rel=0.02, abs=1.0)


@settings(max_examples=examples(200))
@given(FLOWS, st.floats(200.0, 20_000.0))
def test_at_the_greatest_load_the_goal_is_just_met(flow: FlowLoad, mhz: float) -> None:
    load_mhz = greatest_load_mhz(flow, mhz, 2_000.0)
    assert 0.0 <= load_mhz < mhz
    assert flow.goal_s is not None
    if load_mhz > 0.0:
        assert response_s(flow, mhz, 2_000.0, load_mhz) == pytest.approx(flow.goal_s, rel=1e-6)
    else:
        assert response_s(flow, mhz, 2_000.0, 0.0) >= flow.goal_s * (1.0 - 1e-9)


@settings(max_examples=examples(200))
@given(FLOWS, st.floats(200.0, 20_000.0), st.integers(1, 50))
def test_whoever_is_let_in_is_answered_in_time(flow: FlowLoad, mhz: float, instances: int) -> None:
    """In the queue and at work together there are no more requests than the instances answer within the goal, but for
    one that may always wait, and those that it takes to use all of the CPU."""
    found = limits_of([flow], mhz, 2_000.0, 1, instances)
    assert found.instance_max is not None
    assert found.queue_max is not None
    assert flow.goal_s is not None
    answered = instances * mhz / flow.work_mcycles * flow.goal_s
    if found.queue_max > 1:
        assert found.instance_max * instances + found.queue_max <= answered * (1.0 + 1e-6) + 1.0


@settings(max_examples=examples(200))
@given(st.builds(FlowLoad, ANY, ANY, ANY, ANY), ANY, ANY, st.integers(1, 64), st.integers(0, 1_000_000))
def test_any_figures_give_limits_or_none(
    flow: FlowLoad, mhz: float, vcpu_mhz: float, vcpus: int, instances: int
) -> None:
    for form in ModelForm:
        each = FlowLoad(flow.rate_per_s, flow.work_mcycles, flow.t_min_s, flow.goal_s, 0.9, form)
        found = limits_of([each], mhz, vcpu_mhz, vcpus, instances)
        if found != Limits():
            assert 1 <= (found.instance_max or 0) <= QUEUE_MAX
            assert 1 <= (found.queue_max or 0) <= QUEUE_MAX
        good = (flow.rate_per_s, flow.work_mcycles, mhz, vcpu_mhz, float(instances))
        if not all(math.isfinite(figure) and figure > 0.0 for figure in good):
            assert found == Limits()


@pytest.mark.parametrize("figure", [5e-324, 1e-308, 1e300, 1.7e308])
def test_figures_at_the_ends_of_what_floats_hold(figure: float) -> None:
    for form in ModelForm:
        for flow in (FlowLoad(figure, 1.0, 1.0, 2.0), FlowLoad(1.0, figure, 1.0, 2.0), FlowLoad(1.0, 1.0, 1.0, figure)):
            each = FlowLoad(flow.rate_per_s, flow.work_mcycles, flow.t_min_s, flow.goal_s, 0.9, form)
            for mhz in (figure, 1_000.0):
                found = limits_of([each, each], mhz, 1_000.0, 2, 3)
                assert all(limit is None or 1 <= limit <= QUEUE_MAX for limit in (found.instance_max, found.queue_max))


def test_one_at_a_time_where_no_load_meets_the_goal() -> None:
    """A request alone takes 0.1 s and its goal is 0.05 s; one that waits 0.3 s for a disk is joined by three others."""
    assert limits_of([FlowLoad(1.0, 100.0, 0.0, 0.05)], 1_000.0, 1_000.0, 1, 3) == Limits(1, 1)
    assert limits_of([FlowLoad(1.0, 100.0, 0.3, 0.05)], 1_000.0, 1_000.0, 1, 3) == Limits(4, 1)


def test_every_vcpu_has_one() -> None:
    flow = FlowLoad(1.0, 100.0, 0.0, 0.05, form=ModelForm.MULTI_SERVER)
    assert limits_of([flow], 4_000.0, 1_000.0, 4, 3) == Limits(4, 1)


def test_a_flow_of_which_nothing_comes_has_no_say() -> None:
    strict, loose = FlowLoad(0.0, 100.0, 0.0, 0.05), FlowLoad(5.0, 10.0, 0.0, 1.0)
    assert limits_of([strict, loose], 1_000.0, 1_000.0, 1, 1) == limits_of([loose], 1_000.0, 1_000.0, 1, 1)
    assert limits_of([strict], 1_000.0, 1_000.0, 1, 1) == Limits()


def test_a_goal_on_throughput_bounds_nothing() -> None:
    assert limits_of([FlowLoad(5.0, 10.0)], 1_000.0, 1_000.0, 1, 1) == Limits()


def test_the_mix_counts() -> None:
    """Given ever more of the heavy requests, then ever fewer may be under way."""
    light = FlowLoad(10.0, 5.0, 0.0, 0.5)
    found = [
        limits_of([light, FlowLoad(rate, 200.0, 0.0, 2.0)], 2_000.0, 2_000.0, 1, 1).instance_max or 0
        for rate in (0.0, 1.0, 10.0, 100.0)
    ]
    assert found == sorted(found, reverse=True)
    assert found[0] == 199


@settings(max_examples=examples(100))
@given(flow=FLOWS, c_mhz_s=st.floats(1.0, 200.0), mhz=st.floats(100.0, 8_000.0))
def test_a_fitted_hyperbola_is_met_up_to_the_load_that_it_says(flow: FlowLoad, c_mhz_s: float, mhz: float) -> None:
    fitted = replace(flow, form=ModelForm.SHIFTED_HYPERBOLA, c_mhz_s=c_mhz_s)
    assert fitted.goal_s is not None
    excess = (fitted.goal_s - fitted.t_min_s) / tail_of(fitted)
    most_mhz = min(max(0.0, mhz - c_mhz_s / excess), mhz) if excess > 0.0 else 0.0
    same = replace(fitted, c_mhz_s=fitted.work_mcycles)

    assert greatest_load_mhz(fitted, mhz, mhz) == pytest.approx(most_mhz)
    assert limits_of([same], mhz, mhz, 1, 2) == limits_of(
        [replace(flow, form=ModelForm.PROCESSOR_SHARING)], mhz, mhz, 1, 2
    )
