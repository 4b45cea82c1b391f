"""Periods of any window, in zones that change their clocks in every way: always in order, always the next."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from daemons.values.calendar import DailyPeriods, weekly

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Sao_Paulo", "UTC")
CLOCK = st.integers(0, 24 * 60 - 1).map(lambda minutes: f"{minutes // 60:02d}:{minutes % 60:02d}")
MOMENTS = st.floats(1.4e9, 2.0e9)


@st.composite
def windows(draw: st.DrawFn) -> DailyPeriods:
    """A window whose periods do not overlap."""
    days = draw(st.sets(st.integers(0, 6), min_size=1))
    window = weekly(draw(st.sampled_from(ZONES)), draw(CLOCK), draw(CLOCK), draw(CLOCK), days)
    return window if not window.overlaps() else weekly(window.zone, "08:00", "12:00", "16:00", days)


@given(windows(), MOMENTS)
def test_the_period_in_progress_or_the_next(window: DailyPeriods, now_s: float) -> None:
    """It has not ended, its times are in order, at its opening it is the same, at its deadline a later one."""
    period = window.at(now_s)

    assert period is not None
    assert period.deadline_s > now_s
    assert period.opens_s < period.submit_until_s <= period.deadline_s
    assert window.at(period.opens_s) == period
    following = window.at(period.deadline_s)
    assert following is not None
    assert following.opens_s >= period.deadline_s - 3600.0


@given(windows(), MOMENTS, st.sampled_from((300.0, 900.0, 3600.0)))
def test_slots_cover_the_submission_period(window: DailyPeriods, now_s: float, slot_s: float) -> None:
    """Stretches follow each other without a gap, none is longer than its slot, and they are of slots that exist."""
    period = window.at(now_s)
    assert period is not None

    stretches = window.slots(period, slot_s)

    assert (stretches[0].from_s, stretches[-1].to_s) == (period.opens_s, period.submit_until_s)
    assert all(a.to_s == b.from_s for a, b in itertools.pairwise(stretches))
    assert all(0.0 < stretch.to_s - stretch.from_s <= slot_s + 1e-6 and stretch.slot >= 0 for stretch in stretches)
