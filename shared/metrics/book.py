"""What a process counts while it runs, from any of its threads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from threading import Lock

from shared.metrics.values import DROPPED, SERIES_MAX, Family, Labels, Metric, MetricKind, Spread, cut_label


class _Spread:
    """A histogram that is being filled."""

    __slots__ = ("counts", "total")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * (buckets + 1)
        self.total = 0.0

    def frozen(self) -> Spread:
        return Spread(tuple(self.counts), self.total)


class Book:
    """Counters and histograms, from any threads. Those of `metrics` without labels stand at 0 from the beginning."""

    def __init__(self, metrics: Iterable[Metric] = ()) -> None:
        self._lock = Lock()
        self._counts: dict[Metric, dict[Labels, float]] = {}
        self._spreads: dict[Metric, dict[Labels, _Spread]] = {}
        self._dropped: dict[str, set[Labels]] = {}
        for metric in metrics:
            if not metric.labels and metric.kind is MetricKind.COUNTER:
                self.add(metric, 0.0)
            elif not metric.labels and metric.kind is MetricKind.HISTOGRAM:
                self._spreads[metric] = {(): _Spread(len(metric.buckets))}

    def add(self, metric: Metric, amount: float, *labels: str) -> None:
        """So much more."""
        key = tuple(map(cut_label, labels))
        with self._lock:
            counts = self._counts.setdefault(metric, {})
            if self._has_room(metric, counts, key):
                counts[key] = counts.get(key, 0.0) + amount

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Add one observation to a histogram."""
        key = tuple(map(cut_label, labels))
        with self._lock:
            spreads = self._spreads.setdefault(metric, {})
            if self._has_room(metric, spreads, key):
                if key not in spreads:
                    spreads[key] = _Spread(len(metric.buckets))
                spreads[key].counts[bisect_left(metric.buckets, value)] += 1
                spreads[key].total += value

    def _has_room(self, metric: Metric, known: dict[Labels, float] | dict[Labels, _Spread], key: Labels) -> bool:
        if key in known or len(known) < metric.series_max:
            return True
        dropped = self._dropped.setdefault(metric.name, set())
        if len(dropped) < SERIES_MAX:
            dropped.add(key)
        return False

    def families(self) -> tuple[Family, ...]:
        """Return the current values of all families."""
        with self._lock:
            found = [Family(metric, tuple(counts.items())) for metric, counts in self._counts.items()]
            for metric, spreads in self._spreads.items():
                found.append(Family(metric, tuple((key, spread.frozen()) for key, spread in spreads.items())))
            rows = tuple(((name,), float(len(keys))) for name, keys in sorted(self._dropped.items()))
        return (*found, Family(DROPPED, rows)) if rows else tuple(found)


class Timing:
    """How long what was begun has taken, by its id; what never ends is forgotten, the oldest first."""

    KEPT_MAX = 10_000

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._begun: dict[object, tuple[float, str]] = {}

    def __len__(self) -> int:
        return len(self._begun)

    def begin(self, key: object, what: str = "") -> None:
        """Something begins; the same again changes nothing."""
        if key not in self._begun:
            self._begun[key] = (self._monotonic_s(), what)
            if len(self._begun) > self.KEPT_MAX:
                del self._begun[next(iter(self._begun))]

    def end(self, key: object) -> tuple[float, str] | None:
        """End a timing: return the seconds since it began, and what it measured; None if its begin is unknown."""
        found = self._begun.pop(key, None)
        return None if found is None else (max(0.0, self._monotonic_s() - found[0]), found[1])
