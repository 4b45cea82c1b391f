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
    HoldJob,
    MoveVm,
    Query,
    ReleaseVm,
    SetDeciding,
    SubmitJob,
)
from shared.values.actions import ActionKind, GuestChange, Outcome
from shared.values.jobs import JobPhase, Preference, PreferenceKind, Rules
from shared.values.vm_terms import VmAutomation, VmTerms
from shared.values.vms import VmState, VmStatus
from tests.support.controller_harness import ControllerHarness, job

STRANGER = VmStatus("web-7", VmState.RUNNING, memory_mib=500, vcpus=2, cpu_mhz=700.0, managed=False)


def running(*jobs: object, **settings: object) -> ControllerHarness:
    """A cluster on which the jobs run."""
    harness = ControllerHarness(**settings).lead()  # type: ignore[arg-type]
    for number, each in enumerate(jobs or (job(),)):
        harness.ask(SubmitJob(f"r{number}", each))  # type: ignore[arg-type]
    harness.obey()
    return harness


def phase(harness: ControllerHarness, name: str = "j") -> JobPhase:
    return harness.controller.cluster.jobs[name].phase


def kinds(harness: ControllerHarness) -> list[tuple[ActionKind, str]]:
    return [(action.kind, action.vm) for action in harness.take_orders()]


def cycle(harness: ControllerHarness) -> None:
    harness.wait(905.0, reporting=["n1", "n2"])


# --- hold ------------------------------------------------------------------------------------------------------------


def test_a_held_job_is_suspended_and_stays_so_until_it_is_released() -> None:
    harness = running()
    assert harness.ask(HoldJob("h", "j", True)).done
    assert [action.kind for action in harness.obey()] == [ActionKind.SUSPEND]
    cycle(harness)
    assert harness.orders == []
    assert harness.store.get(("job", "j")).held
    assert harness.ask(HoldJob("u", "j", False)).done
    assert kinds(harness) == [(ActionKind.RESUME, "j#0")]


def test_a_hold_survives_the_controller() -> None:
    harness = running()
    harness.ask(HoldJob("h", "j", True))
    harness.obey()
    second = ControllerHarness(store=harness.store)
    second.now_s, second.seqs, second.vms = harness.now_s, harness.seqs, harness.vms
    second.carry(second.controller.start(second.now_s))
    for name in second.nodes:
        second.report(name)
    cycle(second)
    assert second.orders == []
    assert phase(second) is JobPhase.SUSPENDED


def test_a_held_job_that_waits_is_not_started() -> None:
    harness = ControllerHarness().lead()
    harness.ask(SetDeciding("p", False))
    harness.ask(SubmitJob("r", job()))
    harness.ask(HoldJob("h", "j", True))
    harness.ask(SetDeciding("u", True))
    cycle(harness)
    assert harness.orders == []
    harness.ask(HoldJob("x", "j", False))
    assert kinds(harness) == [(ActionKind.START, "j#0")]


def test_holding_a_job_that_is_being_started_takes_it_back() -> None:
    harness = ControllerHarness().lead()
    harness.ask(SubmitJob("r", job(instances=2, memory_mib=3000)))
    first, second = harness.take_orders()
    harness.result(first)
    harness.ask(HoldJob("h", "j", True))
    harness.result(second)
    assert sorted(kinds(harness)) == [(ActionKind.STOP, "j#0"), (ActionKind.STOP, "j#1")]
    assert phase(harness) is JobPhase.WAITING


def test_a_hold_that_is_repeated_late_does_not_hold_again() -> None:
    harness = running()
    harness.ask(HoldJob("h", "j", True))
    harness.obey()
    harness.ask(HoldJob("u", "j", False))
    assert harness.ask(HoldJob("h", "j", True)).done
    assert not harness.controller.cluster.jobs["j"].held


