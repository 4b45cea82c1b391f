"""Others touch VMs with their own tools, in closed loops: nothing runs twice, nothing is lost, nobody fights."""

from __future__ import annotations

from typing import Any

import pytest

from agents.core.settings import AgentSettings
from daemons.controller.core.controller import Controller
from daemons.values.records.cluster import JobRecord
from daemons.values.settings import ControllerSettings, PolicyChoice
from shared.values.actions import ActionKind
from shared.values.jobs import Job, JobPhase, Stage
from shared.values.nodes import Node
from shared.values.vms import VmState
from sim_backend.fakes.drift import Drift
from sim_backend.faults.drift import SHARE, TURN, DriftChecks, DriftKind, draw_drift
from sim_backend.faults.invariants.checker import Checker
from sim_backend.faults.run import run_seed
from sim_backend.faults.script import write_script
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings

NODES = tuple(Node(f"n{index}", 2, 1_000.0, memory_mib=2_000) for index in range(3))
VM, WORK = "j#0", 400_000.0
CONTROLLER = ControllerSettings(placement=PolicyChoice("first-fit"), external_change_pause_s=100.0, decide_s=300.0)


class Trusting(Controller):
    """Believes at once that what is not there any more is nowhere."""

    def __init__(self, name: str, settings: ControllerSettings) -> None:
        super().__init__(name, settings)
        self.measure.missing.vanished = lambda *_: None  # type: ignore[method-assign]


class Rig:
    """A loop of three nodes on which a job of 400 s runs, on n0 from the start."""

    def __init__(self, **changes: Any) -> None:
        self.loop = ClosedLoop(NODES, LoopSettings(CONTROLLER, AgentSettings(), **changes))
        self.checker = Checker(self.loop)
        self.drift = Drift(self.loop.cluster)
        self.loop.submit(Job("j", (Stage(WORK, 1_000.0, memory_mib=500),)), [(WORK, 1_000.0)])
        self.run(60.0)
        assert self.home() == "n0"

    def run(self, seconds: float) -> None:
        self.loop.run_until(self.loop.engine.now_s + seconds)

    def home(self) -> str:
        return self.loop.world.where(VM) or ""

    def state(self) -> VmState:
        return self.loop.cluster.hypervisor(self.home()).domains[VM].state

    def touched(self) -> float:
        self.checker.guests.touch()
        self.checker.drift.touched["j"] += 1
        return self.loop.engine.now_s

    def record(self) -> JobRecord:
        found = self.loop.store.get(("job", "j"))
        assert isinstance(found, JobRecord)
        return found

    def orders(self) -> list[ActionKind]:
        calls = [call for hypervisor in self.loop.cluster.hypervisors.values() for call in hypervisor.calls]
        return [action.kind for _, _, _, action in sorted(calls, key=lambda call: call[0]) if action is not None]

    def end(self) -> None:
        """Let it come to its end; the job was done once and in one attempt."""
        self.run(2_000.0)
        assert self.checker.violations == []
        assert self.loop.cluster.doubles == []
        assert self.record().phase is JobPhase.COMPLETED
        assert len(self.loop.world.completions["j"]) == 1


def test_a_vm_that_is_moved_by_hand_does_its_work_where_it_is() -> None:
    rig = Rig()
    assert rig.drift.move(VM, "n0", "n2", rig.touched())
    rig.run(60.0)

    assert [allotment.node for allotment in rig.record().allotments] == ["n2"]
    rig.end()
    assert rig.orders() == [ActionKind.START]
    assert rig.record().attempt == 1


def moved_while_the_agents_are_away(*away: str, **changes: Any) -> Rig:
    """The agents of these nodes are dead when the VM is moved from n0 to n2; they come back one after the other."""
    rig = Rig(**changes)
    for name in away:
        rig.loop.agents[name].kill()
    assert rig.drift.move(VM, "n0", "n2", rig.touched())
    for name in away:
        rig.run(4.0)
        rig.loop.agents[name].restart()
    return rig


