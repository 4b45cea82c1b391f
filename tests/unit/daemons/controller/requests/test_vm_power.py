"""Adopted VMs run or are off as their operators and owners want."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from msgspec import structs

from daemons.controller.views.alarms import alarms
from shared.protocol.operator_messages import AdoptVm, ConfirmOff, DrainNode, PowerVm, ReleaseVm, SubmitJob
from shared.values.actions import ActionKind, GuestChange, Outcome
from shared.values.jobs import JobPhase
from shared.values.nodes import HugepagePool
from shared.values.vm_terms import OnShutdown, VmTerms
from shared.values.vms import VmState, VmStatus
from tests.support.controller_harness import ControllerHarness, job

PET = VmStatus("pet", VmState.RUNNING, memory_mib=500, vcpus=2, cpu_mhz=700.0, managed=False)
RESTART = VmTerms(on_shutdown=OnShutdown.RESTART)


def adopted(terms: VmTerms | None = None, **fields: object) -> ControllerHarness:
    """A cluster with one adopted VM, as its node reported it."""
    harness = ControllerHarness().lead()
    harness.vms["n1"]["pet"] = structs.replace(PET, **fields)
    harness.report("n1")
    assert harness.ask(AdoptVm("a", "n1", "pet", job="pet", terms=terms or VmTerms())).done
    harness.obey()
    harness.report("n1")
    return harness


def phase(harness: ControllerHarness) -> JobPhase:
    return harness.controller.cluster.jobs["pet"].phase


def running(harness: ControllerHarness) -> bool:
    terms = harness.controller.cluster.jobs["pet"].terms
    return terms is not None and terms.running


def ordered(harness: ControllerHarness) -> list[tuple[ActionKind, int, int]]:
    return [(action.kind, action.expects, action.generation) for action in harness.obey()]


def alarmed(harness: ControllerHarness) -> list[str]:
    return [str(one["what"]) for one in alarms(harness.controller.queries.tables, harness.now_s)]


# --- adopted while it is shut off -------------------------------------------------------------------------------------


def test_a_vm_that_is_shut_off_is_adopted_and_stays_off() -> None:
    harness = adopted(state=VmState.ENDED)
    assert phase(harness) is JobPhase.SHUT_OFF
    assert harness.vms["n1"]["pet"].adopted
    harness.wait(1000.0, reporting=["n1", "n2"])
    assert harness.orders == []
    node = harness.controller.cluster.nodes["n1"]
    assert (node.committed_mib, node.unmanaged_mib) == (0.0, 0.0)
    assert "adopted-vm-off" not in alarmed(harness)


def test_an_adoption_of_a_vm_that_is_shut_off_may_fail() -> None:
    harness = ControllerHarness().lead()
    harness.vms["n1"]["pet"] = structs.replace(PET, state=VmState.ENDED)
    harness.report("n1")
    harness.ask(AdoptVm("a", "n1", "pet", job="pet"))
    (adopt,) = harness.take_orders()
    harness.result(adopt, Outcome.REFUSED)
    harness.report("n1")
    assert phase(harness) is JobPhase.FORGOTTEN
    assert not harness.vms["n1"]["pet"].managed


def test_one_that_is_off_is_released_as_it_was() -> None:
    harness = adopted(state=VmState.ENDED)
    harness.ask(ReleaseVm("r", "pet"))
    assert [kind for kind, _, _ in ordered(harness)] == [ActionKind.RELEASE]
    assert not harness.vms["n1"]["pet"].managed


@pytest.mark.parametrize(
    ("fields", "word"),
    [({"transient": True}, "transient"), ({"state": VmState.PAUSED}, "paused"), ({"busy": "snapshot"}, "busy")],
)
def test_what_cannot_be_adopted_is_refused_with_its_reason(fields: dict[str, object], word: str) -> None:
    harness = ControllerHarness().lead()
    harness.vms["n1"]["pet"] = structs.replace(PET, **fields)
    harness.report("n1")
    reply = harness.ask(AdoptVm("a", "n1", "pet", job="pet"))
    assert (reply.code, word in reply.detail) == ("vm-not-adoptable", True)
    assert harness.orders == []
    assert not harness.controller.cluster.jobs


def test_a_name_on_two_nodes_is_not_adopted() -> None:
    harness = ControllerHarness().lead()
    for node in ("n1", "n2"):
        harness.vms[node]["pet"] = PET
        harness.report(node)
    assert "2 nodes" in harness.ask(AdoptVm("a", "n1", "pet", job="pet")).detail


# --- started and shut down --------------------------------------------------------------------------------------------


def test_a_vm_is_started_where_its_definition_is() -> None:
    harness = adopted(state=VmState.ENDED)
    assert harness.ask(PowerVm("s", "pet", True)).done
    assert ordered(harness) == [(ActionKind.START, 1, 2)]
    harness.report("n1")
    assert (phase(harness), running(harness)) == (JobPhase.RUNNING, True)
    assert harness.happenings("adopted-vm-on")
    assert harness.controller.cluster.nodes["n1"].committed_mib == 500.0
    assert harness.ask(PowerVm("s2", "pet", True)).done
    assert harness.orders == []


def test_a_vm_is_shut_down_and_stays_off() -> None:
    harness = adopted(RESTART)
    assert harness.ask(PowerVm("s", "pet", False)).done
    assert [kind for kind, _, _ in ordered(harness)] == [ActionKind.STOP]
    harness.wait(1000.0, reporting=["n1", "n2"])
    assert (phase(harness), running(harness), harness.orders) == (JobPhase.SHUT_OFF, False, [])
    assert "adopted-vm-off" not in alarmed(harness)


def test_a_shutdown_that_fails_is_tried_again() -> None:
    harness = adopted()
    harness.ask(PowerVm("s", "pet", False))
    (stop,) = harness.take_orders()
    harness.result(stop, Outcome.TIMED_OUT)
    harness.wait(60.0, reporting=["n1", "n2"])
    assert [kind for kind, _, _ in ordered(harness)] == [ActionKind.STOP]
    assert harness.vms["n1"]["pet"].state is VmState.ENDED


def test_a_start_without_memory_is_refused_with_the_numbers() -> None:
    harness = adopted(state=VmState.ENDED)
    harness.ask(SubmitJob("j", job("big", memory_mib=3800, rules=job().rules)))
    harness.obey()
    harness.report("n1")
    big = harness.controller.cluster.jobs["big"].allotments[0].node
    reply = harness.ask(PowerVm("s", "pet", True))
    assert (reply.code if big == "n1" else "no-memory") == "no-memory"
    assert big == "n1"
    assert "500 MiB" in reply.detail


def paged(terms: VmTerms | None = None, **fields: object) -> ControllerHarness:
    """A cluster with one adopted VM in hugepages of cell 0 of n1, which has them for one such VM."""
    harness = ControllerHarness()
    pools = (HugepagePool(2_048, 600, 0), HugepagePool(2_048, 600, 1))
    has = ("hugepages=", "hugepages-2048=1200", "numa=0-1")
    harness.nodes["n1"] = replace(harness.nodes["n1"], hugepages=pools, migration_has=has)
    harness.lead()
    harness.vms["n1"]["pet"] = structs.replace(PET, migration_needs=("hugepages-2048=500", "numa=0"), **fields)
    harness.report("n1")
    assert harness.ask(AdoptVm("a", "n1", "pet", job="pet", terms=terms or VmTerms())).done
    harness.obey()
    harness.report("n1")
    return harness


def take_pages(harness: ControllerHarness, *needs: str) -> None:
    """Have a VM of somebody else take 500 MiB of the hugepages of n1."""
    other = VmStatus("other", VmState.RUNNING, memory_mib=500, managed=False)
    harness.vms["n1"]["other"] = structs.replace(other, migration_needs=("hugepages-2048=500", *needs))
    harness.report("n1")


def test_a_start_whose_hugepages_are_taken_is_refused_with_the_numbers() -> None:
    harness = paged(state=VmState.ENDED)
    take_pages(harness, "numa=0")
    reply = harness.ask(PowerVm("s", "pet", True))
    assert reply.code == "no-memory"
    assert "needs 500 MiB of 2 MiB hugepages; n1 has 100 MiB free" in reply.detail
    assert harness.orders == []


def test_a_start_whose_hugepages_may_be_free_is_tried() -> None:
    """Those of a VM in any cell are in the other as far as is known."""
    harness = paged(state=VmState.ENDED)
    take_pages(harness)
    assert harness.ask(PowerVm("s", "pet", True)).done
    assert ordered(harness) == [(ActionKind.START, 1, 2)]


def test_one_to_be_restarted_waits_for_its_hugepages_and_says_so() -> None:
    """Given that another VM has taken them when its host has rebooted, then it starts when they are free again."""
    harness = paged(RESTART)
    harness.change("n1", "pet", state=VmState.CRASHED)
    take_pages(harness, "numa=0")
    harness.wait(300.0, reporting=["n1", "n2"])
    assert (phase(harness), harness.orders) == (JobPhase.SHUT_OFF, [])
    told = [one for one in alarms(harness.controller.queries.tables, harness.now_s) if one["what"] == "adopted-vm-off"]
    assert "n1 has 100 MiB free" in str(told[0]["detail"])
    del harness.vms["n1"]["other"]
    harness.wait(30.0, reporting=["n1", "n2"])
    assert [kind for kind, _, _ in ordered(harness)] == [ActionKind.START]


def test_only_adopted_vms_are_started_and_shut_down() -> None:
    harness = ControllerHarness().lead()
    harness.ask(SubmitJob("j", job()))
    assert harness.ask(PowerVm("1", "j", False)).code == "not-a-vm"
    assert harness.ask(PowerVm("2", "nobody", True)).code == "unknown-job"


# --- what its guest, its owner and its host do ------------------------------------------------------------------------


def test_a_guest_that_shuts_itself_down_stays_off_by_default() -> None:
    harness = adopted()
    harness.guest("n1", "pet", GuestChange.ENDED)
    harness.wait(1000.0, reporting=["n1", "n2"])
    assert (phase(harness), running(harness), harness.orders) == (JobPhase.SHUT_OFF, False, [])


def test_a_guest_that_shuts_itself_down_is_started_again_where_its_terms_say_so() -> None:
    harness = adopted(RESTART)
    harness.guest("n1", "pet", GuestChange.ENDED)
    harness.report("n1")
    assert ordered(harness) == [(ActionKind.START, 1, 2)]
    harness.report("n1")
    assert (phase(harness), running(harness)) == (JobPhase.RUNNING, True)


def test_a_guest_that_ends_at_once_again_and_again_is_started_less_and_less_often() -> None:
    harness = adopted(RESTART)
    starts = []
    for event in range(1, 6):
        harness.guest("n1", "pet", GuestChange.ENDED, event=event)
        while not harness.orders:
            harness.wait(5.0, reporting=["n1", "n2"])
        starts.append(harness.now_s)
        harness.obey()
        harness.report("n1")
    waits = [later - earlier for earlier, later in pairwise(starts)]
    assert waits == sorted(waits)
    assert waits[-1] >= 4 * max(5.0, waits[0])


def test_a_crash_is_followed_by_a_start_where_its_terms_say_so() -> None:
    harness = adopted(RESTART)
    harness.guest("n1", "pet", GuestChange.VANISHED, detail="crashed")
    harness.report("n1")
    assert [kind for kind, _, _ in ordered(harness)] == [ActionKind.START]


def test_a_crash_raises_an_alarm_by_default() -> None:
    harness = adopted()
    harness.guest("n1", "pet", GuestChange.VANISHED, detail="crashed")
    harness.wait(60.0, reporting=["n1", "n2"])
    assert (harness.orders, running(harness)) == ([], True)
    assert "adopted-vm-off" in alarmed(harness)


def test_what_its_owner_starts_and_stops_is_followed() -> None:
    harness = adopted(RESTART)
    harness.guest("n1", "pet", GuestChange.STOPPED, detail="destroyed")
    harness.wait(60.0, reporting=["n1", "n2"])
    assert (phase(harness), running(harness), harness.orders) == (JobPhase.SHUT_OFF, False, [])
    harness.guest("n1", "pet", GuestChange.STARTED, event=2)
    harness.report("n1")
    assert (phase(harness), running(harness), harness.orders) == (JobPhase.RUNNING, True, [])


def test_a_vm_that_stopped_with_its_host_is_started_when_that_returns() -> None:
    harness = adopted()
    harness.wait(60.0, reporting=["n2"])
    harness.ask(ConfirmOff("c", "n1"))
    harness.wait(20.0, reporting=["n2"])
    assert (phase(harness), running(harness), harness.orders) == (JobPhase.SHUT_OFF, True, [])
    harness.boots["n1"] = "boot-2"
    harness.change("n1", "pet", state=VmState.CRASHED)
    harness.wait(40.0, reporting=["n1", "n2"])
    assert [kind for kind, _, _ in ordered(harness)] == [ActionKind.START]
    harness.report("n1")
    assert phase(harness) is JobPhase.RUNNING


def test_a_host_that_restarts_at_once_has_its_vm_started_again() -> None:
    harness = adopted()
    harness.boots["n1"] = "boot-2"
    harness.seqs["n1"] = 0
    harness.change("n1", "pet", state=VmState.CRASHED)
    harness.report("n1")
    harness.guest("n1", "pet", GuestChange.VANISHED)
    harness.wait(40.0, reporting=["n1", "n2"])
    assert [kind for kind, _, _ in ordered(harness)] == [ActionKind.START]


def test_an_owner_who_is_quicker_than_the_start_is_never_stopped() -> None:
    harness = adopted(RESTART)
    harness.guest("n1", "pet", GuestChange.ENDED)
    harness.report("n1")
    (start,) = harness.take_orders()
    harness.change("n1", "pet", state=VmState.RUNNING)  # by hand, of the old generation
    harness.result(start, Outcome.REFUSED)
    harness.wait(120.0, reporting=["n1", "n2"])
    assert [kind for kind, _, _ in ordered(harness) if kind is not ActionKind.SET_CPU] == []
    assert phase(harness) is JobPhase.RUNNING


def test_what_is_wanted_survives_the_controller() -> None:
    harness = adopted(VmTerms(moves_per_day=3), state=VmState.ENDED)
    second = ControllerHarness(store=harness.store)
    second.now_s, second.seqs, second.vms = harness.now_s, harness.seqs, harness.vms
    second.carry(second.controller.start(second.now_s))
    for name in second.nodes:
        second.report(name)
    entry = second.controller.cluster.jobs["pet"]
    assert entry.terms == VmTerms(running=False, moves_per_day=3)
    assert (entry.taken, entry.phase) == (True, JobPhase.SHUT_OFF)
    second.ask(PowerVm("s", "pet", True))
    assert [action.kind for action in second.obey()] == [ActionKind.START]


def test_a_drain_moves_it_and_does_not_stop_it() -> None:
    harness = adopted()
    harness.ask(DrainNode("d", "n1", True))
    harness.wait(20.0, reporting=["n1", "n2"])
    assert {kind for kind, _, _ in ordered(harness)} <= {ActionKind.MIGRATE, ActionKind.SET_CPU}
