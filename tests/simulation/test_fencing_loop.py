"""Unreachable nodes in the closed loop: fenced when their VMs may have stopped, and not when that helps nobody."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agents.core.settings import AgentSettings
from daemons.controller.core.controller import Controller
from daemons.controller.state.nodes import NodeEntry
from daemons.values.settings import ControllerSettings, PolicyChoice
from shared.base.errors import TransientError
from shared.ports import effects as fx
from shared.protocol.operator_messages import DrainNode
from shared.values.jobs import Job, Stage
from shared.values.nodes import Node, PowerOperation
from shared.values.vms import VmStatus
from sim_backend.fakes.hypervisor import FakeHypervisor
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings

NODES = tuple(Node(f"n{index}", 2, 1_000.0, memory_mib=2_000) for index in range(3))
FENCE_S = 60.0


class Mute(FakeHypervisor):
    """A hypervisor whose VMs run, and which answers no reading while it is `mute`."""

    mute = False

    def vms(self, now_s: float) -> tuple[VmStatus, ...]:
        if self.mute:
            raise TransientError("libvirtd does not answer")
        return super().vms(now_s)


SETTINGS = LoopSettings(
    ControllerSettings(placement=PolicyChoice("first-fit"), fence_after_s=FENCE_S),
    AgentSettings(),
    make_hypervisor=Mute,
)


class Loop(ClosedLoop):
    """Keeps which nodes were fenced, and when."""

    def __init__(self, settings: LoopSettings = SETTINGS) -> None:
        super().__init__(NODES, settings)
        self.fences: list[tuple[float, str]] = []
        self.submit(Job("one", (Stage(3_000_000.0, 1_000.0, 0.0, 500),), desired_start_s=10.0, submit_s=10.0))
        self.controllers["a"].on_effect = self._note

    def _note(self, _shell: object, effect: fx.Effect) -> None:
        if isinstance(effect, fx.Power) and effect.operation is PowerOperation.FENCE:
            self.fences.append((self.engine.now_s, effect.node))

    def node(self, name: str) -> NodeEntry:
        """What the controller knows of a node."""
        core = self.controllers["a"].core
        assert isinstance(core, Controller)
        return core.cluster.nodes[name]

    def home(self) -> str:
        """The node of the job's VM."""
        (name,) = [name for name, hypervisor in self.cluster.hypervisors.items() if hypervisor.domains]
        return name

    def set_mute(self, name: str, mute: bool) -> None:
        """Let a node's hypervisor stop answering, or answer again."""
        hypervisor = self.cluster.hypervisor(name)
        assert isinstance(hypervisor, Mute)
        hypervisor.mute = mute


def test_a_drained_host_is_switched_off_and_on_without_being_fenced() -> None:
    """Given a drained node, when an operator switches it off for an hour, then nothing cuts its power meanwhile, and
    undrained it takes VMs again."""
    loop = Loop()
    loop.run_until(100.0)
    home = loop.home()
    loop.operator.send(DrainNode("drain", home, True))
    loop.run_until(200.0)
    assert loop.home() != home

    loop.host_dies(home)
    loop.run_until(3_800.0)
    loop.host_returns(home, "boot-2")
    loop.run_until(3_900.0)
    loop.operator.send(DrainNode("undrain", home, False))
    loop.run_until(4_000.0)

    assert loop.fences == []
    assert loop.world.completions["one"] == [(1, 3_010.0)]
    assert loop.node(home).schedulable


def test_a_drained_host_that_dies_with_its_vm_on_it_is_fenced() -> None:
    loop = Loop(replace(SETTINGS, costs=replace(SETTINGS.costs, migrate_s_per_mib=1.0)))
    loop.run_until(100.0)
    home = loop.home()
    loop.operator.send(DrainNode("drain", home, True))
    loop.run_until(110.0)

    loop.host_dies(home)
    loop.run_until(400.0)

    assert [node for _, node in loop.fences] == [home]
    assert loop.home() != home


@pytest.mark.parametrize("mute_s", [600.0, 4_000.0])
def test_a_host_whose_hypervisor_does_not_answer_keeps_its_vm(mute_s: float) -> None:
    """Given a node whose agent reports that its hypervisor does not answer, then its VM is not killed by a fence, and
    the job is done in its first attempt."""
    loop = Loop()
    loop.run_until(100.0)
    home = loop.home()

    loop.set_mute(home, True)
    loop.run_until(100.0 + mute_s)
    assert loop.fences == []
    assert not loop.node(home).usable
    loop.set_mute(home, False)
    loop.run_until(6_000.0)

    assert loop.fences == []
    assert loop.node(home).usable
    assert loop.world.completions["one"] == [(1, 3_010.0)]
    assert loop.truth.actions == {"start": 1}


def test_once_its_agent_falls_silent_too_it_is_fenced_and_the_job_runs_again() -> None:
    loop = Loop()
    loop.run_until(100.0)
    home = loop.home()
    loop.set_mute(home, True)
    loop.run_until(1_000.0)

    loop.host_dies(home)
    loop.run_until(4_500.0)

    ((fenced_s, node),) = loop.fences
    assert node == home
    assert 1_000.0 + FENCE_S - 5.0 <= fenced_s <= 1_000.0 + FENCE_S + 15.0
    ((attempt, _),) = loop.world.completions["one"]
    assert attempt == 2


def test_a_silent_host_is_fenced_in_time() -> None:
    loop = Loop()
    loop.run_until(100.0)
    home = loop.home()

    loop.agents[home].kill()
    loop.run_until(300.0)

    ((fenced_s, node),) = loop.fences
    assert node == home
    assert fenced_s == pytest.approx(100.0 + 15.0 + FENCE_S, abs=10.0)
