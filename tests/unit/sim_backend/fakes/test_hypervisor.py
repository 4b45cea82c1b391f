"""The fake hypervisors beyond the suite of their port: times, scripted failures, deaths, partitions, power."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shared.base.errors import ContractViolation, TransientError
from shared.ports.controller import PowerDriver
from shared.ports.effects import GuestChanged, Operated
from shared.values.actions import Action, ActionKind, GuestChange, Outcome
from shared.values.nodes import Node
from shared.values.operation_costs import COSTS
from shared.values.vms import VmSpec, VmState
from sim_backend.fakes.hypervisor import FakeCluster, FakeHypervisor
from sim_backend.fakes.power import FakePower
from sim_backend.world.world import World

NODE = Node("n1", cores=2, core_mhz=1_000.0, memory_mib=4_000)
VM = "job#0"
MIB = 1_000


class Lab:
    """Three nodes under the paper's costs and one job of 1,000 s."""

    def __init__(self, **options: Any) -> None:
        self.world = World()
        self.cluster = FakeCluster(self.world, COSTS["paper"], **options)
        self.n1, self.n2, self.n3 = (self.cluster.add_node(replace(NODE, name=f"n{i}")) for i in (1, 2, 3))
        self.world.add_task("job", [(1e6, 1_000.0)], 1)
        self.ids = 0

    def begin(self, on: FakeHypervisor, kind: ActionKind, now_s: float, **fields: Any) -> str:
        """Begin an action on the VM."""
        self.ids += 1
        action = Action(f"a{self.ids}", kind, on.node.name, vm=VM, term=1, boot_id="boot-1", expires_at_s=1e9)
        on.begin(replace(action, **fields), now_s)
        return action.id

    def run(self, on: FakeHypervisor, kind: ActionKind, now_s: float, **fields: Any) -> Operated:
        """Begin an action and take its answer, whenever it comes."""
        call = self.begin(on, kind, now_s, **fields)
        while True:
            for event in on.poll(max(now_s, self.cluster.now_s)):
                if isinstance(event, Operated):
                    assert event.call_id == call
                    return event
            due_s = self.cluster.next_due_s()
            assert due_s is not None
            self.cluster.advance(due_s)

    def start(self, on: FakeHypervisor, now_s: float = 0.0, **fields: Any) -> Operated:
        """Start the VM as generation 1."""
        return self.run(
            on,
            ActionKind.START,
            now_s,
            generation=1,
            spec=VmSpec(VM, 1, 1, memory_mib=MIB, vcpus=1, cpu_mhz=500.0),
            **fields,
        )

    def live_on(self) -> list[str]:
        """The nodes on which the VM is live."""
        live = (VmState.RUNNING, VmState.PAUSED)
        found = []
        for name, hypervisor in self.cluster.hypervisors.items():
            found += [name for status in hypervisor.vms(self.cluster.now_s) if status.state in live]
        return found


def test_operations_take_the_times_of_table_1() -> None:
    """apc.txt, Table 1: per MB of the VM's memory; start in 3.6 s; elsewhere resume + migrate."""
    lab = Lab()
    took = []
    for on, kind, fields in (
        (lab.n1, ActionKind.START, {"generation": 1, "spec": VmSpec(VM, 1, 1, memory_mib=MIB, vcpus=1, cpu_mhz=500.0)}),
        (lab.n1, ActionKind.MIGRATE, {"expects": 1, "generation": 1, "to_node": "n2"}),
        (lab.n2, ActionKind.SUSPEND, {"expects": 1, "generation": 1}),
        (lab.n2, ActionKind.RESUME, {"expects": 1, "generation": 2}),
        (lab.n2, ActionKind.SUSPEND, {"expects": 2, "generation": 2}),
        (lab.n3, ActionKind.RESUME, {"expects": 2, "generation": 3, "from_node": "n2"}),
        (lab.n3, ActionKind.PAUSE, {"expects": 3}),
        (lab.n3, ActionKind.STOP, {"expects": 3}),
    ):
        began_s = lab.cluster.now_s
        assert lab.run(on, kind, began_s, **fields).outcome is Outcome.OK
        took.append(round(lab.cluster.now_s - began_s, 9))
    assert took == [3.6, 13.2, 35.3, 33.3, 35.3, 46.5, 0.0, 0.0]


