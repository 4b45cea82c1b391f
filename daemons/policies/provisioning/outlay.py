"""What a reference node costs in every interval of a window's period; kept the same while prices stay about the same,
so that tables stay valid."""

from __future__ import annotations

import numpy as np

from daemons.models.node_choice import rates
from shared.policy_api.snapshot import Floats, Snapshot, WindowView

WATTS = 200.0  # of a busy node of which nothing is known
JOULES_PER_KWH = 3.6e6
PRICE_MAX = 1e9
CHANGED = 0.05  # of the mean price: prices that differ by less on the average are the same


def averages(values: Floats, step_s: float, begin_s: float, length_s: float, count: int) -> Floats:
    """Return float64[count]: means of a step function (values[i] from i step_s on, the last one for ever) over
    intervals of length_s from begin_s (>= 0) on."""
    edges = begin_s + length_s * np.arange(count + 1)
    sums = np.concatenate([[0.0], np.cumsum(values) * step_s])
    end_s = step_s * len(values)
    inside = np.interp(np.minimum(edges, end_s), step_s * np.arange(len(values) + 1), sums)
    integral = inside + np.maximum(edges - end_s, 0.0) * values[-1]
    return np.asarray(np.diff(integral) / length_s, dtype=np.float64)


def seen_price(snapshot: Snapshot, window: WindowView) -> Floats:
    """Return float64[intervals - interval]: the cost of a busy reference node in each interval from now on, or from the
    opening of the window; 1 each without prices."""
    count, prices = window.intervals - window.interval, snapshot.prices
    if prices is None or not len(prices.per_kwh) or count <= 0:
        return np.ones(max(count, 0))
    per_kwh, added = _usable(prices.per_kwh), _usable(prices.added)
    energy_kwh = watts(snapshot, window) * prices.interval_s / JOULES_PER_KWH
    one = energy_kwh * per_kwh + (added if len(added) == len(per_kwh) else 0.0)
    scaled = one * window.interval_s / prices.interval_s
    return averages(scaled, prices.interval_s, window.opens_s, window.interval_s, count)


def _usable(values: Floats) -> Floats:
    """Return the values as usable numbers."""
    return np.clip(np.nan_to_num(values), -PRICE_MAX, PRICE_MAX)


def watts(snapshot: Snapshot, window: WindowView) -> float:
    """Return the power of a busy reference node: the median of the nodes that can serve the window."""
    rate = rates(window.rate)
    if snapshot.power is None or not (rate > 0.0).any():
        return WATTS
    drawn = snapshot.power.peak_w[rate > 0.0] / rate[rate > 0.0]
    drawn = drawn[np.isfinite(drawn)]
    return min(float(np.median(drawn)), PRICE_MAX) if drawn.size else WATTS


def period_price(snapshot: Snapshot, window: WindowView, kept: list[float] | None) -> list[float]:
    """Prices for all intervals of the period: those kept for it, unless what is seen now differs from them."""
    first, seen = window.interval, seen_price(snapshot, window)
    if kept is not None and len(kept) == window.intervals:
        before = np.array(kept)
        left = before[first:]
        if np.abs(seen - left).sum() <= CHANGED * np.abs(left).sum():
            return kept
        past = before[:first]
    else:
        past = np.full(first, float(seen.mean()) if seen.size else 1.0)
    return [float(price) for price in np.concatenate([past, seen])]
