"""The simulator's power: true times, faults on request, and hosts that sleep under their agents."""

from __future__ import annotations

import pytest

from daemons.controller.core.controller import Controller
from shared.ports.effects import SleepEnded
from shared.protocol import topology
from shared.protocol.codec import encode
from shared.protocol.messages import GoToSleep
from shared.values.jobs import Job, Stage
from shared.values.nodes import Node, PowerOperation, SleepMode
from shared.values.operation_costs import COSTS
from sim_backend.fakes.hypervisor import FakeCluster
from sim_backend.fakes.power import SLEEP_LIMIT_S, Down, FakePower, HostPower, PowerTimes, SleepFault
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings
from sim_backend.world.world import World

TIMES = PowerTimes(suspend_s=3.0, off_s=15.0, resume_s=8.0, boot_s=60.0, noise=0.0)
SUSPEND, OFF = SleepMode.SUSPEND, SleepMode.OFF
WAKE, FENCE = PowerOperation.WAKE, PowerOperation.FENCE


class Lab:
    """Power over two hosts with a clock that is moved by hand."""

    def __init__(self, times: PowerTimes = TIMES, seed: int = 0) -> None:
        self.now_s = 0.0
        self.due: list[tuple[float, object]] = []
        self.cluster = FakeCluster(World(), COSTS["none"])
        for name in ("n1", "n2"):
            self.cluster.add_node(Node(name, 4, 2_000.0, memory_mib=8_000))
        self.power = FakePower(self.cluster, lambda: self.now_s, self._later, times, seed)
        self.heard: list[tuple[str, object]] = []
        self.power.on_down = lambda node, how: self.heard.append((node, how))
        self.power.on_up = lambda node, boot, resumed: self.heard.append((node, (boot, resumed)))
        self.whys: list[str] = []

    def _later(self, at_s: float, call: object) -> None:
        self.due.append((at_s, call))

    def until(self, time_s: float) -> HostPower:
        """Let everything due by then happen; what n1 does then."""
        while ready := sorted((at_s for at_s, _ in self.due if at_s <= time_s)):
            self.now_s = ready[0]
            (call,) = [call for at_s, call in self.due if at_s == ready[0]][:1]
            self.due.remove((ready[0], call))
            call()  # type: ignore[operator]
        self.now_s = time_s
        return self.power.state("n1")

    def sleep(self, mode: SleepMode = SUSPEND) -> None:
        """n1 is to go to sleep."""
        self.power.sleep("n1", mode, self.whys.append)


def test_a_suspended_host_comes_back_as_it_was() -> None:
    lab = Lab()

    lab.sleep()
    assert lab.until(2.9) is HostPower.FALLING
    assert lab.until(3.0) is HostPower.SUSPENDED
    assert lab.power.operate(WAKE, "n1", ()).ok
    assert lab.until(10.9) is HostPower.WAKING
    assert lab.until(11.0) is HostPower.UP

    assert lab.heard == [("n1", Down.SUSPENDED), ("n1", ("boot-1", True))]


def test_a_host_that_was_off_comes_back_under_a_new_boot() -> None:
    lab = Lab()

    lab.sleep(OFF)
    assert lab.until(15.0) is HostPower.OFF
    assert lab.power.wake("n1")
    assert lab.power.wake("n1")  # again: it is in progress
    assert lab.until(74.9) is HostPower.WAKING
    assert lab.until(75.0) is HostPower.UP

    assert lab.heard == [("n1", Down.OFF), ("n1", ("woken-1", False))]
    assert [what for _, _, what in lab.power.changes] == [
        HostPower.FALLING,
        HostPower.OFF,
        HostPower.WAKING,
        HostPower.UP,
    ]


def test_what_is_sent_to_a_host_that_is_not_down_yet_is_lost() -> None:
    lab = Lab()
    lab.sleep()
    lab.until(1.0)

    assert lab.power.wake("n1")

    assert lab.until(1_000.0) is HostPower.SUSPENDED


def test_true_times_differ_by_host_and_by_time_and_come_from_the_seed() -> None:
    def wake_times(seed: int) -> list[float]:
        lab = Lab(PowerTimes(), seed)
        times = []
        for node in ("n1", "n2", "n1"):
            lab.power.sleep(node, OFF, lab.whys.append)
            lab.until(lab.now_s + 10_000.0)
            lab.power.wake(node)
            begun_s = lab.now_s
            lab.until(begun_s + 10_000.0)
            times.append(lab.power.changes[-1][0] - begun_s)
        return times

    first = wake_times(1)
    assert first == wake_times(1)
    assert len({*first, *wake_times(2)}) == 6
    assert all(20.0 < time_s < 200.0 for time_s in first)


def test_wakes_fail_as_often_as_scripted_told_or_not() -> None:
    lab = Lab()
    lab.sleep()
    lab.until(10.0)

    lab.power.fail_wake("n1", times=2, told=True)
    assert [lab.power.operate(WAKE, "n1", ()).ok for _ in range(2)] == [False, False]
    lab.power.fail_wake("n1", times=1)
    assert lab.power.operate(WAKE, "n1", ()).ok
    assert lab.until(1_000.0) is HostPower.SUSPENDED

    lab.power.wake_late("n1", 500.0, times=1)
    lab.power.wake("n1")
    assert lab.until(1_507.0) is HostPower.WAKING
    assert lab.until(1_508.0) is HostPower.UP