def test_holds_are_refused_by_name() -> None:
    harness = running(job("nightly"))
    assert harness.ask(HoldJob("h", "nigthly", True)).detail == "there is no job 'nigthly'; nearest: 'nightly'"
    harness.ask(CancelJob("c", "nightly"))
    assert harness.ask(HoldJob("h2", "nightly", True)).code == "job-over"


# --- move ------------------------------------------------------------------------------------------------------------


def test_a_vm_is_moved_once_and_there_is_there() -> None:
    harness = running()
    assert harness.ask(MoveVm("m", "j#0", "n2")).done
    assert harness.ask(MoveVm("m", "j#0", "n2")).done
    (move,) = harness.take_orders()
    assert (move.kind, move.node, move.to_node) == (ActionKind.MIGRATE, "n1", "n2")
    harness.result(move)
    assert harness.ask(MoveVm("again", "j#0", "n2")).done
    assert harness.orders == []


def test_one_instance_of_a_gang_is_moved_alone() -> None:
    harness = running(job(instances=2, memory_mib=1500))
    assert harness.ask(MoveVm("m", "j#1", "n2")).done
    assert kinds(harness) == [(ActionKind.MIGRATE, "j#1")]


def test_a_failed_move_leaves_the_vm_where_it_is() -> None:
    harness = running()
    harness.ask(MoveVm("m", "j#0", "n2"))
    (move,) = harness.take_orders()
    harness.result(move, Outcome.FAILED)
    cycle(harness)
    assert harness.orders == []
    assert harness.controller.cluster.jobs["j"].allotments[0].node == "n1"


def test_moves_that_cannot_be_are_refused_with_the_numbers() -> None:
    harness = running(job("a", memory_mib=3000), job("b", memory_mib=3000), job("s", instances=2, spread=True))
    refused = harness.ask(MoveVm("1", "a#0", "n2"))
    assert (refused.code, refused.detail) == ("no-memory", "it needs 3000 MiB, 0 MiB are free on 'n2'")
    assert harness.ask(MoveVm("2", "s#0", "n2")).code == "not-separate"
    assert harness.ask(MoveVm("3", "a#0", "n3")).detail == "there is no node 'n3'; nearest: 'n2', 'n1'"
    assert harness.ask(MoveVm("4", "a#1", "n2")).code == "unknown-vm"
    harness.ask(HoldJob("h", "a", True))
    assert harness.ask(MoveVm("5", "a#0", "n2")).code == "vm-not-running"
    assert [action.kind for action in harness.obey()] == [ActionKind.SUSPEND]


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        (Rules(node_affinity=("n1",)), "node_affinity"),
        (Rules(node_anti_affinity=("n2",)), "node_anti_affinity"),
        (Rules(label_anti_affinity=("ssd",)), "label_anti_affinity"),
        (Rules(label_affinity=("rack=r", "hdd")), "label_affinity"),
        (Rules(label_affinity=("rack=r", "ssd")), ""),
        (Rules(vm_anti_affinity=("other",)), "anti_affinity"),
        (Rules(vm_anti_affinity=("other",), anti_affinity_scope="rack"), "anti_affinity"),
        (Rules(vm_affinity=("near",)), "affinity"),
        (Rules(vm_affinity=("near",), affinity_scope="rack"), ""),
        (Rules(preferred=(Preference(PreferenceKind.ANTI_AFFINITY, "other"),)), ""),
        (Rules(no_migration=True), ""),
    ],
)
def test_a_move_obeys_required_rules(rules: Rules, name: str) -> None:
    """`other` runs on n2, `near` on n1; both nodes are in one rack, so that only one on n3 may be apart."""
    harness = ControllerHarness(nodes=("n1", "n2", "n3"))
    for node, labels in (("n1", ("rack=r",)), ("n2", ("rack=r", "ssd")), ("n3", ("rack=s",))):
        harness.nodes[node] = replace(harness.nodes[node], labels=labels)
    harness.lead()
    rack = rules.anti_affinity_scope == "rack"
    harness.ask(SubmitJob("o", job("other", rules=Rules(node_affinity=("n2",)))))
    harness.ask(SubmitJob("n", job("near", rules=Rules(node_affinity=("n1",)))))
    home = Rules(node_affinity=("n3",)) if rack else Rules(node_affinity=("n1",))
    harness.ask(SubmitJob("j", job("j", rules=home)))
    harness.obey()
    entry = harness.controller.cluster.jobs["j"]
    entry.job = replace(entry.job, rules=rules)
    answer = harness.ask(MoveVm("m", "j#0", "n2"))
    assert (answer.code, answer.done) == (("constraint", False) if name else ("", True))
    if name:
        assert f"a rule, {name}, forbids it" in answer.detail


