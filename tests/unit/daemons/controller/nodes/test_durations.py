"""How long nodes take, learnt."""

from __future__ import annotations

import statistics

import pytest

from daemons.controller.nodes.durations import COUNT_MAX, DEPLOY, REMOVE, Durations
from daemons.values.settings import PowerSettings


def learnt(*seconds: float, settings: PowerSettings | None = None) -> Durations:
    durations = Durations(settings or PowerSettings(driver="wol", deploy_s=40.0, remove_s=7.0))
    for each in seconds:
        durations.learn("old", DEPLOY, each)
    return durations


def test_what_was_never_measured_is_as_configured() -> None:
    assert learnt().expected_s("wol", "old", DEPLOY) == 40.0
    assert learnt(90.0).expected_s("wol", "new", DEPLOY) == 40.0
    assert learnt(90.0).expected_s("ipmi", "old", DEPLOY) == 40.0
    assert learnt(90.0).expected_s("wol", "old", REMOVE) == 7.0


def test_few_times_are_never_taken_for_less_than_configured() -> None:
    assert learnt(20.0, 20.0).expected_s("wol", "old", DEPLOY) == 40.0
    assert learnt(60.0).expected_s("wol", "old", DEPLOY) == 60.0
    assert learnt(20.0, 20.0, 20.0).expected_s("wol", "old", DEPLOY) == 20.0


def test_mean_and_margin() -> None:
    seconds = [50.0, 61.0, 58.0, 70.0]
    expected_s = statistics.fmean(seconds) + 2.0 * statistics.pstdev(seconds)
    assert learnt(*seconds).expected_s("wol", "old", DEPLOY) == pytest.approx(expected_s)


def test_old_times_count_less_and_less() -> None:
    durations = learnt(*[300.0] * COUNT_MAX, *[20.0] * 1000)
    assert durations.expected_s("wol", "old", DEPLOY) == pytest.approx(20.0, rel=0.05)


def test_a_successor_goes_on_with_what_was_learnt() -> None:
    before = learnt(50.0, 61.0)
    after = learnt()
    for record in before:
        after.load(record)
    after.learn("old", DEPLOY, 58.0)
    before.learn("old", DEPLOY, 58.0)
    assert list(after) == list(before)
