"""VMs that are not ours, with the real controller and agents: adopted, moved, let go, whoever dies meanwhile."""

from __future__ import annotations

import pytest

from agents.core.settings import AgentSettings
from daemons.values.records.cluster import JobRecord
from daemons.values.settings import ControllerSettings
from shared.protocol.operator_messages import AdoptVm, HoldJob, MoveVm, ReleaseVm, Request
from shared.values.jobs import Job, JobPhase, Stage
from shared.values.nodes import Node
from shared.values.vms import VmState
from sim_backend.faults.invariants.checker import Checker
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings

NODES = tuple(Node(f"n{index}", 2, 1_000.0, memory_mib=2_000) for index in range(2))
VM = "legacy#0"


def loop_with_stranger(work_mcycles: float = 1e9) -> ClosedLoop:
    """Two nodes; somebody has started a VM on n0."""
    return checked_loop(work_mcycles)[0]


def checked_loop(work_mcycles: float = 1e9) -> tuple[ClosedLoop, Checker]:
    """The same with its invariants watched."""
    loop = ClosedLoop(NODES, LoopSettings(ControllerSettings(), AgentSettings()))
    loop.world.add_task("legacy", [(work_mcycles, 1_000.0)], 1)
    loop.jobs["legacy"] = Job("legacy", (Stage(work_mcycles, 1_000.0, memory_mib=500),))
    loop.cluster.hypervisor("n0").add_stranger(VM, 500, 0.0)
    checker = Checker(loop)
    loop.run_until(30.0)
    return loop, checker


def ask(loop: ClosedLoop, request: Request, wait_s: float = 30.0) -> None:
    """Send a request, let it take its effect, and see that it was done."""
    loop.operator.send(request)
    loop.run_until(loop.engine.now_s + wait_s)
    reply = loop.operator.replies[request.request]
    assert reply.done, (reply.code, reply.detail)


def record(loop: ClosedLoop, name: str = "web") -> JobRecord:
    found = loop.store.get(("job", name))
    assert isinstance(found, JobRecord)
    return found


def managed(loop: ClosedLoop, node: str) -> bool | None:
    """Whether the VM on a node is ours; None when it is not there."""
    domain = loop.cluster.hypervisor(node).domains.get(VM)
    return None if domain is None else domain.managed


def test_a_strangers_vm_is_adopted_and_stays_defined_when_its_guest_ends() -> None:
    loop = loop_with_stranger(work_mcycles=200_000.0)
    ask(loop, AdoptVm("a", "n0", VM, job="web"))
    assert managed(loop, "n0") is True
    loop.run_until(300.0)
    assert record(loop).phase is JobPhase.SHUT_OFF
    assert loop.cluster.hypervisor("n0").domains[VM].state is VmState.ENDED
    assert loop.cluster.hypervisor("n0").owner_starts(VM, loop.engine.now_s)
    loop.run_until(330.0)
    assert (record(loop).phase, record(loop).allotments[0].node) == (JobPhase.RUNNING, "n0")


def test_an_adopted_vm_moves_is_held_and_let_go_on_its_new_node() -> None:
    loop = loop_with_stranger()
    ask(loop, AdoptVm("a", "n0", VM, job="web"))
    ask(loop, MoveVm("m", VM, "n1"))
    assert (managed(loop, "n0"), managed(loop, "n1")) == (None, True)
    ask(loop, HoldJob("h", "web", True))
    assert loop.cluster.hypervisor("n1").images[VM].state is VmState.SUSPENDED
    ask(loop, HoldJob("u", "web", False))
    (node,) = [name for name in ("n0", "n1") if managed(loop, name)]
    ask(loop, ReleaseVm("f", "web"))
    assert managed(loop, node) is False
    loop.run_until(2_000.0)
    assert loop.world.where(VM) == node
    assert record(loop).instances == ()


@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.01, 0.1, 1.0])
@pytest.mark.parametrize("who", ["agent", "controller"])
def test_whoever_dies_meanwhile_the_vm_is_adopted_and_let_go_once(who: str, after_s: float) -> None:
    loop, checker = checked_loop()
    victim = loop.agents["n0"] if who == "agent" else next(iter(loop.controllers.values()))
    for request in (AdoptVm("a", "n0", VM, job="web"), ReleaseVm("f", "web")):
        loop.operator.send(request)
        loop.run_until(loop.engine.now_s + after_s)
        victim.kill()
        loop.run_until(loop.engine.now_s + 5.0)
        victim.restart()
        loop.run_until(loop.engine.now_s + 120.0)
        assert loop.operator.replies[request.request].done
        assert managed(loop, "n0") is isinstance(request, AdoptVm)
    assert record(loop).phase is JobPhase.FORGOTTEN
    assert not loop.cluster.hypervisor("n0").operations
    assert [violation.invariant for violation in checker.violations] == []


def test_adopted_vms_that_share_a_node_too_small_are_treated_alike_and_spread() -> None:
    """Eight want a core each; their node has four, the other is empty."""
    nodes = tuple(Node(f"n{index}", 4, 1_000.0, memory_mib=8_000) for index in range(2))
    loop = ClosedLoop(nodes, LoopSettings(ControllerSettings(), AgentSettings()))
    for index in range(8):
        loop.world.add_task(f"legacy{index}", [(1e9, 1_000.0)], 1)
        loop.jobs[f"legacy{index}"] = Job(f"legacy{index}", (Stage(1e9, 1_000.0, memory_mib=500),))
        loop.cluster.hypervisor("n0").add_stranger(f"legacy{index}#0", 500, 0.0)
    loop.run_until(60.0)
    for index in range(8):
        ask(loop, AdoptVm(f"a{index}", "n0", f"legacy{index}#0", job=f"vm{index}"))
    loop.run_until(2_000.0)
    records = [record(loop, f"vm{index}") for index in range(8)]
    assert [one.allotments[0].cpu_mhz for one in records] == pytest.approx([1_000.0] * 8)
    assert sorted(one.allotments[0].node for one in records) == ["n0"] * 4 + ["n1"] * 4