def test_a_move_onto_a_node_that_takes_no_vms_is_refused() -> None:
    harness = running(job("a"))
    harness.ask(DrainNode("d", "n2", True))
    assert harness.ask(MoveVm("m", "a#0", "n2")).code == "node-not-schedulable"


def test_a_move_needs_labels_and_cpu() -> None:
    harness = ControllerHarness()
    harness.nodes["n1"] = replace(harness.nodes["n1"], labels=("ssd",), core_mhz=2000.0)
    harness.lead()
    harness.ask(SubmitJob("r", job("a", required_labels=("ssd",))))
    fast = replace(job("f"), stages=(replace(job().stages[0], max_mhz=2000.0),), required_labels=("ssd",))
    harness.ask(SubmitJob("r2", fast))
    harness.obey()
    assert harness.ask(MoveVm("1", "a#0", "n2")).code == "labels"
    harness.nodes["n2"] = replace(harness.nodes["n2"], labels=("ssd",))
    harness.report("n2")
    refused = harness.ask(MoveVm("2", "f#0", "n2"))
    assert (refused.code, "1000 MHz is the most" in refused.detail) == ("no-cpu", True)


def test_a_vm_whose_gang_is_partly_unknown_is_not_moved() -> None:
    harness = running(job(instances=2, memory_mib=3000))
    harness.wait(30.0, reporting=["n1"])
    harness.take_orders()
    assert harness.ask(MoveVm("m", "j#0", "n2")).code == "vm-busy"


# --- adopt -----------------------------------------------------------------------------------------------------------


def with_stranger(**fields: object) -> ControllerHarness:
    harness = ControllerHarness().lead()
    harness.vms["n1"]["web-7"] = structs.replace(STRANGER, **fields)
    harness.report("n1")
    return harness


def test_a_vm_that_is_not_ours_becomes_a_job_and_is_shut_off_with_its_guest() -> None:
    harness = with_stranger()
    assert harness.ask(AdoptVm("a", "n1", "web-7", job="web")).done
    assert harness.ask(AdoptVm("a", "n1", "web-7", job="web")).done
    (adopt,) = harness.take_orders()
    assert (adopt.kind, adopt.node, adopt.vm, adopt.generation) == (ActionKind.ADOPT, "n1", "web-7", 1)
    harness.report("n1")  # it is not ours yet: nothing is lost
    harness.result(adopt)
    harness.report("n1")
    node = harness.controller.cluster.nodes["n1"]
    assert (node.unmanaged_mib, node.committed_mib, node.room_mib()) == (0.0, 500.0, 3500.0)
    cycle(harness)
    assert harness.orders == []
    harness.guest("n1", "web-7", GuestChange.ENDED)
    assert phase(harness, "web") is JobPhase.SHUT_OFF
    harness.report("n1")
    cycle(harness)
    assert harness.orders == []  # its definition is nobody's to remove, and its guest wanted it off
    assert alarms_of(harness) == []
    assert harness.store.get(("job", "web")).phase is JobPhase.SHUT_OFF


