"""`trimtab sim replay`: a log of batch jobs on a cluster of whole nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import click
import numpy as np

from daemons.capacity.swf import read_swf, replay_jobs
from daemons.cli.numbers import Number, Whole
from daemons.cli.output import emit, output_option, two_columns
from daemons.cli.waiting import saying_what_goes_on
from shared.base.errors import Infeasible, InvalidInput, Problem
from shared.ports.plugins import find_policy
from shared.values.jobs import INSTANCES_MAX, Job
from shared.values.nodes import Node
from shared.values.operation_costs import COSTS, OperationCosts
from shared.values.replay_job import ReplayJob
from sim_backend.replay.engine import run_direct
from sim_backend.replay.workloads import TrueStages, declared_stages, replay_nodes, replay_workload, with_noise
from sim_backend.world.figures import ReplayFigures

ENGINES = ("direct", "closed-loop")
NOISE_MAX = 3.0
WINDOW_MAX_S = 1e12
DIGITS_MAX = 12
JOBS_MAX = 250_000
SPAN_MAX_S = {"direct": 1e8, "closed-loop": 4e7}  # of virtual time: the engine goes through it cycle by cycle


def job_numbers(text: str) -> frozenset[int]:
    """Job numbers with commas between them."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not all(word.isascii() and word.isdigit() and len(word) <= DIGITS_MAX for word in words):
        raise click.BadParameter(f"{text!r}: expected job numbers with commas between them")
    return frozenset(map(int, words))


@dataclass(frozen=True, slots=True)
class _Setting:
    jobs: Sequence[Job]
    nodes: Sequence[Node]
    truth: Mapping[str, TrueStages]
    policy: str
    costs: OperationCosts
    window_s: float


@click.command()
@click.argument("log", type=click.Path())
@click.option("--nodes", type=Whole(1, INSTANCES_MAX), required=True, help="Number of nodes.")
@click.option(
    "--window",
    "window_s",
    type=Number(1e-3, WINDOW_MAX_S),
    metavar="SECONDS",
    help="Replay only this many seconds of the log.  [default: all jobs]",
)
@click.option(
    "--divide-sizes",
    type=Whole(1, 1_000_000),
    default=1,
    show_default=True,
    help="Processors per node; sizes of jobs are divided by it and rounded up.",
)
@click.option("--skip-jobs", type=job_numbers, default="", metavar="ID,ID", help="Leave out these job numbers.")
@click.option("--policy", default="first-fit", show_default=True, help="Placement policy.")
@click.option(
    "--costs",
    type=click.Choice(tuple(COSTS)),
    default="none",
    show_default=True,
    help="Durations of operations on VMs.",
)
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="direct",
    show_default=True,
    help="Policy and world only, or the real controller and agents over an in-process bus.",
)
@click.option("--seed", type=Whole(0), default=0, show_default=True, help="Seed of random numbers.")
@click.option(
    "--noise",
    type=Number(0.0, NOISE_MAX),
    default=0.0,
    metavar="SIGMA",
    show_default=True,
    help="Standard deviation of the logarithm of true over declared work.",
)
@output_option
def replay(
    log: str,
    nodes: int,
    window_s: float | None,
    divide_sizes: int,
    skip_jobs: frozenset[int],
    policy: str,
    costs: str,
    engine: str,
    seed: int,
    noise: float,
) -> None:
    """Replay LOG, a log of batch jobs in the Standard Workload Format (plain or gzip), in virtual time.

    \b
    Example:
      trimtab sim replay log.swf.gz --nodes 128 --window 86400
    """
    find_policy("placement", policy)
    chosen = replay_jobs(read_swf(log), math.inf if window_s is None else window_s, divide_sizes, skip_jobs, log)
    _refuse_too_large(log, chosen, nodes)
    jobs = replay_workload(chosen)
    truth = with_noise(jobs, np.random.default_rng(seed), noise) if noise else {}
    window = math.inf if window_s is None else window_s
    _refuse_too_long(log, chosen, [truth.get(job.name) or declared_stages(job) for job in jobs], nodes, engine, window)
    setting = _Setting(jobs, replay_nodes(nodes), truth, policy, COSTS[costs], window)
    with saying_what_goes_on(f"replaying {len(jobs)} jobs"):
        outcome = _ENGINES[engine](setting)
    emit(outcome.to_json(), lambda: two_columns(f"{policy} on {nodes} nodes", _for_people(outcome)))


def _refuse_too_long(
    log: str, jobs: Sequence[ReplayJob], truth: Sequence[TrueStages], nodes: int, engine: str, window_s: float
) -> None:
    """Raise `InvalidInput` where a replay would go through more virtual time than its engine can."""
    most_s = SPAN_MAX_S[engine]
    expected = f"at most {most_s:g} s with --engine {engine}: --window ends the replay, --skip-jobs leaves jobs out"
    if window_s <= most_s:
        return
    if engine == "closed-loop" and window_s < math.inf:  # it goes on to the end, also when there is nothing to do
        raise InvalidInput(Problem("--window", f"is {window_s:g} s", f"at most {most_s:g} s with --engine {engine}"))
    runs_s = [math.fsum(work / mhz for work, mhz in stages) for stages in truth]
    for job, run_s in zip(jobs, runs_s, strict=True):
        if job.submit_s + run_s > most_s:
            what = f"job {job.number} ends {job.submit_s + run_s:g} s after the log's begin at the earliest"
            raise InvalidInput(Problem(f"{log}:{job.line}", what, expected))
    total_s = math.fsum(job.nodes * run_s for job, run_s in zip(jobs, runs_s, strict=True)) / nodes
    if total_s > most_s:
        raise InvalidInput(Problem(log, f"its jobs keep {nodes} nodes busy for {total_s:g} s", expected))


def _refuse_too_large(log: str, jobs: Sequence[ReplayJob], nodes: int) -> None:
    if len(jobs) > JOBS_MAX:
        expected = f"at most {JOBS_MAX:,}: --window ends the replay, --skip-jobs leaves jobs out"
        raise InvalidInput(Problem(log, f"has {len(jobs):,} jobs", expected))
    large = [job for job in jobs if job.nodes > nodes]
    if large:
        job, more = large[0], f" (and {len(large) - 1} more jobs are too large)" if len(large) > 1 else ""
        raise Infeasible(f"{log}:{job.line}: job {job.number} needs {job.nodes} nodes, there are {nodes}{more}")


def _direct(setting: _Setting) -> ReplayFigures:
    return run_direct(
        setting.jobs,
        setting.nodes,
        policy=setting.policy,
        true_stages=setting.truth,
        costs=setting.costs,
        window_s=setting.window_s,
    )


def _closed_loop(setting: _Setting) -> ReplayFigures:
    from sim_backend.loop import closed_loop  # brings in controller and agents: not needed for sweeps

    return closed_loop.replay(
        setting.jobs,
        setting.nodes,
        true_stages=setting.truth,
        policy=setting.policy,
        costs=setting.costs,
        window_s=setting.window_s,
    )


_ENGINES: dict[str, Callable[[_Setting], ReplayFigures]] = {"direct": _direct, "closed-loop": _closed_loop}


def _for_people(outcome: ReplayFigures) -> dict[str, object]:
    values = outcome.to_json()
    operations = values.pop("operations")
    return values | {name + "s": count for name, count in operations.items()}