@pytest.mark.full
@pytest.mark.parametrize("away", [("n0",), ("n2",), ("n0", "n2"), ("n2", "n0")])
def test_a_move_that_no_agent_saw_is_no_loss(away: tuple[str, ...]) -> None:
    rig = moved_while_the_agents_are_away(*away)
    rig.run(60.0)

    assert (rig.home(), rig.record().attempt) == ("n2", 1)
    rig.end()
    assert rig.orders() == [ActionKind.START]


def test_whoever_does_not_wait_for_every_node_starts_it_twice() -> None:
    """The bug that the waiting is there for, planted: it is found."""
    rig = moved_while_the_agents_are_away("n0", "n2", make_controller=Trusting)
    rig.run(60.0)

    assert ActionKind.START in rig.orders()[1:] or rig.record().attempt > 1


def test_a_vm_that_is_destroyed_begins_anew_after_the_hold() -> None:
    rig = Rig()
    rig.checker.guests.excuse_loss("n0", VM)
    assert rig.drift.stop(VM, "n0", rig.touched())
    rig.run(90.0)
    assert rig.orders() == [ActionKind.START]
    rig.run(30.0)

    assert rig.orders() == [ActionKind.START] * 2
    rig.end()
    assert rig.record().attempt == 2


def test_a_vm_that_is_destroyed_and_started_again_goes_on() -> None:
    rig = Rig()
    rig.checker.guests.excuse_loss("n0", VM)
    assert rig.drift.stop(VM, "n0", rig.touched())
    rig.run(20.0)
    rig.touched()
    assert rig.drift.start(VM, rig.loop.engine.now_s)

    rig.end()
    assert rig.orders() == [ActionKind.START]
    assert rig.record().attempt == 1


def test_a_vm_that_is_paused_goes_on_after_the_hold() -> None:
    rig = Rig()
    assert rig.drift.pause(VM, "n0", rig.touched())
    rig.run(80.0)
    assert rig.state() is VmState.PAUSED
    rig.run(40.0)

    assert rig.state() is VmState.RUNNING
    rig.end()
    assert rig.orders() == [ActionKind.START, ActionKind.UNPAUSE]


def test_weights_are_put_right() -> None:
    rig = Rig()
    assert rig.drift.reweigh(VM, "n0", 10.0, rig.touched())
    rig.run(20.0)

    assert rig.loop.cluster.hypervisor("n0").domains[VM].cpu_mhz == 1_000.0
    rig.end()


def test_whoever_is_blamed_without_having_touched_anything_is_found() -> None:
    """The check itself, on a loop in which a move is not told to it."""
    rig = Rig()
    now_s = rig.touched()
    rig.checker.drift.touched.clear()
    assert rig.drift.move(VM, "n0", "n2", now_s)
    rig.run(60.0)

    assert [violation.invariant for violation in rig.checker.violations] == ["blamed-others"]


def test_one_seed_in_five_has_drift_and_every_kind_has_its_turn() -> None:
    drawn = {seed: draw_drift(seed) for seed in range(SHARE * len(DriftKind))}

    assert [seed for seed, touches in drawn.items() if touches] == list(range(TURN, SHARE * len(DriftKind), SHARE))
    assert {touch.kind for touches in drawn.values() for touch in touches} == set(DriftKind)
    assert draw_drift(TURN) == draw_drift(TURN)
    assert DriftChecks(lambda *_: None).touched == {}


@pytest.mark.full
# 173: a job is taken to where its rules forbid it to be
@pytest.mark.parametrize("seed", [*range(20 + TURN, 100, SHARE), 173])
def test_every_invariant_holds_under_drift(seed: int) -> None:
    outcome = run_seed(seed)

    assert (outcome.violations, outcome.crash) == ((), ""), f"trimtab sim faults --seeds {seed}-{seed}"
    assert write_script(seed).environments is None
    assert {kind.value for kind in DriftKind} & set(outcome.faults)
