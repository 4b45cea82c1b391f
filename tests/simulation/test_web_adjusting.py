"""Web applications whose number of instances follows their CPU use, in the closed loop: the balancer routes, and no
planned removal loses a request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agents.core.settings import AgentSettings
from daemons.controller.core.controller import Controller
from daemons.controller.state.web_app import WebEntry
from daemons.controller.web.autoscaling import units_wanted
from daemons.values.settings import BalancerSettings, ControllerSettings, PolicyChoice
from shared.protocol.operator_messages import ActivateEnvironment, CreateEnvironment
from shared.values.agreement import Agreement, Granularity, Scheduling, VmTemplate, WebTerms, WorkloadType
from shared.values.nodes import Node
from shared.values.vms import VmState
from shared.values.web_app import Flow, Serving, WebApp
from sim_backend.faults.invariants.apps import vms_of
from sim_backend.faults.run import run_seed
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings
from sim_backend.world.demand import Demand, constant, steps
from sim_backend.world.web_site import TrueFlow, TrueWeb
from tests.extent import first

NODES = [Node(f"n{index}", 4, 1_000.0, memory_mib=4_000) for index in range(6)]
WORK_MCYCLES = 40.0
FULL_PER_S = 100.0  # what one instance of 4,000 MHz answers at most
PEAK = [(0.0, 0.5 * FULL_PER_S), (600.0, 3.0 * FULL_PER_S), (1_500.0, 0.5 * FULL_PER_S)]


def loop(policy: str = "first-fit", drain_limit_s: float = 60.0, report_s: float = 5.0, **fields: Any) -> ClosedLoop:
    controller = ControllerSettings(
        decide_s=fields.pop("decide_s", 300.0),
        unreachable_after_s=6.0 * report_s,
        fence_after_s=12.0 * report_s,
        report_s=report_s,
        placement=PolicyChoice(policy),
        balancer=BalancerSettings("fake", drain_limit_s),
        **fields,
    )
    return ClosedLoop(NODES, LoopSettings(controller, AgentSettings(report_s=controller.report_s)))


def app(**fields: Any) -> WebApp:
    given: dict[str, Any] = {"flows": (), "max_instances": 6, "vcpus": 4} | fields
    return WebApp("shop", given.pop("flows"), 500, max_mhz=4_000.0, **given)


def truth(demand: Demand) -> TrueWeb:
    return TrueWeb((TrueFlow("browse", demand, WORK_MCYCLES, 0.01),), noise_frac=0.0)


def core(made: ClosedLoop) -> Controller:
    found = made.controllers["a"].core
    assert isinstance(found, Controller)
    return found


def entry(made: ClosedLoop) -> WebEntry:
    return core(made).cluster.web["shop"]


def running(made: ClosedLoop) -> list[str]:
    return [node for _, node, state in vms_of(made, "shop") if state is VmState.RUNNING]


@pytest.mark.parametrize("policy", first(["first-fit", "apc"]))
def test_instances_follow_the_load_and_no_request_is_lost(policy: str) -> None:
    """Given a load of half an instance, of three, and of half of one again: then one, four and one run, each change in
    steps; of all that was asked nothing was given to an instance that was stopped before it had answered."""
    made = loop(policy)
    made.submit_web(app(), truth(steps(PEAK)))
    made.run_until(550.0)
    assert len(running(made)) == 1
    made.run_until(1_400.0)
    assert len(running(made)) == 4
    assert made.balancers["shop"].site.looks[-1].served_per_s == pytest.approx(3.0 * FULL_PER_S, rel=0.1)
    made.run_until(2_400.0)
    assert len(running(made)) == 1
    site = made.balancers["shop"].site
    assert site.lost == 0.0
    assert made.fake_balancer.serving("shop") == {vm for vm, _, _ in vms_of(made, "shop")}
    drains = [app for app, table in made.fake_balancer.calls if any(backend.drain for backend in table)]
    assert len(drains) >= 3


@pytest.mark.full
def test_an_instance_that_is_not_drained_loses_requests() -> None:
    """Given no time to drain, then the same course loses some: the balancer of the test does tell."""
    made = loop(drain_limit_s=0.0)
    made.submit_web(app(), truth(steps(PEAK)))
    made.run_until(2_400.0)
    assert len(running(made)) == 1
    assert made.balancers["shop"].site.lost > 0.0


def test_an_instance_that_dies_loses_requests_and_is_replaced() -> None:
    made = loop()
    made.submit_web(app(min_instances=2), truth(constant(0.9 * FULL_PER_S)))
    made.run_until(305.0)
    first = running(made)
    made.host_dies(first[0])
    made.run_until(700.0)
    assert made.balancers["shop"].site.lost > 0.0
    assert len(running(made)) == 2
    assert made.fake_balancer.serving("shop") == {
        vm for vm, _, state in vms_of(made, "shop") if state is VmState.RUNNING
    }


def test_a_balancer_that_is_out_of_reach_is_told_later() -> None:
    """Given a balancer that hears nothing for a while as the load grows, then instances that it does not know answer
    nothing; once it can be reached they do."""
    made = loop()
    made.submit_web(app(), truth(steps(PEAK[:2])))
    made.run_until(590.0)
    made.fake_balancer.fail_next = 4
    made.run_until(1_400.0)
    assert made.fake_balancer.fail_next == 0
    assert len(made.fake_balancer.serving("shop")) == len(running(made)) == 4


@pytest.mark.full
def test_a_new_leader_goes_on() -> None:
    made = loop()
    made.submit_web(app(), truth(steps(PEAK)))
    made.run_until(1_300.0)
    made.controllers["a"].restart()
    made.run_until(1_450.0)
    assert len(running(made)) == 4
    made.run_until(2_500.0)
    assert len(running(made)) == 1
    assert made.balancers["shop"].site.lost == 0.0


@pytest.mark.full
def test_a_balancer_that_measures_is_all_that_decisions_need() -> None:
    """Given an application that tells nothing by itself, then its balancer's figures are those of its flow, the work of
    a request is found from them, and limits follow from it."""
    made = loop("apc", report_s=5.0)
    settings = replace(made.settings.controller, balancer=BalancerSettings("fake", 60.0, measures=True))
    made = ClosedLoop(NODES, replace(made.settings, controller=settings))
    shop = app(flows=(Flow("browse", mean_s=0.2, t_min_s=0.01),), serving=Serving(8080, 8001))
    made.submit_web(shop, truth(steps(PEAK)))
    made.run_until(2_400.0)
    web = entry(made)
    assert not made.balancers["shop"].push
    assert web.work.flows["browse"].work_mcycles == pytest.approx(WORK_MCYCLES, rel=0.1)
    told = made.fake_balancer.orders["shop"]
    assert told.limits.instance_max is not None
    assert 15 <= told.limits.instance_max <= 20  # 0.2 s of 4,000 MHz are 20 requests of 40 Mcycles
    traffic = web.traffic
    assert traffic is not None
    assert traffic.served_per_s == pytest.approx(0.5 * FULL_PER_S, rel=0.15)
    assert made.balancers["shop"].site.lost == 0.0


def test_a_balancer_that_begins_anew_is_told_within_seconds() -> None:
    made = loop()
    made.submit_web(app(min_instances=2), truth(constant(0.9 * FULL_PER_S)))
    made.run_until(400.0)
    made.fake_balancer.restart()
    assert made.fake_balancer.serving("shop") == frozenset()
    made.run_until(406.0)
    assert len(made.fake_balancer.serving("shop")) == 2


@pytest.mark.full
@pytest.mark.parametrize("seed", [3, 8])
def test_faults_and_a_balancer_that_is_told(seed: int) -> None:
    """Given a script of faults and instances that are drained before they are stopped, then all that must hold does."""

    def told(settings: LoopSettings) -> LoopSettings:
        return replace(settings, controller=replace(settings.controller, balancer=BalancerSettings("fake", 30.0)))

    outcome = run_seed(seed, change=told)
    assert [str(violation) for violation in outcome.violations] == []


# --- in an environment -----------------------------------------------------------------------------------------------


def environment(made: ClosedLoop, upper: int = 6, **fields: Any) -> None:
    """A web environment `site` that may have so many nodes, activated at once."""
    agreed = Agreement("site", "anna", WorkloadType.WEB, lower=1, upper=upper, model="flb-nub", **fields)

    def begin() -> None:
        made.operator.send(CreateEnvironment("create", agreed))
        made.operator.send(ActivateEnvironment("activate", "site"))

    made.engine.at(50.0, 0, begin)


def given(made: ClosedLoop) -> int:
    return sum(node.environment == "site" for node in core(made).cluster.nodes.values())


@pytest.mark.full
def test_units_follow_the_instances() -> None:
    """Given an environment of one node: as the load grows it has as many nodes as instances, and gives them back."""
    made = loop()
    environment(made)
    made.submit_web(app(environment="site"), truth(steps(PEAK)), at_s=60.0)
    made.run_until(580.0)
    assert (len(running(made)), given(made)) == (1, 1)
    made.run_until(1_450.0)
    assert (len(running(made)), given(made)) == (4, 4)
    made.run_until(2_600.0)
    assert (len(running(made)), given(made)) == (1, 1)
    assert made.balancers["shop"].site.lost == 0.0
    assert units_wanted("site", core(made).cluster) == 1


@pytest.mark.full
def test_the_last_instance_goes_when_nothing_is_asked_and_comes_back() -> None:
    """Given a goal, a minimum of none and an hour in which nobody asks for anything, then there is no instance and no
    unit is needed; and the first requests bring one."""
    made = loop()
    environment(made)
    flow = Flow("browse", mean_s=0.2, work_mcycles=WORK_MCYCLES, t_min_s=0.01)
    asked = steps([(0.0, 20.0), (600.0, 0.0), (1_200.0, 20.0)])
    made.submit_web(app(flows=(flow,), min_instances=0, environment="site"), truth(asked), at_s=60.0)
    counts = []
    for at_s in (590.0, 1_190.0, 1_500.0):
        made.run_until(at_s)
        counts.append((len(running(made)), units_wanted("site", core(made).cluster)))
    assert counts == [(1, 1), (0, 0), (1, 1)]


def test_reports_that_come_less_often_than_it_is_looked_are_enough() -> None:
    made = loop(report_s=60.0)
    made.submit_web(app(), truth(steps(PEAK[:2])))
    made.run_until(1_900.0)
    assert len(running(made)) == 4


@pytest.mark.full
def test_units_that_are_vms_follow_too() -> None:
    made = loop()
    environment(made, granularity=Granularity.VM, template=VmTemplate("small", 4, 500, 4_000.0))
    made.submit_web(app(environment="site"), truth(steps(PEAK)), at_s=60.0)
    sizes = []
    for at_s in (580.0, 1_450.0, 2_600.0):
        made.run_until(at_s)
        sizes.append((len(running(made)), core(made).cluster.environments["site"].size))
    assert sizes == [(1, 1), (4, 4), (1, 1)]
    assert made.balancers["shop"].site.lost == 0.0


@pytest.mark.full
def test_with_a_goal_the_number_moves_between_cycles_inside_the_policys_bounds() -> None:
    """Given a goal that one instance meets up to 70 % and a policy that has chosen for little load, then between two
    cycles more load brings more instances, as many as the model bears out."""
    made = loop(decide_s=1_200.0)
    environment(made, scheduling=Scheduling("apc"), web=WebTerms())
    flow = Flow("browse", mean_s=0.2, work_mcycles=WORK_MCYCLES, t_min_s=0.01)
    wave = steps([(0.0, 0.5 * FULL_PER_S), (1_300.0, 3.0 * FULL_PER_S)])
    made.submit_web(app(flows=(flow,), environment="site"), truth(wave), at_s=60.0)
    made.run_until(1_290.0)
    assert entry(made).modelled
    before = len(running(made))
    made.run_until(2_300.0)
    assert len(running(made)) >= 4 > before
    assert entry(made).wanted_instances == len(running(made))
