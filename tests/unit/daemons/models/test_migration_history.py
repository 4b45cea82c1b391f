"""Forecasts that are corrected by what was measured."""

from __future__ import annotations

import math
import random

import pytest

from daemons.models.migration_history import ENTRIES_MAX, FACTOR_MAX, LearnedRatio, MigrationHistory
from shared.protocol.codec import pack, unpack


def taught(ratio: float, count: int, vm: str = "vm", vm_class: str = "") -> MigrationHistory:
    history = MigrationHistory()
    for _ in range(count):
        history = history.with_measured(vm, vm_class, 10.0, 10.0 * ratio)
    return history


def test_nothing_known_changes_nothing() -> None:
    assert MigrationHistory().factor("vm", "web") == 1.0


def test_one_measurement_counts_half_and_many_count_fully() -> None:
    assert taught(4.0, 1).factor("vm") == pytest.approx(2.0)
    assert taught(4.0, 50).factor("vm") == pytest.approx(4.0, rel=0.05)


def test_a_class_speaks_for_a_vm_that_has_not_migrated() -> None:
    history = taught(2.0, 30, "other", "web")
    assert history.factor("new", "web") == pytest.approx(2.0, rel=0.05)
    assert history.factor("new", "db") == 1.0


def test_an_outlier_spoils_little() -> None:
    history = taught(1.1, 20)
    spoiled = history.with_measured("vm", "", 10.0, 600.0)
    assert spoiled.factor("vm") < 1.3


def test_a_lasting_change_is_learned() -> None:
    history = taught(1.0, 20)
    for _ in range(25):
        history = history.with_measured("vm", "", 10.0, 30.0)
    assert history.factor("vm") == pytest.approx(3.0, rel=0.1)


@pytest.mark.parametrize("odd", [math.nan, math.inf, -1.0, 0.0, 0.01])
def test_figures_that_say_nothing_change_nothing(odd: float) -> None:
    history = taught(2.0, 3)
    assert history.with_measured("vm", "", odd, 10.0) is history
    assert history.with_measured("vm", "", 10.0, odd) is history


def test_factors_are_bounded() -> None:
    assert taught(1_000.0, 40).factor("vm") <= FACTOR_MAX
    assert taught(0.006, 40).factor("vm") >= 1.0 / FACTOR_MAX


def test_eighteen_of_twenty_are_within_a_fifth_once_it_has_learned() -> None:
    """Given migrations that take 1.6 times what is forecast, give or take 7 %, when ten are known."""
    rng = random.Random(3)
    history, good = MigrationHistory(), 0
    for number in range(30):
        measured = 10.0 * 1.6 * rng.gauss(1.0, 0.07)
        if number >= 10:
            good += abs(10.0 * history.factor("vm", "web") / measured - 1.0) <= 0.2
        history = history.with_measured("vm", "web", 10.0, measured)
    assert good >= 18
    assert history.spread("vm") < 0.2


def test_those_that_have_not_migrated_for_longest_are_forgotten() -> None:
    full = MigrationHistory({f"vm{at}": LearnedRatio(count=1) for at in range(ENTRIES_MAX)})
    found = full.with_measured("vm0", "", 10.0, 20.0).with_measured("new", "", 10.0, 20.0).vms
    assert len(found) == ENTRIES_MAX
    assert "vm1" not in found
    assert list(found)[-2:] == ["vm0", "new"]


def test_ratios_are_stored_and_read_back() -> None:
    known = taught(2.0, 3).vms["vm"]
    assert unpack(pack(known, type(known)), type(known)) == known
