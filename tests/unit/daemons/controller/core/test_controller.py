"""The controller's rules, told as conversations with its nodes, its store and its operators."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from daemons.controller.core.leadership import Leadership, Role
from daemons.controller.state.queries import failure_view
from daemons.values.settings import Automation, PolicyChoice
from shared.ports.effects import Exit, LeadTaken, PowerDone, Received, TakeLead
from shared.protocol.messages import Hello, Probe, Report, UnderWay
from shared.protocol.operator_messages import (
    ApprovePlan,
    CancelJob,
    ConfirmOff,
    DrainNode,
    HoldJob,
    RemoveNode,
    SetDeciding,
    SubmitJob,
)
from shared.values.actions import ActionKind, GuestChange, Outcome
from shared.values.jobs import JobPhase, Stage
from shared.values.nodes import NodeCondition, NodeSample
from shared.values.vms import VmState
from tests.support.controller_harness import ControllerHarness, job


def submitted(desk: ControllerHarness, *jobs: object) -> ControllerHarness:
    for number, each in enumerate(jobs):
        desk.ask(SubmitJob(f"r{number}", each))  # type: ignore[arg-type]
    return desk


def phase(desk: ControllerHarness, name: str = "j") -> JobPhase:
    return desk.controller.cluster.jobs[name].phase


def kinds(desk: ControllerHarness) -> list[tuple[ActionKind, str]]:
    return [(action.kind, action.node) for action in desk.take_orders()]


# --- leading ---------------------------------------------------------------------------------------------------------


def test_a_standby_says_nothing_until_its_own_probe_returns() -> None:
    desk = ControllerHarness()
    desk.say(SubmitJob("r", job()), "operator.x")
    assert (desk.orders, desk.replies, desk.acknowledged) == ([], [], [])
    desk.lead()
    assert desk.store.term == 1
    assert desk.replies[0].request == "r"  # what was held back is answered once it leads


def test_no_order_goes_to_a_node_before_it_has_echoed_the_term() -> None:
    desk = ControllerHarness().lead()
    second = ControllerHarness(store=desk.store)
    second.seqs = dict.fromkeys(second.nodes, 100)
    second.carry(second.controller.start(0.0))
    assert second.hellos == [("n1", Hello(2, 0)), ("n2", Hello(2, 0))]
    submitted(second, job())
    second.report("n1", term=1)
    assert second.orders == []
    second.report("n1")
    assert kinds(second) == [(ActionKind.START, "n1")]


def test_a_controller_that_hears_of_a_newer_term_or_cannot_write_ends() -> None:
    desk = ControllerHarness().lead()
    desk.store_fails = (True, "")
    desk.report("n1", term=7)
    assert "raised the term" in desk.exits[0]
    other = ControllerHarness().lead()
    other.store_fails = (True, "")
    submitted(other, job())
    assert other.exits
    assert other.orders == []
    assert len(other.replies) == 2  # the submission was not stored, so it is not answered


def test_who_is_given_the_lead_and_cannot_reach_the_store_gives_it_up() -> None:
    """Not at once, nor because of what was before another led."""
    lead, taker = Leadership("a", 2.0), Received(None, "controller.a", Probe("a", 1))

    def returned(now_s: float) -> list[type]:
        effects = lead.returned(taker, Probe("a", 1), now_s)
        if lead.role is Role.TAKING:
            assert not lead.taken(LeadTaken(0), now_s)
        return [type(effect) for effect in effects]

    assert [returned(at_s) for at_s in (0.0, 10.0, 16.0)] == [[TakeLead]] * 3
    assert [returned(100.0 + at_s) for at_s in range(0, 32, 2)] == [[TakeLead]] * 16
    assert returned(132.0) == [Exit]


def test_a_leader_whose_probes_stay_away_ends() -> None:
    desk = ControllerHarness().lead()
    lead = desk.controller.leadership
    for _ in range(4):
        assert not desk.exits
        desk.now_s += lead.probe_s
        desk.carry([effect for effect in lead.probe(desk.now_s) if isinstance(effect, Exit)])
    assert desk.exits


# --- life of a job ---------------------------------------------------------------------------------------------------


def test_a_job_is_started_measured_and_completed() -> None:
    desk = submitted(ControllerHarness().lead(), job())
    (start,) = desk.take_orders()
    assert (start.kind, start.node, start.term, start.boot_id) == (ActionKind.START, "n1", 1, "boot-1")
    desk.result(start)
    desk.change("n1", "j#0", cpu_time_s=300.0)
    desk.report("n1")
    assert desk.controller.cluster.jobs["j"].done_mcycles == 300.0 * 1000.0
    delivery = desk.guest("n1", "j#0", GuestChange.ENDED)
    assert phase(desk) is JobPhase.COMPLETED
    assert delivery in desk.acknowledged
    assert desk.store.get(("job", "j")).phase is JobPhase.COMPLETED
    assert [event.what for event in desk.events if event.subject == "j"] == [
        "job-submitted",
        "job-started",
        "job-completed",
    ]


def test_the_ledger_is_stored_before_an_order_leaves() -> None:
    desk = ControllerHarness().lead()
    desk.store_fails = (False, "disk full")
    submitted(desk, job())
    assert desk.orders == []
    assert "disk full" in desk.exits[0]


def test_a_gang_is_prepared_paused_then_released_together() -> None:
    desk = submitted(ControllerHarness().lead(), job(instances=3, memory_mib=2000))
    starts = desk.take_orders()
    assert [action.paused for action in starts] == [True, True, True]
    for action in starts[:2]:
        desk.result(action)
    assert desk.take_orders() == []
    desk.result(starts[2])
    assert [action.kind for action in desk.take_orders()] == [ActionKind.UNPAUSE] * 3


def test_a_gang_of_which_one_start_fails_is_taken_back_and_tried_again_later() -> None:
    desk = submitted(ControllerHarness().lead(), job(instances=2, memory_mib=3000))
    first, second = desk.take_orders()
    desk.result(first)
    desk.result(second, Outcome.REFUSED)
    assert phase(desk) is JobPhase.WAITING
    assert kinds(desk) == [(ActionKind.STOP, "n1")]


def test_a_gang_that_does_not_come_together_in_time_is_taken_back() -> None:
    desk = submitted(ControllerHarness(gang_timeout_s=60.0).lead(), job(instances=2, memory_mib=3000))
    first, _ = desk.take_orders()
    desk.result(first)
    desk.wait(59.0, reporting=["n1", "n2"])
    assert phase(desk) is JobPhase.RUNNING
    desk.wait(6.0, reporting=["n1", "n2"])
    assert phase(desk) is JobPhase.WAITING


def test_a_vm_that_vanishes_sets_the_job_back_to_its_checkpoint() -> None:
    desk = submitted(ControllerHarness().lead(), job(checkpoint_mcycles=60_000.0))
    desk.obey()
    desk.change("n1", "j#0", cpu_time_s=130.0)
    desk.report("n1")
    desk.guest("n1", "j#0", GuestChange.VANISHED)
    assert desk.take_orders() == [], "it may have been taken to a node that has not spoken since"
    desk.wait(5.0, reporting=["n1", "n2"])
    (again,) = desk.take_orders()
    assert again.kind is ActionKind.START
    assert again.spec is not None
    assert (again.spec.attempt, again.generation) == (2, 2)
    assert desk.controller.cluster.jobs["j"].done_mcycles == 120_000.0


def test_a_stalled_job_is_reported_once() -> None:
    desk = submitted(ControllerHarness(stall_after_s=100.0).lead(), job())
    desk.obey()
    desk.wait(300.0, reporting=["n1", "n2"])
    assert len(desk.happenings("job-stalled")) == 1
    desk.change("n1", "j#0", cpu_time_s=1.0)
    desk.wait(300.0, reporting=["n1", "n2"])
    assert len(desk.happenings("job-stalled")) == 2


def test_a_cancelled_job_is_stopped_everywhere() -> None:
    desk = submitted(ControllerHarness().lead(), job())
    desk.obey()
    assert desk.ask(CancelJob("c", "j")).done
    assert kinds(desk) == [(ActionKind.STOP, "n1")]
    assert desk.ask(CancelJob("c2", "nope")).code == "unknown-job"


# --- rule 5: never twice, never lost ---------------------------------------------------------------------------------


def silent_desk() -> ControllerHarness:
    desk = submitted(ControllerHarness().lead(), job())
    desk.obey()
    desk.wait(60.0, reporting=["n2"])
    return desk


def test_the_vms_of_a_silent_node_are_unknown_and_not_restarted() -> None:
    desk = silent_desk()
    assert desk.controller.cluster.nodes["n1"].condition is NodeCondition.UNKNOWN
    desk.wait(7200.0, reporting=["n2"])
    assert desk.orders == []


def test_confirm_off_restarts_them_elsewhere_and_the_old_boot_says_nothing_more() -> None:
    desk = silent_desk()
    assert desk.ask(ConfirmOff("c", "n2")).code == "node-up"
    assert desk.ask(ConfirmOff("c", "n1")).done
    (start,) = desk.take_orders()
    assert (start.kind, start.node) == (ActionKind.START, "n2")
    desk.report("n1", clock_s=50.0)  # late
    assert desk.controller.cluster.nodes["n1"].condition is NodeCondition.OFF


def test_a_node_wrongly_taken_for_off_gets_its_old_vm_stopped() -> None:
    desk = silent_desk()
    desk.ask(ConfirmOff("c", "n1"))
    desk.obey()
    desk.now_s += 10.0
    desk.report("n1")
    assert desk.happenings("off-node-reports")
    assert kinds(desk) == [(ActionKind.STOP, "n1")]


def test_a_power_driver_is_asked_and_only_its_proof_counts() -> None:
    desk = submitted(ControllerHarness(fence_after_s=30.0).lead(), job())
    desk.obey()
    desk.wait(60.0, reporting=["n2"])
    assert [(power.node, power.operation) for power in desk.powers] == [("n1", "fence")]
    desk.feed(PowerDone("n1", desk.powers[0].operation, False, "no answer"))
    assert desk.orders == []
    desk.wait(60.0, reporting=["n2"])
    assert len(desk.powers) > 1
    desk.feed(PowerDone("n1", desk.powers[0].operation, True))
    assert kinds(desk) == [(ActionKind.START, "n2")]


def test_a_report_that_does_not_know_of_an_order_under_way_proves_nothing() -> None:
    desk = submitted(ControllerHarness().lead(), job())
    (start,) = desk.take_orders()
    desk.report("n1")
    desk.report("n1", under_way=(UnderWay(start.id, start.kind, start.vm),))
    assert phase(desk) is JobPhase.RUNNING
    desk.now_s = start.expires_at_s + 1.0
    desk.report("n1", under_way=(UnderWay(start.id, start.kind, start.vm),))
    assert phase(desk) is JobPhase.RUNNING
    desk.report("n1")  # past its expiry, not begun, not there: it never will be
    assert phase(desk) is JobPhase.WAITING


def test_what_is_older_than_the_last_word_changes_nothing() -> None:
    desk = submitted(ControllerHarness().lead(), job())
    (start,) = desk.take_orders()
    empty_seq = desk.next_seq("n1")
    desk.result(start)
    desk.vms["n1"], kept = {}, desk.vms["n1"]
    desk.report("n1", seq=empty_seq)  # a report from before the start, late
    desk.vms["n1"] = kept
    assert desk.controller.cluster.instances["j#0"].may_run_on == {"n1"}
    assert desk.orders == []


def test_an_end_that_was_reported_by_an_earlier_attempt_counts_for_a_single_vm() -> None:
    desk = silent_desk()
    desk.ask(ConfirmOff("c", "n1"))
    desk.obey()
    desk.boots["n1"], desk.now_s = "boot-2", desk.now_s + 10.0
    desk.guest("n1", "j#0", GuestChange.ENDED)
    assert phase(desk) is JobPhase.COMPLETED
    assert kinds(desk) == [(ActionKind.STOP, "n2")]


def test_one_unknown_instance_pauses_the_rest_of_its_gang_until_it_is_known() -> None:
    desk = submitted(ControllerHarness().lead(), job(instances=2, memory_mib=3000))
    desk.obey()
    desk.wait(30.0, reporting=["n1"])
    (pause,) = desk.take_orders()
    assert (pause.kind, pause.node) == (ActionKind.PAUSE, "n1")
    desk.result(pause)
    desk.report("n2")
    assert kinds(desk) == [(ActionKind.UNPAUSE, "n1")]


def test_a_vm_of_no_known_job_is_counted_and_never_touched() -> None:
    desk = submitted(ControllerHarness().lead(), job())
    desk.obey()
    stray = structs.replace(desk.vms["n1"]["j#0"], vm="other#0", memory_mib=2500)
    desk.vms["n1"]["other#0"] = stray
    desk.report("n1")
    assert desk.orders == []
    assert len(desk.happenings("unknown-vm")) == 1
    assert desk.controller.cluster.nodes["n1"].room_mib() == 500.0


def test_reports_that_waited_do_not_make_a_clock_wrong() -> None:
    """A report says when it came; that it is heard late is the controller's doing."""
    desk = ControllerHarness(nodes=["n1"]).lead()
    for _ in range(20):
        said = (desk.next_seq("n1"), desk.now_s - 30.0, desk.controller.unit_of_work.term)
        report = Report("n1", desk.boots["n1"], *said, NodeSample(), ())
        desk.feed(Received(None, "agent.n1", report, arrived_s=desk.now_s - 30.0))
    assert not desk.happenings("clock-skewed")


