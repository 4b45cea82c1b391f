"""The clusters, jobs and policies of the experiments of apc.txt, section 5."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shared.values.jobs import Job, Stage
from shared.values.nodes import Node
from shared.values.web_app import Flow, ModelForm, WebApp
from sim_backend.replay.web_loads import FlowLoad, WebLoad
from sim_backend.replay.workloads import experiment_four, paper_nodes

CYCLE_S = 600.0
NODES = 25
JOBS = 800
GAP_S = 260.0
JOB_MIB = 4_320
JOB_MHZ = 3_900.0
RUN_S = 17_600.0
PLACES = 75  # three jobs to a node, by memory
FACTOR = 2.7

# Experiment Three: factors and their probabilities, which add up to 1.1 in the paper.
FACTORS = (1.9, 2.5, 10.0)
FACTOR_SHARES = (0.3, 0.4, 0.4)

# Experiment Four
GAPS_S = (50.0, 100.0, 150.0, 200.0, 250.0, 300.0, 350.0, 400.0)
COMPLETIONS = 800
DRAWN = 2_600  # more than are submitted until 800 are completed, at any gap and under any policy
RANDOM_FACTORS = (1.3, 2.5, 4.0)

# Experiment Five
WEB_MIB = 2_000
WEB_MAX_MHZ = 130_000.0
WEB_T_MIN, WEB_C_MHZ, WEB_LOAD_MHZ = 0.175, 16_500.0, 30_000.0
LATE_JOBS, LATE_GAP_S = 200, 350.0


@dataclass(frozen=True, slots=True)
class Rival:
    """A policy and when it acts: at cycles only, or whenever something happens as well."""

    label: str
    policy: str
    by_events: bool
    params: Mapping[str, Any] = field(default_factory=dict)


APC = Rival("APC", "apc", False, {"event_driven_start": False})
APC_STARTS = Rival("APC, starts between cycles", "apc", True, {"event_driven_start": True})
EDF = Rival("EDF", "edf", False)
EDF_EVENTS = Rival("EDF by events", "edf", True)
FCFS = Rival("FCFS", "first-fit", False)
FCFS_EVENTS = Rival("FCFS by events", "first-fit", True)
AT_CYCLES = (APC, EDF, FCFS)
BY_EVENTS = (APC_STARTS, EDF_EVENTS, FCFS_EVENTS)


def cluster() -> tuple[Node, ...]:
    """Return the 25 nodes of Experiments Two to Five."""
    return paper_nodes(NODES)


def generator(experiment: int, seed: int) -> np.random.Generator:
    """Return the random generator of one experiment and seed. Experiment Five uses the jobs of Two."""
    return np.random.default_rng([experiment, seed])


def equal_jobs(submits_s: Sequence[float], factors: Sequence[float]) -> list[Job]:
    """Return jobs of Table 3 with these submission times and relative goal factors."""
    digits = len(str(len(submits_s) - 1))
    return [
        Job(
            f"job-{index:0{digits}}",
            (Stage(RUN_S * JOB_MHZ, JOB_MHZ, 0.0, JOB_MIB),),
            submit_s,
            desired_start_s=submit_s,
            goal_s=submit_s + factor * RUN_S,
        )
        for index, (submit_s, factor) in enumerate(zip(submits_s, factors, strict=True))
    ]


def jobs_two(seed: int, count: int = JOBS) -> list[Job]:
    """Identical jobs after exponential gaps of 260 s."""
    return equal_jobs(_submits_s(generator(2, seed), [GAP_S] * count), [FACTOR] * count)


def jobs_three(seed: int, count: int = JOBS) -> list[Job]:
    """Return the same jobs with three goal factors. Their probabilities are scaled to a sum of 1."""
    rng = generator(3, seed)
    submits_s = _submits_s(rng, [GAP_S] * count)
    shares = np.array(FACTOR_SHARES) / sum(FACTOR_SHARES)
    return equal_jobs(submits_s, rng.choice(FACTORS, count, p=shares).tolist())


def jobs_four(seed: int, gap_s: float, count: int = DRAWN) -> list[Job]:
    """Random jobs; for one seed the same ones at every rate, at other times."""
    return experiment_four(generator(4, seed), count, gap_s)


def jobs_five(seed: int, count: int = JOBS, late: int = LATE_JOBS) -> list[Job]:
    """Return the jobs of Experiment Two, the last of them with gaps of 350 s."""
    early = count - min(late, count)
    return equal_jobs(
        _submits_s(generator(2, seed), [GAP_S] * early + [LATE_GAP_S] * (count - early)), [FACTOR] * count
    )


def _submits_s(rng: np.random.Generator, mean_gaps_s: Sequence[float]) -> list[float]:
    submits: list[float] = np.cumsum(rng.exponential(mean_gaps_s)).tolist()
    return submits


def web_five(nodes: int = NODES) -> WebLoad:
    """Return the web application of Experiment Five: one instance on every node, with an assumed goal of 1 s."""
    flow = Flow("all", mean_s=1.0, t_min_s=WEB_T_MIN, model=ModelForm.SHIFTED_HYPERBOLA)
    app = WebApp("web", (flow,), WEB_MIB, max_mhz=4 * JOB_MHZ, min_instances=nodes, max_instances=nodes, vcpus=4)
    return WebLoad(app, ((0.0, (FlowLoad(WEB_C_MHZ, WEB_LOAD_MHZ),)),), WEB_MAX_MHZ)


def web_utility(mhz: float) -> float:
    """Utility of the web application with so much CPU (MHz, above what its load uses up): figure 18."""
    within = min(mhz, WEB_MAX_MHZ)
    return 1.0 - WEB_T_MIN - WEB_C_MHZ / (within - WEB_LOAD_MHZ) if within > WEB_LOAD_MHZ else -math.inf
