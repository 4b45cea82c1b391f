"""Web applications in the closed loop: measured by a balancer, sized by the policy, kept up through failures."""

from __future__ import annotations

import math

import pytest

from daemons.controller.core.controller import Controller
from daemons.controller.state.web_app import WebEntry, utility_of
from daemons.values.settings import ControllerSettings, PolicyChoice
from shared.values.jobs import Job, Stage
from shared.values.nodes import Node
from shared.values.vms import VmState
from shared.values.web_app import Flow, WebApp
from sim_backend.faults.invariants.apps import vms_of
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings
from sim_backend.world.demand import constant, steps
from sim_backend.world.web_site import TrueFlow, TrueWeb

NODES = [Node(f"n{index}", 4, 1_000.0, memory_mib=4_000) for index in range(3)]
WORK_MCYCLES = 40.0


def loop(policy: str = "apc") -> ClosedLoop:
    controller = ControllerSettings(
        decide_s=300.0, unreachable_after_s=30.0, fence_after_s=60.0, placement=PolicyChoice(policy)
    )
    return ClosedLoop(NODES, LoopSettings(controller))


def app(url: str = "", least: int = 1, declared: float | None = WORK_MCYCLES) -> WebApp:
    flow = Flow("browse", mean_s=0.2, work_mcycles=declared, t_min_s=0.01)
    return WebApp(
        "shop", (flow,), 1_000, max_mhz=4_000.0, min_instances=least, max_instances=3, vcpus=4, metrics_url=url
    )


def busy(per_s: float) -> TrueWeb:
    return TrueWeb((TrueFlow("browse", constant(per_s), WORK_MCYCLES, 0.01),), noise_frac=0.0)


def running(made: ClosedLoop) -> list[str]:
    return [node for _, node, state in vms_of(made, "shop") if state is VmState.RUNNING]


def entry(made: ClosedLoop) -> WebEntry:
    """The controller's own row."""
    core = made.controllers["a"].core
    assert isinstance(core, Controller)
    return core.cluster.web["shop"]


def utility(made: ClosedLoop) -> float:
    """As measured."""
    found = utility_of(entry(made))
    assert found is not None
    return found


def test_more_requests_bring_more_instances() -> None:
    """Given one instance that is enough, then a demand that takes two nodes: at the next cycles there are enough, each
    on a node of its own, and the goal is met again."""
    made = loop()
    rising = TrueWeb((TrueFlow("browse", steps([(0.0, 20.0), (1_000.0, 190.0)]), WORK_MCYCLES, 0.01),))
    made.submit_web(app(), rising)
    made.run_until(900.0)
    assert utility(made) > 0.3

    made.run_until(2_500.0)

    nodes = running(made)
    assert len(nodes) >= 2
    assert len(set(nodes)) == len(nodes)
    assert utility(made) > 0.3
    assert made.balancers["shop"].site.looks[-1].served_per_s == pytest.approx(190.0, rel=0.1)


@pytest.mark.parametrize("url", ["", "http://balancer.test/metrics"])
def test_pushed_or_read_it_is_the_same(url: str) -> None:
    made = loop("first-fit")
    made.submit_web(app(url), busy(30.0))
    made.run_until(600.0)

    measured = entry(made).measured(app().flows[0])

    assert measured is not None
    assert measured.offered_per_s == pytest.approx(30.0, rel=0.1)
    assert measured.mean_s == pytest.approx(0.01 + WORK_MCYCLES / 1_000.0, rel=0.1)  # alone on one vCPU
    assert measured.queued == 0


@pytest.mark.full
def test_work_that_is_not_declared_is_learnt() -> None:
    made = loop("first-fit")
    rates = [(300.0 * turn, 20.0 + 60.0 * (turn % 3)) for turn in range(40)]
    made.submit_web(app(declared=None), TrueWeb((TrueFlow("browse", steps(rates), WORK_MCYCLES, 0.01),)))
    made.run_until(9_000.0)

    estimate = entry(made).work.flows["browse"]

    assert estimate.work_mcycles == pytest.approx(WORK_MCYCLES, rel=0.1)


def test_a_balancer_outlives_broker_and_controller() -> None:
    """Given a broker and then a controller that begin anew, then reports come through as before."""
    made = loop("first-fit")
    made.submit_web(app(), busy(30.0))
    made.run_until(200.0)
    made.broker.restart()
    made.run_until(300.0)
    after_broker = entry(made).seq
    made.controllers["a"].restart()
    made.run_until(400.0)

    assert after_broker >= 13
    assert entry(made).seq >= 18
    assert utility(made) > 0.5


def test_an_instance_that_dies_with_its_host_is_replaced() -> None:
    made = loop("first-fit")
    made.submit_web(app(least=2), busy(30.0))
    made.run_until(200.0)
    first = running(made)
    made.host_dies(first[0])
    made.run_until(600.0)

    assert len(first) == 2
    assert len(set(running(made))) == 2
    assert first[0] not in running(made)
    assert made.balancers["shop"].site.looks[-1].rejected_per_s == 0.0


def test_jobs_and_an_application_share_by_utility() -> None:
    """Given jobs and an application that together want more than there is, then both get their part: neither is left
    below its goal while the other is far above."""
    made = loop()
    made.submit_web(app(), busy(130.0))
    for index in range(6):
        job = Job(f"job{index}", (Stage(4_000_000.0, 2_000.0, memory_mib=1_000),), goal_s=9_000.0, vcpus=2)
        made.submit(job)
    made.run_until(3_000.0)

    allotted = math.fsum(d.cpu_mhz for h in made.cluster.hypervisors.values() for d in h.domains.values())
    assert allotted == pytest.approx(12_000.0, rel=0.02)
    assert len([vm for h in made.cluster.hypervisors.values() for vm in h.domains if vm.startswith("job")]) == 6
    assert utility(made) > 0.0
