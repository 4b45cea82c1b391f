"""The lifecycle of adopted VMs through changes of leader, deaths of hosts and orders that fail, message by message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from daemons.controller.state.availability import is_empty
from daemons.controller.state.jobs import JobEntry
from daemons.values.settings import Limits
from shared.ports.effects import PowerDone
from shared.protocol.operator_messages import AdoptVm, DrainNode, HoldJob, MoveVm, PowerVm, Query, RemoveNode
from shared.values.actions import Action, ActionKind, GuestChange, Outcome
from shared.values.jobs import JobPhase
from shared.values.nodes import PowerOperation
from shared.values.vm_terms import OnShutdown, VmTerms
from shared.values.vms import VmState, VmStatus
from tests.support.controller_harness import ControllerHarness

FENCE_S = 30.0
DEFINITION = ("<domain/>",)
BOTH, ALONE = ("n1", "n2"), ("n2",)
STARTS = [(ActionKind.START, "n2")]


class Owned:
    """Two nodes; on n1 runs an adopted VM, which restarts elsewhere."""

    def __init__(
        self,
        nodes: tuple[str, ...] = BOTH,
        failover: bool = True,
        vm: Mapping[str, Any] = MappingProxyType({}),
        **terms: Any,
    ) -> None:
        self.nodes = nodes
        self.harness = ControllerHarness(nodes, fence_after_s=FENCE_S).lead()
        own = {"memory_mib": 100, "cpu_mhz": 100.0, "autostart": True, **vm}
        self.harness.vms["n1"]["db"] = VmStatus("db", VmState.RUNNING, managed=False, **own)
        self.harness.report("n1")
        assert self.harness.ask(AdoptVm("a", "n1", "db", job="db", terms=VmTerms(failover=failover, **terms))).done
        self.obey()
        self.wait(20.0)
        self.obey()

    @property
    def entry(self) -> JobEntry:
        return self.harness.controller.cluster.jobs["db"]

    def obey(self) -> list[tuple[ActionKind, str]]:
        """Have all orders done."""
        return [(one.kind, one.node) for one in obey(self.harness)]

    def wait(self, seconds: float, nodes: tuple[str, ...] | None = None) -> None:
        self.harness.wait(seconds, self.nodes if nodes is None else nodes)

    def lose(self, node: str = "n1", others: tuple[str, ...] = ALONE) -> None:
        """The node falls silent and is proven off."""
        self.wait(50.0, others)
        self.harness.feed(PowerDone(node, PowerOperation.FENCE, True, "off"))
        self.harness.settle()

    def new_leader(self) -> None:
        self.harness = successor(self.harness, fence_after_s=FENCE_S)

    def alarms(self) -> set[str]:
        rows = self.harness.ask(Query(f"q-{self.harness.now_s}", "status")).data["alarms"]
        return {row["what"] for row in rows}


def obey(harness: ControllerHarness) -> list[Action]:
    done: list[Action] = []
    while orders := harness.take_orders():
        for action in orders:
            fields: dict[str, Any] = {"definition": DEFINITION} if action.kind is ActionKind.ADOPT else {}
            harness.result(action, **fields)
        done += orders
    return done


def successor(harness: ControllerHarness, **settings: Any) -> ControllerHarness:
    """A new leader with the same store, of the same nodes."""
    made = ControllerHarness(tuple(harness.nodes), store=harness.store, **settings)
    made.now_s, made.boots, made.seqs, made.vms, made.nodes = (
        harness.now_s,
        harness.boots,
        harness.seqs,
        harness.vms,
        harness.nodes,
    )
    made.carry(made.controller.start(made.now_s))
    made.settle()
    return made


# --- what its owner does ----------------------------------------------------------------------------------------------


def test_an_owners_shutdown_counts_after_a_start_that_failed() -> None:
    """Given a start that its host refused, then its owner's start and, later, shutdown: it stays off."""
    owned = Owned(failover=False)
    owned.harness.guest("n1", "db", GuestChange.ENDED)
    owned.wait(20.0)
    assert owned.harness.ask(PowerVm("p", "db", True)).done
    (start,) = owned.harness.take_orders()
    owned.harness.result(start, Outcome.REFUSED, detail="its disk is in use")
    owned.wait(20.0)
    owned.obey()
    owned.harness.guest("n1", "db", GuestChange.STARTED, event=2)
    owned.wait(20.0)
    owned.obey()
    assert owned.entry.phase is JobPhase.RUNNING

    owned.wait(3_600.0)
    owned.harness.guest("n1", "db", GuestChange.ENDED, event=3)
    owned.wait(20.0)

    assert (owned.obey(), owned.entry.phase) == ([], JobPhase.SHUT_OFF)
    assert owned.entry.terms is not None
    assert not owned.entry.terms.running


