"""What operators ask for of running jobs and VMs: held, moved, adopted, let go, or refused with the numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from daemons.controller.views.alarms import alarms
from daemons.values.settings import PolicyChoice
from shared.protocol.operator_messages import (
    AdoptVm,
    CancelJob,
    ConfirmOff,
    DrainNode,
    ForgetVm,
    HoldJob,
    MoveVm,
    Query,
    SetDeciding,
    SubmitJob,
)
from shared.values.actions import ActionKind, GuestChange, Outcome
from shared.values.jobs import JobPhase
from shared.values.vms import VmState, VmStatus
from tests.support.controller_harness import ControllerHarness, job

STRANGER = VmStatus("web-7", VmState.RUNNING, memory_mib=500, vcpus=2, cpu_mhz=700.0, managed=False)


def running(*jobs: object, **settings: object) -> ControllerHarness:
    """A cluster on which the jobs run."""
    desk = ControllerHarness(**settings).lead()  # type: ignore[arg-type]
    for number, each in enumerate(jobs or (job(),)):
        desk.ask(SubmitJob(f"r{number}", each))  # type: ignore[arg-type]
    desk.obey()
    return desk


def phase(desk: ControllerHarness, name: str = "j") -> JobPhase:
    return desk.controller.cluster.jobs[name].phase


def kinds(desk: ControllerHarness) -> list[tuple[ActionKind, str]]:
    return [(action.kind, action.vm) for action in desk.take_orders()]


def cycle(desk: ControllerHarness) -> None:
    desk.wait(905.0, reporting=["n1", "n2"])


# --- hold ------------------------------------------------------------------------------------------------------------


def test_a_held_job_is_suspended_and_stays_so_until_it_is_released() -> None:
    desk = running()
    assert desk.ask(HoldJob("h", "j", True)).done
    assert [action.kind for action in desk.obey()] == [ActionKind.SUSPEND]
    cycle(desk)
    assert desk.orders == []
    assert desk.store.get(("job", "j")).held
    assert desk.ask(HoldJob("u", "j", False)).done
    assert kinds(desk) == [(ActionKind.RESUME, "j#0")]


def test_a_hold_survives_the_controller() -> None:
    desk = running()
    desk.ask(HoldJob("h", "j", True))
    desk.obey()
    second = ControllerHarness(store=desk.store)
    second.now_s, second.seqs, second.vms = desk.now_s, desk.seqs, desk.vms
    second.carry(second.controller.start(second.now_s))
    for name in second.nodes:
        second.report(name)
    cycle(second)
    assert second.orders == []
    assert phase(second) is JobPhase.SUSPENDED


def test_a_held_job_that_waits_is_not_started() -> None:
    desk = ControllerHarness().lead()
    desk.ask(SetDeciding("p", False))
    desk.ask(SubmitJob("r", job()))
    desk.ask(HoldJob("h", "j", True))
    desk.ask(SetDeciding("u", True))
    cycle(desk)
    assert desk.orders == []
    desk.ask(HoldJob("x", "j", False))
    assert kinds(desk) == [(ActionKind.START, "j#0")]


def test_holding_a_job_that_is_being_started_takes_it_back() -> None:
    desk = ControllerHarness().lead()
    desk.ask(SubmitJob("r", job(instances=2, memory_mib=3000)))
    first, second = desk.take_orders()
    desk.result(first)
    desk.ask(HoldJob("h", "j", True))
    desk.result(second)
    assert sorted(kinds(desk)) == [(ActionKind.STOP, "j#0"), (ActionKind.STOP, "j#1")]
    assert phase(desk) is JobPhase.WAITING


def test_a_hold_that_is_repeated_late_does_not_hold_again() -> None:
    desk = running()
    desk.ask(HoldJob("h", "j", True))
    desk.obey()
    desk.ask(HoldJob("u", "j", False))
    assert desk.ask(HoldJob("h", "j", True)).done
    assert not desk.controller.cluster.jobs["j"].held


def test_holds_are_refused_by_name() -> None:
    desk = running(job("nightly"))
    assert desk.ask(HoldJob("h", "nigthly", True)).detail == "there is no job 'nigthly'; nearest: 'nightly'"
    desk.ask(CancelJob("c", "nightly"))
    assert desk.ask(HoldJob("h2", "nightly", True)).code == "job-over"


# --- move ------------------------------------------------------------------------------------------------------------


def test_a_vm_is_moved_once_and_there_is_there() -> None:
    desk = running()
    assert desk.ask(MoveVm("m", "j#0", "n2")).done
    assert desk.ask(MoveVm("m", "j#0", "n2")).done
    (move,) = desk.take_orders()
    assert (move.kind, move.node, move.to_node) == (ActionKind.MIGRATE, "n1", "n2")
    desk.result(move)
    assert desk.ask(MoveVm("again", "j#0", "n2")).done
    assert desk.orders == []


def test_one_instance_of_a_gang_is_moved_alone() -> None:
    desk = running(job(instances=2, memory_mib=1500))
    assert desk.ask(MoveVm("m", "j#1", "n2")).done
    assert kinds(desk) == [(ActionKind.MIGRATE, "j#1")]


def test_a_failed_move_leaves_the_vm_where_it_is() -> None:
    desk = running()
    desk.ask(MoveVm("m", "j#0", "n2"))
    (move,) = desk.take_orders()
    desk.result(move, Outcome.FAILED)
    cycle(desk)
    assert desk.orders == []
    assert desk.controller.cluster.jobs["j"].allotments[0].node == "n1"


def test_moves_that_cannot_be_are_refused_with_the_numbers() -> None:
    desk = running(job("a", memory_mib=3000), job("b", memory_mib=3000), job("s", instances=2, separate=True))
    refused = desk.ask(MoveVm("1", "a#0", "n2"))
    assert (refused.code, refused.detail) == ("no-memory", "it needs 3000 MiB, 0 MiB are free on 'n2'")
    assert desk.ask(MoveVm("2", "s#0", "n2")).code == "not-separate"
    assert desk.ask(MoveVm("3", "a#0", "n3")).detail == "there is no node 'n3'; nearest: 'n2', 'n1'"
    assert desk.ask(MoveVm("4", "a#1", "n2")).code == "unknown-vm"
    desk.ask(HoldJob("h", "a", True))
    assert desk.ask(MoveVm("5", "a#0", "n2")).code == "vm-not-running"
    assert [action.kind for action in desk.obey()] == [ActionKind.SUSPEND]


def test_a_move_onto_a_node_that_takes_no_vms_is_refused() -> None:
    desk = running(job("a"))
    desk.ask(DrainNode("d", "n2", True))
    assert desk.ask(MoveVm("m", "a#0", "n2")).code == "node-not-schedulable"


def test_a_move_needs_labels_and_cpu() -> None:
    desk = ControllerHarness()
    desk.nodes["n1"] = replace(desk.nodes["n1"], labels=("ssd",), core_mhz=2000.0)
    desk.lead()
    desk.ask(SubmitJob("r", job("a", needs=("ssd",))))
    fast = replace(job("f"), stages=(replace(job().stages[0], max_mhz=2000.0),), needs=("ssd",))
    desk.ask(SubmitJob("r2", fast))
    desk.obey()
    assert desk.ask(MoveVm("1", "a#0", "n2")).code == "labels"
    desk.nodes["n2"] = replace(desk.nodes["n2"], labels=("ssd",))
    desk.report("n2")
    refused = desk.ask(MoveVm("2", "f#0", "n2"))
    assert (refused.code, "1000 MHz is the most" in refused.detail) == ("no-cpu", True)


def test_a_vm_whose_gang_is_partly_unknown_is_not_moved() -> None:
    desk = running(job(instances=2, memory_mib=3000))
    desk.wait(30.0, reporting=["n1"])
    desk.take_orders()
    assert desk.ask(MoveVm("m", "j#0", "n2")).code == "vm-busy"


# --- adopt -----------------------------------------------------------------------------------------------------------


def with_stranger(**fields: object) -> ControllerHarness:
    desk = ControllerHarness().lead()
    desk.vms["n1"]["web-7"] = structs.replace(STRANGER, **fields)
    desk.report("n1")
    return desk


def test_a_vm_that_is_not_ours_becomes_a_job_and_is_shut_off_with_its_guest() -> None:
    desk = with_stranger()
    assert desk.ask(AdoptVm("a", "n1", "web-7", "web")).done
    assert desk.ask(AdoptVm("a", "n1", "web-7", "web")).done
    (adopt,) = desk.take_orders()
    assert (adopt.kind, adopt.node, adopt.vm, adopt.generation) == (ActionKind.ADOPT, "n1", "web-7", 1)
    desk.report("n1")  # it is not ours yet: nothing is lost
    desk.result(adopt)
    desk.report("n1")
    node = desk.controller.cluster.nodes["n1"]
    assert (node.unmanaged_mib, node.committed_mib, node.room_mib()) == (0.0, 500.0, 3500.0)
    cycle(desk)
    assert desk.orders == []
    desk.guest("n1", "web-7", GuestChange.ENDED)
    assert phase(desk, "web") is JobPhase.SHUT_OFF
    desk.report("n1")
    cycle(desk)
    assert desk.orders == []  # its definition is nobody's to remove, and it is its owner's to start
    assert alarms_of(desk) == [("adopted-vm-off", "web", "web-7 is shut off on n1")]
    assert desk.store.get(("job", "web")).phase is JobPhase.SHUT_OFF


@pytest.mark.parametrize("change", [GuestChange.ENDED, GuestChange.VANISHED, GuestChange.STOPPED])
def test_an_adopted_vm_that_its_owner_starts_again_is_ours_again(change: GuestChange) -> None:
    desk = adopted()
    desk.guest("n1", "web-7", change)
    desk.report("n1")
    assert phase(desk, "web") is JobPhase.SHUT_OFF
    desk.guest("n1", "web-7", GuestChange.STARTED, event=2)
    desk.report("n1")
    entry = desk.controller.cluster.jobs["web"]
    assert (entry.phase, entry.released, entry.allotments[0].node) == (JobPhase.RUNNING, True, "n1")
    assert (desk.orders, alarms_of(desk), entry.hands_off) == ([], [], None)


def test_an_adopted_vm_that_started_with_its_host_is_found_by_a_report() -> None:
    desk = adopted()
    desk.wait(60.0, reporting=["n2"])
    desk.ask(ConfirmOff("c", "n1"))
    assert phase(desk, "web") is JobPhase.SHUT_OFF
    desk.boots["n1"] = "boot-2"
    desk.change("n1", "web-7", state=VmState.CRASHED)
    desk.report("n1")
    assert alarms_of(desk) == [("adopted-vm-off", "web", "web-7 is shut off on n1")]
    desk.change("n1", "web-7", state=VmState.RUNNING)
    desk.wait(20.0, reporting=["n1", "n2"])
    assert (phase(desk, "web"), desk.orders, alarms_of(desk)) == (JobPhase.RUNNING, [], [])


def test_an_adopted_vm_that_ended_is_not_lost_before_a_report_says_what_is_left() -> None:
    desk = adopted()
    desk.wait(2.0, reporting=["n2"])
    desk.guest("n1", "web-7", GuestChange.ENDED)
    assert alarms_of(desk) == [("adopted-vm-off", "web", "web-7 is shut off on n1")]


def test_an_adopted_vm_that_is_defined_nowhere_is_an_alarm_until_it_is_let_go() -> None:
    desk = adopted()
    desk.guest("n1", "web-7", GuestChange.ENDED)
    del desk.vms["n1"]["web-7"]
    desk.wait(20.0, reporting=["n1", "n2"])
    ((what, subject, _detail),) = alarms_of(desk)
    assert (what, subject) == ("adopted-vm-lost", "web")
    assert desk.ask(ForgetVm("f", "web")).done
    assert (phase(desk, "web"), alarms_of(desk), desk.orders) == (JobPhase.FORGOTTEN, [], [])


def test_an_adopted_vm_that_is_shut_off_is_let_go_as_it_is() -> None:
    desk = adopted()
    desk.guest("n1", "web-7", GuestChange.ENDED)
    desk.report("n1")
    assert desk.ask(HoldJob("h", "web", True)).code == "job-not-running"
    assert desk.ask(ForgetVm("f", "web")).done
    (release,) = desk.take_orders()
    assert (release.kind, release.vm, release.node, release.expects) == (ActionKind.RELEASE, "web-7", "n1", 1)
    desk.result(release)
    cycle(desk)
    assert (desk.orders, alarms_of(desk)) == ([], [])


def test_cancelling_an_adopted_job_lets_its_vm_go_and_ends_nothing() -> None:
    desk = adopted()
    assert desk.ask(CancelJob("c", "web")).done
    assert [action.kind for action in desk.obey()] == [ActionKind.RELEASE]
    assert (phase(desk, "web"), desk.vms["n1"]["web-7"].state) == (JobPhase.FORGOTTEN, VmState.RUNNING)


def adopted() -> ControllerHarness:
    desk = with_stranger()
    desk.ask(AdoptVm("a", "n1", "web-7", "web"))
    desk.obey()
    desk.report("n1")
    return desk


def alarms_of(desk: ControllerHarness) -> list[tuple[str, str, str]]:
    """Those about jobs and VMs."""
    found = alarms(desk.controller.queries.tables, desk.now_s)
    return [(one["what"], one["subject"], one["detail"]) for one in found if not str(one["subject"]).startswith("n")]


def test_an_adopted_vm_is_moved_and_held_like_any_other() -> None:
    desk = with_stranger()
    desk.ask(AdoptVm("a", "n1", "web-7", "web"))
    desk.obey()
    desk.ask(MoveVm("m", "web-7", "n2"))
    assert [action.kind for action in desk.obey()] == [ActionKind.MIGRATE]
    desk.ask(HoldJob("h", "web", True))
    assert [action.kind for action in desk.obey()] == [ActionKind.SUSPEND]
    desk.ask(HoldJob("u", "web", False))
    assert [action.kind for action in desk.obey()] == [ActionKind.RESUME]


@pytest.mark.parametrize("outcome", [Outcome.NO_SUCH_VM, Outcome.REFUSED])
def test_an_adoption_that_fails_ends_the_job_and_touches_nothing(outcome: Outcome) -> None:
    desk = with_stranger()
    desk.ask(AdoptVm("a", "n1", "web-7", "web"))
    (adopt,) = desk.take_orders()
    desk.result(adopt, outcome)
    cycle(desk)
    assert desk.orders == []
    assert phase(desk, "web") is JobPhase.FORGOTTEN
    assert desk.happenings("adoption-failed")


def test_an_adopted_vm_that_is_lost_is_not_started_anew() -> None:
    desk = with_stranger()
    desk.ask(AdoptVm("a", "n1", "web-7", "web"))
    desk.obey()
    desk.wait(60.0, reporting=["n2"])
    assert desk.orders == []  # its node is silent: it is not known to be lost
    desk.ask(ConfirmOff("c", "n1"))
    desk.wait(20.0, reporting=["n2"])
    assert desk.orders == []
    assert phase(desk, "web") is JobPhase.SHUT_OFF


def test_an_adopted_job_survives_the_controller() -> None:
    desk = with_stranger()
    desk.ask(AdoptVm("a", "n1", "web-7", "web"))
    desk.obey()
    second = ControllerHarness(store=desk.store)
    second.now_s, second.seqs, second.vms = desk.now_s, desk.seqs, desk.vms
    second.carry(second.controller.start(second.now_s))
    for name in second.nodes:
        second.report(name)
    cycle(second)
    assert second.orders == []
    assert second.controller.cluster.instances["web-7"].may_run_on == {"n1"}


def test_a_vm_of_ours_whose_job_is_not_known_is_taken_up_as_it_is() -> None:
    desk = with_stranger(managed=True, generation=4, attempt=2)
    assert desk.ask(AdoptVm("a", "n1", "web-7", "web")).done
    assert desk.orders == []
    cycle(desk)
    assert desk.orders == []
    entry = desk.controller.cluster.jobs["web"]
    assert (entry.phase, entry.released, entry.attempt) == (JobPhase.RUNNING, True, 2)
    desk.ask(CancelJob("c", "web"))
    (release,) = desk.take_orders()
    assert (release.kind, release.expects) == (ActionKind.RELEASE, 4)


def test_adoptions_that_cannot_be_are_refused() -> None:
    desk = running()
    desk.vms["n1"]["web-7"] = structs.replace(STRANGER, state=VmState.PAUSED)
    desk.report("n1")
    assert desk.ask(AdoptVm("1", "n1", "web-7", "web")).code == "vm-not-running"
    assert desk.ask(AdoptVm("2", "n1", "web-8", "web")).detail.endswith("nearest: 'web-7'")
    assert desk.ask(AdoptVm("3", "n1", "j#0", "web")).code == "vm-known"
    assert desk.ask(AdoptVm("4", "n9", "web-7", "web")).code == "unknown-node"
    assert desk.ask(AdoptVm("5", "n1", "web-7", "j")).code == "duplicate-name"
    desk.vms["n1"]["web-7"] = STRANGER
    desk.report("n1")
    assert desk.ask(AdoptVm("6", "n1", "web-7", "not a name")).code == "invalid-value"
    desk.wait(60.0, reporting=["n2"])
    assert desk.ask(AdoptVm("7", "n1", "web-7", "web")).code == "node-not-usable"
    assert list(desk.controller.cluster.jobs) == ["j"]


# --- forget ----------------------------------------------------------------------------------------------------------


def test_a_forgotten_job_runs_on_and_is_counted_as_not_ours() -> None:
    desk = running(job(memory_mib=1500))
    assert desk.ask(ForgetVm("f", "j")).done
    assert desk.ask(ForgetVm("f2", "j")).done
    (release,) = desk.take_orders()
    assert (release.kind, release.vm, release.expects) == (ActionKind.RELEASE, "j#0", 1)
    desk.result(release)
    node = desk.controller.cluster.nodes["n1"]
    assert (phase(desk), node.unmanaged_mib, node.committed_mib) == (JobPhase.FORGOTTEN, 1500.0, 0.0)
    cycle(desk)
    assert (desk.orders, node.unmanaged_mib) == ([], 1500.0)
    assert desk.store.get(("job", "j")).phase is JobPhase.FORGOTTEN


def test_what_was_forgotten_can_be_adopted_under_another_name() -> None:
    desk = running(job(instances=2))
    desk.ask(ForgetVm("f", "j"))
    assert [action.kind for action in desk.obey()] == [ActionKind.RELEASE] * 2
    desk.report("n1")
    assert desk.ask(AdoptVm("a", "n1", "j#0", "k")).done
    assert [(action.kind, action.vm) for action in desk.obey()] == [(ActionKind.ADOPT, "j#0")]
    cycle(desk)
    assert desk.orders == []
    assert desk.ask(SubmitJob("s", job("j"))).code == "duplicate-name"


def test_the_name_of_an_adopted_vm_is_not_given_away() -> None:
    desk = ControllerHarness().lead()
    desk.vms["n1"]["x#0"] = structs.replace(STRANGER, vm="x#0")
    desk.report("n1")
    desk.ask(AdoptVm("a", "n1", "x#0", "web"))
    desk.obey()
    refused = desk.ask(SubmitJob("s", job("x")))
    assert (refused.code, "x#0" in refused.detail) == ("duplicate-name", True)


def test_only_running_jobs_are_forgotten() -> None:
    desk = running()
    desk.ask(HoldJob("h", "j", True))
    desk.obey()
    assert desk.ask(ForgetVm("f", "j")).code == "job-not-running"
    assert desk.ask(ForgetVm("f", "k")).code == "unknown-job"
    desk.ask(CancelJob("c", "j"))
    assert desk.ask(ForgetVm("g", "j")).code == "job-over"


def test_a_release_that_fails_is_tried_again_and_nothing_is_stopped() -> None:
    desk = running()
    desk.ask(ForgetVm("f", "j"))
    (release,) = desk.take_orders()
    desk.result(release, Outcome.FAILED)
    desk.wait(30.0, reporting=["n1", "n2"])
    assert kinds(desk) == [(ActionKind.RELEASE, "j#0")]


# --- after a restore -------------------------------------------------------------------------------------------------


def restored(**settings: object) -> ControllerHarness:
    """A controller on a store that says: observe only."""
    desk = running(job(memory_mib=3000), job("w", memory_mib=3000), job("next", memory_mib=3000))
    control = desk.store.get(("control", ""))
    desk.store.write(1, (replace(control, acting=False),))
    second = ControllerHarness(store=desk.store, **settings)  # type: ignore[arg-type]
    second.now_s, second.seqs, second.vms = desk.now_s, desk.seqs, desk.vms
    second.carry(second.controller.start(second.now_s))
    return second


def test_after_a_restore_nothing_is_ordered_or_fenced_until_told() -> None:
    desk = restored(fence_after_s=20.0)
    del desk.vms["n1"]["j#0"]  # not as the store says
    desk.ask(CancelJob("c", "w"))
    desk.wait(1000.0, reporting=["n1"])
    assert (desk.orders, desk.powers) == ([], [])
    assert phase(desk) is JobPhase.RUNNING
    desk.report("n2")
    assert desk.ask(SetDeciding("on", True)).done
    assert desk.store.get(("control", "")).acting
    assert (ActionKind.STOP, "w#0") in kinds(desk)


def test_while_it_observes_a_job_may_still_complete() -> None:
    desk = restored()
    for name in desk.nodes:
        desk.report(name)
    desk.guest("n1", "j#0", GuestChange.ENDED)
    assert phase(desk) is JobPhase.COMPLETED
    cycle(desk)
    assert desk.orders == []
    desk.ask(SetDeciding("on", True))
    assert kinds(desk) == [(ActionKind.START, "next#0")]


def test_switching_deciding_off_does_not_make_it_act() -> None:
    desk = restored(placement=PolicyChoice("edf"))
    desk.ask(SetDeciding("off", False))
    for name in desk.nodes:
        desk.report(name)
    cycle(desk)
    assert desk.orders == []
    assert not desk.store.get(("control", "")).acting


# --- adopted VMs on busy nodes ---------------------------------------------------------------------------------------


def busy(policy: str = "apc") -> ControllerHarness:
    """A node whose CPU is promised to four jobs, and a VM that somebody made and that uses 300 MHz of it."""
    desk = ControllerHarness(("n1",), placement=PolicyChoice(policy)).lead()
    for number in range(4):
        desk.ask(SubmitJob(f"r{number}", job(f"j{number}", memory_mib=500, work=1e7, goal_s=5e4)))
    desk.obey()
    desk.vms["n1"]["web-7"] = structs.replace(STRANGER, cpu_mhz=2_000.0)
    spend(desk, 60.0)
    return desk


def spend(desk: ControllerHarness, seconds: float, mhz: float = 300.0) -> None:
    """Let time pass in which the stranger uses so much CPU."""
    for _ in range(int(seconds // 5.0)):
        vm = desk.vms["n1"]["web-7"]
        desk.vms["n1"]["web-7"] = structs.replace(vm, cpu_time_s=vm.cpu_time_s + 5.0 * mhz / 1_000.0)
        desk.wait(5.0, reporting=["n1"])
        desk.obey()


def given(desk: ControllerHarness) -> dict[str, float]:
    jobs = desk.controller.cluster.jobs
    return {name: allotment.cpu_mhz for name, entry in jobs.items() for allotment in entry.allotments}


def test_a_vm_on_a_busy_node_is_adopted_with_what_it_uses_and_the_next_decision_shares() -> None:
    """Given a node without a free MHz, then a VM there is adopted, and keeps what it needs when all is divided."""
    desk = busy()
    node = desk.controller.cluster.nodes["n1"]
    assert node.committed_mhz == node.inventory.cpu_mhz == 4_000.0  # type: ignore[union-attr]
    assert desk.ask(AdoptVm("a", "n1", "web-7", "web")).done
    assert given(desk)["web"] == 400.0  # a quarter more, in whole steps
    desk.obey()
    spend(desk, 905.0)
    assert given(desk)["web"] == 400.0
    assert sum(given(desk).values()) == 4_000.0
    spend(desk, 1_000.0, mhz=900.0)
    assert given(desk)["web"] == 1_150.0
    assert sum(given(desk).values()) == 4_000.0


def test_only_memory_is_a_reason_not_to_adopt() -> None:
    desk = busy()
    desk.vms["n1"]["web-7"] = structs.replace(STRANGER, vcpus=64)
    desk.report("n1")
    assert desk.ask(AdoptVm("a", "n1", "web-7", "web")).done


@pytest.mark.parametrize("policy", ["apc", "edf"])
def test_no_decision_suspends_an_adopted_vm(policy: str) -> None:
    """Given a full node with an adopted VM and a job, when an urgent job comes, then the job gives way, not the VM."""
    desk = ControllerHarness(("n1",), placement=PolicyChoice(policy)).lead()
    desk.vms["n1"]["web-7"] = structs.replace(STRANGER, memory_mib=1_500)
    desk.report("n1")
    desk.ask(AdoptVm("a", "n1", "web-7", "web"))
    desk.ask(SubmitJob("r", job("late", memory_mib=1_500, goal_s=1e6)))
    desk.obey()
    spend(desk, 905.0)
    desk.ask(SubmitJob("s", job("soon", memory_mib=2_000, work=2e6, goal_s=desk.now_s + 4_000.0)))
    for _ in range(3):
        spend(desk, 905.0)
    assert phase(desk, "web") is JobPhase.RUNNING
    assert (phase(desk, "late"), phase(desk, "soon")) == (JobPhase.SUSPENDED, JobPhase.RUNNING)


def test_what_is_not_ours_counts_with_the_cpu_that_it_uses() -> None:
    """Given an unmanaged VM that uses 300 MHz, then a decision leaves it that and a quarter more."""
    desk = ControllerHarness(("n1",), placement=PolicyChoice("apc")).lead()
    desk.vms["n1"]["web-7"] = STRANGER
    spend(desk, 60.0)
    for number in range(4):
        desk.ask(SubmitJob(f"r{number}", job(f"j{number}", memory_mib=500, work=1e7, goal_s=5e4)))
    desk.obey()
    spend(desk, 905.0)
    assert sum(given(desk).values()) == 4_000.0 - 375.0
    (row,) = desk.ask(Query("q", "nodes")).data["nodes"]
    assert (row["cpu"]["unmanaged_mhz"], row["memory"]["unmanaged_mib"]) == (375.0, 500)


def test_an_adopted_vm_that_an_operator_suspended_comes_back_to_a_busy_node() -> None:
    """Given its image on a node whose CPU has been given to others meanwhile, when it may run again, then it does."""
    desk = busy()
    desk.ask(AdoptVm("a", "n1", "web-7", "web"))
    desk.obey()
    desk.ask(HoldJob("h", "web", True))
    desk.obey()
    desk.wait(905.0, reporting=["n1"])
    desk.obey()
    assert (phase(desk, "web"), sum(given(desk).values())) == (JobPhase.SUSPENDED, 4_000.0)
    desk.ask(HoldJob("u", "web", False))
    assert [(action.kind, action.node, action.cpu_mhz) for action in desk.orders] == [(ActionKind.RESUME, "n1", 400.0)]
    desk.obey()
    assert phase(desk, "web") is JobPhase.RUNNING
    spend(desk, 905.0)
    assert given(desk)["web"] == 400.0
    assert sum(given(desk).values()) == 4_000.0