@pytest.mark.parametrize("automation", [VmAutomation.OFF, VmAutomation.AUTO])
def test_adoption_sets_no_cpu(automation: VmAutomation) -> None:
    harness = with_stranger()
    harness.wait(10.0, reporting=["n2"])
    harness.change("n1", "web-7", cpu_time_s=1.0)
    harness.report("n1")
    assert harness.ask(AdoptVm("a", "n1", "web-7", job="web", terms=VmTerms(automation=automation))).done
    (adopt,) = harness.take_orders()
    (allotment,) = harness.controller.cluster.jobs["web"].allotments
    assert adopt.spec is not None
    assert adopt.spec.cpu_mhz == allotment.cpu_mhz != STRANGER.cpu_mhz
    harness.result(adopt)
    assert harness.orders == []
    cycle(harness)
    assert harness.orders == []


@pytest.mark.parametrize("change", [GuestChange.ENDED, GuestChange.VANISHED, GuestChange.STOPPED])
def test_an_adopted_vm_that_its_owner_starts_again_is_ours_again(change: GuestChange) -> None:
    harness = adopted()
    harness.guest("n1", "web-7", change)
    harness.report("n1")
    assert phase(harness, "web") is JobPhase.SHUT_OFF
    harness.guest("n1", "web-7", GuestChange.STARTED, event=2)
    harness.report("n1")
    entry = harness.controller.cluster.jobs["web"]
    assert (entry.phase, entry.released, entry.allotments[0].node) == (JobPhase.RUNNING, True, "n1")
    assert (harness.orders, alarms_of(harness), entry.reconciliation_paused) == ([], [], None)


def test_an_adopted_vm_that_started_with_its_host_is_found_by_a_report() -> None:
    harness = adopted()
    harness.wait(60.0, reporting=["n2"])
    harness.ask(ConfirmOff("c", "n1"))
    assert phase(harness, "web") is JobPhase.SHUT_OFF
    harness.boots["n1"] = "boot-2"
    harness.change("n1", "web-7", state=VmState.RUNNING)
    harness.wait(20.0, reporting=["n1", "n2"])
    assert (phase(harness, "web"), harness.orders, alarms_of(harness)) == (JobPhase.RUNNING, [], [])


def test_an_adopted_vm_that_ended_is_not_lost_before_a_report_says_what_is_left() -> None:
    harness = adopted()
    harness.wait(2.0, reporting=["n2"])
    harness.guest("n1", "web-7", GuestChange.VANISHED, detail="crashed")
    assert alarms_of(harness) == [("adopted-vm-off", "web", "web-7 is shut off on n1")]


def test_an_adopted_vm_that_is_defined_nowhere_is_an_alarm_until_it_is_let_go() -> None:
    harness = adopted()
    harness.guest("n1", "web-7", GuestChange.ENDED)
    del harness.vms["n1"]["web-7"]
    harness.wait(20.0, reporting=["n1", "n2"])
    ((what, subject, _detail),) = alarms_of(harness)
    assert (what, subject) == ("adopted-vm-lost", "web")
    assert harness.ask(ReleaseVm("f", "web")).done
    assert (phase(harness, "web"), alarms_of(harness), harness.orders) == (JobPhase.FORGOTTEN, [], [])


def test_an_adopted_vm_that_is_shut_off_is_let_go_as_it_is() -> None:
    harness = adopted()
    harness.guest("n1", "web-7", GuestChange.ENDED)
    harness.report("n1")
    assert harness.ask(HoldJob("h", "web", True)).code == "job-not-running"
    assert harness.ask(ReleaseVm("f", "web")).done
    (release,) = harness.take_orders()
    assert (release.kind, release.vm, release.node, release.expects) == (ActionKind.RELEASE, "web-7", "n1", 1)
    harness.result(release)
    cycle(harness)
    assert (harness.orders, alarms_of(harness)) == ([], [])


def test_a_report_that_overtakes_the_answer_to_a_release_counts() -> None:
    harness = adopted()
    harness.guest("n1", "web-7", GuestChange.ENDED)
    harness.report("n1")
    assert harness.ask(ReleaseVm("f", "web")).done
    (release,) = harness.take_orders()
    harness.vms["n1"]["web-7"] = structs.replace(harness.vms["n1"]["web-7"], managed=False)
    harness.report("n1")
    assert "web-7" not in harness.controller.cluster.nodes["n1"].vms
    harness.result(release)
    cycle(harness)
    assert harness.orders == []