def test_a_crash_long_after_a_reboot_is_the_guests_own() -> None:
    owned = Owned(failover=False, on_shutdown=OnShutdown.LEAVE_OFF)
    owned.harness.boots["n1"] += "+"  # and libvirt starts it
    owned.wait(3_600.0)
    owned.obey()
    owned.harness.guest("n1", "db", GuestChange.VANISHED, detail="crashed")
    owned.wait(30.0)
    assert (owned.obey(), owned.entry.lost_with_host) == ([], False)


def test_a_shutdown_that_only_the_last_leader_saw_is_followed() -> None:
    """Given a guest that shuts down while an order is in flight, and a new leader, then it stays off."""
    owned = Owned(on_shutdown=OnShutdown.LEAVE_OFF)
    assert owned.harness.ask(MoveVm("m", "db", "n2")).done
    owned.harness.guest("n1", "db", GuestChange.ENDED)
    owned.new_leader()
    owned.wait(30.0)
    assert (owned.obey(), owned.entry.phase, owned.entry.lost_with_host) == ([], JobPhase.SHUT_OFF, False)


@pytest.mark.parametrize("overtaken", [False, True])
@pytest.mark.parametrize("terms", [OnShutdown.LEAVE_OFF, OnShutdown.RESTART])
def test_an_owners_stop_is_followed_although_a_report_tells_of_it_first(terms: OnShutdown, overtaken: bool) -> None:
    """Given a report that it is off, 5 s before the event that says who stopped it, then it stays off. The event may
    be older than the report, whose agent was slow to send it."""
    owned = Owned(on_shutdown=terms)
    owned.harness.change("n1", "db", state=VmState.CRASHED)
    owned.harness.report("n1")
    assert (owned.obey(), owned.entry.phase) == ([], JobPhase.SHUT_OFF)
    owned.harness.wait(5.0)
    if overtaken:
        owned.harness.seqs["n1"] -= 1
    owned.harness.guest("n1", "db", GuestChange.STOPPED, detail="destroyed by somebody")
    owned.harness.seqs["n1"] += overtaken
    owned.wait(3_600.0)
    assert (owned.obey(), owned.entry.phase) == ([], JobPhase.SHUT_OFF)
    assert owned.entry.terms is not None
    assert not owned.entry.terms.running


@pytest.mark.parametrize(("terms", "starts"), [(OnShutdown.LEAVE_OFF, 0), (OnShutdown.RESTART, 1)])
def test_a_crash_of_which_a_report_tells_first_is_the_guests_own(terms: OnShutdown, starts: int) -> None:
    owned = Owned(on_shutdown=terms)
    owned.harness.change("n1", "db", state=VmState.CRASHED)
    owned.harness.report("n1")
    owned.harness.guest("n1", "db", GuestChange.VANISHED, detail="crashed")
    owned.wait(60.0)
    assert len([kind for kind, _ in owned.obey() if kind is ActionKind.START]) == starts
    assert not owned.entry.lost_with_host