def test_sleep_is_refused_or_hangs() -> None:
    lab = Lab()
    lab.power.fail_sleep("n1", SleepFault.REFUSED)
    lab.sleep()
    assert lab.whys == ["refused by the script"]

    lab.power.fail_sleep("n1", SleepFault.HANGS)
    lab.sleep()
    assert lab.until(SLEEP_LIMIT_S - 1.0) is HostPower.UP
    assert len(lab.whys) == 1
    assert lab.until(SLEEP_LIMIT_S) is HostPower.UP
    assert "still awake" in lab.whys[1]

    lab.power.fail_sleep("n1", SleepFault.REFUSED, times=9)
    lab.power.mend("n1")
    lab.sleep()
    assert lab.until(1_000.0) is HostPower.SUSPENDED


@pytest.mark.parametrize("when_s", [1.0, 8.0])
def test_power_that_is_cut_ends_what_was_in_progress(when_s: float) -> None:
    lab = Lab()
    lab.sleep()
    lab.until(when_s)
    lab.power.wake("n1")

    assert lab.power.operate(FENCE, "n1", ()).ok

    assert lab.until(1_000.0) is HostPower.OFF
    assert lab.heard[-1:] == [("n1", Down.CUT)]
    lab.power.wake("n1")
    assert lab.until(2_000.0) is HostPower.UP
    assert lab.heard[-1:] == [("n1", ("woken-1", False))]


# --- in the closed loop ---------------------------------------------------------------------------------------------

NODES = [Node("n1", 4, 2_000.0, memory_mib=8_000), Node("n2", 4, 2_000.0, memory_mib=8_000)]


def loop_at(time_s: float) -> ClosedLoop:
    """A loop of two nodes that has run until then."""
    loop = ClosedLoop(NODES, LoopSettings(power_times=TIMES))
    loop.run_until(time_s)
    return loop


def ask(loop: ClosedLoop, mode: SleepMode = SUSPEND, node: str = "n1", request: str = "s1") -> None:
    """Send what a controller sends to have a node sleep."""
    now_s, agent = loop.engine.now_s, loop.agents[node]
    connection = loop.broker.connect(topology.CONTROLLER_USER_PREFIX + "test")
    message = GoToSleep(request, node, 1, agent.boot_id, now_s + 60.0, mode)
    connection.publish(topology.ACTIONS, node, encode(message))
    connection.close()


def test_an_agent_is_suspended_with_its_host_and_reports_at_once_when_it_wakes() -> None:
    loop = loop_at(30.0)
    ask(loop)
    loop.run_until(40.0)
    assert loop.fake_power.state("n1") is HostPower.SUSPENDED
    agent = loop.agents["n1"]
    assert (agent.asleep, agent.frozen, agent.alive) == (True, True, True)
    heard: list[object] = []
    agent.on_input = lambda _, event: heard.append(event)

    loop.run_until(1_000.0)
    assert heard == []
    loop.fake_power.wake("n1")
    loop.run_until(1_008.0)

    assert SleepEnded(True) in heard
    assert (agent.boot_id, agent.lives, agent.frozen) == ("boot-1", 1, False)
    assert _heard_s(loop, "n1") == 1_008.0


def test_an_agent_ends_with_its_host_and_begins_anew_with_it() -> None:
    loop = loop_at(30.0)
    ask(loop, OFF)
    loop.run_until(60.0)
    agent = loop.agents["n1"]
    assert not agent.alive

    loop.fake_power.wake("n1")
    loop.run_until(130.0)

    assert (agent.alive, agent.boot_id, agent.lives) == (True, "woken-1", 2)
    assert loop.fake_power.asleep_with == []


def test_a_host_with_a_job_stays_awake() -> None:
    loop = loop_at(30.0)
    loop.submit(Job("j", (Stage(2e6, 2_000.0, 0.0, 500),), 31.0, desired_start_s=31.0, goal_s=None))
    loop.run_until(60.0)
    (busy,) = [name for name in loop.agents if loop.cluster.hypervisor(name).domains]

    for name in loop.agents:
        ask(loop, node=name, request=f"s-{name}")
    loop.run_until(100.0)

    states = {name: loop.fake_power.state(name) for name in loop.agents}
    assert states.pop(busy) is HostPower.UP
    assert set(states.values()) == {HostPower.SUSPENDED}


def test_a_host_that_refuses_says_so_and_takes_part_again() -> None:
    loop = loop_at(30.0)
    loop.fake_power.fail_sleep("n1", SleepFault.REFUSED)
    ask(loop)
    loop.run_until(40.0)

    assert loop.fake_power.state("n1") is HostPower.UP
    ask(loop, request="s2")
    loop.run_until(50.0)
    assert loop.fake_power.state("n1") is HostPower.SUSPENDED


def _heard_s(loop: ClosedLoop, node: str) -> float:
    """When the leader has last heard of a node."""
    core = loop.controllers["a"].core
    assert isinstance(core, Controller)
    return core.cluster.nodes[node].seen_s