def test_durations_may_differ_from_the_costs() -> None:
    """The caller's factor stretches what takes time."""
    lab = Lab(duration_factor=lambda action: 2.0 if action.kind is ActionKind.START else 1.0)
    lab.start(lab.n1)
    assert lab.cluster.now_s == 7.2


def test_work_goes_on_during_migration_and_stands_still_in_an_image() -> None:
    """1,000 s of work: 13.2 s of migration cost nothing, suspend to resume costs all of its time."""
    lab = Lab()
    lab.start(lab.n1)
    answer = lab.run(lab.n1, ActionKind.MIGRATE, 10.0, expects=1, generation=1, to_node="n2")
    assert answer.final is not None
    assert answer.final.cpu_time_s == pytest.approx(23.2 - 3.6)
    answer = lab.run(lab.n2, ActionKind.SUSPEND, 103.6, expects=1, generation=1)
    assert answer.final is not None
    assert answer.final.cpu_time_s == pytest.approx(103.6 - 23.2)
    assert lab.world.done_mcycles("job", 200.0) == pytest.approx(100_000.0)
    lab.run(lab.n2, ActionKind.RESUME, 200.0, expects=1, generation=2)
    assert lab.cluster.advance(1e6) == ["n2"]
    (ended,) = lab.n2.poll(1e6)
    assert isinstance(ended, GuestChanged)
    assert (ended.change, ended.status.generation) == (GuestChange.ENDED, 2)
    ((attempt, at_s),) = lab.world.completions["job"]
    assert (attempt, round(at_s, 6)) == (1, 233.3 + 900.0)


def test_a_guest_that_ends_while_it_migrates_ends_at_its_source() -> None:
    """The migration fails, and nothing is left on the target."""
    lab = Lab()
    lab.start(lab.n1)
    lab.begin(lab.n1, ActionKind.MIGRATE, 1_000.0, expects=1, generation=1, to_node="n2")
    lab.cluster.advance(1_003.6)
    answer, ended = lab.n1.poll(1_003.6)
    assert isinstance(answer, Operated)
    assert isinstance(ended, GuestChanged)
    assert (answer.outcome, ended.change) == (Outcome.FAILED, GuestChange.ENDED)
    assert ended.status.cpu_time_s == 1_000.0
    assert (lab.n2.vms(1_003.6), lab.n2.memory_used_mib(), lab.n1.memory_used_mib()) == ((), 0, 0)


def test_a_source_that_dies_takes_its_migration_along() -> None:
    """No answer from the dead, nothing on the target, the guest is lost."""
    lab = Lab()
    lab.start(lab.n1)
    lab.begin(lab.n1, ActionKind.MIGRATE, 10.0, expects=1, generation=1, to_node="n2")
    assert lab.n1.host_dies(12.0) == [VM]
    assert lab.cluster.advance(100.0) == []
    assert (lab.n2.vms(100.0), lab.live_on()) == ((), [])
    with pytest.raises(TransientError):
        lab.n1.inventory()
    lab.begin(lab.n1, ActionKind.STOP, 101.0, expects=1)
    assert lab.n1.poll(101.0) == ()
    lab.n1.host_returns("boot-2")
    assert (lab.n1.boot_id, lab.n1.vms(102.0), lab.n1.inventory().name) == ("boot-2", (), "n1")


