"""What a process counts and measures of itself, as values: no library, no network, no clock.

A `Metric` is declared once, beside what it is about; `Scrape` takes readings, `shared.metrics.book` counts, and
`shared.metrics.exposition` puts both into the text format of Prometheus.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from shared.base.errors import InvalidValue

SERIES_MAX = 256  # of one metric; beyond it what is new is left out and told by DROPPED
LABEL_LENGTH_MAX = 128
NAME = re.compile(r"trimtab_[a-z][a-z0-9]*(_[a-z0-9]+)*")
LABEL = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")

Labels = tuple[str, ...]


class MetricKind(StrEnum):
    """How a metric behaves."""

    COUNTER = "counter"  # only rises, but for a new process
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"  # 1, with facts as labels


@dataclass(frozen=True, slots=True)
class Metric:
    """A family of series. `unit`: the unit of its values, a base unit by the conventions of Prometheus. If it is one of
    UNITS, the name ends with it (before `_total`). `labels`: names; `buckets`: upper bounds of a histogram, rising.
    `series_max`: the maximum number of its exported series. Raises `InvalidValue`."""

    name: str
    kind: MetricKind
    unit: str
    help: str
    labels: Labels = ()
    buckets: tuple[float, ...] = ()
    series_max: int = SERIES_MAX

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise InvalidValue("name", self.name, "trimtab_ and words in lower case")
        for suffix, kind in (("_total", MetricKind.COUNTER), ("_info", MetricKind.INFO)):
            if self.name.endswith(suffix) is not (self.kind is kind):
                raise InvalidValue("name", self.name, f"ending in {suffix} for kind {kind.value} alone")
        stem = self.name.removesuffix("_total")
        if self.unit in UNITS and not stem.endswith(f"_{self.unit}"):
            raise InvalidValue("name", self.name, f"its unit {self.unit} at its end")
        wrong = [label for label in self.labels if not LABEL.fullmatch(label) or label in ("le", "quantile")]
        if wrong:
            raise InvalidValue("labels", wrong[0], "words in lower case")
        if bool(self.buckets) is not (self.kind is MetricKind.HISTOGRAM) or list(self.buckets) != sorted(
            {*self.buckets}
        ):
            raise InvalidValue("buckets", self.buckets, "rising bounds for a histogram, else none")


UNITS = ("seconds", "bytes", "joules", "watts", "hertz", "ratio")


@dataclass(frozen=True, slots=True)
class Spread:
    """The state of a histogram: how many observations were in each bucket alone, the last beyond all bounds."""

    counts: tuple[int, ...]
    total: float


Value = float | Spread


@dataclass(frozen=True, slots=True)
class Family:
    """The series of a metric: the values of its labels, and what it stands at."""

    metric: Metric
    series: tuple[tuple[Labels, Value], ...]


DROPPED = Metric(
    "trimtab_metrics_dropped_series",
    MetricKind.GAUGE,
    "series",
    "Series of a metric that are left out, since it has more than it may.",
    ("metric",),
)


def cut_label(value: str) -> str:
    """Cut the value of a label to LABEL_LENGTH_MAX."""
    return value if len(value) <= LABEL_LENGTH_MAX else value[:LABEL_LENGTH_MAX]


class Scrape:
    """The readings of one scrape, bounded: of each metric only its first `series_max` series are kept."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Metric, list[tuple[Labels, Value]]]] = {}
        self._dropped: dict[str, int] = {}

    def put(self, metric: Metric, value: float | None, *labels: str) -> None:
        """Add one reading; None: there is none. One value for each label, else `InvalidValue`."""
        if value is None:
            return
        if len(labels) != len(metric.labels):
            raise InvalidValue("labels", labels, f"{metric.labels} of {metric.name}")
        rows = self._found.setdefault(metric.name, (metric, []))[1]
        if len(rows) < metric.series_max:
            rows.append((tuple(map(cut_label, labels)), float(value)))
        else:
            self.drop(metric, 1)

    def rows(self, metric: Metric, rows: Iterable[tuple[str, float]]) -> None:
        """Readings of a metric with one label."""
        for label, value in rows:
            self.put(metric, value, label)

    def drop(self, metric: Metric, count: int) -> None:
        """Count further subjects of the metric as left out (below 1: none)."""
        if count > 0:
            self._dropped[metric.name] = self._dropped.get(metric.name, 0) + count

    def families(self, *others: Sequence[Family]) -> tuple[Family, ...]:
        """Return all families, with those of `others`, and the number of series left out."""
        found = [Family(metric, tuple(rows)) for metric, rows in self._found.values()]
        told = {*self._found, DROPPED.name}  # what was read goes before what stands at 0 since nobody counts it
        found += [family for each in others for family in each if family.metric.name not in told]
        dropped = {**self._dropped}
        for family in (family for each in others for family in each if family.metric == DROPPED):
            dropped |= {labels[0]: int(value) for labels, value in family.series if isinstance(value, float)}
        rows = tuple(((name,), float(count)) for name, count in sorted(dropped.items()))
        return (*found, Family(DROPPED, rows)) if rows else tuple(found)
