"""Workloads and clusters for simulations: what is declared to Trimtab, and the truth that differs from it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum

import numpy as np

from shared.values.jobs import Job, Stage
from shared.values.nodes import Node
from shared.values.replay_job import ReplayJob
from shared.values.web_app import Flow, ModelForm, WebApp
from sim_backend.world.demand import Demand, constant, daily, steps, uneven
from sim_backend.world.web_site import TrueFlow, TrueWeb

TrueStages = tuple[tuple[float, float], ...]
"""The truth about a job: (work in Mcycles per instance, largest useful speed in MHz) of each stage."""

REPLAY_MHZ = 1_000.0
REPLAY_MIB = 1_000

_PROFILES = ((9_000.0, 3_900.0), (17_600.0, 1_560.0), (600.0, 2_340.0))  # shortest run time s, top speed MHz
_PROFILE_SHARES = (0.1, 0.4, 0.5)
_GOAL_FACTORS = (1.3, 2.5, 4.0)
_GOAL_SHARES = (0.1, 0.3, 0.6)
_JOB_MIB = 4_320
_REPLICA_MIB = 2_000  # beside three jobs on a node of the paper
_PEAK_S = 18_000.0  # when most is asked of the shop
_BUY_SHARE = 0.2  # of the shop's CPU
_BROWSE_MCYCLES, _BUY_MCYCLES = 60.0, 200.0
_UNDERSTATED = 1.1  # true / declared work of a browse
_STEP_S, _STEP = 7_200.0, 0.25  # so long the load is so much of it below its mean, then as long above
_SPIKE_S, _SPIKE = 600.0, 1.5  # in each step the load is so long so much of its mean
_LONGEST_S = 1_000_000.0


class WebShape(StrEnum):
    """How the load of the shop changes."""

    NOISY = "noisy"  # by day, with chance
    CONSTANT = "constant"
    STEP = "step"  # a quarter less than the mean and a quarter more, two hours each
    SPIKE = "spike"  # half as much again for ten minutes every two hours


class Declared(StrEnum):
    """What the shop declares of the work of its requests."""

    PART = "part"  # a tenth too little of one flow, nothing of the other
    ALL = "all"
    NOTHING = "nothing"


def experiment_four(rng: np.random.Generator, count: int = 200, mean_gap_s: float = 150.0) -> list[Job]:
    """Return the randomised jobs of apc.txt, section 5.4, in order of submission, after exponential gaps from time 0.

    Profiles (shortest run time at top speed) 9,000 s at 3,900 MHz, 17,600 s at 1,560 MHz, 600 s at 2,340 MHz with
    probabilities 10, 40, 50 %; goal = submission + factor x shortest run time, factors 1.3, 2.5, 4 with 10, 30, 60 %;
    4,320 MiB each.
    """
    submits_s = np.cumsum(rng.exponential(mean_gap_s, count))
    profiles = rng.choice(len(_PROFILES), count, p=_PROFILE_SHARES)
    factors = rng.choice(_GOAL_FACTORS, count, p=_GOAL_SHARES)
    jobs = []
    for index in range(count):
        run_s, max_mhz = _PROFILES[profiles[index]]
        submit_s = float(submits_s[index])
        jobs.append(
            Job(
                name=_numbered("job", index, count),
                stages=(Stage(run_s * max_mhz, max_mhz, 0.0, _JOB_MIB),),
                submit_s=submit_s,
                desired_start_s=submit_s,
                goal_s=submit_s + float(factors[index]) * run_s,
            )
        )
    return jobs


def paper_nodes(count: int = 25) -> tuple[Node, ...]:
    """Return the cluster of apc.txt, section 5.2: 4 cores of 3,900 MHz and 16,000 MiB a node."""
    return tuple(Node(_numbered("node", index, count), 4, 3_900.0, memory_mib=16_000) for index in range(count))


def shop(
    nodes: Sequence[Node],
    load_frac: float,
    seed: int,
    shape: WebShape = WebShape.NOISY,
    declared: Declared = Declared.PART,
    work_error: float = 0.0,
) -> tuple[WebApp, TrueWeb]:
    """Return a web application that may run everywhere, and the truth about it: its requests use `load_frac` of the
    nodes' CPU on average; of shape NOISY half as much again by day and half of it by night. One flow has a goal on the
    mean, the other on a percentile. work_error: by how much (as a part, above -1) work is overstated where ALL of it is
    declared."""
    browse_mcycles = _BROWSE_MCYCLES * _UNDERSTATED
    works: dict[Declared, tuple[float | None, float | None]] = {
        Declared.PART: (_BROWSE_MCYCLES, None),
        Declared.ALL: (browse_mcycles * (1.0 + work_error), _BUY_MCYCLES * (1.0 + work_error)),
        Declared.NOTHING: (None, None),
    }
    browse_declared, buy_declared = works[declared]
    cpu_mhz = math.fsum(node.cpu_mhz for node in nodes)
    app = WebApp(
        "shop",
        (
            Flow("browse", mean_s=0.15, work_mcycles=browse_declared, t_min_s=0.03, model=ModelForm.MULTI_SERVER),
            Flow(
                "buy",
                percentile=0.95,
                percentile_s=0.6,
                work_mcycles=buy_declared,
                t_min_s=0.05,
                model=ModelForm.MULTI_SERVER,
            ),
        ),
        _REPLICA_MIB,
        max_mhz=max(node.cpu_mhz for node in nodes),
        min_instances=max(1, 2 * len(nodes) // 3),
        max_instances=len(nodes),
        vcpus=max(node.cores for node in nodes),
    )
    asked_mhz = load_frac * cpu_mhz
    browse = _demand(shape, (1.0 - _BUY_SHARE) * asked_mhz / browse_mcycles, seed, 0.05)
    buy = _demand(shape, _BUY_SHARE * asked_mhz / _BUY_MCYCLES, seed + 1, 0.1)
    truth = TrueWeb(
        (
            TrueFlow("browse", browse, browse_mcycles, 0.03),
            TrueFlow("buy", buy, _BUY_MCYCLES, 0.05, 0.95),
        ),
        seed=seed,
    )
    return app, truth


def _demand(shape: WebShape, mean_per_s: float, seed: int, sigma: float) -> Demand:
    if shape is WebShape.CONSTANT:
        return constant(mean_per_s)
    if shape is WebShape.NOISY:
        return uneven(daily(mean_per_s, 0.5, _PEAK_S), seed, sigma)
    points: list[tuple[float, float]] = []
    for number in range(int(_LONGEST_S / _STEP_S)):
        at_s = number * _STEP_S
        if shape is WebShape.STEP:
            points.append((at_s, mean_per_s * (1.0 + (_STEP if number % 2 else -_STEP))))
        else:
            points += [(at_s, mean_per_s), (at_s + _STEP_S - _SPIKE_S, mean_per_s * _SPIKE)]
    return steps(points)


def misdeclared(jobs: Iterable[Job], error: float) -> list[tuple[Job, TrueStages]]:
    """Return jobs whose work is overstated by `error` (as a part of it, above -1), each with its true stages."""
    return [
        (
            replace(job, stages=tuple(_scaled(stage, 1.0 + error) for stage in job.stages)),
            declared_stages(job),
        )
        for job in jobs
    ]


def _scaled(stage: Stage, factor: float) -> Stage:
    return replace(stage, work_mcycles=stage.work_mcycles * factor)


def replay_workload(jobs: Sequence[ReplayJob]) -> list[Job]:
    """Return one job per log entry, in the given order, with `nodes` instances on different nodes. Each instance needs
    a whole replay node and has run_s x 1,000 Mcycles of work. Names sort like job numbers, so that jobs with equal
    times keep the order of the log."""
    digits = max((len(str(job.number)) for job in jobs), default=1)
    return [
        Job(
            name=f"job-{job.number:0{digits}}",
            stages=(Stage(job.run_s * REPLAY_MHZ, REPLAY_MHZ, 0.0, REPLAY_MIB),),
            submit_s=job.submit_s,
            desired_start_s=job.submit_s,
            instances=job.nodes,
            spread=True,
        )
        for job in jobs
    ]


def replay_nodes(count: int) -> tuple[Node, ...]:
    """Return `count` nodes of one core of 1,000 MHz and 1,000 MiB. Each holds one instance of a replay job at a
    time."""
    return tuple(Node(_numbered("node", index, count), 1, REPLAY_MHZ, memory_mib=REPLAY_MIB) for index in range(count))


def declared_stages(job: Job) -> TrueStages:
    """Return the true stages of a job whose declared profile is exact."""
    return tuple((stage.work_mcycles, stage.max_mhz) for stage in job.stages)


def with_noise(jobs: Iterable[Job], rng: np.random.Generator, sigma: float) -> dict[str, TrueStages]:
    """True stages by job name: all work of a job times one log-normal factor of mean 1 and log-deviation `sigma`."""
    if not (math.isfinite(sigma) and sigma >= 0):
        raise ValueError(f"sigma = {sigma!r}: expected a finite number, 0 or above")
    truth = {}
    for job in jobs:
        factor = math.exp(sigma * float(rng.standard_normal()) - sigma * sigma / 2)
        truth[job.name] = tuple((work * factor, max_mhz) for work, max_mhz in declared_stages(job))
    return truth


def _numbered(word: str, index: int, count: int) -> str:
    """Return a name such as `word-007`, with as many digits as the largest of `count` needs, so that names sort like
    numbers."""
    return f"{word}-{index:0{len(str(max(count - 1, 0)))}}"
