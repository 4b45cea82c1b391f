"""A replay of two weeks on 128 nodes: the direct engine and the closed loop beside the plain replay."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.plain_replay import plain_replay
from benchmarks.runner import Bench, Case
from daemons.capacity.swf import read_swf, replay_jobs
from shared.values.operation_costs import COSTS
from shared.values.replay_job import ReplayJob
from sim_backend.loop import closed_loop
from sim_backend.replay.engine import run_direct
from sim_backend.replay.workloads import replay_nodes, replay_workload
from sim_backend.world.figures import ReplayFigures

LOG = Path("nasa-ipsc-1993") / "NASA-iPSC-1993-3.1-cln.swf.gz"
NODES = 128
WINDOW_S = 1_209_600.0
DRAWN_JOBS = 2_604


def bench(data_folder: Path | None) -> Bench:
    """The NASA log where its folder is known, else jobs drawn from a seed with as many jobs and similar sizes."""
    log = data_folder / LOG if data_folder else None
    known = log is not None and log.is_file()
    chosen = replay_jobs(read_swf(log), WINDOW_S) if log is not None and known else drawn_jobs(np.random.default_rng(1))
    jobs, nodes = replay_workload(chosen), replay_nodes(NODES)

    def plain() -> object:
        found = plain_replay(chosen, NODES, WINDOW_S)
        return found.completed, _rounded(found.mean_execution_s), _rounded(found.mean_turnaround_s)

    def direct() -> object:
        return _figures(run_direct(jobs, nodes, policy="first-fit", costs=COSTS["none"], window_s=WINDOW_S))

    def looped() -> object:
        return _figures(closed_loop.replay(jobs, nodes, policy="first-fit", costs=COSTS["none"], window_s=WINDOW_S))

    cases = (Case("plain", plain), Case("direct", direct), Case("closed loop", looped))
    return Bench(f"replay of {len(jobs)} jobs ({'NASA' if known else 'drawn'})", cases)


def drawn_jobs(rng: np.random.Generator, count: int = DRAWN_JOBS) -> tuple[ReplayJob, ...]:
    """Jobs of 1 to 128 nodes (powers of two), log-normal run times of whole seconds, uniform submits in two weeks."""
    submits_s = np.sort(rng.integers(0, int(WINDOW_S), count)).tolist()
    runs_s = np.floor(rng.lognormal(4.5, 1.8, count)).tolist()
    sizes = (2 ** rng.integers(0, 8, count)).tolist()
    return tuple(
        ReplayJob(number, float(submit_s), run_s, size, number)
        for number, (submit_s, run_s, size) in enumerate(zip(submits_s, runs_s, sizes, strict=True), 1)
    )


def _figures(outcome: ReplayFigures) -> object:
    return outcome.jobs_completed, _rounded(outcome.mean_execution_s), _rounded(outcome.mean_turnaround_s)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
