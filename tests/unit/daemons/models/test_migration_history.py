"""Forecasts that are corrected by what was measured."""

from __future__ import annotations

import math
import random

import pytest

from daemons.models.migration_history import DOWNTIME_FEWEST_S, FACTOR_MAX, NOTHING, LearnedRatio, factor, log_ratio
from shared.protocol.codec import pack, unpack


def taught(ratio: float, count: int) -> LearnedRatio:
    return after(NOTHING, *[10.0 * ratio] * count)


def after(known: LearnedRatio, *measured_s: float) -> LearnedRatio:
    """What is known after migrations that were forecast to take 10 s."""
    for each_s in measured_s:
        found = log_ratio(10.0, each_s)
        assert found is not None
        known = known.with_measured(found)
    return known


def test_nothing_known_changes_nothing() -> None:
    assert factor(NOTHING) == 1.0


def test_one_measurement_counts_half_and_many_count_fully() -> None:
    assert factor(taught(4.0, 1)) == pytest.approx(2.0)
    assert factor(taught(4.0, 50)) == pytest.approx(4.0, rel=0.05)


def test_a_class_speaks_for_a_vm_that_has_not_migrated() -> None:
    assert factor(NOTHING, taught(2.0, 30)) == pytest.approx(2.0, rel=0.05)


def test_an_outlier_spoils_little() -> None:
    assert factor(after(taught(1.1, 20), 600.0)) < 1.3


def test_a_lasting_change_is_learned() -> None:
    assert factor(after(taught(1.0, 20), *[30.0] * 25)) == pytest.approx(3.0, rel=0.1)


@pytest.mark.parametrize("odd", [math.nan, math.inf, -1.0, 0.0, 0.01])
def test_figures_that_say_nothing_are_left_out(odd: float) -> None:
    assert log_ratio(odd, 10.0) is None
    assert log_ratio(10.0, odd) is None


def test_downtimes_may_be_shorter_than_durations() -> None:
    assert log_ratio(0.03, 0.02, DOWNTIME_FEWEST_S) == pytest.approx(math.log(2.0 / 3.0))
    assert log_ratio(0.03, 0.0, DOWNTIME_FEWEST_S) is None


def test_factors_are_bounded() -> None:
    assert factor(taught(1_000.0, 40)) <= FACTOR_MAX
    assert factor(taught(0.006, 40)) >= 1.0 / FACTOR_MAX


def test_eighteen_of_twenty_are_within_a_fifth_once_it_has_learned() -> None:
    """Given migrations that take 1.6 times what is forecast, give or take 7 %, when ten are known."""
    rng = random.Random(3)
    known, good = NOTHING, 0
    for number in range(30):
        measured_s = 10.0 * 1.6 * rng.gauss(1.0, 0.07)
        if number >= 10:
            good += abs(10.0 * factor(known) / measured_s - 1.0) <= 0.2
        known = after(known, measured_s)
    assert good >= 18
    assert known.spread < 0.2


def test_ratios_are_stored_and_read_back() -> None:
    known = taught(2.0, 3)
    assert unpack(pack(known, type(known)), type(known)) == known