def test_cancelling_an_adopted_job_lets_its_vm_go_and_ends_nothing() -> None:
    harness = adopted()
    assert harness.ask(CancelJob("c", "web")).done
    assert [action.kind for action in harness.obey()] == [ActionKind.RELEASE]
    assert (phase(harness, "web"), harness.vms["n1"]["web-7"].state) == (JobPhase.FORGOTTEN, VmState.RUNNING)


def adopted() -> ControllerHarness:
    harness = with_stranger()
    harness.ask(AdoptVm("a", "n1", "web-7", job="web"))
    harness.obey()
    harness.report("n1")
    return harness


def alarms_of(harness: ControllerHarness) -> list[tuple[str, str, str]]:
    """Those about jobs and VMs."""
    found = alarms(harness.controller.queries.tables, harness.now_s)
    return [(one["what"], one["subject"], one["detail"]) for one in found if not str(one["subject"]).startswith("n")]


def test_an_adopted_vm_is_moved_and_held_like_any_other() -> None:
    harness = with_stranger()
    harness.ask(AdoptVm("a", "n1", "web-7", job="web"))
    harness.obey()
    harness.ask(MoveVm("m", "web-7", "n2"))
    assert [action.kind for action in harness.obey()] == [ActionKind.MIGRATE]
    harness.ask(HoldJob("h", "web", True))
    assert [action.kind for action in harness.obey()] == [ActionKind.SUSPEND]
    harness.ask(HoldJob("u", "web", False))
    assert [action.kind for action in harness.obey()] == [ActionKind.RESUME]


@pytest.mark.parametrize("outcome", [Outcome.NO_SUCH_VM, Outcome.REFUSED])
def test_an_adoption_that_fails_ends_the_job_and_touches_nothing(outcome: Outcome) -> None:
    harness = with_stranger()
    harness.ask(AdoptVm("a", "n1", "web-7", job="web"))
    (adopt,) = harness.take_orders()
    harness.result(adopt, outcome)
    cycle(harness)
    assert harness.orders == []
    assert phase(harness, "web") is JobPhase.FORGOTTEN
    assert harness.happenings("adoption-failed")


def test_an_adopted_vm_that_is_lost_is_not_started_anew() -> None:
    harness = with_stranger()
    harness.ask(AdoptVm("a", "n1", "web-7", job="web"))
    harness.obey()
    harness.wait(60.0, reporting=["n2"])
    assert harness.orders == []  # its node is silent: it is not known to be lost
    harness.ask(ConfirmOff("c", "n1"))
    harness.wait(20.0, reporting=["n2"])
    assert harness.orders == []
    assert phase(harness, "web") is JobPhase.SHUT_OFF


def test_an_adopted_job_survives_the_controller() -> None:
    harness = with_stranger()
    harness.ask(AdoptVm("a", "n1", "web-7", job="web"))
    harness.obey()
    second = ControllerHarness(store=harness.store)
    second.now_s, second.seqs, second.vms = harness.now_s, harness.seqs, harness.vms
    second.carry(second.controller.start(second.now_s))
    for name in second.nodes:
        second.report(name)
    cycle(second)
    assert second.orders == []
    assert second.controller.cluster.instances["web-7"].may_run_on == {"n1"}


def test_a_vm_of_ours_whose_job_is_not_known_is_taken_up_as_it_is() -> None:
    harness = with_stranger(managed=True, generation=4, attempt=2)
    assert harness.ask(AdoptVm("a", "n1", "web-7", job="web")).done
    assert harness.orders == []
    cycle(harness)
    assert harness.orders == []
    entry = harness.controller.cluster.jobs["web"]
    assert (entry.phase, entry.released, entry.attempt) == (JobPhase.RUNNING, True, 2)
    harness.ask(CancelJob("c", "web"))
    (release,) = harness.take_orders()
    assert (release.kind, release.expects) == (ActionKind.RELEASE, 4)


