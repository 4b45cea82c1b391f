"""What was asked of a web application of late."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemons.controller.state.load_history import POINT_S, POINTS_MAX, RECENT_S, LoadHistory, forecasts
from daemons.models.load_forecast import forecast_load
from daemons.values.settings import WebPlanning
from shared.values.web_app import FlowSample
from tests.extent import examples

WORKS = {"browse": 10.0, "buy": 50.0}
AS_IT_IS = WebPlanning(headroom_quantile=0.5, horizon_s=60.0, work_off_s=10.0, usable_frac=1.0)


def said(history: LoadHistory, at_s: float, browse: int, buy: int = 0, **fields: int) -> None:
    """Twenty seconds with so many requests."""
    flows = (FlowSample("browse", 20.0, offered=browse, served=browse, **fields), FlowSample("buy", 20.0, offered=buy))
    history.add(at_s, flows)


def test_nothing_was_asked_before_anything_was_measured() -> None:
    history = LoadHistory()
    assert history.now_mhz(WORKS) == 0.0
    assert history.plan("shop", WORKS, AS_IT_IS).planned_mhz == 0.0


def test_now_is_the_last_twenty_seconds_where_many_ask() -> None:
    history = LoadHistory()
    said(history, 20.0, 4_000)
    said(history, 40.0, 8_000, 200)
    assert history.now_mhz(WORKS) == pytest.approx((8_000 * 10.0 + 200 * 50.0) / 20.0)


def test_now_is_the_last_minute_where_few_ask() -> None:
    """Ten requests in twenty seconds may be thirteen by chance."""
    history = LoadHistory()
    for number, count in enumerate((100, 10, 20, 30)):
        said(history, 20.0 * (number + 1), count)
    assert history.now_mhz(WORKS) == pytest.approx(60 * 10.0 / 60.0)


def test_what_waits_is_worked_off_beside_what_comes() -> None:
    history = LoadHistory()
    said(history, 20.0, 4_000, queued=500)
    assert history.plan("shop", WORKS, AS_IT_IS).planned_mhz == pytest.approx(4_000 * 10.0 / 20.0 + 500 * 10.0 / 10.0)


def test_requests_that_were_turned_away_count_as_load() -> None:
    history = LoadHistory()
    history.add(20.0, (FlowSample("browse", 20.0, served=1_500, rejected=500),))
    assert history.now_mhz(WORKS) == pytest.approx(2_000 * 10.0 / 20.0)


def test_instances_can_use_a_part_of_their_cpu_only() -> None:
    history = LoadHistory()
    said(history, 20.0, 4_000)
    half = WebPlanning(headroom_quantile=0.5, horizon_s=60.0, work_off_s=10.0, usable_frac=0.5)
    assert history.plan("shop", WORKS, half).planned_mhz == pytest.approx(2.0 * 2_000.0)


def test_what_instances_use_beside_their_requests_is_part_of_the_load() -> None:
    history = LoadHistory()
    said(history, 20.0, 4_000)
    half = WebPlanning(headroom_quantile=0.5, horizon_s=60.0, work_off_s=10.0, usable_frac=0.5)
    without, plan = (history.plan("shop", WORKS, half, background_mhz=mhz) for mhz in (0.0, 100.0))
    assert plan.planned_mhz == pytest.approx(without.planned_mhz + 200.0)
    assert plan.expected_mhz == pytest.approx(without.expected_mhz + 200.0)


def test_a_load_that_jumps_about_is_planned_for_with_more_room_than_a_steady_one() -> None:
    steady, jumpy = LoadHistory(), LoadHistory()
    for number in range(90):
        said(steady, 20.0 * (number + 1), 4_000)
        said(jumpy, 20.0 * (number + 1), 4_000 if number // 15 % 2 == 0 else 5_000)
    planning = WebPlanning(headroom_quantile=0.9)
    means_mhz = 4_000 * 10.0 / 20.0, 4_500 * 10.0 / 20.0
    assert (
        jumpy.plan("shop", WORKS, planning).planned_mhz / means_mhz[1]
        > steady.plan("shop", WORKS, planning).planned_mhz / means_mhz[0] + 0.05
    )


def test_memory_is_bounded() -> None:
    history = LoadHistory()
    for number in range(20_000):
        said(history, 20.0 * (number + 1), 1)
    assert len(history.at_s) == len(history.seconds) == len(history.offered["browse"]) <= 64
    assert len(history.recent) <= 4


def test_a_flow_that_nobody_asks_for_any_more_is_forgotten() -> None:
    history = LoadHistory()
    said(history, 20.0, 1, 1)
    for number in range(2 * POINTS_MAX):
        history.add(60.0 * (number + 2), (FlowSample("browse", 60.0, offered=1),))
    assert {*history.offered} == {"browse"}


@settings(max_examples=examples(100))
@given(
    samples=st.lists(
        st.tuples(st.sampled_from((5.0, 20.0, 45.0, 60.0, 90.0)), st.integers(0, 9_000), st.integers(0, 500)),
        min_size=1,
        max_size=3 * POINTS_MAX,
    )
)
def test_what_is_planned_for_is_that_of_plain_loops(samples: list[tuple[float, int, int]]) -> None:
    history, now_s = LoadHistory(), 0.0
    points: list[list[float]] = []
    for seconds, browse, buy in samples:
        now_s += seconds
        history.add(now_s, (FlowSample("browse", seconds, browse), FlowSample("buy", seconds, buy)))
        if not points or points[-1][1] >= POINT_S:
            points.append([now_s, 0.0, 0, 0])
        points[-1] = [now_s, points[-1][1] + seconds, points[-1][2] + browse, points[-1][3] + buy]
    whole = [point for point in points[-POINTS_MAX:] if point[1] >= RECENT_S]
    loads = [(browse * 10.0 + buy * 50.0) / seconds for _, seconds, browse, buy in whole]

    found = history.plan("shop", WORKS, AS_IT_IS).planned_mhz

    forecast = forecast_load([now_s - at_s for at_s, *_ in whole], loads, history.now_mhz(WORKS), 60.0)
    assert found == forecast.planned_mhz(0.5)
    assert history.plan("shop", WORKS, AS_IT_IS).expected_mhz == forecast.expected_mhz


def test_many_histories_are_forecast_at_once_as_each_alone() -> None:
    """With no points, with as many as others, with more, and with a last point that is hardly begun."""
    histories = [LoadHistory() for _ in range(6)]
    for number, history in enumerate(histories[1:]):
        for at in range((3, 3, 7, 7, 9)[number]):
            said(history, 20.0 * (at + 1), 100 * (number + at), 7)
    histories[-1].add(200.0, (FlowSample("browse", 5.0, offered=3),))
    works = [WORKS, WORKS, {"browse": 30.0}, WORKS, {}, WORKS]

    found = forecasts(histories, works, 900.0)

    assert found == [forecasts([one], [work], 900.0)[0] for one, work in zip(histories, works, strict=True)]
    assert len({*found}) == 5  # the one without points and the one without work are alike
