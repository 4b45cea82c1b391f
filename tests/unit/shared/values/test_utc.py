"""Times in UTC as reasons and messages have them."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.values.utc import LAST_S, ago_s, utc_text


@given(st.floats(0.0, LAST_S))
@example(951_782_400.0)  # 29 February 2000
@example(4_107_542_399.9)  # the last second of February 2100, which has 28 days
@example(LAST_S)
def test_times_are_those_of_the_calendar(epoch_s: float) -> None:
    assert utc_text(epoch_s) == datetime.fromtimestamp(math.floor(epoch_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize(
    ("epoch_s", "text"),
    [
        (0.0, "1970-01-01T00:00:00Z"),
        (951_868_799.9, "2000-02-29T23:59:59Z"),
        (4_107_542_400.0, "2100-03-01T00:00:00Z"),
        (LAST_S, "9999-12-31T23:59:59Z"),
    ],
)
def test_times_in_utc_are_cut_to_the_second(epoch_s: float, text: str) -> None:
    assert utc_text(epoch_s) == text


def test_how_long_ago() -> None:
    assert (ago_s("7d"), ago_s("-12h"), ago_s("1.5 h"), ago_s("2w")) == (604_800.0, 43_200.0, 5_400.0, 1_209_600.0)
    assert (ago_s("7"), ago_s("d"), ago_s("7s"), ago_s("")) == (None, None, None, None)