def test_adoptions_that_cannot_be_are_refused() -> None:
    harness = running()
    harness.vms["n1"]["web-7"] = structs.replace(STRANGER, state=VmState.PAUSED)
    harness.report("n1")
    assert harness.ask(AdoptVm("1", "n1", "web-7", job="web")).code == "vm-not-adoptable"
    assert harness.ask(AdoptVm("2", "n1", "web-8", job="web")).detail.endswith("nearest: 'web-7'")
    assert harness.ask(AdoptVm("3", "n1", "j#0", job="web")).code == "vm-known"
    assert harness.ask(AdoptVm("4", "n9", "web-7", job="web")).code == "unknown-node"
    assert harness.ask(AdoptVm("5", "n1", "web-7", job="j")).code == "duplicate-name"
    harness.vms["n1"]["web-7"] = STRANGER
    harness.report("n1")
    assert harness.ask(AdoptVm("6", "n1", "web-7", job="not a name")).code == "invalid-value"
    harness.wait(60.0, reporting=["n2"])
    assert harness.ask(AdoptVm("7", "n1", "web-7", job="web")).code == "node-not-usable"
    assert list(harness.controller.cluster.jobs) == ["j"]


# --- forget ----------------------------------------------------------------------------------------------------------


def test_a_forgotten_job_runs_on_and_is_counted_as_not_ours() -> None:
    harness = running(job(memory_mib=1500))
    assert harness.ask(ReleaseVm("f", "j")).done
    assert harness.ask(ReleaseVm("f2", "j")).done
    (release,) = harness.take_orders()
    assert (release.kind, release.vm, release.expects) == (ActionKind.RELEASE, "j#0", 1)
    harness.result(release)
    node = harness.controller.cluster.nodes["n1"]
    assert (phase(harness), node.unmanaged_mib, node.committed_mib) == (JobPhase.FORGOTTEN, 1500.0, 0.0)
    cycle(harness)
    assert (harness.orders, node.unmanaged_mib) == ([], 1500.0)
    assert harness.store.get(("job", "j")).phase is JobPhase.FORGOTTEN


def test_what_was_forgotten_can_be_adopted_under_another_name() -> None:
    harness = running(job(instances=2))
    harness.ask(ReleaseVm("f", "j"))
    assert [action.kind for action in harness.obey()] == [ActionKind.RELEASE] * 2
    harness.report("n1")
    assert harness.ask(AdoptVm("a", "n1", "j#0", job="k")).done
    assert [(action.kind, action.vm) for action in harness.obey()] == [(ActionKind.ADOPT, "j#0")]
    cycle(harness)
    assert harness.orders == []
    assert harness.ask(SubmitJob("s", job("j"))).code == "duplicate-name"


def test_the_name_of_an_adopted_vm_is_not_given_away() -> None:
    harness = ControllerHarness().lead()
    harness.vms["n1"]["x#0"] = structs.replace(STRANGER, vm="x#0")
    harness.report("n1")
    harness.ask(AdoptVm("a", "n1", "x#0", job="web"))
    harness.obey()
    refused = harness.ask(SubmitJob("s", job("x")))
    assert (refused.code, "x#0" in refused.detail) == ("duplicate-name", True)


def test_only_running_jobs_are_forgotten() -> None:
    harness = running()
    harness.ask(HoldJob("h", "j", True))
    harness.obey()
    assert harness.ask(ReleaseVm("f", "j")).code == "job-not-running"
    assert harness.ask(ReleaseVm("f", "k")).code == "unknown-job"
    harness.ask(CancelJob("c", "j"))
    assert harness.ask(ReleaseVm("g", "j")).code == "job-over"


