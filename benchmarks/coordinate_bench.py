"""Batch and web environments that share nodes: a log on dedicated nodes beside a plain loop, then what runs take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.plain_replay import plain_replay
from benchmarks.replay_bench import drawn_jobs
from benchmarks.runner import Bench, Case, Figure, cpu_time_s
from daemons.capacity.coordination.demand import read_steps
from daemons.capacity.coordination.runs import coordinate
from daemons.capacity.coordination.values import Setting, WebDemand
from daemons.capacity.swf import read_swf, replay_jobs
from shared.base.errors import InvalidInput
from shared.values.agreement import BatchTerms, OnReclaim
from shared.values.replay_job import ReplayJob
from sim_backend.experiments.coordination.runs import data_folder, play_bounded, play_lent
from sim_backend.experiments.coordination.settings import LOGS, TWO_WEEKS_S, WEB

WHOLE_LOG = "sdsc-blue-2000/SDSC-BLUE-2000-cln-runclipped.swf.gz"
WHOLE_LOG_S = 84_672_000.0  # 980 days
YEAR_S = 31_536_000.0
PER_NODE = 8
NODES = 110  # fewer than the log comes from: hundreds of jobs wait
ROUNDS = 5
WITHOUT_WEB = WebDemand((0.0,), (0,), 86_400.0)


def bench(data_folder: Path | None) -> Bench:
    """A year of the log where its folder is known, else two weeks of jobs drawn from a seed, on dedicated nodes."""
    log = data_folder / WHOLE_LOG if data_folder else None
    known = log is not None and log.is_file()
    jobs = replay_jobs(read_swf(log), YEAR_S, PER_NODE) if log is not None and known else _drawn()
    horizon_s = YEAR_S if known else TWO_WEEKS_S

    def plain() -> object:
        found = plain_replay(jobs, NODES, horizon_s)
        return found.completed, _rounded(found.mean_execution_s), _rounded(found.mean_turnaround_s)

    def coordinated() -> object:
        found = coordinate(jobs, WITHOUT_WEB, Setting("dedicated", NODES, 0, horizon_s=horizon_s))
        return found.jobs_completed, _rounded(found.mean_execution_s), _rounded(found.mean_turnaround_s)

    title = f"{len(jobs)} jobs on dedicated nodes ({'BLUE' if known else 'drawn'})"
    return Bench(title, (Case("plain", plain), Case("coordinate", coordinated)))


def figures(say: Callable[[str], None]) -> Iterator[Figure]:
    """CPU time of one process: a row of a table, all tables, the whole log."""
    try:
        folder = data_folder()
    except InvalidInput as error:
        say(f"coordinate: left out, {error}")
        return
    say("coordinate: two weeks, all tables, the whole log")
    yield from _rows(folder)
    tables_s = cpu_time_s(lambda: [play(folder, name) for name in LOGS for play in (play_bounded, play_lent)])
    yield Figure("coordinate", "tables 1 to 4, with six phases of the timer and suspends", tables_s, "s", most=10.0)
    if (folder / WHOLE_LOG).is_file():
        yield from _whole(folder)


def _rows(folder: Path) -> Iterator[Figure]:
    demand = read_steps(folder / WEB, 2.0)
    for name, log in LOGS.items():
        jobs = replay_jobs(read_swf(folder / log.file), TWO_WEEKS_S, log.divide_sizes, log.skip_jobs)
        runs = (
            Setting("fb", log.nodes, 0, horizon_s=TWO_WEEKS_S),
            Setting("flb-nub", log.lower[128], 0, horizon_s=TWO_WEEKS_S),
        )
        for setting in runs:
            taken_s = median(cpu_time_s(partial(coordinate, jobs, demand, setting)) for _ in range(ROUNDS))
            yield Figure("coordinate", f"two weeks of {name}, {setting.model}", taken_s, "s", most=0.3)


def _whole(folder: Path) -> Iterator[Figure]:
    demand = read_steps(folder / WEB, 2.0)
    jobs: list[ReplayJob] = []
    taken_s = cpu_time_s(lambda: jobs.extend(replay_jobs(read_swf(folder / WHOLE_LOG), WHOLE_LOG_S, PER_NODE)))
    yield Figure("coordinate", f"reading the whole log, {len(jobs)} jobs", taken_s, "s")
    for on_reclaim in OnReclaim:
        setting = Setting("fb", 190, 0, horizon_s=WHOLE_LOG_S, terms=BatchTerms(on_reclaim=on_reclaim))
        played_s = cpu_time_s(partial(coordinate, jobs, demand, setting))
        yield Figure("coordinate", f"playing it, fb, 190 nodes, {on_reclaim}", played_s, "s", most=15.0)


def _drawn() -> tuple[ReplayJob, ...]:
    return drawn_jobs(np.random.default_rng(1))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
