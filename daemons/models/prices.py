"""Prices of energy as a step function of time: integrals, means, and a forecast where no price is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from daemons.models.deadline.shapes import integrals as shape_integrals
from daemons.models.deadline.shapes import shape_price
from shared.base.errors import InvalidValue
from shared.policy_api.snapshot import Floats
from shared.values.scalars import positive

DAY_S = 86_400.0
DAYS_MEANT = 7  # a forecast is the mean of so many days
DAYS_SOUGHT = 21  # of so many days before, where some are not known
STEP_MAX_S = 3_600.0
DAY_STEPS = 288  # prices with a shape are steps of five minutes

Earlier = Callable[[float, int], float]
"""The moment that the clock showed so many days before a moment: `earlier(at_s, days)`."""


@dataclass(frozen=True, slots=True)
class PriceSeries:
    """per_kwh[i] holds from starts_s[i] on until the next one, the last until `until_s`; both float64[m], m at least 1.

    Prices may be negative; NaN: not known. Raises `InvalidValue` unless the times rise and are finite.
    """

    starts_s: Floats
    per_kwh: Floats
    until_s: float

    def __post_init__(self) -> None:
        starts_s, per_kwh = _frozen(self.starts_s), _frozen(self.per_kwh)
        edges = np.append(starts_s, self.until_s)
        if starts_s.ndim != 1 or not starts_s.size or per_kwh.shape != starts_s.shape:
            raise InvalidValue("per_kwh", per_kwh.shape, f"one for each of {starts_s.size} times, at least one")
        if not np.isfinite(edges).all() or (np.diff(edges) <= 0.0).any():
            raise InvalidValue("starts_s", float(edges[-1]), "finite times that rise")
        if np.isinf(per_kwh).any():
            raise InvalidValue("per_kwh", math.inf, "finite prices")
        object.__setattr__(self, "starts_s", starts_s)
        object.__setattr__(self, "per_kwh", per_kwh)

    @property
    def from_s(self) -> float:
        """When the first price begins."""
        return float(self.starts_s[0])

    @property
    def edges_s(self) -> Floats:
        """float64[m + 1]: every begin, and the end."""
        return np.append(self.starts_s, self.until_s)

    def integrals(self, begins_s: Floats, ends_s: Floats) -> Floats:
        """Price times seconds from each begin to the matching end, which is not before it; NaN where some price on the
        way is not known."""
        edges = self.edges_s
        lengths = np.diff(edges)
        known = np.isfinite(self.per_kwh)
        summed = np.concatenate([[0.0], np.cumsum(np.where(known, self.per_kwh, 0.0) * lengths)])
        missing = np.concatenate([[0.0], np.cumsum(np.where(known, 0.0, lengths))])
        found = np.interp(ends_s, edges, summed) - np.interp(begins_s, edges, summed)
        gaps = np.interp(ends_s, edges, missing) - np.interp(begins_s, edges, missing)
        unknown = (gaps > 0.0) | (np.asarray(begins_s) < edges[0]) | (np.asarray(ends_s) > edges[-1])
        return np.where(unknown, np.nan, found)

    def means(self, begins_s: Floats, ends_s: Floats) -> Floats:
        """Return the mean price from each begin to the matching end, which is later; NaN if some price is unknown."""
        return self.integrals(begins_s, ends_s) / (np.asarray(ends_s) - np.asarray(begins_s))

    def between(self, from_s: float, until_s: float) -> PriceSeries | None:
        """Return the part of the series between two moments; None if there is none."""
        from_s, until_s = max(from_s, self.from_s), min(until_s, self.until_s)
        if from_s >= until_s:
            return None
        first = int(np.searchsorted(self.starts_s, from_s, side="right")) - 1
        last = int(np.searchsorted(self.starts_s, until_s, side="left"))
        starts_s = self.starts_s[first:last].copy()
        starts_s[0] = from_s
        return PriceSeries(starts_s, self.per_kwh[first:last], until_s)

    def known_until(self, at_s: float) -> float:
        """Return the end of the known prices that begin with that of a moment; the moment itself if that price is
        unknown."""
        if not self.from_s <= at_s < self.until_s:
            return at_s
        first = int(np.searchsorted(self.starts_s, at_s, side="right")) - 1
        gaps = np.flatnonzero(np.isnan(self.per_kwh[first:]))
        return max(at_s, float(self.starts_s[first + gaps[0]])) if gaps.size else self.until_s


def _frozen(values: Floats) -> Floats:
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array


def joined(older: PriceSeries | None, newer: PriceSeries) -> PriceSeries:
    """Join both series: the newer one in its range, the older one before and after it; NaN in gaps between them."""
    before = older.between(-math.inf, newer.from_s) if older is not None else None
    after = older.between(newer.until_s, math.inf) if older is not None else None
    parts = [part for part in (before, newer, after) if part is not None]
    starts: list[Floats] = []
    prices: list[Floats] = []
    end_s = parts[0].from_s
    for part in parts:
        if end_s < part.from_s:
            starts.append(np.array([end_s]))
            prices.append(np.array([np.nan]))
        starts.append(part.starts_s)
        prices.append(part.per_kwh)
        end_s = part.until_s
    return PriceSeries(np.concatenate(starts), np.concatenate(prices), end_s)


def completed(
    series: PriceSeries | None, from_s: float, until_s: float, earlier: Earlier, otherwise: float
) -> PriceSeries:
    """Return a price for every moment between two: the known price, else the mean of the same time of day of up to
    `DAYS_MEANT` earlier days that are known, else the mean of all known prices, else `otherwise`. Raises `InvalidValue`
    unless `until_s` is after `from_s`."""
    positive("until_s - from_s", until_s - from_s)
    if series is None:
        return PriceSeries(np.array([from_s]), np.array([otherwise]), until_s)
    inner = series.between(from_s, until_s)
    blank = PriceSeries(np.array([from_s]), np.array([np.nan]), until_s)
    asked = blank if inner is None else joined(blank, inner)
    step_s = min(STEP_MAX_S, float(np.median(np.diff(series.edges_s))))
    edges = asked.edges_s
    cuts = [
        np.arange(np.floor(begin / step_s) + 1.0, np.ceil(end / step_s)) * step_s
        for begin, end, price in zip(edges[:-1], edges[1:], asked.per_kwh, strict=True)
        if np.isnan(price)
    ]
    starts = np.unique(np.concatenate([edges[:-1], *cuts]))
    prices = asked.per_kwh[np.searchsorted(asked.starts_s, starts, side="right") - 1].copy()
    ends = np.append(starts[1:], until_s)
    mean = _mean(series, otherwise)
    for row in np.flatnonzero(np.isnan(prices)).tolist():
        prices[row] = _forecast(series, float(starts[row]), float(ends[row]), earlier, mean)
    return PriceSeries(starts, prices, until_s)


def _mean(series: PriceSeries, otherwise: float) -> float:
    lengths = np.where(np.isfinite(series.per_kwh), np.diff(series.edges_s), 0.0)
    total = float(lengths.sum())
    return float(np.nansum(series.per_kwh * lengths)) / total if total > 0.0 else otherwise


def _forecast(series: PriceSeries, begin_s: float, end_s: float, earlier: Earlier, otherwise: float) -> float:
    first = max(1, math.floor((begin_s - series.until_s) / DAY_S))
    last = min(first + DAYS_SOUGHT, math.ceil((end_s - series.from_s) / DAY_S) + 1)
    before = np.array([earlier(begin_s, days) for days in range(first, last)])
    if not before.size:
        return otherwise
    found = series.means(before, before + (end_s - begin_s))
    known = found[np.isfinite(found)][:DAYS_MEANT]
    return float(known.mean()) if known.size else otherwise


def day_prices(shape: str, per_kwh: float, ratio: float) -> Floats:
    """Return float64[`DAY_STEPS`]: the mean price in each of the equal steps of a day of the thesis's shape
    (batch-provisioning.txt section 5.3), `per_kwh` on average. Raises `InvalidValue`."""
    steps = np.arange(DAY_STEPS, dtype=np.float64)
    return per_kwh * shape_integrals(shape_price(shape, ratio, DAY_STEPS), steps, steps + 1.0)