def test_a_release_that_fails_is_tried_again_and_nothing_is_stopped() -> None:
    harness = running()
    harness.ask(ReleaseVm("f", "j"))
    (release,) = harness.take_orders()
    harness.result(release, Outcome.FAILED)
    harness.wait(30.0, reporting=["n1", "n2"])
    assert kinds(harness) == [(ActionKind.RELEASE, "j#0")]


# --- after a restore -------------------------------------------------------------------------------------------------


def restored(**settings: object) -> ControllerHarness:
    """A controller on a store that says: observe only."""
    harness = running(job(memory_mib=3000), job("w", memory_mib=3000), job("next", memory_mib=3000))
    control = harness.store.get(("control", ""))
    harness.store.write(1, (replace(control, acting=False),))
    second = ControllerHarness(store=harness.store, **settings)  # type: ignore[arg-type]
    second.now_s, second.seqs, second.vms = harness.now_s, harness.seqs, harness.vms
    second.carry(second.controller.start(second.now_s))
    return second


def test_after_a_restore_nothing_is_ordered_or_fenced_until_told() -> None:
    harness = restored(fence_after_s=20.0)
    del harness.vms["n1"]["j#0"]  # not as the store says
    harness.ask(CancelJob("c", "w"))
    harness.wait(1000.0, reporting=["n1"])
    assert (harness.orders, harness.powers) == ([], [])
    assert phase(harness) is JobPhase.RUNNING
    harness.report("n2")
    assert harness.ask(SetDeciding("on", True)).done
    assert harness.store.get(("control", "")).acting
    assert (ActionKind.STOP, "w#0") in kinds(harness)


def test_while_it_observes_a_job_may_still_complete() -> None:
    harness = restored()
    for name in harness.nodes:
        harness.report(name)
    harness.guest("n1", "j#0", GuestChange.ENDED)
    assert phase(harness) is JobPhase.COMPLETED
    cycle(harness)
    assert harness.orders == []
    harness.ask(SetDeciding("on", True))
    assert kinds(harness) == [(ActionKind.START, "next#0")]


def test_switching_deciding_off_does_not_make_it_act() -> None:
    harness = restored(placement=PolicyChoice("edf"))
    harness.ask(SetDeciding("off", False))
    for name in harness.nodes:
        harness.report(name)
    cycle(harness)
    assert harness.orders == []
    assert not harness.store.get(("control", "")).acting


# --- adopted VMs on busy nodes ---------------------------------------------------------------------------------------


def busy(policy: str = "apc") -> ControllerHarness:
    """A node whose CPU is promised to four jobs, and a VM that somebody made and that uses 300 MHz of it."""
    harness = ControllerHarness(("n1",), placement=PolicyChoice(policy)).lead()
    for number in range(4):
        harness.ask(SubmitJob(f"r{number}", job(f"j{number}", memory_mib=500, work=1e7, goal_s=5e4)))
    harness.obey()
    harness.vms["n1"]["web-7"] = structs.replace(STRANGER, cpu_mhz=2_000.0)
    spend(harness, 60.0)
    return harness