def test_a_node_whose_clock_is_off_is_not_acted_on() -> None:
    desk = ControllerHarness(nodes=["n1"]).lead()
    for _ in range(9):
        desk.report("n1", clock_s=desk.now_s + 5.0)
    submitted(desk, job())
    assert desk.orders == []
    assert desk.happenings("clock-skewed")
    desk.report("n1")
    assert desk.orders == []  # eight earlier readings say otherwise
    for _ in range(9):
        desk.report("n1")
    assert kinds(desk) == [(ActionKind.START, "n1")]


def successor(image: bool) -> ControllerHarness:
    """A new leader over a job that is suspended in the store, after n2 has spoken and n1 has not."""
    desk = submitted(ControllerHarness().lead(), job())
    desk.obey()
    desk.ask(HoldJob("h", "j", True))
    desk.obey()
    second = ControllerHarness(store=desk.store)
    second.seqs, second.vms = desk.seqs, desk.vms
    if not image:
        del second.vms["n1"]["j#0"]
    second.carry(second.controller.start(0.0))
    second.report("n2")
    second.wait(3600.0, reporting=["n2"])
    return second


def test_a_new_leader_takes_no_suspended_job_for_lost_before_its_node_has_spoken() -> None:
    desk = successor(image=True)
    assert (phase(desk), desk.orders) == (JobPhase.SUSPENDED, [])
    desk.report("n1")
    desk.ask(HoldJob("u", "j", False))
    assert kinds(desk) == [(ActionKind.RESUME, "n1")]


