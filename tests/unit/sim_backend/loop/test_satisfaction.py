"""How well a web application and the jobs fared, in figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim_backend.loop.satisfaction import Minute, counted, jobs_below, satisfaction, web_below

EVEN = Minute(end_s=60.0, web=0.6, web_best=0.66, jobs=0.6, jobs_held_up=True, asked=True, served=True)


@pytest.mark.parametrize(
    ("web", "best", "jobs", "below"),
    [
        (0.4, 0.66, 0.6, True),
        (0.4, 0.44, 0.6, False),  # more CPU would hardly help
        (0.51, 0.66, 0.6, False),
        (-9.0, 0.66, 0.6, True),
        (0.4, None, 0.6, True),
        (0.4, 0.66, None, False),
        (None, 0.66, 0.6, False),
    ],
)
def test_the_application_is_below(web: float | None, best: float | None, jobs: float | None, below: bool) -> None:
    assert web_below(replace(EVEN, web=web, web_best=best, jobs=jobs)) is below


@pytest.mark.parametrize(
    ("web", "jobs", "held_up", "below"),
    [
        (0.6, 0.4, True, True),
        (0.6, 0.4, False, False),  # every job runs at its full speed
        (0.6, 0.55, True, False),
        (None, 0.4, True, False),
        (0.6, None, True, False),
    ],
)
def test_the_jobs_are_below(web: float | None, jobs: float | None, held_up: bool, below: bool) -> None:
    assert jobs_below(replace(EVEN, web=web, jobs=jobs, jobs_held_up=held_up)) is below


def test_minutes_count_from_the_first_answered_request_on() -> None:
    silent = replace(EVEN, web=-9.0, served=False)
    assert counted([silent, silent, EVEN, silent]) == [EVEN, silent]
    assert counted([silent]) == [silent]
    assert counted([]) == []


def test_the_figures_of_a_run() -> None:
    low = replace(EVEN, web=-0.5)
    poor = replace(EVEN, jobs=0.3)
    silent = replace(EVEN, web=-9.0, served=False)
    found = satisfaction([*[EVEN] * 6, low, low, poor, silent], 60.0)
    assert found["web_below_frac"] == 0.3
    assert found["jobs_below_frac"] == 0.1
    assert found["web_off_goal_frac"] == 0.3
    assert found["web_unserved_s"] == 60.0
    assert found["web_below_longest_s"] == 120.0
    assert found["level_median"] == 0.6
    assert found["level_p10"] == pytest.approx(-9.0 + 0.9 * 8.5)


def test_a_run_without_minutes_has_no_figures() -> None:
    found = satisfaction([], 60.0)
    assert found["web_below_frac"] is None
    assert found["level_p10"] is None
