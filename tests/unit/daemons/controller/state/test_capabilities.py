"""Nodes that cannot save VMs to disk: what is suspended there keeps its memory and goes on nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daemons.controller.environments.node_selection import Unit, arriving, exchanges
from daemons.values.settings import PolicyChoice
from shared.protocol.operator_messages import DrainNode, HoldJob, MoveVm, SubmitJob
from shared.values.actions import ActionKind, GuestChange
from shared.values.jobs import Job, JobPhase, Rules
from shared.values.nodes import Ability
from shared.values.vms import VmState
from tests.support.controller_harness import ControllerHarness, job
from tests.support.environment_harness import EnvironmentHarness


def frozen_harness(*jobs: Job, abilities: tuple[Ability, ...] = (), **settings: object) -> ControllerHarness:
    """Jobs that run on nodes without abilities; all but the last are then suspended where they are."""
    harness = ControllerHarness(**settings)  # type: ignore[arg-type]
    harness.nodes = {name: replace(node, abilities=abilities) for name, node in harness.nodes.items()}
    harness.lead()
    for number, each in enumerate(jobs):
        harness.ask(SubmitJob(f"r{number}", each))
    harness.obey()
    return harness


def hold(harness: ControllerHarness, name: str, *, on: bool = True) -> None:
    assert harness.ask(HoldJob(f"hold-{name}-{on}", name, on)).done


def suspended(harness: ControllerHarness, name: str) -> None:
    hold(harness, name)
    assert [action.kind for action in harness.obey()][-1] is ActionKind.SUSPEND


def test_a_frozen_job_keeps_its_memory() -> None:
    """Given a node full with a job, when that is frozen, then a job that would need its room is not started there."""
    harness = frozen_harness(job("a", memory_mib=3000), job("b", memory_mib=3000))
    suspended(harness, "a")
    suspended(harness, "b")
    harness.ask(SubmitJob("r9", job("c", memory_mib=3000)))
    assert harness.orders == []
    assert {node.room_mib() for node in harness.controller.cluster.nodes.values()} == {1000.0}


def test_where_suspending_frees_memory_the_next_job_starts() -> None:
    harness = frozen_harness(job("a", memory_mib=3000), job("b", memory_mib=3000), abilities=tuple(Ability))
    suspended(harness, "a")
    suspended(harness, "b")
    harness.ask(SubmitJob("r9", job("c", memory_mib=3000)))
    assert [action.kind for action in harness.orders] == [ActionKind.START]


def test_a_frozen_job_is_resumed_where_it_is_though_its_node_is_full() -> None:
    """Given room for it elsewhere and none beside itself, when it is released, then it goes on where it is."""
    harness = frozen_harness(job("a", memory_mib=3000), job("b", memory_mib=100))
    (home,) = [name for name, vms in harness.vms.items() if "a#0" in vms]
    suspended(harness, "a")
    harness.ask(SubmitJob("r9", job("c", memory_mib=900)))
    harness.obey()
    hold(harness, "a", on=False)
    (action,) = harness.take_orders()
    assert (action.kind, action.node, action.from_node) == (ActionKind.RESUME, home, home)
    harness.result(action)
    assert harness.controller.cluster.jobs["a"].released


@pytest.mark.parametrize("policy", ["edf", "apc"])
def test_no_job_is_frozen_for_memory_that_it_keeps(policy: str) -> None:
    """Given nodes full with jobs, when an urgent one needs the memory of either, then none gives way in vain."""
    full = [job(name, memory_mib=3000, work=1e9) for name in ("a", "b")]
    harness = frozen_harness(*full, placement=PolicyChoice(policy))
    urgent = job("u", memory_mib=3000, work=3e6, goal_s=harness.now_s + 4000.0, importance=100.0)
    harness.ask(SubmitJob("r9", urgent))
    harness.wait(1900.0, reporting=["n1", "n2"])
    assert harness.take_orders() == []
    assert {name: entry.phase for name, entry in harness.controller.cluster.jobs.items()} == {
        "a": JobPhase.RUNNING,
        "b": JobPhase.RUNNING,
        "u": JobPhase.WAITING,
    }


@pytest.mark.parametrize("policy", ["first-fit", "apc"])
def test_every_process_of_a_frozen_gang_is_resumed_on_its_own_node(policy: str) -> None:
    harness = frozen_harness(job("g", instances=2, spread=True, memory_mib=3000), placement=PolicyChoice(policy))
    before = {vm: name for name, vms in harness.vms.items() for vm in vms}
    suspended(harness, "g")
    hold(harness, "g", on=False)
    harness.wait(905.0, reporting=["n1", "n2"])
    orders = [action for action in harness.take_orders() if action.kind is ActionKind.RESUME]
    assert {action.vm: action.node for action in orders} == before


def test_a_frozen_gang_waits_for_the_cpu_of_its_own_nodes() -> None:
    """Given two processes frozen on a node with CPU for one, and room for the other elsewhere: none is resumed,
    since it would have to share what another is entitled to."""
    gang = job("g", instances=3, memory_mib=1900)
    harness = frozen_harness(gang)
    homes = {name: sorted(vms) for name, vms in harness.vms.items()}
    home = next(name for name, vms in homes.items() if len(vms) == 2)
    suspended(harness, "g")
    for number in range(3):
        there = job(f"k{number}", memory_mib=50, rules=Rules(node_affinity=(home,)))
        assert harness.ask(SubmitJob(f"k{number}", there)).done
    harness.obey()
    hold(harness, "g", on=False)
    cluster = harness.controller.cluster
    assert (cluster.jobs["g"].phase, cluster.nodes[home].wanted_mhz) == (JobPhase.SUSPENDED, 3000.0)


def test_a_frozen_job_waits_for_its_node() -> None:
    """Given its node drained and another one free, then it is not resumed; it is once the node is back."""
    harness = frozen_harness(job("a"))
    (home,) = [name for name, vms in harness.vms.items() if "a#0" in vms]
    suspended(harness, "a")
    harness.ask(DrainNode("d", home, True))
    hold(harness, "a", on=False)
    harness.wait(905.0, reporting=["n1", "n2"])
    assert harness.take_orders() == []
    harness.ask(DrainNode("u", home, False))
    harness.wait(905.0, reporting=["n1", "n2"])
    assert {(action.kind, action.node) for action in harness.take_orders()} == {(ActionKind.RESUME, home)}


def test_a_frozen_job_whose_program_is_gone_begins_anew() -> None:
    harness = frozen_harness(job("a"))
    (home,) = [name for name, vms in harness.vms.items() if "a#0" in vms]
    suspended(harness, "a")
    harness.guest(home, "a#0", GuestChange.VANISHED)
    hold(harness, "a", on=False)
    harness.wait(905.0, reporting=["n1", "n2"])
    orders = harness.take_orders()
    assert {action.kind for action in orders} == {ActionKind.START}
    assert orders[0].spec is not None
    assert orders[0].spec.attempt == 2


def test_what_cannot_migrate_is_left_on_a_node_that_is_emptied() -> None:
    harness = frozen_harness(job("a"))
    (home,) = [name for name, vms in harness.vms.items() if "a#0" in vms]
    harness.ask(DrainNode("d", home, True))
    harness.wait(905.0, reporting=["n1", "n2"])
    assert harness.take_orders() == []
    assert not harness.happenings("change-stale")
    assert harness.controller.cluster.jobs["a"].phase is JobPhase.RUNNING


def test_an_operator_cannot_have_it_moved_either() -> None:
    harness = frozen_harness(job("a"))
    (home,) = [name for name, vms in harness.vms.items() if "a#0" in vms]
    (other,) = set(harness.vms) - {home}
    reply = harness.ask(MoveVm("m", "a#0", other))
    assert (reply.done, reply.code) == (False, "constraint")
    assert harness.take_orders() == []


def test_an_environment_gets_the_nodes_back_on_which_its_jobs_are_frozen() -> None:
    """Given its jobs frozen on the nodes that it gave up, when it gets nodes again, then these, and the jobs go on."""
    harness = EnvironmentHarness(4)
    harness.nodes = {name: replace(node, abilities=()) for name, node in harness.nodes.items()}
    harness.lead()
    harness.open("hpc", lower=3)
    for number in range(3):
        harness.ask(SubmitJob(f"r{number}", job(f"j{number}", memory_mib=3000, environment="hpc")))
    harness.finish()
    assert harness.resize("hpc", 1).done
    harness.finish()
    frozen = {name for name, vms in harness.vms.items() for vm in vms.values() if vm.state is VmState.SUSPENDED}
    assert len(frozen) == 2
    assert harness.resize("hpc", 3).done
    harness.finish()
    harness.wait(905.0, reporting=list(harness.nodes))
    harness.finish()
    assert frozen < set(harness.held_by())
    states = {vm.vm: vm.state for vms in harness.vms.values() for vm in vms.values()}
    assert states == dict.fromkeys(("j0#0", "j1#0", "j2#0"), VmState.RUNNING)


def test_nodes_with_frozen_jobs_come_first() -> None:
    free = [Unit("a", images=True), Unit("b", images=True, frozen=frozenset({"hpc"})), Unit("c")]
    assert arriving(free, ("hpc",), (1,)) == ("b",)
    assert arriving(free, ("other",), (1,)) == ("c",)


def test_idle_nodes_are_exchanged_for_those_that_frozen_jobs_wait_for() -> None:
    """Given a job of one frozen on an idle node of another, then they exchange nodes; not for a busy one."""
    wanted = Unit("b", holder="web", frozen=frozenset({"hpc"}))
    held = {"hpc": [Unit("a", holder="hpc")], "web": [wanted]}
    assert exchanges(held, []) == (("b", "hpc"), ("a", "web"))
    assert exchanges({**held, "web": [replace(wanted, idle=False)]}, []) == ()
    assert exchanges({**held, "hpc": [Unit("a", idle=False)]}, []) == ()
    assert exchanges({**held, "hpc": [Unit("a", kind=1)]}, []) == ()


def test_what_waits_on_a_free_node_gets_it_and_what_waits_in_the_pool_too() -> None:
    free = [Unit("f", frozen=frozenset({"hpc"})), Unit("g")]
    assert exchanges({"hpc": [Unit("a", holder="hpc")]}, free) == (("f", "hpc"), ("a", ""))
    held = {"hpc": [Unit("a", holder="hpc", frozen=frozenset({""}))]}
    assert exchanges(held, [Unit("g")]) == (("a", ""), ("g", "hpc"))
    assert exchanges({"hpc": [Unit("a", holder="hpc", frozen=frozenset({"", "hpc"}))]}, [Unit("g")]) == ()
