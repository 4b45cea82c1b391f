"""What is played for the tables and figures of phoenixcloud.txt, section 6."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from daemons.capacity.coordination.demand import read_steps
from daemons.capacity.coordination.runs import coordinate
from daemons.capacity.coordination.values import Coordinated, Setting
from daemons.capacity.process_pool import Work
from daemons.capacity.swf import read_swf, replay_jobs
from shared.base.errors import InvalidInput, Problem
from shared.values.actions import ActionKind
from shared.values.agreement import BatchTerms, OnReclaim
from shared.values.operation_costs import COSTS
from sim_backend.experiments.coordination.settings import (
    LOGS,
    MEMORY_MIB,
    PHASES_S,
    STUDIES,
    TWO_WEEKS_S,
    WEB,
    WEB_PEAK,
    Name,
)

DATA_VARIABLE = "TRIMTAB_DATA"
_KILL = BatchTerms(on_reclaim=OnReclaim.KILL)
_SUSPEND = BatchTerms(on_reclaim=OnReclaim.SUSPEND)


@dataclass(frozen=True, slots=True)
class Bounded:
    """Fixed bounds on one log. dedicated: DCS. killed, suspended, free: by size, with a web side of 128: as the paper
    does, suspended with the costs of apc.txt, and without costs. by_peak: by the peak of the web side, at the smallest
    size that holds both. phases: as killed, and by_peak with keys below 0, by when the timers tick first."""

    log: Name
    dedicated: Coordinated
    killed: Mapping[int, Coordinated]
    suspended: Mapping[int, Coordinated]
    free: Mapping[int, Coordinated]
    by_peak: Mapping[int, Coordinated]
    phases: Mapping[tuple[int, int], tuple[Coordinated, ...]]


@dataclass(frozen=True, slots=True)
class Lent:
    """No upper bound on one log: on_demand, by_peak (of the web side) and that with a peak of 128 by when the timers
    tick first (phases)."""

    log: Name
    on_demand: Coordinated
    by_peak: Mapping[int, Coordinated]
    phases: tuple[Coordinated, ...]


@dataclass(frozen=True, slots=True)
class Studied:
    """The parameter studies on one log: by parameter, then by its value."""

    log: Name
    by_value: Mapping[str, Mapping[float, Coordinated]]


class _Player:
    """Plays one log, read once, beside the web demand."""

    def __init__(self, folder: Path, name: Name) -> None:
        self.log = LOGS[name]
        log = read_swf(folder / self.log.file)
        self.jobs = replay_jobs(log, TWO_WEEKS_S, self.log.divide_sizes, self.log.skip_jobs)
        self.demands = {
            peak: read_steps(folder / WEB, peak / WEB_PEAK) for peak in (WEB_PEAK, 2 * WEB_PEAK, 4 * WEB_PEAK)
        }

    def play(self, setting: Setting, web_peak: int = 128) -> Coordinated:
        """Simulate two weeks."""
        return coordinate(self.jobs, self.demands[web_peak], setting)


def _bounded(size: int, terms: BatchTerms = _KILL) -> Setting:
    return Setting("fb", size, 0, horizon_s=TWO_WEEKS_S, terms=terms)


def _lent(lower: int, terms: BatchTerms = _KILL, lease_s: float = 3600.0) -> Setting:
    return Setting("flb-nub", lower, 0, horizon_s=TWO_WEEKS_S, lease_s=lease_s, terms=terms)


def play_bounded(folder: Path, name: Name, phases_s: Sequence[float] = PHASES_S) -> Bounded:
    """Tables 1 and 2, with those first ticks of the timers."""
    player, costs = _Player(folder, name), COSTS["paper"]
    sizes, nodes = player.log.sizes, player.log.nodes
    suspend_s, resume_s = (costs.duration_s(kind, MEMORY_MIB) for kind in (ActionKind.SUSPEND, ActionKind.RESUME))
    least = {peak: max(nodes, peak) for peak in player.demands}
    rows = {(size, 128) for size in sizes} | {(size, peak) for peak, size in least.items()}
    return Bounded(
        name,
        player.play(Setting("dedicated", nodes, 128, horizon_s=TWO_WEEKS_S)),
        {size: player.play(_bounded(size)) for size in sizes},
        {
            size: player.play(replace(_bounded(size, _SUSPEND), suspend_s=suspend_s, resume_s=resume_s))
            for size in sizes
        },
        {size: player.play(_bounded(size, _SUSPEND)) for size in sizes},
        {peak: player.play(_bounded(size), peak) for peak, size in least.items()},
        {
            (size, peak): tuple(player.play(replace(_bounded(size), first_timer_s=at_s), peak) for at_s in phases_s)
            for size, peak in sorted(rows)
        },
    )


def play_lent(folder: Path, name: Name, phases_s: Sequence[float] = PHASES_S) -> Lent:
    """Tables 3 and 4, with those first ticks of the timers."""
    player = _Player(folder, name)
    lower = player.log.lower
    return Lent(
        name,
        player.play(Setting("on-demand", 0, 0, horizon_s=TWO_WEEKS_S)),
        {peak: player.play(_lent(each), peak) for peak, each in lower.items()},
        tuple(player.play(replace(_lent(lower[128]), first_timer_s=at_s)) for at_s in phases_s),
    )


def play_studied(folder: Path, name: Name) -> Studied:
    """Compute figures 12 to 16."""
    player = _Player(folder, name)
    lower, both = player.log.lower[128], player.log.nodes + 128
    terms: Mapping[str, Callable[[float], BatchTerms]] = {
        "U": lambda value: replace(_KILL, request_ratio=value),
        "V": lambda value: replace(_KILL, release_ratio=value),
        "G": lambda value: replace(_KILL, elastic_factor=value),
    }

    def setting(parameter: str, value: float) -> Setting:
        if parameter == "B":
            return _lent(round(value * both))
        if parameter == "L":
            return _lent(lower, lease_s=60.0 * value)
        return _lent(lower, terms[parameter](value))

    return Studied(
        name,
        {each: {value: player.play(setting(each, value)) for value in values} for each, values in STUDIES.items()},
    )


def data_folder() -> Path:
    """Return the folder of the logs. Raises `InvalidInput` when it is not configured or lacks a log."""
    named = os.environ.get(DATA_VARIABLE, "")
    folder = Path(named)
    needed = (WEB, *(log.file for log in LOGS.values()))
    missing = [name for name in needed if not (folder / name).is_file()] if named else list(needed)
    if missing:
        what = "is not set" if not named else f"names a folder without {', '.join(missing)}"
        raise InvalidInput(
            Problem(DATA_VARIABLE, what, "the folder of the public logs and traces (docs/appendix/data.md)")
        )
    return folder


def work_bounded(seeds: int) -> list[Work]:
    """Return the work for both logs. It contains no randomness."""
    del seeds
    return [(play_bounded, (data_folder(), name)) for name in LOGS]


def work_lent(seeds: int) -> list[Work]:
    """Return the work for both logs."""
    del seeds
    return [(play_lent, (data_folder(), name)) for name in LOGS]


def work_studied(seeds: int) -> list[Work]:
    """Return the work for both logs."""
    del seeds
    return [(play_studied, (data_folder(), name)) for name in LOGS]
