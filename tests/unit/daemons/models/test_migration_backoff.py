"""When a migration that did not converge is tried again."""

from __future__ import annotations

import math

import pytest

from daemons.models.migration_backoff import is_calmer, retry_after_s


def test_each_failure_doubles_the_wait_up_to_a_day() -> None:
    assert [retry_after_s(count) for count in range(4)] == [0.0, 900.0, 1_800.0, 3_600.0]
    assert retry_after_s(50) == 86_400.0
    assert retry_after_s(10**9) == 86_400.0


@pytest.mark.parametrize("odd", [math.nan, -1.0, 0.0])
def test_odd_times_are_no_wait(odd: float) -> None:
    assert retry_after_s(3, first_s=odd) == 0.0
    assert retry_after_s(3, most_s=odd) == 0.0


def test_a_calmer_guest_is_tried_at_once() -> None:
    assert is_calmer(40.0, 100.0)
    assert not is_calmer(60.0, 100.0)
    for unknown in (-1.0, math.nan):
        assert not is_calmer(unknown, 100.0)
        assert not is_calmer(10.0, unknown)
    assert not is_calmer(10.0, math.inf)
