"""The fake hosts' setups: time, limits, failures, interruptions, and what must never be seen."""

from __future__ import annotations

from collections.abc import Callable

from shared.ports.effects import HostSetUp, SetUpHost
from shared.values.actions import ActionKind
from shared.values.host_setup import Setup, SetupPolicy
from shared.values.nodes import Node, SetupStep
from shared.values.operation_costs import COSTS
from sim_backend.engine import Engine
from sim_backend.fakes.host_setup import FakeSetups, SetupTimes
from sim_backend.fakes.hypervisor import FakeCluster
from sim_backend.world.world import World
from tests.support.agent_harness import action

EXACT = SetupTimes(30.0, 20.0, 0.0)


class Rig:
    """One host and the answers that its agent hears."""

    def __init__(self, times: SetupTimes = EXACT, seed: int = 0) -> None:
        self.engine = Engine()
        self.cluster = FakeCluster(World(), COSTS["none"])
        self.cluster.add_node(Node("n1", 4, 2_000.0, memory_mib=4_000))
        self.heard: list[tuple[float, HostSetUp]] = []

        def later(at_s: float, call: Callable[[], None]) -> None:
            self.engine.at(at_s, 0, call)

        self.setups = FakeSetups(self.cluster, lambda: self.engine.now_s, later, times, seed)

    def begin(self, setup: Setup, request: str = "u1") -> None:
        effect = SetUpHost(request, "batch", SetupStep.ACQUIRE, setup)
        self.setups.begin("n1", effect, lambda answer: self.heard.append((self.engine.now_s, answer)))


def test_setups_take_their_time_and_are_noted() -> None:
    rig = Rig()
    rig.begin(Setup(SetupPolicy.WIPE))
    rig.engine.run_until(40.0)
    rig.begin(Setup(SetupPolicy.EXEC, "x"), "u2")
    rig.engine.run_until(100.0)

    assert rig.heard == [(30.0, HostSetUp("u1", True)), (60.0, HostSetUp("u2", True))]
    assert [(run.begun_s, run.ended_s, run.command, run.ok) for run in rig.setups.runs] == [
        (0.0, 30.0, "", True),
        (40.0, 60.0, "x", True),
    ]
    assert not rig.setups.doubled
    assert not rig.setups.set_up_with


def test_one_that_takes_longer_than_its_limit_fails_then() -> None:
    rig = Rig()
    rig.begin(Setup(SetupPolicy.WIPE, limit_s=5.0))
    rig.engine.run_until(100.0)

    assert rig.heard == [(5.0, HostSetUp("u1", False, "killed after 5 s"))]


def test_failures_are_scripted_by_number() -> None:
    rig = Rig()
    rig.setups.fail_next("n1", 2, "no space")
    for number in range(3):
        rig.begin(Setup(SetupPolicy.WIPE), f"u{number}")
        rig.engine.run_until(100.0 * (number + 1))

    assert [answer.ok for _, answer in rig.heard] == [False, False, True]
    assert rig.heard[0][1].output == "no space"


def test_one_that_is_interrupted_is_never_heard_of() -> None:
    rig = Rig()
    rig.begin(Setup(SetupPolicy.WIPE))
    rig.engine.run_until(10.0)
    rig.setups.interrupt("n1")
    rig.setups.interrupt("n1")
    rig.begin(Setup(SetupPolicy.WIPE), "u2")
    rig.engine.run_until(100.0)

    assert [(run.request, run.ended_s, run.ok) for run in rig.setups.runs] == [("u1", 10.0, None), ("u2", 40.0, True)]
    assert [answer.request for _, answer in rig.heard] == ["u2"]


def test_what_must_never_be_is_seen() -> None:
    rig = Rig()
    rig.cluster.world.add_task("j", [(1e9, 1_000.0)], 1, 0.0)
    rig.cluster.hypervisor("n1").begin(action(kind=ActionKind.START), 0.0)
    rig.cluster.advance(0.0)
    rig.begin(Setup(SetupPolicy.WIPE))
    rig.begin(Setup(SetupPolicy.WIPE), "u2")

    assert rig.setups.set_up_with[0] == (0.0, "n1", "j#0")
    assert rig.setups.doubled == [(0.0, "n1")]


def test_times_differ_by_seed_and_by_node() -> None:
    def took(seed: int) -> float:
        rig = Rig(SetupTimes(30.0, 20.0, 0.3), seed)
        rig.begin(Setup(SetupPolicy.WIPE))
        rig.engine.run_until(1_000.0)
        return rig.heard[0][0]

    assert took(1) == took(1) != took(2)