@pytest.mark.parametrize("parted", [False, True])
def test_a_target_that_goes_leaves_the_guest_at_its_source(parted: bool) -> None:
    """Dead or out of reach: FAILED, and the guest runs on where it was."""
    lab = Lab()
    lab.start(lab.n1)
    lab.begin(lab.n1, ActionKind.MIGRATE, 10.0, expects=1, generation=1, to_node="n2")
    if parted:
        lab.cluster.reachable = lambda a, b: {a, b} != {"n1", "n2"}
    else:
        lab.n2.host_dies(12.0)
    assert lab.cluster.advance(30.0) == ["n1"]
    (answer,) = lab.n1.poll(30.0)
    assert isinstance(answer, Operated)
    assert answer.outcome is Outcome.FAILED
    assert answer.status is not None
    assert (answer.status.state, answer.status.busy) == (VmState.RUNNING, "")
    assert lab.world.done_mcycles("job", 30.0) == pytest.approx(26_400.0)
    assert lab.n2.domains == {}


def test_an_image_out_of_reach_cannot_be_resumed_but_is_not_lost() -> None:
    """It survives its node's death and is there when the node returns."""
    lab = Lab()
    lab.start(lab.n1)
    lab.run(lab.n1, ActionKind.SUSPEND, 10.0, expects=1, generation=1)
    resume = {"expects": 1, "generation": 2, "from_node": "n1"}
    call = lab.begin(lab.n2, ActionKind.RESUME, 60.0, **resume)
    assert lab.n2.memory_used_mib() == MIB
    lab.n1.host_dies(61.0)
    (answer,) = lab.n2.poll(61.0)
    assert isinstance(answer, Operated)
    assert (answer.call_id, answer.outcome, answer.status) == (call, Outcome.FAILED, None)
    assert lab.run(lab.n2, ActionKind.RESUME, 62.0, **resume).detail == "image unreachable"
    lab.n1.host_returns("boot-2")
    (image,) = lab.n1.vms(63.0)
    assert (image.state, image.generation) == (VmState.SUSPENDED, 1)
    assert lab.run(lab.n2, ActionKind.RESUME, 64.0, **resume).outcome is Outcome.OK
    assert lab.live_on() == ["n2"]


def test_the_disk_lock_keeps_a_vm_from_running_twice() -> None:
    """Whatever anyone asks for; and whoever checks a run can see that it was asked for."""
    lab = Lab()
    lab.start(lab.n1)
    answer = lab.start(lab.n2, 10.0)
    assert (answer.outcome, answer.detail) == (Outcome.REFUSED, "its disk is locked by n1")
    assert lab.cluster.doubles == [(10.0, VM, "n2")]
    lab.n1.host_dies(11.0)
    assert lab.start(lab.n2, 12.0).outcome is Outcome.OK
    assert lab.live_on() == ["n2"]


def test_a_newer_life_supersedes_an_older_image() -> None:
    """A VM has one entry per node; its old image goes only when it is alive again there."""
    lab = Lab()
    lab.start(lab.n1)
    lab.run(lab.n1, ActionKind.SUSPEND, 10.0, expects=1, generation=1)
    spec = VmSpec(VM, 2, 2, memory_mib=MIB, vcpus=1, cpu_mhz=500.0)
    assert lab.run(lab.n1, ActionKind.START, 50.0, generation=1, spec=spec).outcome is Outcome.ALREADY_THERE
    lab.n1.fail_next(ActionKind.START, "fail-half-way")
    assert lab.run(lab.n1, ActionKind.START, 51.0, generation=2, spec=spec).outcome is Outcome.FAILED
    assert [status.state for status in lab.n1.vms(60.0)] == [VmState.SUSPENDED]
    assert lab.run(lab.n1, ActionKind.START, 61.0, generation=2, spec=spec).outcome is Outcome.OK
    assert [(status.state, status.generation) for status in lab.n1.vms(70.0)] == [(VmState.RUNNING, 2)]
    assert lab.n1.images == {}