def spend(harness: ControllerHarness, seconds: float, mhz: float = 300.0) -> None:
    """Let time pass in which the stranger uses so much CPU."""
    for _ in range(int(seconds // 5.0)):
        vm = harness.vms["n1"]["web-7"]
        harness.vms["n1"]["web-7"] = structs.replace(vm, cpu_time_s=vm.cpu_time_s + 5.0 * mhz / 1_000.0)
        harness.wait(5.0, reporting=["n1"])
        harness.obey()


def given(harness: ControllerHarness) -> dict[str, float]:
    jobs = harness.controller.cluster.jobs
    return {name: allotment.cpu_mhz for name, entry in jobs.items() for allotment in entry.allotments}


def test_a_vm_on_a_busy_node_is_adopted_with_what_it_uses_and_the_next_decision_shares() -> None:
    """Given a node without a free MHz, then a VM there is adopted, and keeps what it needs when all is divided."""
    harness = busy()
    node = harness.controller.cluster.nodes["n1"]
    assert node.committed_mhz == node.inventory.cpu_mhz == 4_000.0  # type: ignore[union-attr]
    assert harness.ask(AdoptVm("a", "n1", "web-7", job="web")).done
    assert given(harness)["web"] == 400.0  # a quarter more, in whole steps
    harness.obey()
    spend(harness, 905.0)
    assert given(harness)["web"] == 400.0
    assert sum(given(harness).values()) == 4_000.0
    spend(harness, 1_000.0, mhz=900.0)
    assert given(harness)["web"] == 1_150.0
    assert sum(given(harness).values()) == 4_000.0


def test_only_memory_is_a_reason_not_to_adopt() -> None:
    harness = busy()
    harness.vms["n1"]["web-7"] = structs.replace(STRANGER, vcpus=64)
    harness.report("n1")
    assert harness.ask(AdoptVm("a", "n1", "web-7", job="web")).done


@pytest.mark.parametrize("policy", ["apc", "edf"])
def test_no_decision_suspends_an_adopted_vm(policy: str) -> None:
    """Given a full node with an adopted VM and a job, when an urgent job comes, then the job gives way, not the VM."""
    harness = ControllerHarness(("n1",), placement=PolicyChoice(policy)).lead()
    harness.vms["n1"]["web-7"] = structs.replace(STRANGER, memory_mib=1_500)
    harness.report("n1")
    harness.ask(AdoptVm("a", "n1", "web-7", job="web"))
    harness.ask(SubmitJob("r", job("late", memory_mib=1_500, goal_s=1e6)))
    harness.obey()
    spend(harness, 905.0)
    harness.ask(SubmitJob("s", job("soon", memory_mib=2_000, work=2e6, goal_s=harness.now_s + 4_000.0)))
    for _ in range(3):
        spend(harness, 905.0)
    assert phase(harness, "web") is JobPhase.RUNNING
    assert (phase(harness, "late"), phase(harness, "soon")) == (JobPhase.SUSPENDED, JobPhase.RUNNING)


def test_what_is_not_ours_counts_with_the_cpu_that_it_uses() -> None:
    """Given an unmanaged VM that uses 300 MHz, then a decision leaves it that and a quarter more."""
    harness = ControllerHarness(("n1",), placement=PolicyChoice("apc")).lead()
    harness.vms["n1"]["web-7"] = STRANGER
    spend(harness, 60.0)
    for number in range(4):
        harness.ask(SubmitJob(f"r{number}", job(f"j{number}", memory_mib=500, work=1e7, goal_s=5e4)))
    harness.obey()
    spend(harness, 905.0)
    assert sum(given(harness).values()) == 4_000.0 - 375.0
    (row,) = harness.ask(Query("q", "nodes")).data["nodes"]
    assert (row["cpu"]["unmanaged_mhz"], row["memory"]["unmanaged_mib"]) == (375.0, 500)


def test_an_adopted_vm_that_an_operator_suspended_comes_back_to_a_busy_node() -> None:
    """Given its image on a node whose CPU has been given to others meanwhile, when it may run again, then it does."""
    harness = busy()
    harness.ask(AdoptVm("a", "n1", "web-7", job="web"))
    harness.obey()
    harness.ask(HoldJob("h", "web", True))
    harness.obey()
    harness.wait(905.0, reporting=["n1"])
    harness.obey()
    assert (phase(harness, "web"), sum(given(harness).values())) == (JobPhase.SUSPENDED, 4_000.0)
    harness.ask(HoldJob("u", "web", False))
    assert [(action.kind, action.node, action.cpu_mhz) for action in harness.orders] == [
        (ActionKind.RESUME, "n1", 400.0)
    ]
    harness.obey()
    assert phase(harness, "web") is JobPhase.RUNNING
    spend(harness, 905.0)
    assert given(harness)["web"] == 400.0
    assert sum(given(harness).values()) == 4_000.0