@pytest.mark.parametrize("proof", ["report", "confirm-off"])
def test_an_image_that_no_node_has_is_lost_once_all_have_spoken(proof: str) -> None:
    desk = successor(image=False)
    assert phase(desk) is JobPhase.SUSPENDED
    if proof == "report":
        desk.report("n1")
    else:
        desk.ask(ConfirmOff("c", "n1"))
    assert phase(desk) is JobPhase.WAITING


# --- decisions -----------------------------------------------------------------------------------------------------


def test_a_change_to_a_job_that_has_changed_since_the_snapshot_is_dropped_as_stale() -> None:
    desk = ControllerHarness().lead()
    desk.compute = False
    submitted(desk, job())
    desk.ask(CancelJob("c", "j"))
    desk.answer(desk.computations[0])
    desk.settle()
    assert desk.orders == []
    assert desk.happenings("change-stale")


def drained(automation: Automation) -> ControllerHarness:
    desk = submitted(ControllerHarness(automation=automation).lead(), job())
    assert desk.obey()  # starts are not held back
    desk.ask(DrainNode("d", "n1", True))
    return desk


def test_advise_decides_and_does_nothing_but_start_jobs() -> None:
    desk = drained(Automation.ADVISE)
    desk.wait(900.0, reporting=["n1", "n2"])
    assert desk.orders == []