def test_scripted_failures_choose_their_operation() -> None:
    """By kind and VM, in the order of the script; the others pass."""
    lab = Lab()
    lab.n1.fail_next(ActionKind.SUSPEND, "refuse", "other#0")
    lab.n1.fail_next(None, "refuse", VM)
    lab.n1.fail_next(ActionKind.SUSPEND, "hang")
    assert lab.start(lab.n1).outcome is Outcome.REFUSED
    assert lab.start(lab.n1).outcome is Outcome.OK
    call = lab.begin(lab.n1, ActionKind.SUSPEND, 100.0, expects=1, generation=1)
    assert lab.cluster.advance(1_000.0) == []
    assert lab.world.done_mcycles("job", 1_000.0) == pytest.approx(96_400.0)
    lab.n1.abort(VM, 1_000.0)
    (answer,) = lab.n1.poll(1_000.0)
    assert isinstance(answer, Operated)
    assert (answer.call_id, answer.outcome) == (call, Outcome.TIMED_OUT)
    assert lab.live_on() == ["n1"]
    assert lab.world.next_end_s() == pytest.approx(1_903.6)
    lab.n1.fail_next(None, "hang")
    lab.n1.clear_failures()
    assert lab.run(lab.n1, ActionKind.SUSPEND, 1_100.0, expects=1, generation=1).outcome is Outcome.OK


def test_half_way_is_half_the_time() -> None:
    """And a suspend that failed lets the guest execute again."""
    lab = Lab()
    lab.start(lab.n1)
    lab.n1.fail_next(ActionKind.SUSPEND, "fail-half-way")
    answer = lab.run(lab.n1, ActionKind.SUSPEND, 10.0, expects=1, generation=1)
    assert (answer.outcome, round(lab.cluster.now_s, 9)) == (Outcome.FAILED, 10.0 + 35.3 / 2)
    assert lab.world.done_mcycles("job", 37.65) == pytest.approx(6_400.0 + 10_000.0)


@pytest.mark.parametrize("crash", [False, True])
def test_a_vm_that_is_lost(crash: bool) -> None:
    """It vanishes with its last counters, its operation fails, its memory is free; a crashed one stays defined."""
    lab = Lab()
    lab.start(lab.n1)
    lab.begin(lab.n1, ActionKind.SUSPEND, 13.6, expects=1, generation=1)
    assert (lab.n1.crash_vm if crash else lab.n1.lose_vm)(VM, 20.0)
    assert not lab.n1.lose_vm(VM, 20.0)
    answer, change = lab.n1.poll(20.0)
    assert isinstance(answer, Operated)
    assert isinstance(change, GuestChanged)
    assert (answer.outcome, change.change, change.status.cpu_time_s) == (Outcome.FAILED, GuestChange.VANISHED, 10.0)
    assert [status.state for status in lab.n1.vms(21.0)] == ([VmState.CRASHED] if crash else [])
    assert (lab.n1.memory_used_mib(), lab.live_on()) == (0, [])
    lab.n1.forget(VM, 22.0)
    assert lab.n1.vms(22.0) == ()
    assert lab.start(lab.n2, 23.0).outcome is Outcome.OK


def test_an_agents_death_does_not_touch_the_hypervisor() -> None:
    """Its operations go on, but their answers reach nobody and show only as state."""
    lab = Lab()
    lab.begin(
        lab.n1, ActionKind.START, 0.0, generation=1, spec=VmSpec(VM, 1, 1, memory_mib=MIB, vcpus=1, cpu_mhz=500.0)
    )
    lab.n1.forget_answers()
    assert lab.cluster.advance(10.0) == []
    assert lab.n1.poll(10.0) == ()
    assert lab.live_on() == ["n1"]
    lab.begin(lab.n1, ActionKind.PAUSE, 11.0, expects=1)
    lab.n1.forget_answers()
    assert (lab.cluster.advance(11.0), lab.n1.poll(11.0)) == ([], ())
    assert lab.run(lab.n1, ActionKind.UNPAUSE, 12.0, expects=1).outcome is Outcome.OK


