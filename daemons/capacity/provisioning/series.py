"""Scenarios of periods with a deadline, with the price series that they name."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from daemons.capacity.provisioning.file import Paid, PricedScenario, PriceSeriesRequest, read
from daemons.manifests.prices import read_prices
from daemons.models.prices import PriceSeries
from shared.base.errors import InvalidInput, Problem


def read_scenario(path: Path) -> PricedScenario:
    """Read the scenario at `path`. Raises `InvalidInput` with every problem of it and of its price series."""
    return read(path, paid)


def paid(wanted: PriceSeriesRequest, scenario: str) -> Paid:
    """Return the cost of a server in each interval and after its removal. Raises `InvalidInput`, with `scenario` as the
    name of the file that requests it, for a series that cannot be read or that does not cover the period."""
    try:
        zone = ZoneInfo(wanted.time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        what = f"is {wanted.time_zone[:60]!r}"
        problem = Problem(f"{scenario}: price.time_zone", what, "a time zone such as Europe/Brussels")
        raise InvalidInput(problem) from error
    if "\0" in str(wanted.file):
        raise InvalidInput(Problem(f"{scenario}: price.file", f"is {wanted.file.name!r}", "the name of a CSV file"))
    found = read_prices(wanted.file, wanted.column, wanted.time_zone)
    series = PriceSeries(np.array(found.starts_s), np.array(found.per_kwh), found.until_s)
    start = wanted.start if wanted.start.tzinfo else wanted.start.replace(tzinfo=zone)
    try:
        begin_s = start.timestamp()
    except (OverflowError, ValueError) as error:
        problem = Problem(f"{scenario}: price.start", f"is {start.isoformat()}", "a time that the prices cover")
        raise InvalidInput(problem) from error
    end_s = begin_s + wanted.interval_s * wanted.intervals

    def at(moment_s: float) -> str:
        try:
            return datetime.fromtimestamp(moment_s, zone).isoformat(timespec="minutes")
        except (OverflowError, ValueError, OSError):  # beyond the calendar
            return "before the year 1" if moment_s < 0.0 else "after the year 9999"

    if begin_s < series.from_s or end_s > series.until_s:
        period = f"begins a period from {at(begin_s)} to {at(end_s)}"
        held = f"one within the prices of {wanted.file}, from {at(series.from_s)} to {at(series.until_s)}"
        raise InvalidInput(Problem(f"{scenario}: price.start", period, held))
    edges = begin_s + wanted.interval_s * np.arange(wanted.intervals + 1, dtype=np.float64)
    removed = series.integrals(edges[:-1], np.minimum(edges[:-1] + wanted.remove_s, end_s))
    inside = series.between(begin_s, end_s)
    highest = float(series.per_kwh.max() if inside is None else inside.per_kwh.max())
    return Paid(series.integrals(edges[:-1], edges[1:]) / wanted.interval_s, removed / wanted.interval_s, highest)
