"""Generated workloads: the distributions that the paper states, exactness of the replay's translation, noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shared.values.replay_job import ReplayJob
from sim_backend.replay.workloads import (
    declared_stages,
    experiment_four,
    paper_nodes,
    replay_nodes,
    replay_workload,
    with_noise,
)


@pytest.mark.full
def test_experiment_four_draws_what_the_paper_states() -> None:
    jobs = experiment_four(np.random.default_rng(1), count=20_000, mean_gap_s=150)
    runs_s = np.array([job.work_mcycles / job.max_mhz for job in jobs])
    factors = np.array([(job.goal_s or 0) - job.submit_s for job in jobs]) / runs_s
    gaps_s = np.diff([0.0, *(job.submit_s for job in jobs)])
    for run_s, max_mhz, share in ((9_000, 3_900, 0.1), (17_600, 1_560, 0.4), (600, 2_340, 0.5)):
        of_this = np.isclose(runs_s, run_s)
        assert of_this.mean() == pytest.approx(share, abs=0.015)
        assert {jobs[i].max_mhz for i in np.flatnonzero(of_this)} == {max_mhz}
    for factor, share in ((1.3, 0.1), (2.5, 0.3), (4.0, 0.6)):
        assert np.isclose(factors, factor).mean() == pytest.approx(share, abs=0.015)
    assert gaps_s.mean() == pytest.approx(150, rel=0.03)
    assert gaps_s.std() == pytest.approx(150, rel=0.04)  # exponential: deviation = mean
    assert {job.memory_mib for job in jobs} == {4_320}
    assert {job.desired_start_s - job.submit_s for job in jobs} == {0.0}


def test_experiment_four_is_its_seed() -> None:
    first, same, other = (experiment_four(np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert len(first) == 200
    assert first == same
    assert first != other
    assert [job.name for job in first] == sorted(job.name for job in first)


def test_a_replay_job_needs_whole_nodes_for_its_run_time() -> None:
    (node, *others) = replay_nodes(12)
    assert len(others) == 11
    assert [node.name, others[-1].name] == ["node-00", "node-11"]
    first, second = replay_workload([ReplayJob(9, 5.0, 7.0, 3, 1), ReplayJob(10, 5.0, 0.0, 1, 2)])
    assert (first.instances, first.spread, first.memory_mib) == (3, True, node.usable_mib)
    assert first.speed_on_mhz(node) == node.cpu_mhz
    assert first.work_mcycles / first.speed_on_mhz(node) == 7.0
    assert second.work_mcycles == 0.0
    assert first.name < second.name  # ties in time are broken by name: job 9 goes before job 10
    assert (first.goal_s, first.desired_start_s) == (None, 5.0)
    assert replay_workload([]) == []


def test_the_papers_cluster() -> None:
    nodes = paper_nodes()
    assert len(nodes) == 25
    assert {(node.cpu_mhz, node.memory_mib) for node in nodes} == {(15_600.0, 16_000)}


def test_noise_has_mean_one_and_leaves_speed_alone() -> None:
    jobs = experiment_four(np.random.default_rng(1), count=5_000)
    truth = with_noise(jobs, np.random.default_rng(2), 0.3)
    factors = np.array([truth[job.name][0][0] / job.work_mcycles for job in jobs])
    assert factors.mean() == pytest.approx(1.0, abs=0.02)
    assert np.log(factors).std() == pytest.approx(0.3, abs=0.015)
    assert all(truth[job.name][0][1] == job.max_mhz for job in jobs)
    assert with_noise(jobs, np.random.default_rng(2), 0.0) == {job.name: declared_stages(job) for job in jobs}


@pytest.mark.parametrize("sigma", [-1.0, math.nan, math.inf])
def test_noise_out_of_range(sigma: float) -> None:
    with pytest.raises(ValueError, match="sigma"):
        with_noise([], np.random.default_rng(1), sigma)