def test_confirm_waits_for_the_operator() -> None:
    desk = drained(Automation.CONFIRM)
    assert desk.orders == []
    pending = desk.controller.deciding.pending
    assert pending is not None
    assert [(step.kind, step.node, step.to_node) for step in pending.plan.steps] == [(ActionKind.MIGRATE, "n1", "n2")]
    assert desk.ask(ApprovePlan("a", 99)).code == "no-such-plan"
    assert desk.ask(ApprovePlan("a", pending.number)).done
    assert kinds(desk) == [(ActionKind.MIGRATE, "n1")]


def test_hold_starts_holds_starts_too() -> None:
    desk = submitted(ControllerHarness(automation=Automation.CONFIRM, hold_starts=True).lead(), job())
    assert desk.orders == []


def test_pausing_stops_deciding_and_resuming_catches_up() -> None:
    desk = ControllerHarness().lead()
    desk.ask(SetDeciding("p", False))
    submitted(desk, job())
    assert desk.orders == []
    desk.ask(SetDeciding("u", True))
    assert kinds(desk) == [(ActionKind.START, "n1")]


def test_an_image_that_cannot_be_resumed_in_time_goes_back_to_being_an_image() -> None:
    jobs = (job("late", memory_mib=4000, goal_s=9e5), job("soon", memory_mib=4000, goal_s=8e5))
    desk = ControllerHarness(nodes=["n1"], placement=PolicyChoice("edf"), gang_timeout_s=30.0).lead()
    submitted(desk, *jobs)
    done = desk.obey()
    assert [(action.kind, action.vm) for action in done] == [
        (ActionKind.START, "late#0"),
        (ActionKind.SUSPEND, "late#0"),
        (ActionKind.START, "soon#0"),
    ]
    desk.guest("n1", "soon#0", GuestChange.ENDED)
    (resume,) = desk.take_orders()
    assert resume.kind is ActionKind.RESUME
    desk.result(resume, Outcome.FAILED)
    desk.wait(40.0, reporting=["n1"])
    assert desk.vms["n1"]["late#0"].state is VmState.SUSPENDED
    assert phase(desk, "late") in (JobPhase.SUSPENDED, JobPhase.RUNNING)
    desk.wait(900.0, reporting=["n1"])
    assert ActionKind.DISCARD_IMAGE not in {action.kind for action in desk.take_orders()}