def test_a_held_vm_is_not_started_elsewhere() -> None:
    owned = Owned(on_shutdown=OnShutdown.RESTART)
    assert owned.harness.ask(HoldJob("h", "db", True)).done
    owned.obey()
    owned.wait(20.0)
    owned.obey()
    owned.lose()
    owned.wait(60.0, ALONE)
    assert owned.obey() == []


# --- its host dies ----------------------------------------------------------------------------------------------------


def test_a_host_that_dies_during_a_shutdown_leaves_it_off_and_to_be_started_elsewhere() -> None:
    owned = Owned()
    assert owned.harness.ask(PowerVm("p", "db", False)).done
    owned.harness.take_orders()
    owned.lose()
    owned.wait(60.0, ALONE)
    assert (owned.entry.phase, owned.entry.released) == (JobPhase.SHUT_OFF, False)
    assert owned.obey() == []
    assert owned.harness.ask(PowerVm("q", "db", True)).done
    assert owned.obey() == STARTS


def test_a_dead_node_that_is_removed_does_not_strand_its_vm() -> None:
    """Given no room, then the node is removed, then there is room."""
    owned = Owned()
    large = owned.harness.nodes["n2"]
    owned.harness.nodes["n2"] = type(large)("n2", large.cores, large.core_mhz, 80)
    owned.harness.report("n2")
    owned.lose()
    assert (owned.obey(), "failover-blocked" in owned.alarms()) == ([], True)
    assert owned.harness.ask(RemoveNode("r", "n1")).done
    owned.harness.nodes["n2"] = large
    owned.harness.report("n2")
    owned.wait(60.0, ALONE)
    assert owned.obey() == STARTS
    assert "failover-blocked" not in owned.alarms()


def test_a_vm_that_waits_for_its_next_start_fails_over_under_a_new_leader() -> None:
    """Given crashes and their back-off, a new leader, and a host that dies before it reports to that one."""
    owned = Owned(on_shutdown=OnShutdown.RESTART)
    for crash in range(3):
        owned.harness.guest("n1", "db", GuestChange.VANISHED, event=2 * crash + 1, detail="crashed")
        owned.wait(5.0)
        if crash < 2:
            owned.wait(30.0)
            owned.obey()
    assert owned.entry.phase is JobPhase.SHUT_OFF
    owned.new_leader()
    owned.lose()
    owned.wait(120.0, ALONE)
    assert set(owned.obey()) == set(STARTS)


def test_a_vm_fails_over_from_where_it_was_moved_to_under_a_new_leader() -> None:
    """Given that leader and target both die right after the migration was answered."""
    owned = Owned(("n1", "n2", "n3"))
    assert owned.harness.ask(MoveVm("m", "db", "n2")).done
    (move,) = owned.harness.take_orders()
    owned.harness.result(move)
    owned.new_leader()
    owned.lose("n2", ("n1", "n3"))
    owned.wait(10.0, ("n1", "n3"))
    assert [kind for kind, _ in owned.obey()] == [ActionKind.START]


def start_asked_for(**terms: Any) -> tuple[Owned, Action]:
    """Its owner has shut it down, and its operator asks for it again; the order is not carried out yet."""
    owned = Owned(on_shutdown=OnShutdown.LEAVE_OFF, **terms)
    owned.harness.guest("n1", "db", GuestChange.ENDED)
    owned.wait(20.0)
    assert owned.harness.ask(PowerVm("p", "db", True)).done
    (start,) = owned.harness.take_orders()
    assert (start.kind, start.node) == (ActionKind.START, "n1")
    return owned, start


@pytest.mark.parametrize("reports", [False, True])
def test_a_host_that_dies_before_a_start_is_done_has_its_vm_started_elsewhere(reports: bool) -> None:
    """Also under a leader who has not heard of the host."""
    owned, _ = start_asked_for()
    if not reports:
        owned.new_leader()
    owned.lose()
    owned.wait(60.0, ALONE)
    assert (set(owned.obey()), owned.entry.phase) == (set(STARTS), JobPhase.RUNNING)


