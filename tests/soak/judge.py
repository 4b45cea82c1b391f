"""What a soak is judged by: slopes of memory, levels of descriptors and threads, and how often a log says the same.

All of it is pure; `tests/soak/test_judge.py` has it on numbers made for it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

SLOPE_KIB_MAX = 512.0  # per 1,000 cycles
CYCLES_MIN = 600.0  # in fewer it is seen how pools and bounded histories fill: what grows is shown, not judged
AN_HOUR = 100.0  # so often a line may be there that neither work nor a fault has caused
BURST = 20.0  # in a shorter time so often: a fault that lasts a minute is a burst of them
POINTS_MAX = 600
EVENTLESS = "no event"

# What causes a line, and how many of them each may cause. `vm`: an instance of a job or application that was begun,
# with all that is ordered for it until it is gone.
PER_CAUSE: Mapping[str, tuple[str, float]] = {
    # decisions
    "decided": ("decision", 2.0),  # one is computed, one may be recorded beside
    "recorded": ("decision", 1.0),
    "decision computed": ("decision", 1.0),
    "happened: decided": ("decision", 1.0),
    "happened: decision-carried-out": ("decision", 1.0),
    # what is ordered of VMs
    "order sent": ("vm", 8.0),
    "order received": ("vm", 8.0),
    "operation begun": ("vm", 8.0),
    "operation ended": ("vm", 8.0),
    "result sent": ("vm", 8.0),
    "result received": ("vm", 8.0),
    "guest changed": ("vm", 4.0),
    "guest event sent": ("vm", 4.0),
    "guest event received": ("vm", 4.0),
    "definition removed": ("vm", 2.0),
    "happened: vm-migrated": ("vm", 1.0),
    # what is asked
    "request received": ("request", 1.0),
    "asked": ("request", 1.0),
    "happened: vm-adopted": ("request", 1.0),
    "happened: adopted-vm-on": ("request", 1.0),
    # nodes: each is drained, or comes back after a fault
    "queue declared": ("node", 1.0),
    # history
    "history pruned": ("prune", 1.0),
    "snapshots pruned": ("prune", 1.0),
}
# The beginnings of others, of which each job or node may cause so many.
BEGINNINGS: Mapping[str, tuple[str, float]] = {"happened: job-": ("job", 8.0), "happened: node-": ("node", 1.0)}


def slope(times_s: Sequence[float], values: Sequence[float]) -> float:
    """The Theil-Sen slope of values over times, per second: the median of the slopes of all pairs. One sample in four
    may be anything. 0 for fewer than three samples."""
    if len(times_s) < 3:
        return 0.0
    every = -(-len(times_s) // POINTS_MAX)
    at, value = np.asarray(times_s, float)[::every], np.asarray(values, float)[::every]
    first, second = np.triu_indices(len(at), 1)
    apart_s = at[second] - at[first]
    told = apart_s > 0.0
    return float(np.median((value[second] - value[first])[told] / apart_s[told])) if told.any() else 0.0


@dataclass(frozen=True, slots=True)
class Levels:
    """What is always there in the first and in the last third of a time, and the highest value in all of it.

    What is open for a moment, as the thread and the socket of who reads metrics, is in the highest value of the one
    third and not of the other by chance. What leaks stays, and is in every later value.
    """

    first: int
    last: int
    most: int

    @property
    def grown(self) -> bool:
        """Whether more stays in the end than at first."""
        return self.last > self.first

    def __str__(self) -> str:
        return f"{self.first}->{self.last} ({self.most})"


def levels(values: Sequence[int]) -> Levels:
    """The levels of what was read at even intervals."""
    third = max(1, len(values) // 3)
    return Levels(min(values[:third], default=0), min(values[-third:], default=0), max(values, default=0))


@dataclass(frozen=True, slots=True)
class Course:
    """A process over the calm phase. `kib_per_1000`: the slope of its memory over so many `cycles_per_s`."""

    name: str
    begin_kib: float
    end_kib: float
    kib_per_1000: float
    cycles: float
    descriptors: Levels
    threads: Levels
    cpu_frac: float

    def faults(self) -> list[str]:
        """What must not be."""
        found: list[str] = []
        if self.cycles < CYCLES_MIN:
            return found
        if self.kib_per_1000 > SLOPE_KIB_MAX:
            found.append(f"{self.name}: memory grows by {self.kib_per_1000:.0f} KiB per 1,000 cycles")
        for what, level in (("descriptors", self.descriptors), ("threads", self.threads)):
            if level.grown:
                found.append(f"{self.name}: {what} grow from {level.first} to {level.last}")
        return found


def key_of(line: str) -> str:
    """What a line of a log says, without values: its event, of `happened` with what. "" for one below the level INFO
    and for one of the test itself, EVENTLESS for one that is no JSON object with an event."""
    if line.startswith("--- life") or not line.strip():
        return ""
    try:
        said = json.loads(line)
    except ValueError:
        return EVENTLESS
    if not isinstance(said, dict) or not isinstance(said.get("event"), str):
        return EVENTLESS
    if said.get("level") == "debug":
        return ""
    event: str = said["event"]
    return f"{event}: {said.get('what')}" if event == "happened" else event


def counted(lines: Iterable[str]) -> Counter[str]:
    """How often a log says what."""
    return Counter(key for line in lines if (key := key_of(line)))


@dataclass(frozen=True, slots=True)
class Causes:
    """What may cause lines in some time: how much there was of each, and how long that took. nodes: how often one was
    drained, or was to come back after a fault."""

    seconds: float
    decisions: int
    jobs: int
    vms: int
    requests: int
    prunes: int
    nodes: int

    def most(self, key: str) -> tuple[float, str]:
        """How often a line may be there, and because of what."""
        cause, each = PER_CAUSE.get(key, ("", 0.0))
        for beginning, caused in BEGINNINGS.items():
            if key.startswith(beginning):
                cause, each = caused
        if not cause:
            return max(BURST, AN_HOUR * self.seconds / 3_600.0), "hour"
        counts = {
            "decision": self.decisions,
            "job": self.jobs,
            "vm": self.vms,
            "request": self.requests,
            "prune": self.prunes,
            "node": self.nodes,
        }
        return BURST + each * counts[cause], cause


@dataclass(frozen=True, slots=True)
class Said:
    """How often a process has said something, how often it may, and because of what."""

    process: str
    key: str
    count: int
    most: float
    cause: str

    @property
    def too_often(self) -> bool:
        """Whether that is more than it may."""
        return self.count > self.most


def said(process: str, lines: Mapping[str, int], causes: Causes) -> list[Said]:
    """What a process says, the most frequent first."""
    ordered = sorted(lines.items(), key=lambda item: (-item[1], item[0]))
    return [Said(process, key, count, *causes.most(key)) for key, count in ordered]
