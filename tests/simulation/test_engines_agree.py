"""The direct engine and the closed loop (real controller, agents and bus) give the same figures."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shared.values.operation_costs import COSTS
from sim_backend.loop.closed_loop import replay
from sim_backend.replay.engine import run_direct
from sim_backend.replay.workloads import experiment_four, paper_nodes, replay_nodes, replay_workload, with_noise
from tests.extent import first
from tests.simulation.small_logs import random_log

WINDOW_S = 200_000.0


@pytest.mark.full
@pytest.mark.parametrize("costs", first(["paper", "none"]))
@pytest.mark.parametrize("policy", first(["first-fit", "edf"]))
@pytest.mark.parametrize("seed", first([0, 1, 2]))
def test_on_a_crowded_cluster_with_true_work_that_is_not_the_declared(seed: int, policy: str, costs: str) -> None:
    rng = np.random.default_rng(seed)
    jobs, nodes = experiment_four(rng, 40, 60.0), paper_nodes(4)
    truth = with_noise(jobs, rng, 0.3)
    direct = run_direct(jobs, nodes, policy=policy, true_stages=truth, costs=COSTS[costs], window_s=WINDOW_S).to_json()
    looped = replay(jobs, nodes, policy=policy, true_stages=truth, costs=COSTS[costs], window_s=WINDOW_S).to_json()
    assert direct | {"wall_s": 0} == looped | {"wall_s": 0}
    assert direct["jobs_completed"] == 40


@pytest.mark.full
@pytest.mark.parametrize("policy", first(["first-fit", "edf"]))
@pytest.mark.parametrize("seed", first(range(4)))
@pytest.mark.parametrize("window_s", first([5_000.0, math.inf]))
def test_on_random_logs_of_gangs_with_coinciding_events(seed: int, policy: str, window_s: float) -> None:
    jobs, nodes = replay_workload(random_log(seed)), replay_nodes(8)
    direct = run_direct(jobs, nodes, policy=policy, costs=COSTS["none"], window_s=window_s).to_json()
    looped = replay(jobs, nodes, policy=policy, costs=COSTS["none"], window_s=window_s).to_json()
    assert direct | {"wall_s": 0} == looped | {"wall_s": 0}
    assert direct["jobs_completed"] > 50
