"""Nodes that change hands in the closed loop: environments come and go while jobs run, setups fail, hosts, agents and
controllers die. What was done to hosts is judged by what they were truly asked to do."""

from __future__ import annotations

from typing import Any

import pytest

from daemons.controller.core.controller import Controller
from daemons.values.settings import ControllerSettings, PolicyChoice, PowerSettings
from shared.protocol.operator_messages import (
    ActivateEnvironment,
    CreateEnvironment,
    DeactivateEnvironment,
    DestroyEnvironment,
    RepairNode,
    Request,
)
from shared.values.agreement import Agreement, EnvironmentState, WorkloadType
from shared.values.host_setup import Setup, SetupPolicy
from shared.values.jobs import Job, Stage, workload_of
from shared.values.nodes import Handover, Node, NodeService, PowerOperation, SetupStep
from shared.values.vms import VmState
from sim_backend.fakes.power import HostPower
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings
from tests.support import parts

NODES = [
    Node(f"n{index}", 4, 1_000.0, memory_mib=4_000, mac_addresses=(f"02:00:00:00:00:0{index}",)) for index in range(4)
]
WIPE = Setup(SetupPolicy.WIPE)
PREPARE = Setup(SetupPolicy.EXEC, "prepare")
RELEASE, ACQUIRE = SetupStep.RELEASE, SetupStep.ACQUIRE


class Loop(ClosedLoop):
    """Two batch environments: `hpc` is wiped when it comes and goes, `lab` has its nodes prepared. `began` lists
    (at_s, environment, node) of every VM that was seen to run, soon after it began."""

    def __init__(self, **fields: Any) -> None:
        controller = ControllerSettings(
            decide_s=300.0, unreachable_after_s=30.0, fence_after_s=60.0, placement=PolicyChoice("first-fit"), **fields
        )
        super().__init__(NODES, LoopSettings(controller, controllers=("a", "b")))
        self.began: list[tuple[float, str, str]] = []
        self._seen: set[tuple[str, str]] = set()

    def ask(self, at_s: float, request: Request) -> None:
        self.engine.at(at_s, 0, lambda: self.operator.send(request))

    def environment(self, at_s: float, name: str, lower: int, setup: Setup) -> None:
        """Created and activated."""
        agreement = Agreement(name, "anna", WorkloadType.BATCH, lower=lower, upper=lower, setup=setup, lease_s=600.0)
        self.ask(at_s, CreateEnvironment(f"c{at_s}-{name}", agreement))
        self.ask(at_s + 1.0, ActivateEnvironment(f"a{at_s}-{name}", name))

    def job(self, name: str, environment: str, at_s: float, work_s: float, instances: int = 1) -> None:
        """A job whose instances take a node each."""
        stage = Stage(work_s * 4_000.0, 4_000.0, memory_mib=3_000)
        self.submit(Job(name, (stage,), at_s, instances=instances, vcpus=4, environment=environment))

    def go(self, until_s: float) -> None:
        """Let time pass, and look every few seconds who runs where."""
        while self.engine.now_s < until_s:
            self.run_until(min(until_s, self.engine.now_s + 5.0))
            for name, hypervisor in self.cluster.hypervisors.items():
                for vm, domain in hypervisor.domains.items():
                    if domain.state is VmState.RUNNING and (vm, name) not in self._seen:
                        self._seen.add((vm, name))
                        self.began.append((self.engine.now_s, self.jobs[workload_of(vm)[0]].environment, name))

    def leader(self) -> Controller:
        """The core that leads."""
        cores = [shell.core for shell in self.controllers.values() if isinstance(shell.core, Controller)]
        return max(cores, key=lambda core: core.unit_of_work.term)

    def kill_leader(self) -> None:
        """Its process dies; the other one takes over."""
        self.controllers[self.leader().name].kill()

    def holders(self) -> dict[str, str]:
        """Whose the nodes are that are in hand."""
        return {name: n.environment for name, n in self.leader().cluster.nodes.items() if n.in_hand}

    def check(self) -> None:
        """No setup beside a VM or another setup; every VM of an environment on a node that it had acquired after all
        others had released it."""
        assert self.fake_setups.set_up_with == []
        assert self.fake_setups.doubled == []
        done = [run for run in self.fake_setups.runs if run.ok]
        for at_s, environment, node in self.began:
            before = [run for run in done if run.node == node and run.ended_s <= at_s]
            if environment:
                assert before, f"{environment} began on {node} without a setup"
                assert (before[-1].environment, before[-1].step) == (environment, ACQUIRE)
            acquired = {run.environment for run in before if run.step is ACQUIRE} - {environment}
            released = {run.environment for run in before if run.step is RELEASE}
            assert acquired <= released