def test_an_end_outlives_a_power_cut() -> None:
    """The definition of a guest that ended is on disk: it is not run again by the same start."""
    lab = Lab()
    lab.start(lab.n1)
    lab.cluster.advance(2_000.0)
    lab.n1.host_dies(2_001.0)
    lab.n1.host_returns("boot-2")
    assert [status.state for status in lab.n1.vms(2_002.0)] == [VmState.ENDED]
    assert lab.start(lab.n1, 2_003.0).outcome is Outcome.OK
    assert len(lab.world.completions["job"]) == 1


def test_each_node_is_named_once_when_it_has_something() -> None:
    """In the order in which they got it; not again when nothing was added."""
    lab = Lab()
    lab.world.add_task("late", [(1e6, 1_000.0)], 1)
    for on, vm, now_s in ((lab.n2, "late#0", 0.0), (lab.n1, VM, 1.0)):
        lab.begin(
            on,
            ActionKind.START,
            now_s,
            vm=vm,
            generation=1,
            spec=VmSpec(vm, 1, 1, memory_mib=MIB, vcpus=1, cpu_mhz=500.0),
        )
    assert lab.cluster.advance(1.0) == []
    assert lab.cluster.next_due_s() == 3.6
    assert lab.cluster.advance(50.0) == ["n2", "n1"]
    assert lab.cluster.advance(50.0) == []
    assert lab.n1.next_due_s() == 4.6
    assert len(lab.n1.poll(50.0)) == len(lab.n2.poll(50.0)) == 1
    assert lab.n3.next_due_s() == lab.cluster.next_due_s() == pytest.approx(1_003.6)


def test_shares_of_a_host_follow_the_allotments() -> None:
    """The CPU rule: weighted max-min with caps; never more than vcpus x core_mhz."""
    cluster = FakeCluster(World(), COSTS["none"])
    host = cluster.add_node(NODE)
    for name, cpu_mhz, cap_mhz, vcpus in (("a", 400.0, None, 2), ("b", 800.0, None, 1), ("c", 200.0, 300.0, 1)):
        cluster.world.add_task(name, [(1e9, 1e9)], 1)
        spec = VmSpec(f"{name}#0", 1, 1, memory_mib=100, vcpus=vcpus, cpu_mhz=cpu_mhz, cap_mhz=cap_mhz)
        host.begin(
            Action(
                name,
                ActionKind.START,
                "n1",
                vm=spec.vm,
                term=1,
                boot_id="",
                expires_at_s=1e9,
                expects=0,
                generation=1,
                spec=spec,
            ),
            0.0,
        )
    assert [cluster.world.share_mhz(f"{name}#0") for name in "abc"] == pytest.approx([700.0, 1_000.0, 300.0])


def test_power() -> None:
    """Fencing kills the host unless scripted to fail, twice is as good as once, waking brings a new boot."""
    lab = Lab()
    power: PowerDriver = FakePower(lab.cluster)
    assert isinstance(power, FakePower)
    lab.start(lab.n1)
    power.fail_fence("n1", times=1)
    assert not power.fence("n1")
    assert lab.live_on() == ["n1"]
    assert [power.fence("n1"), power.fence("n1"), power.fence("n9")] == [True, True, False]
    assert (lab.live_on(), lab.n1.up) == ([], False)
    assert [power.wake("n1"), power.wake("n9")] == [True, False]
    assert (lab.n1.up, lab.n1.boot_id) == (True, "woken-1")


def test_names_are_unique_and_calls_are_kept() -> None:
    """Calls are recorded with their time, bounded in number."""
    lab = Lab()
    with pytest.raises(ContractViolation):
        lab.cluster.add_node(NODE)
    for i in range(1_500):
        lab.n1.forget("x#0", float(i))
    assert (len(lab.n1.calls), lab.n1.calls[-1]) == (1_000, (1_499.0, "forget", "x#0", None))
