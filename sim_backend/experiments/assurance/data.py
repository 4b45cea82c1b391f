"""The demands of statistical-assurance.txt, section 6.1, from two published traces: 44 VMs of a business data centre
over 21 weekdays, and the VMs of PlanetLab, made into 48 applications.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from daemons.capacity.coordination.demand import csv_lines
from daemons.models.assurance.build import Series, needed_units
from daemons.models.assurance.migration import with_migration
from shared.base.errors import InvalidInput, Problem
from shared.policy_api.snapshot import Floats, Ints

Name = Literal["bitbrains", "planetlab"]

DATA_VARIABLE = "TRIMTAB_DATA"
TARGET = 0.5  # utilisation of each CPU, as in the paper
SLOTS = 24
BITBRAINS = ("bitbrains-50vm/cpu_5min.csv.gz", "bitbrains-50vm/vms.csv.gz")
PLANETLAB = ("planetlab/20110303.csv.gz", "planetlab/20110322.csv.gz")
FILES: dict[Name, tuple[str, str]] = {"bitbrains": BITBRAINS, "planetlab": PLANETLAB}
APPLICATIONS = 48  # the paper's number, for VMs that are put together
_FIRST_DAY = datetime(2013, 8, 13, tzinfo=UTC)  # the first and last that are there from midnight to midnight
_DAYS = 29
_DAY_S, _HOUR_S = 86_400, 3_600
_WEEK, _WORKDAYS = 7, 5
_PER_HOUR = 12  # samples of five minutes


@dataclass(frozen=True, slots=True)
class Demands:
    """The servers that applications need: [days, slots, applications], slots being the hours of a day, and a day one
    observation of each. plain: as measured. overhead: with the time that servers take to come and go (section 6.3)."""

    name: Name
    plain: Ints
    overhead: Ints


def series_of(demand: Ints) -> Series:
    """Demands [days, slots, applications] as one series."""
    days, slots, applications = demand.shape
    flat = demand.reshape(days * slots, applications).T.astype(np.int32)
    return Series(flat, np.arange(days * slots), np.tile(np.arange(slots), days), slots)


def data_folder(*names: Name) -> Path:
    """Return the folder of the traces. Raises `InvalidInput` when it is not configured or lacks the files of
    `names`."""
    named = os.environ.get(DATA_VARIABLE, "")
    needed = [file for name in names for file in FILES[name]]
    missing = [file for file in needed if not (Path(named) / file).is_file()]
    if missing:
        what = "is not set" if not named else f"names a folder without {', '.join(missing)}"
        raise InvalidInput(
            Problem(DATA_VARIABLE, what, "the folder of the public logs and traces (docs/appendix/data.md)")
        )
    return Path(named)


@lru_cache(maxsize=4)
def read_demands(folder: Path, name: Name) -> Demands:
    """Return one of the data sets, with read-only arrays. Raises `InvalidInput` when a file is missing or invalid."""
    found = _bitbrains(folder) if name == "bitbrains" else _planetlab(folder)
    found.plain.flags.writeable = found.overhead.flags.writeable = False
    return found


def _with_overhead(series: Ints) -> Ints:
    return with_migration(series.astype(np.int32)).astype(np.int64)


def _bitbrains(folder: Path) -> Demands:
    """Return the demands of the VMs that exist on all days. The demand of an hour is the largest of the intervals that
    overlap it. Days are in UTC; weekends are removed after the migration rule is applied."""
    trace, vms = (folder / file for file in BITBRAINS)
    rows, about = _table(trace, 5), _table(vms, 6)
    begin_s = int(_FIRST_DAY.timestamp())
    there = (about[:, 1] <= begin_s) & (about[:, 2] >= begin_s + _DAYS * _DAY_S)
    hours = np.stack([_by_hour(rows[rows[:, 0] == vm], cpus, mhz, begin_s) for vm, _, _, cpus, mhz, _ in about[there]])
    if hours.min() < 1:
        raise InvalidInput(Problem(str(trace), "has hours without a sample", "samples of all hours"))
    weekdays = [day for day in range(_DAYS) if (_FIRST_DAY.weekday() + day) % _WEEK < _WORKDAYS]
    plain, overhead = (
        np.moveaxis(series.reshape(-1, _DAYS, SLOTS)[:, weekdays], 0, -1) for series in (hours, _with_overhead(hours))
    )
    return Demands("bitbrains", plain, overhead)


def _by_hour(rows: Floats, cpus: float, capacity_mhz: float, begin_s: int) -> Ints:
    """Return the largest demand of each hour for one VM; 0 where there is no sample."""
    end_s = rows[:, 1] - begin_s
    first = np.floor((end_s - rows[:, 2]) / _HOUR_S).astype(np.int64)
    count = np.ceil(end_s / _HOUR_S).astype(np.int64) - first
    hour = np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())
    percent = 100.0 * np.minimum(rows[:, 4] / capacity_mhz, 1.0)  # above it where a clock is above its nominal one
    demand = np.repeat(needed_units(percent, np.full(len(rows), int(cpus)), TARGET), count)
    within = (hour >= 0) & (hour < _DAYS * SLOTS)
    found = np.zeros(_DAYS * SLOTS, dtype=np.int64)
    np.maximum.at(found, hour[within], demand[within])
    return found


def _planetlab(folder: Path) -> Demands:
    """Return the demands of the single-CPU VMs whose names ran on both days, distributed to 48 applications in the
    order of their names. Each five minutes of an hour of each day is one observation of its slot."""
    days = [_by_name(folder / file) for file in PLANETLAB]
    both = sorted(set(days[0]).intersection(days[1]))
    if len(both) < APPLICATIONS:
        raise InvalidInput(
            Problem(str(folder / PLANETLAB[1]), f"{len(both)} VMs of both days", "two days of PlanetLab")
        )
    percent = np.stack([np.concatenate([day[name] for day in days]) for name in both])
    used = np.stack([percent[first::APPLICATIONS].sum(axis=0) for first in range(APPLICATIONS)])
    series = needed_units(used, np.ones(used.shape, dtype=np.int64), TARGET)
    shape = (APPLICATIONS, len(days), SLOTS, _PER_HOUR)
    plain, overhead = (
        each.reshape(shape).transpose(1, 3, 2, 0).reshape(-1, SLOTS, APPLICATIONS)
        for each in (series, _with_overhead(series))
    )
    return Demands("planetlab", plain, overhead)


def _by_name(path: Path) -> dict[str, Floats]:
    """Return the CPU use in percent by VM."""
    lines = [line.split(",", 1) for line in [*csv_lines(path)][1:]]
    names = [line[0] for line in lines]
    values = _numbers(path, "".join(line[-1] for line in lines), SLOTS * _PER_HOUR)
    return dict(zip(names, values, strict=True))


def _table(path: Path, columns: int) -> Floats:
    return _numbers(path, "".join([*csv_lines(path)][1:]), columns)


def _numbers(path: Path, text: str, columns: int) -> Floats:
    try:
        found = np.loadtxt(io.StringIO(text), delimiter=",", ndmin=2)
    except ValueError as error:
        raise InvalidInput(Problem(str(path), str(error), f"{columns} numbers in each line")) from error
    if found.shape[1] != columns:
        raise InvalidInput(Problem(str(path), f"{found.shape[1]} columns", f"{columns} columns"))
    return found
