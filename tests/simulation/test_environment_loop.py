"""Two coordinated environments in the closed loop: their sizes follow their policy within one timer, no setup is left
out, no VM and no work is lost."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from daemons.capacity.coordination.demand import read_steps
from daemons.capacity.swf import read_swf, replay_jobs
from shared.values.agreement import Granularity, VmTemplate, WorkloadType
from shared.values.host_setup import Setup
from shared.values.nodes import SetupStep
from tests.simulation.environment_loop import (
    BATCH,
    CORE_MHZ,
    CORES,
    WEB,
    EnvironmentLoop,
    Series,
    agreement,
    check_fixed_bounds,
)

HOUR_S, DAY_S = 3_600.0, 86_400.0
BATCH_OF, WEB_OF = WorkloadType.BATCH, WorkloadType.WEB
WAVES: Series = [(0.0, 1), (1_200.0, 3), (2_400.0, 5), (3_600.0, 2), (4_800.0, 4), (6_000.0, 1)]
LEASE_S, BEGIN_S = 1_200.0, 600.0


def pair(model: str, batch: int, web: int, lease_s: float = LEASE_S) -> list:  # type: ignore[type-arg]
    return [
        agreement(BATCH, BATCH_OF, batch, model=model, lease_s=lease_s, coordinated_with=WEB),
        agreement(WEB, WEB_OF, web, model=model, lease_s=lease_s),
    ]


def with_jobs(loop: EnvironmentLoop, environment: str, seed: int, count: int, most: int, until_s: float) -> None:
    rng = Random(seed)
    for number in range(count):
        at_s = rng.uniform(BEGIN_S, until_s)
        loop.job(f"{environment}{number:02}", environment, at_s, rng.uniform(60.0, 900.0), rng.randint(1, most))


@pytest.mark.accept
def test_two_hours_of_two_environments() -> None:
    loop = EnvironmentLoop(10, pair("fb", 6, 2), BEGIN_S, 60.0)
    loop.load(WAVES)
    with_jobs(loop, BATCH, 1, 25, 3, 6_000.0)
    loop.run_until(7_200.0)
    loop.check_work()
    assert check_fixed_bounds(loop, WAVES, 8, LEASE_S, 500.0) >= 10
    record = loop.store.get(("environment", BATCH))
    assert record.suspended > 0
    assert sum(bool(loop.world.completions.get(name)) for name in loop.jobs) >= 15


@pytest.mark.accept
def test_a_day_of_both_traces(data_folder: Path) -> None:
    """The first day of the NASA log, its jobs eight times smaller, and of the web demand, scaled to a peak of 12, on 32
    nodes. Timers fire half an hour after the demand changes."""
    demand = read_steps(data_folder / "worldcup98" / "ws_demand_hourly_64vm.csv", 1.0)
    peak = max(vms for at_s, vms in zip(demand.times_s, demand.nodes, strict=True) if at_s < DAY_S)
    scaled = read_steps(data_folder / "worldcup98" / "ws_demand_hourly_64vm.csv", 12.0 / peak)
    series = [(at_s, vms) for at_s, vms in zip(scaled.times_s, scaled.nodes, strict=True) if at_s < DAY_S]
    assert max(vms for _, vms in series) == 12
    loop = EnvironmentLoop(32, pair("fb", 24, 8, HOUR_S), HOUR_S / 2, 120.0)
    loop.load(series)
    log = read_swf(data_folder / "nasa-ipsc-1993" / "NASA-iPSC-1993-3.1-cln.swf.gz")
    jobs = replay_jobs(log, DAY_S, 8)
    for job in jobs:
        loop.job(f"j{job.number}", BATCH, max(job.submit_s, loop.begin_s), job.run_s, job.nodes)
    loop.run_until(DAY_S)

    loop.check_work()
    assert check_fixed_bounds(loop, series, 32, HOUR_S, 1_500.0) >= 100
    assert len(jobs) > 100
    assert sum(bool(loop.world.completions.get(name)) for name in loop.jobs) >= 0.95 * len(jobs)
    steps = {(run.environment, run.step) for run in loop.fake_setups.runs}
    assert steps >= {(name, step) for name in (BATCH, WEB) for step in SetupStep}


@pytest.mark.accept
def test_environments_that_grow_beyond_their_bounds() -> None:
    """FLB-NUB: the web environment has as many nodes as it needs, the batch environment asks for what its jobs wait
    for and gives back what is idle."""
    loop = EnvironmentLoop(16, pair("flb-nub", 3, 1), BEGIN_S, 60.0)
    loop.load(WAVES)
    with_jobs(loop, BATCH, 2, 25, 4, 4_000.0)
    loop.run_until(11_300.0)
    loop.check_work()
    assert max(observed.sizes.get(WEB, 0) for observed in loop.observations) == 5
    assert max(observed.sizes.get(BATCH, 0) for observed in loop.observations) > 4
    assert loop.observations[-1].sizes == {BATCH: 2, WEB: 1}
    assert all(loop.world.completions.get(name) for name in loop.jobs)


@pytest.mark.accept
def test_a_third_environment_borrows() -> None:
    """A pair under FB, and one alone that takes what is left and gives it back; what the pair does not use of its own
    is not lent."""
    agreements = [*pair("fb", 5, 2), agreement("lab", BATCH_OF, 1, model="flb-nub", lease_s=600.0)]
    loop = EnvironmentLoop(12, agreements, BEGIN_S, 60.0)
    loop.load(WAVES)
    with_jobs(loop, BATCH, 3, 15, 2, 5_000.0)
    with_jobs(loop, "lab", 4, 15, 3, 4_000.0)
    loop.run_until(9_000.0)
    loop.check_work()
    assert max(observed.sizes.get("lab", 0) for observed in loop.observations) > 1
    assert all(observed.sizes.get("lab", 0) <= 12 - 7 for observed in loop.observations)
    assert all(observed.sizes.get(BATCH, 0) + observed.sizes.get(WEB, 0) <= 7 for observed in loop.observations)
    assert (
        min(observed.sizes[BATCH] + observed.sizes[WEB] for observed in loop.observations if len(observed.sizes) == 3)
        < 7
    )
    assert all(loop.world.completions.get(name) for name in loop.jobs)


@pytest.mark.accept
def test_units_that_are_vms() -> None:
    """Two environments share VMs on nodes that nobody has: as many run as there are units."""
    template = VmTemplate("box", CORES, 2_000, CORES * CORE_MHZ)
    agreements = [
        agreement(
            name, kind, lower, lease_s=LEASE_S, granularity=Granularity.VM, template=template, setup=Setup(), **more
        )
        for name, kind, lower, more in ((BATCH, BATCH_OF, 6, {"coordinated_with": WEB}), (WEB, WEB_OF, 2, {}))
    ]
    loop = EnvironmentLoop(10, agreements, BEGIN_S, 60.0)
    loop.load(WAVES)
    with_jobs(loop, BATCH, 5, 20, 3, 5_000.0)
    loop.run_until(9_000.0)
    loop.check_work()
    assert loop.fake_setups.runs == []
    assert all(observed.sizes[WEB] + observed.sizes[BATCH] <= 8 for observed in loop.observations if observed.sizes)
    assert max(observed.instances for observed in loop.observations) == 5
    assert all(loop.world.completions.get(name) for name in loop.jobs)