@pytest.mark.parametrize("silent_s", [0.0, 2_000.0])
def test_a_host_that_restarts_before_a_start_is_done_starts_its_vm(silent_s: float) -> None:
    owned, _ = start_asked_for(failover=False)
    owned.wait(silent_s, ALONE)
    owned.harness.boots["n1"] += "+"
    owned.wait(60.0)
    assert set(owned.obey()) == {(ActionKind.START, "n1")}
    assert owned.entry.phase is JobPhase.RUNNING


def test_a_start_that_fails_on_a_host_that_is_well_is_not_repeated() -> None:
    owned, start = start_asked_for()
    owned.harness.result(start, Outcome.REFUSED, detail="its disk is in use")
    owned.wait(3_600.0)
    assert (owned.obey(), owned.entry.phase, owned.entry.lost_with_host) == ([], JobPhase.SHUT_OFF, False)


@pytest.mark.parametrize("arrived", [False, True])
def test_a_vm_that_was_being_moved_when_its_host_died_is_started_again(arrived: bool) -> None:
    """Given a source that is back, and tells of its end, before it is started elsewhere. One that had arrived there is
    no less lost with its host when that dies later."""
    owned = Owned(on_shutdown=OnShutdown.LEAVE_OFF)
    assert owned.harness.ask(MoveVm("m", "db", "n2")).done
    assert [one.kind for one in owned.harness.take_orders()] == [ActionKind.MIGRATE]
    if arrived:
        owned.harness.vms["n2"]["db"] = owned.harness.vms["n1"]["db"]
    owned.lose()
    if arrived:
        owned.wait(10.0, ALONE)
    owned.harness.boots["n1"] += "+"
    owned.harness.report("n1", term=0, vms=())
    owned.harness.guest("n1", "db", GuestChange.VANISHED)
    if arrived:  # and runs on
        owned.wait(300.0)
        assert (owned.entry.phase, owned.entry.instances[0].exit) == (JobPhase.RUNNING, None)
        owned.obey()
        owned.lose("n2", ("n1",))
    owned.wait(120.0, ("n1",) if arrived else BOTH)
    assert ActionKind.START in {kind for kind, _ in owned.obey()}
    assert owned.entry.phase is JobPhase.RUNNING


# --- orders that are not carried out ----------------------------------------------------------------------------------


def test_shut_off_vms_are_adopted_after_a_change_of_leader() -> None:
    limits = Limits(actions_per_node=1, migrations_per_node=1)
    harness = ControllerHarness(BOTH, limits=limits).lead()
    names = [f"db{number}" for number in range(3)]
    for name in names:
        harness.vms["n1"][name] = VmStatus(name, VmState.CRASHED, managed=False, memory_mib=100)
    harness.report("n1")
    for name in names:
        assert harness.ask(AdoptVm(f"a-{name}", "n1", name, job=name)).done
    (first,) = harness.take_orders()
    harness = successor(harness, limits=limits)
    harness.result(first, definition=DEFINITION)
    for _ in range(20):
        harness.wait(60.0, BOTH)
        obey(harness)
    jobs = harness.controller.cluster.jobs
    assert {name: jobs[name].taken for name in names} == dict.fromkeys(names, True)


def test_a_start_that_was_interrupted_leaves_no_claim() -> None:
    owned = Owned(failover=False, on_shutdown=OnShutdown.RESTART)
    node = owned.harness.controller.cluster.nodes["n1"]
    owned.harness.guest("n1", "db", GuestChange.VANISHED, detail="crashed")
    owned.wait(5.0)
    (start,) = owned.harness.take_orders()
    owned.harness.result(start, Outcome.INTERRUPTED, status=None, detail="the host has rebooted")
    owned.wait(5.0)
    assert owned.harness.ask(PowerVm("p", "db", False)).done
    owned.harness.take_orders()
    owned.wait(600.0)
    assert (owned.entry.instances[0].may_run_on, node.committed_mib) == (set(), 0.0)
    assert owned.harness.ask(DrainNode("d", "n1", True)).done
    owned.wait(60.0)
    assert is_empty(node)


