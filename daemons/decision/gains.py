"""What a decision predicted for each workload, and what came of it one cycle later: columns that stay small in memory
and read as rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np

from daemons.models.outlook import Forecast, unchanged
from daemons.values.records.cluster import DecisionRecord, Gain
from shared.policy_api.decision import Outlook
from shared.policy_api.snapshot import Floats, Snapshot

DECIMALS = 4  # more of a prediction is noise, and would not compress


@dataclass(frozen=True, slots=True)
class Gains(Sequence[Gain]):
    """Rows by workload; float64[n] each, NaN where nothing is known. Equal to any sequence of the same rows."""

    names: tuple[str, ...]
    now: Floats
    predicted: Floats
    best: Floats
    measured: Floats

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, at: int) -> Gain: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[Gain, ...]: ...

    def __getitem__(self, at: int | slice) -> Gain | tuple[Gain, ...]:
        if isinstance(at, slice):
            return tuple(self[row] for row in range(*at.indices(len(self))))
        measured = float(self.measured[at])
        return Gain(
            self.names[at],
            float(self.now[at]),
            float(self.predicted[at]),
            float(self.best[at]),
            None if math.isnan(measured) else measured,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(self.names)

    def summary(self) -> dict[str, dict[str, float | None]]:
        """Return the smallest and the mean utility of each column; None for one without figures. Once measurements
        exist, the predicted utilities cover the same workloads."""
        known = ~np.isnan(self.measured)
        predicted = self.predicted[known] if known.any() else self.predicted
        columns = {"now": self.now, "predicted": predicted, "best": self.best, "measured": self.measured}
        return {
            "min": {name: _figure(column, np.min) for name, column in columns.items()},
            "mean": {name: _figure(column, np.mean) for name, column in columns.items()},
        }


def _figure(column: Floats, of: object) -> float | None:
    known = column[~np.isnan(column)]
    return float(of(known)) if len(known) else None  # type: ignore[operator]


def gains_of(outlook: Outlook | None) -> Gains:
    """Return the predictions of a policy; workloads without a goal, or with a figure that is not finite, are left
    out."""
    if outlook is None:
        return NONE
    columns = [np.array(column, dtype=np.float64) for column in (outlook.now, outlook.predicted, outlook.best)]
    good = np.array(outlook.aims(), dtype=np.bool_)
    good &= np.isfinite(columns[0]) & np.isfinite(columns[1]) & np.isfinite(columns[2])
    now, predicted, best = (_rounded(column[good]) for column in columns)
    names = tuple(outlook.names[row] for row in np.flatnonzero(good).tolist())
    return Gains(names, now, predicted, best, np.full(len(names), np.nan))


def _rounded(values: Floats) -> Floats:
    return np.asarray(np.round(values, DECIMALS), dtype=np.float64)


def columns_of(rows: Sequence[Gain]) -> Gains:
    """Return the same rows in columns."""
    if isinstance(rows, Gains):
        return rows
    return Gains(
        tuple(row.workload for row in rows),
        np.array([row.now for row in rows], dtype=np.float64),
        np.array([row.predicted for row in rows], dtype=np.float64),
        np.array([row.best for row in rows], dtype=np.float64),
        np.array([math.nan if row.measured is None else row.measured for row in rows], dtype=np.float64),
    )


def with_measured(record: DecisionRecord, utilities: Mapping[str, float], now_s: float) -> DecisionRecord:
    """Return the record with the measured utilities of its workloads."""
    gains = columns_of(record.gains)
    measured = _rounded(np.array([utilities.get(name, math.nan) for name in gains.names], dtype=np.float64))
    measured[~np.isfinite(measured)] = np.nan
    return replace(record, gains=replace(gains, measured=measured), measured_s=now_s)


def standing(snapshot: Snapshot) -> dict[str, float]:
    """Return the current utility of every job: at the common level that the total CPU allotted to jobs reaches from now
    on."""
    forecast = Forecast(replace(snapshot, cycle_s=0.0))
    utilities, _ = forecast.predict(unchanged(snapshot))
    apps = frozenset(snapshot.web.names)
    return {name: u for name, u in zip(forecast.names, utilities.tolist(), strict=True) if name not in apps}


_NOTHING = np.empty(0)
NONE = Gains((), _NOTHING, _NOTHING, _NOTHING, _NOTHING)