def begun(**fields: Any) -> Loop:
    """`hpc` has two of four nodes and a job on each; `lab` gets the other two."""
    loop = Loop(**fields)
    loop.environment(10.0, "hpc", 2, WIPE)
    loop.environment(20.0, "lab", 2, PREPARE)
    for index in range(2):
        loop.job(f"h{index}", "hpc", 30.0, 2_000.0)
        loop.job(f"l{index}", "lab", 30.0, 400.0)
    loop.go(200.0)
    return loop


@pytest.mark.full
def test_environments_come_and_go_and_every_setup_is_carried_out() -> None:
    loop = begun()
    assert sorted(loop.holders().values()) == ["hpc", "hpc", "lab", "lab"]
    loop.ask(300.0, DeactivateEnvironment("d1", "hpc"))
    loop.go(500.0)
    assert sorted(loop.holders().values()) == ["", "", "lab", "lab"]

    loop.ask(501.0, DestroyEnvironment("x1", "lab"))
    loop.environment(700.0, "new", 2, WIPE)
    loop.ask(1_500.0, DestroyEnvironment("x2", "new"))
    loop.ask(1_900.0, ActivateEnvironment("a2", "hpc"))
    loop.go(4_500.0)

    loop.check()
    assert {environment for _, environment, _ in loop.began} == {"hpc", "lab"}
    steps = [(run.environment, run.step) for run in loop.fake_setups.runs]
    assert steps.count(("new", ACQUIRE)) == steps.count(("new", RELEASE)) == 2
    assert steps.count(("lab", RELEASE)) == 2
    assert all(loop.world.completions[name] for name in ("h0", "h1"))  # suspended, and resumed where they were
    record = loop.store.get(("environment", "hpc"))
    assert record is not None
    assert record.state is EnvironmentState.RUNNING
    assert record.setups == 6


def test_a_setup_that_fails_for_good_leaves_the_node_to_nobody_until_it_is_repaired() -> None:
    loop = Loop()
    loop.fake_setups.fail_next("n0", 3, "no space left")
    loop.environment(10.0, "hpc", 3, WIPE)
    loop.go(400.0)

    node = loop.leader().cluster.nodes["n0"]
    assert node.handover is Handover.FAILED
    assert "no space left" in node.detail
    assert "n0" not in loop.holders()
    assert sum(name == "hpc" for name in loop.holders().values()) == 3  # another took its place

    loop.ask(401.0, RepairNode("r1", "n0"))
    loop.go(700.0)
    assert "n0" in loop.holders()
    loop.check()


@pytest.mark.full
@pytest.mark.parametrize("who", ["agent", "host", "controller"])
def test_whoever_dies_in_the_middle_of_a_setup_it_is_done_again_or_gone_on_with(who: str) -> None:
    loop = Loop()
    loop.environment(10.0, "hpc", 4, WIPE)
    for index in range(4):
        loop.job(f"h{index}", "hpc", 30.0, 300.0)
    loop.go(25.0)
    in_progress = [name for name in loop.agents if loop.fake_setups.in_progress(name)]
    assert in_progress

    if who == "controller":
        loop.kill_leader()
    for name in in_progress if who == "agent" else ():
        loop.agents[name].kill()
        loop.engine.at(40.0, 0, loop.agents[name].restart)
    if who == "host":
        loop.host_dies(in_progress[0])
        loop.engine.at(200.0, 0, lambda: loop.host_returns(in_progress[0], "boot-2"))
    loop.go(1_500.0)

    loop.check()
    assert sorted(loop.holders().values()) == ["hpc"] * 4
    assert all(loop.world.completions.get(f"h{index}") for index in range(4))
    interrupted = [run for run in loop.fake_setups.runs if run.ok is None]
    assert bool(interrupted) is (who != "controller")


def test_a_sleeping_node_wakes_before_it_is_set_up() -> None:
    power = PowerSettings(
        "fake", frozenset({PowerOperation.WAKE}), through_agents=True, needs_mac=True, standby_s=30.0, keep_nodes=1
    )
    loop = Loop(power=power)
    loop.go(20.0)
    deployment = parts.lifecycle(loop.leader())
    change = deployment.change_to(["n0"], deployment.seen(20.0), 20.0)
    deployment.apply(change, 20.0)
    loop.go(280.0)
    assert [loop.fake_power.state(f"n{index}") for index in range(1, 4)] == [HostPower.SUSPENDED] * 3

    loop.environment(281.0, "hpc", 3, WIPE)
    loop.go(290.0)
    assert not any(loop.fake_setups.in_progress(name) for name in loop.agents if loop.fake_power.sleeps(name))
    loop.go(900.0)

    assert sum(name == "hpc" for name in loop.holders().values()) == 3
    assert loop.fake_power.asleep_with == []
    mine = [name for name, holder in loop.holders().items() if holder == "hpc"]
    assert all(loop.leader().cluster.nodes[name].service is NodeService.IN_SERVICE for name in mine)
    loop.go(1_800.0)  # a cycle later they are still there
    assert [name for name, holder in loop.holders().items() if holder == "hpc"] == mine
    assert all(loop.fake_power.state(name) is HostPower.UP for name in mine)
    loop.check()