# --- operators and strangers -----------------------------------------------------------------------------------------


def test_a_submission_delivered_twice_is_one_and_a_name_taken_is_refused() -> None:
    desk = submitted(ControllerHarness().lead(), job())
    assert desk.ask(SubmitJob("r0", job())).done
    assert desk.ask(SubmitJob("other", job())).code == "duplicate-name"
    assert len(desk.take_orders()) == 1


@pytest.mark.parametrize(
    "misfit",
    [
        job(memory_mib=5000),
        job(instances=3, separate=True),
        job(needs=("gpu",)),
        replace(job(), stages=(Stage(1e6, 2000.0, min_mhz=1500.0, memory_mib=10),)),
    ],
)
def test_a_job_that_fits_no_node_is_refused_with_the_numbers(misfit: object) -> None:
    desk = submitted(ControllerHarness().lead(), misfit)
    assert desk.replies[-1].code == "fits-no-node"
    assert "nodes" in desk.replies[-1].detail
    assert desk.controller.cluster.jobs == {}


def test_nobody_speaks_for_another() -> None:
    desk = ControllerHarness().lead()
    number = desk.say(SubmitJob("r", job()), "agent.n1")
    assert desk.dead == [(number, "agent.n1 may not ask for submit-job")]
    before = desk.controller.cluster.nodes["n1"].report_seq
    forged = Report("n1", "boot-9", 99, clock_s=0.0, term=1, sample=NodeSample(), vms=())
    desk.feed(Received(None, "agent.n2", forged))
    assert desk.controller.cluster.nodes["n1"].report_seq == before
    assert desk.happenings("message-refused")


def test_a_node_is_removed_only_when_nothing_is_or_may_be_on_it() -> None:
    desk = submitted(ControllerHarness().lead(), job())
    desk.obey()
    assert desk.ask(RemoveNode("x", "n1")).code == "node-not-empty"
    assert desk.ask(RemoveNode("x", "n2")).done
    assert desk.ask(RemoveNode("x", "n9")).code == "unknown-node"
    assert desk.store.get(("node", "n2")) is None


def test_how_a_guest_crashed_is_told() -> None:
    desk = submitted(ControllerHarness().lead(), job())
    desk.obey()
    desk.guest("n1", "j#0", GuestChange.VANISHED, detail="exit status 3; it said: no more paper")
    (event,) = desk.happenings("guest-crashed")
    assert (event.subject, event.detail) == ("j#0", "on n1: exit status 3; it said: no more paper")
    failed = failure_view(desk.controller.cluster.instances["j#0"])
    assert failed is not None
    assert (failed["text"], failed["at_s"]) == (
        "guest on n1: crashed exit status 3; it said: no more paper",
        desk.now_s,
    )
