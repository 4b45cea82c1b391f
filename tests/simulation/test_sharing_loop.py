"""What it is worth that decisions know of disks: the same jobs with and without, judged by the world's truth."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from daemons.values.records.cluster import DecisionRecord
from shared.values.jobs import Job, Stage
from shared.values.load_vector import IO, Loading
from shared.values.nodes import Node
from shared.values.operation_costs import COSTS
from sim_backend.loop.closed_loop import ClosedLoop, replay_settings
from sim_backend.replay.engine import run_direct
from sim_backend.world.figures import ReplayFigures
from tests.extent import first

COMPOSED = {"sharing": "composed"}
POLICIES = [("apc", {}), ("first-fit", COMPOSED), ("edf", COMPOSED)]


def _nodes(count: int) -> list[Node]:
    return [Node(f"n{at}", 4, 1_000.0, memory_mib=8_192) for at in range(count)]


def _jobs(seed: int, count: int, gap_s: float) -> list[Job]:
    """Half of them at the disk for 60 to 95 % of their time alone; goals at 1.6 times the shortest run time."""
    rng = np.random.default_rng(seed)
    jobs = []
    for index, submit_s in enumerate(np.cumsum(rng.exponential(gap_s, count)).round().tolist()):
        run_s, heavy = float(rng.choice([1_800.0, 3_600.0])), rng.random() < 0.5
        loading = Loading(((IO, float(rng.uniform(0.6, 0.95))),)) if heavy else Loading()
        stages = (Stage(run_s * 1_000.0, 1_000.0, 0.0, 2_000),)
        times = {"submit_s": submit_s, "desired_start_s": submit_s, "goal_s": submit_s + 1.6 * run_s}
        jobs.append(Job(f"j{index:03}", stages, resource_profile=loading, **times))
    return jobs


def _true_io(jobs: list[Job], rng: np.random.Generator, sigma: float) -> dict[str, float]:
    """By job name, the part of its time alone that a job truly is at the disk: what is declared times one log-normal
    factor of mean 1 and log-deviation `sigma`, 1 at most."""
    factors = [math.exp(sigma * float(rng.standard_normal()) - sigma * sigma / 2) for _ in jobs]
    return {
        job.name: min(1.0, job.resource_profile.part(IO) * factor) for job, factor in zip(jobs, factors, strict=True)
    }


def _both(
    seed: int, count: int, nodes: int, policy: str, params: dict[str, str]
) -> tuple[ReplayFigures, ReplayFigures]:
    """Blind and seeing; what jobs declare is 10 % off."""
    jobs = _jobs(seed, count, 900.0 / nodes)
    truth = _true_io(jobs, np.random.default_rng(1_000 + seed), 0.1)
    blind, seeing = (
        run_direct(
            jobs,
            _nodes(nodes),
            policy=policy,
            params=params,
            costs=COSTS["paper"],
            cycle_s=600.0,
            interference=model,
            true_io=truth,
        )
        for model in ("", "auto")
    )
    return blind, seeing


def _gain(blind: ReplayFigures, seeing: ReplayFigures) -> float:
    """By what part the mean time from submission to end is shorter."""
    assert blind.mean_turnaround_s is not None
    assert seeing.mean_turnaround_s is not None
    return 1.0 - seeing.mean_turnaround_s / blind.mean_turnaround_s


@pytest.mark.accept
@pytest.mark.parametrize(("policy", "params"), first(POLICIES))
def test_jobs_end_earlier_and_more_goals_are_met(policy: str, params: dict[str, str]) -> None:
    found = [_both(seed, 40, 4, policy, params) for seed in range(3)]
    gains = [_gain(*each) for each in found]
    met = [sum(figures.goals_met for figures in each) for each in zip(*found, strict=True)]
    print(f"{policy}: mean turnaround shorter by {np.mean(gains):.1%}, goals met {met[0]} -> {met[1]} of 120")
    assert np.mean(gains) > 0.05
    assert met[1] > met[0] * 1.1


@pytest.mark.accept
@pytest.mark.parametrize(("policy", "params"), POLICIES)
def test_the_same_on_a_larger_cluster(policy: str, params: dict[str, str]) -> None:
    found = [_both(100 + seed, 200, 10, policy, params) for seed in range(3)]
    gains = [_gain(*each) for each in found]
    met = [sum(figures.goals_met for figures in each) for each in zip(*found, strict=True)]
    print(f"{policy}: mean turnaround shorter by {np.mean(gains):.1%}, goals met {met[0]} -> {met[1]} of 600")
    assert min(gains) > 0.0
    assert np.mean(gains) > 0.05
    assert met[1] > met[0] * 1.1


@pytest.mark.accept
@pytest.mark.parametrize(("policy", "params"), first(POLICIES[:2]))
def test_controller_and_agents_gain_too(policy: str, params: dict[str, str]) -> None:
    """Reports carry what the disks make of it, the controller makes columns of profiles, and decisions use them."""
    jobs, found = _jobs(0, 24, 200.0), []
    for decisions in (False, True):
        settings = replay_settings(policy, COSTS["paper"], 600.0, 120.0, params)
        interference = replace(settings.controller.interference, decisions=decisions)
        controller = replace(settings.controller, interference=interference, operation_costs=COSTS["paper"])
        loop = ClosedLoop(_nodes(4), replace(settings, controller=controller))
        for job in jobs:
            loop.submit(job)
        loop.run_until(16_000.0)
        found.append(loop.figures(16_000.0))
        assert found[-1].jobs_completed == len(jobs)
        told = [
            one.by for record in loop.store.records() if isinstance(record, DecisionRecord) for one in record.slowed
        ]
        assert bool(told) == decisions
        assert all(told)
    print(f"{policy}: {_gain(*found):.1%} shorter, goals met {found[0].goals_met} -> {found[1].goals_met}")
    assert _gain(*found) > 0.04
    assert found[1].goals_met > found[0].goals_met


def test_reports_show_what_the_disk_did() -> None:
    loop = ClosedLoop(_nodes(1), replay_settings("first-fit", COSTS["none"], 600.0, 100.0))
    for job in _jobs(0, 4, 1.0):
        loop.submit(replace(job, resource_profile=Loading(((IO, 0.5),))), true_io=0.5)
    loop.run_until(1_000.0)
    hypervisor = loop.cluster.hypervisor("n0")
    statuses = hypervisor.vms(1_000.0)
    busy_s, served_s = loop.world.host_disk_s("n0", 1_000.0)
    assert len(statuses) == 4
    for status in statuses:
        assert 0.5 * status.cpu_time_s < status.disk_time_s < 1_000.0 - 0.5 * status.cpu_time_s + 1e-6
    assert 0.0 < served_s <= busy_s + 1e-6 < 1_000.0
    assert sum(status.disk_read_bytes for status in statuses) == pytest.approx(served_s * 100e6)
