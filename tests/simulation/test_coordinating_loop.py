"""Two coordinated environments in the closed loop: requests come and go, jobs give way and go on, the leader dies."""

from __future__ import annotations

from typing import Any

import pytest

from daemons.controller.core.controller import Controller
from daemons.values.settings import BalancerSettings, ControllerSettings, PolicyChoice
from shared.protocol.operator_messages import ActivateEnvironment, CreateEnvironment
from shared.values.agreement import Agreement, BatchTerms, OnReclaim, WebTerms, WorkloadType
from shared.values.host_setup import Setup, SetupPolicy
from shared.values.jobs import Job, Stage
from shared.values.nodes import Node
from shared.values.web_app import WebApp
from sim_backend.faults.invariants.checker import Checker
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings
from sim_backend.world.demand import steps
from sim_backend.world.web_site import TrueFlow, TrueWeb
from tests.extent import first

NODES = [Node(f"n{index}", 4, 1_000.0, memory_mib=4_000) for index in range(8)]
LEASE_S = 600.0
FULL_PER_S = 100.0  # what one instance of 4,000 MHz answers at most
DEMAND = [(0.0, 0.3), (700.0, 2.9), (1_500.0, 0.3)]  # in instances


class Pair:
    """`hpc` (5) and `shop` (3) under FB on eight nodes that are wiped whenever they change hands."""

    def __init__(self, on_reclaim: OnReclaim) -> None:
        controller = ControllerSettings(
            decide_s=300.0, placement=PolicyChoice("first-fit"), balancer=BalancerSettings("fake", 60.0)
        )
        self.loop = ClosedLoop(NODES, LoopSettings(controller, controllers=("a", "b")))
        self.checker = Checker(self.loop)
        common: dict[str, Any] = {"lease_s": LEASE_S, "setup": Setup(SetupPolicy.WIPE)}
        batch = Agreement(
            "hpc",
            "anna",
            WorkloadType.BATCH,
            lower=5,
            coordinated_with="shop",
            batch=BatchTerms(on_reclaim=on_reclaim),
            **common,
        )
        web = Agreement("shop", "anna", WorkloadType.WEB, lower=3, web=WebTerms(over_s=20.0), **common)
        for agreement in (batch, web):
            name = agreement.name
            self.at(1.0, CreateEnvironment(f"create-{name}", agreement))
            self.at(2.0, ActivateEnvironment(f"activate-{name}", name))
        demand = steps([(at_s, instances * FULL_PER_S) for at_s, instances in DEMAND])
        app = WebApp("site", (), 500, max_mhz=4_000.0, min_instances=1, max_instances=8, vcpus=4, environment="shop")
        self.loop.submit_web(app, TrueWeb((TrueFlow("browse", demand, 40.0, 0.01),), noise_frac=0.0), 3.0)
        for index in range(7):
            stage = Stage(1_000.0 * 4_000.0, 4_000.0, memory_mib=3_000)
            self.loop.submit(Job(f"j{index}", (stage,), 100.0 + index, vcpus=4, environment="hpc"))

    def at(self, at_s: float, request: Any) -> None:
        """The operator asks for this then."""
        self.loop.engine.at(at_s, 0, lambda: self.loop.operator.send(request))

    def leader(self) -> Controller:
        """The core that leads."""
        cores = [shell.core for shell in self.loop.controllers.values() if isinstance(shell.core, Controller)]
        return max(cores, key=lambda core: core.unit_of_work.term)

    def sizes(self) -> tuple[int, int]:
        """How many nodes the two have in hand."""
        nodes = self.leader().cluster.nodes.values()
        hpc, shop = (sum(n.in_hand and n.environment == name for n in nodes) for name in ("hpc", "shop"))
        return hpc, shop


@pytest.mark.full
@pytest.mark.parametrize(("on_reclaim", "crashes"), first([(OnReclaim.SUSPEND, True), (OnReclaim.KILL, False)]))
def test_nodes_go_to_the_web_environment_when_it_needs_them_and_come_back_at_the_timer(
    on_reclaim: OnReclaim, crashes: bool
) -> None:
    pair = Pair(on_reclaim)
    loop = pair.loop
    loop.run_until(690.0)
    assert pair.sizes() == (7, 1)
    loop.run_until(900.0)
    if crashes:
        loop.controllers[pair.leader().name].kill()
    loop.run_until(1_490.0)
    hpc, shop = pair.sizes()
    assert shop >= 3
    assert hpc == 8 - shop
    loop.run_until(2_450.0)
    assert pair.sizes() == (7, 1)
    loop.run_until(3_300.0)
    environments = pair.leader().cluster.environments
    gave_way = environments["hpc"].suspended, environments["hpc"].killed
    assert all(loop.world.completions.get(f"j{index}") for index in range(7))
    assert (gave_way[0] >= 2, gave_way[1] >= 2) == (on_reclaim is OnReclaim.SUSPEND, on_reclaim is OnReclaim.KILL)
    assert (environments["hpc"].lost_node_hours > 0.1) is (on_reclaim is OnReclaim.KILL)
    assert pair.checker.violations == []
    assert loop.fake_setups.set_up_with == []
    assert loop.fake_setups.doubled == []