# --- what waits for its host ------------------------------------------------------------------------------------------


def told(owned: Owned) -> list[tuple[str, str]]:
    """Its alarms."""
    rows = owned.harness.ask(Query(f"q-{owned.harness.now_s}", "status")).data["alarms"]
    return [(row["what"], row["detail"]) for row in rows if row["subject"] == "db"]


@pytest.mark.parametrize(
    ("status", "failover", "alarm", "why"),
    [
        ({}, False, "adopted-vm-waits", "failover is off for it"),
        ({"host_files": ("disk=/a",)}, False, "adopted-vm-waits", "its disk /a lies on its host alone"),
        ({"host_files": ("disk=/a",)}, True, "failover-blocked", "its disk /a lies on its host alone"),
        ({"memory_mib": 3_500}, True, "failover-blocked", "no other node has taken it yet"),
    ],
)
def test_a_vm_whose_host_is_off_waits_for_it_and_says_why(
    status: dict[str, Any], failover: bool, alarm: str, why: str
) -> None:
    """In one alarm, and the same in the views; it is not lost. When its host is back, nothing is said any more."""
    owned = Owned(failover=failover, on_shutdown=OnShutdown.LEAVE_OFF, vm=status)
    owned.harness.nodes["n2"] = replace(owned.harness.nodes["n2"], memory_mib=3_000)
    owned.lose()
    owned.wait(30.0, ALONE)
    ((what, detail),) = told(owned)
    assert what == alarm
    listed = owned.harness.ask(Query("l", "vms")).data["vms"]
    assert listed == owned.harness.ask(Query("v", "vm", "db")).data["rows"]
    ((node, state, waits),) = ((row["node"], row["state"], row["waits_for"]) for row in listed)
    assert (node, state, waits.startswith(f"n1, which is off: {why}")) == ("n1", "waiting", True)
    assert detail == f"db waits for {waits}" if alarm == "adopted-vm-waits" else "waits for" not in detail
    owned.harness.boots["n1"] += "+"
    owned.harness.change("n1", "db", state=VmState.CRASHED)
    owned.wait(60.0)
    assert owned.obey() == [(ActionKind.START, "n1")]
    owned.wait(30.0)
    assert (told(owned), owned.entry.phase) == ([], JobPhase.RUNNING)
    assert [row["waits_for"] for row in owned.harness.ask(Query("l2", "vms")).data["vms"]] == [None]


def test_a_vm_that_its_owner_wants_off_waits_for_nobody() -> None:
    owned = Owned(failover=False)
    owned.harness.guest("n1", "db", GuestChange.STOPPED, detail="shut down")
    owned.wait(20.0)
    owned.lose()
    owned.wait(30.0, ALONE)
    assert (told(owned), owned.harness.ask(Query("l", "vms")).data["vms"]) == ([], [])


@pytest.mark.parametrize(("failover", "alarm"), [(False, "adopted-vm-lost"), (True, "failover-blocked")])
def test_a_vm_whose_node_was_removed_is_lost_unless_it_can_run_elsewhere(failover: bool, alarm: str) -> None:
    """It finds no room there: one alarm is enough."""
    owned = Owned(failover=failover, vm={"memory_mib": 3_500})
    owned.harness.nodes["n2"] = replace(owned.harness.nodes["n2"], memory_mib=3_000)
    owned.lose()
    owned.wait(30.0, ALONE)
    assert owned.harness.ask(RemoveNode("r", "n1")).done
    assert [what for what, _ in told(owned)] == [alarm]
