"""Numbers, durations and times in words: the forms, what has none, and that order is kept."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daemons.values.text_format import (
    duration_text,
    memory_text,
    number_text,
    percent_text,
    significant_text,
    time_text,
)

TEXTS = (number_text, significant_text, percent_text, memory_text, duration_text, time_text)
UNITS_S = {"s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}


def read_back(text: str) -> float:
    """The seconds that a duration says."""
    sign, words = (-1.0 if text.startswith("-") else 1.0), text.removeprefix("-").split(" ")
    return sign * sum(float(number) * UNITS_S[unit] for number, unit in zip(words[::2], words[1::2], strict=True))


@given(st.one_of(st.none(), st.floats(), st.integers(-(10**400), 10**400)))
@example(math.nan)
@example(math.inf)
@example(-math.inf)
@example(0.0)
@example(-0.0)
@example(-1.0)
@example(1e-300)
@example(1e300)
@example(-1e308)
@example(10**400)
def test_every_value_has_words(value: float | None) -> None:
    found = [text(value) for text in TEXTS]

    assert all(found)
    assert max(map(len, found)) < 420
    assert not any(re.search("nan|inf", text) for text in found)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
@example(119.96, 120.0)
@example(3_599.5, 3_600.0)
@example(86_399.0, 86_400.0)
@example(9.99e14, 1e15)
@example(0.0, 1e-300)
def test_longer_durations_read_longer(one_s: float, other_s: float) -> None:
    shorter, longer = sorted((one_s, other_s))

    assert read_back(duration_text(shorter)) <= read_back(duration_text(longer))


@given(st.floats(0.0, 1e6), st.floats(0.0, 1e6))
def test_longer_durations_of_days_read_longer(one_s: float, other_s: float) -> None:
    shorter, longer = sorted((one_s, other_s))

    assert read_back(duration_text(shorter)) <= read_back(duration_text(longer))
    assert read_back(duration_text(longer)) == pytest.approx(longer, rel=0.05)


@given(st.floats(-1e14, 1e14), st.integers(0, 6))
def test_numbers_are_rounded_and_no_more(value: float, digits: int) -> None:
    text = number_text(value, digits)

    assert float(text.replace(",", "")) == pytest.approx(value, abs=0.5000001 * 10.0**-digits, rel=1e-12)
    assert text != "-0"
    assert "." not in text or text[-1] not in "0."


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_is_not_known_is_a_dash(text: Callable[..., str], value: float | None) -> None:
    assert (text(value), text(value, unknown="?")) == ("-", "?")


def test_numbers() -> None:
    assert [number_text(value) for value in (0, 3, 1_234_567, 0.5, 1.004, -0.001, 12_345.678, 1e15)] == [
        *("0", "3", "1,234,567", "0.5", "1", "0", "12,345.68", "1e+15"),
    ]
    assert (number_text(2.5, 0), number_text(99.96, 1), number_text(1e300)) == ("2", "100", "1e+300")


def test_significant_digits() -> None:
    assert [significant_text(value) for value in (0.0, 3, 0.123456, 12345.6, 999.96, 1e-9, -0.00012345, 1e300)] == [
        *("0", "3", "0.1235", "12,346", "1,000", "1e-09", "-0.0001234", "1e+300"),
    ]


def test_shares_and_memory() -> None:
    assert [percent_text(part) for part in (0.0, 0.25, 0.1234, 1.0, -0.5, 12.0)] == [
        *("0 %", "25 %", "12.3 %", "100 %", "-50 %", "1,200 %"),
    ]
    assert [memory_text(mib) for mib in (0, 512, 1_024, 16_000, 0.4, -2_048)] == [
        *("0 MiB", "512 MiB", "1,024 MiB", "16,000 MiB", "0 MiB", "-2,048 MiB"),
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (-0.0, "0 s"),
        (0.0012345, "0.00123 s"),
        (12.5, "12.5 s"),
        (90.0, "90 s"),
        (120.0, "2 min"),
        (200.0, "3 min 20 s"),
        (-200.0, "-3 min 20 s"),
        (3_599.5, "1 h"),
        (7_500.0, "2 h 5 min"),
        (7_201.0, "2 h"),
        (356_400.0, "4 d 3 h"),
        (1e300, "1e+300 s"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_durations_with_minutes_from_earlier_on() -> None:
    assert (duration_text(59.99, minutes_from_s=60.0), duration_text(61.0, minutes_from_s=60.0)) == (
        "60 s",
        "1 min 1 s",
    )


def test_times() -> None:
    assert time_text(1_792_324_800.9) == "2026-10-18T12:00:00Z"
    assert time_text(1_792_324_800.0, "Europe/Berlin") == "2026-10-18T14:00:00+02:00"
    assert time_text(0) == "1970-01-01T00:00:00Z"
    assert time_text(-0.5) == "1969-12-31T23:59:59Z"
    assert (time_text(1e15), time_text(-1e15), time_text(1e300)) == ("1e+15 s", "-1e+15 s", "1e+300 s")
    assert time_text(253_402_300_799.0, "Asia/Tokyo") == "2.53402e+11 s"
