"""`sim coordinate` beside a second-by-second restatement of its rules, on small random traces."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from daemons.capacity.coordination.runs import coordinate
from daemons.capacity.coordination.values import Coordinated, Setting, WebDemand
from shared.values.agreement import BatchTerms, OnReclaim
from shared.values.replay_job import ReplayJob
from tests.extent import first
from tests.simulation.coordinate_naive import naive, naive_on_demand

TRACES = 100
NODES = 12
HORIZON_S = 240.0


def trace(seed: int, horizon_s: float = HORIZON_S) -> tuple[list[ReplayJob], WebDemand]:
    """Jobs of 1 to 13 nodes, some without run time, often several in one second, and a demand that begins anew twice;
    most times are multiples of 5 s, so that much falls into one instant."""
    rng = Random(seed)
    step = rng.choice((1, 5))
    submits = sorted(rng.randrange(int(horizon_s / step)) * step for _ in range(rng.randint(0, 40)))
    jobs = [
        ReplayJob(n, float(at), float(rng.choice((0, 3, 20, 35, 90)) * horizon_s // HORIZON_S), rng.randint(1, 13), n)
        for n, at in enumerate(submits)
    ]
    period_s = horizon_s / rng.choice((1, 2, 3))
    times = sorted({0, *(rng.randrange(int(period_s / step)) * step for _ in range(8))})
    first = rng.randrange(2)
    return jobs, WebDemand(times[first:], [rng.randint(0, NODES) for _ in times[first:]], period_s)


def setting(seed: int, model: str, on_reclaim: OnReclaim) -> Setting:
    """Terms of a seed."""
    rng = Random(1_000 + seed)
    terms = BatchTerms(
        rng.choice((0.5, 1.2, 2.0)), rng.choice((0.0, 0.2, 0.4)), rng.choice((0.3, 0.5, 0.9)), on_reclaim
    )
    lower = {"fb": (NODES, 0), "dedicated": (rng.randint(0, NODES), NODES)}.get(model, (rng.randint(0, 8), 0))
    lease_s = rng.choice((20.0, 35.0, 60.0))
    return Setting(model, *lower, HORIZON_S, lease_s, terms, first_timer_s=rng.choice((None, 5.0, 90.0)))


def in_seconds(found: Coordinated) -> dict[str, object]:
    """The figures as the naive run has them."""
    count = found.jobs_completed
    return {
        "completed": count,
        "execution_s": round(count * (found.mean_execution_s or 0.0)),
        "turnaround_s": round(count * (found.mean_turnaround_s or 0.0)),
        "peak": found.peak_nodes,
        "node_s": round(3600 * found.node_hours),
        "killed": found.killed,
        "suspended": found.suspended,
        "lost_s": round(3600 * found.lost_node_hours),
        "overhead_s": round(3600 * found.overhead_node_hours),
        "waited_s": round(3600 * found.web_waited_node_hours),
        "adjustments": found.adjustments,
    }


@pytest.mark.full
@pytest.mark.parametrize("on_reclaim", first(list(OnReclaim)))
@pytest.mark.parametrize("model", ["fb", "flb-nub", "dedicated"])
def test_it_is_what_the_rules_say_second_by_second(model: str, on_reclaim: OnReclaim) -> None:
    """Given random traces, then every figure is the same; and nodes were taken from running jobs in many of them."""
    stopped = 0
    for seed in range(TRACES):
        jobs, demand = trace(seed)
        given = setting(seed, model, on_reclaim)
        found = in_seconds(coordinate(jobs, demand, given))
        assert found == naive(jobs, demand, given), f"seed {seed}"
        stopped += bool(found["killed"] or found["suspended"])
    assert (stopped > TRACES / 4) is (model == "fb")


@pytest.mark.full
def test_it_is_so_where_suspending_and_resuming_take_time() -> None:
    """Given costs, then the same; and the web side waited, jobs were stopped again while they were being resumed."""
    waited = 0
    for seed in range(TRACES):
        jobs, demand = trace(seed)
        rng = Random(seed)
        given = replace(
            setting(seed, "fb", OnReclaim.SUSPEND), suspend_s=rng.choice((2, 7, 30)), resume_s=rng.choice((0, 5, 25))
        )
        found = in_seconds(coordinate(jobs, demand, given))
        assert found == naive(jobs, demand, given), f"seed {seed}"
        waited += bool(found["waited_s"])
    assert waited > TRACES / 4


@pytest.mark.full
def test_leases_are_what_they_are_second_by_second() -> None:
    """Given traces of a bit more than an hour, then every figure of resources on demand is the same."""
    for seed in range(TRACES):
        jobs, demand = trace(seed, 3_900.0)
        given = Setting("on-demand", 0, 0, horizon_s=3_900.0, lease_s=(600.0, 1_000.0, 3_600.0)[seed % 3])
        found = coordinate(jobs, demand, given)
        expected = naive_on_demand(jobs, demand, given)
        same = {name: value for name, value in in_seconds(found).items() if name in expected}
        assert same | {"instant": found.peak_nodes_instant} == expected, f"seed {seed}"
