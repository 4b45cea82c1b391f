"""What phoenixcloud.txt section 6 is about: two logs, one web demand, and the tables that it prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

TWO_WEEKS_S = 1_209_600.0
HOURS = 336
WEB = "worldcup98/ws_demand_hourly_64vm.csv"
WEB_PEAK = 64  # of the demand as it is
MEMORY_MIB = 4_320.0
Name = Literal["iPSC", "BLUE"]


@dataclass(frozen=True, slots=True)
class Log:
    """A log of two weeks. nodes: of its own cluster, the peak of its demand (PRCpbj); table: its number in the paper;
    lower: B by the web side's peak, a tenth of the sum of both and the baseline of section 6.6.3."""

    file: str
    divide_sizes: int
    skip_jobs: frozenset[int]
    nodes: int
    table: int
    sizes: tuple[int, ...]
    lower: Mapping[int, int]


LOGS: Mapping[Name, Log] = {
    "iPSC": Log(
        "nasa-ipsc-1993/NASA-iPSC-1993-3.1-cln.swf.gz",
        1,
        frozenset(),
        128,
        1,
        (128, 152, 217, 256),
        {64: 19, 128: 25, 256: 38},
    ),
    "BLUE": Log(
        "sdsc-blue-2000/SDSC-BLUE-2000-first-two-weeks.swf.gz",
        8,
        frozenset({729}),
        144,
        2,
        (144, 163, 190, 272),
        {64: 21, 128: 27, 256: 40},
    ),
}

Figures = tuple[float, ...]
# Completed jobs, execution s, turnaround s.
TABLE_1: Mapping[Name, Mapping[str, Figures]] = {
    "iPSC": {
        "dcs": (2603, 573, 578),
        "fb-128": (2549, 520, 839),
        "fb-152": (2603, 573, 795),
        "fb-217": (2603, 573, 579),
        "fb-256": (2603, 573, 578),
    },
    "BLUE": {
        "dcs": (2649, 1975, 2667),
        "fb-144": (2591, 1983, 7976),
        "fb-163": (2648, 1976, 3438),
        "fb-190": (2652, 1977, 2523),
        "fb-272": (2657, 1975, 2051),
    },
}
# By the web side's peak: saved %, completed jobs, turnaround s; the size is the larger of the two peaks.
TABLE_2: Mapping[Name, Mapping[int, Figures]] = {
    "iPSC": {64: (33, 2549, 575), 128: (50, 2549, 839), 256: (33, 2603, 676)},
    "BLUE": {64: (31, 2636, 3343), 128: (47, 2591, 7976), 256: (36, 2657, 2609)},
}
# Completed jobs, turnaround s, peak nodes, node-hours.
TABLE_3: Mapping[Name, Mapping[str, Figures]] = {
    "iPSC": {"ec2": (2603, 573, 1319, 63336), "flb-nub": (2603, 826, 412, 45803)},
    "BLUE": {"ec2": (2657, 1975, 834, 45056), "flb-nub": (2656, 2669, 468, 38623)},
}
# By the web side's peak: completed jobs, execution s, turnaround s, saved %.
TABLE_4: Mapping[Name, Mapping[int, Figures]] = {
    "iPSC": {64: (2603, 573, 839, 38.3), 128: (2603, 573, 826, 46.8), 256: (2603, 573, 839, 58.5)},
    "BLUE": {64: (2654, 1974, 2682, 52.0), 128: (2656, 1975, 2669, 57.7), 256: (2654, 1974, 2761, 64.5)},
}

# Section 6.6.4: one of these varies, the others are those of the baseline. B as a part of the sum of the peaks.
STUDIES: Mapping[str, tuple[float, ...]] = {
    "B": (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    "U": (1.0, 1.2, 1.4, 1.6, 1.8, 2.0),
    "V": (0.1, 0.2, 0.3, 0.4, 0.5),
    "G": (0.1, 0.3, 0.5, 0.7, 0.9),
    "L": (15.0, 30.0, 60.0, 120.0, 240.0),  # minutes
}
PHASES_S = tuple(float(minutes * 60) for minutes in range(10, 61, 10))  # of the first tick of the timers
