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


def submitted(harness: ControllerHarness, *jobs: object) -> ControllerHarness:
    for number, each in enumerate(jobs):
        harness.ask(SubmitJob(f"r{number}", each))  # type: ignore[arg-type]
    return harness


def phase(harness: ControllerHarness, name: str = "j") -> JobPhase:
    return harness.controller.cluster.jobs[name].phase


def kinds(harness: ControllerHarness) -> list[tuple[ActionKind, str]]:
    return [(action.kind, action.node) for action in harness.take_orders()]


# --- leading ---------------------------------------------------------------------------------------------------------


def test_a_standby_says_nothing_until_its_own_probe_returns() -> None:
    harness = ControllerHarness()
    harness.say(SubmitJob("r", job()), "operator.x")
    assert (harness.orders, harness.replies, harness.acknowledged) == ([], [], [])
    harness.lead()
    assert harness.store.term == 1
    assert harness.replies[0].request == "r"  # what was held back is answered once it leads


def test_no_order_goes_to_a_node_before_it_has_echoed_the_term() -> None:
    harness = ControllerHarness().lead()
    second = ControllerHarness(store=harness.store)
    second.seqs = dict.fromkeys(second.nodes, 100)
    second.carry(second.controller.start(0.0))
    assert second.hellos == [("n1", Hello(2, 0)), ("n2", Hello(2, 0))]
    submitted(second, job())
    second.report("n1", term=1)
    assert second.orders == []
    second.report("n1")
    assert kinds(second) == [(ActionKind.START, "n1")]


def test_a_controller_that_hears_of_a_newer_term_or_cannot_write_ends() -> None:
    harness = ControllerHarness().lead()
    harness.store_fails = (True, "")
    harness.report("n1", term=7)
    assert "raised the term" in harness.exits[0]
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
    harness = ControllerHarness().lead()
    lead = harness.controller.leadership
    for _ in range(4):
        assert not harness.exits
        harness.now_s += lead.probe_s
        harness.carry([effect for effect in lead.probe(harness.now_s) if isinstance(effect, Exit)])
    assert harness.exits


# --- life of a job ---------------------------------------------------------------------------------------------------


def test_a_job_is_started_measured_and_completed() -> None:
    harness = submitted(ControllerHarness().lead(), job())
    (start,) = harness.take_orders()
    assert (start.kind, start.node, start.term, start.boot_id) == (ActionKind.START, "n1", 1, "boot-1")
    harness.result(start)
    harness.change("n1", "j#0", cpu_time_s=300.0)
    harness.report("n1")
    assert harness.controller.cluster.jobs["j"].done_mcycles == 300.0 * 1000.0
    delivery = harness.guest("n1", "j#0", GuestChange.ENDED)
    assert phase(harness) is JobPhase.COMPLETED
    assert delivery in harness.acknowledged
    assert harness.store.get(("job", "j")).phase is JobPhase.COMPLETED
    assert [event.what for event in harness.events if event.subject == "j"] == [
        "job-submitted",
        "job-started",
        "job-completed",
    ]


def test_the_ledger_is_stored_before_an_order_leaves() -> None:
    harness = ControllerHarness().lead()
    harness.store_fails = (False, "disk full")
    submitted(harness, job())
    assert harness.orders == []
    assert "disk full" in harness.exits[0]


def test_a_gang_is_prepared_paused_then_released_together() -> None:
    harness = submitted(ControllerHarness().lead(), job(instances=3, memory_mib=2000))
    starts = harness.take_orders()
    assert [action.paused for action in starts] == [True, True, True]
    for action in starts[:2]:
        harness.result(action)
    assert harness.take_orders() == []
    harness.result(starts[2])
    assert [action.kind for action in harness.take_orders()] == [ActionKind.UNPAUSE] * 3


def test_a_gang_of_which_one_start_fails_is_taken_back_and_tried_again_later() -> None:
    harness = submitted(ControllerHarness().lead(), job(instances=2, memory_mib=3000))
    first, second = harness.take_orders()
    harness.result(first)
    harness.result(second, Outcome.REFUSED)
    assert phase(harness) is JobPhase.WAITING
    assert kinds(harness) == [(ActionKind.STOP, "n1")]


def test_a_gang_that_does_not_come_together_in_time_is_taken_back() -> None:
    harness = submitted(ControllerHarness(gang_timeout_s=60.0).lead(), job(instances=2, memory_mib=3000))
    first, _ = harness.take_orders()
    harness.result(first)
    harness.wait(59.0, reporting=["n1", "n2"])
    assert phase(harness) is JobPhase.RUNNING
    harness.wait(6.0, reporting=["n1", "n2"])
    assert phase(harness) is JobPhase.WAITING


def test_a_vm_that_vanishes_sets_the_job_back_to_its_checkpoint() -> None:
    harness = submitted(ControllerHarness().lead(), job(checkpoint_mcycles=60_000.0))
    harness.obey()
    harness.change("n1", "j#0", cpu_time_s=130.0)
    harness.report("n1")
    harness.guest("n1", "j#0", GuestChange.VANISHED)
    assert harness.take_orders() == [], "it may have been taken to a node that has not spoken since"
    harness.wait(5.0, reporting=["n1", "n2"])
    (again,) = harness.take_orders()
    assert again.kind is ActionKind.START
    assert again.spec is not None
    assert (again.spec.attempt, again.generation) == (2, 2)
    assert harness.controller.cluster.jobs["j"].done_mcycles == 120_000.0


def test_a_stalled_job_is_reported_once() -> None:
    harness = submitted(ControllerHarness(stall_after_s=100.0).lead(), job())
    harness.obey()
    harness.wait(300.0, reporting=["n1", "n2"])
    assert len(harness.happenings("job-stalled")) == 1
    harness.change("n1", "j#0", cpu_time_s=1.0)
    harness.wait(300.0, reporting=["n1", "n2"])
    assert len(harness.happenings("job-stalled")) == 2


def test_a_cancelled_job_is_stopped_everywhere() -> None:
    harness = submitted(ControllerHarness().lead(), job())
    harness.obey()
    assert harness.ask(CancelJob("c", "j")).done
    assert kinds(harness) == [(ActionKind.STOP, "n1")]
    assert harness.ask(CancelJob("c2", "nope")).code == "unknown-job"


# --- rule 5: never twice, never lost ---------------------------------------------------------------------------------


def silent_harness() -> ControllerHarness:
    harness = submitted(ControllerHarness().lead(), job())
    harness.obey()
    harness.wait(60.0, reporting=["n2"])
    return harness


def test_the_vms_of_a_silent_node_are_unknown_and_not_restarted() -> None:
    harness = silent_harness()
    assert harness.controller.cluster.nodes["n1"].condition is NodeCondition.UNKNOWN
    harness.wait(7200.0, reporting=["n2"])
    assert harness.orders == []


def test_confirm_off_restarts_them_elsewhere_and_the_old_boot_says_nothing_more() -> None:
    harness = silent_harness()
    assert harness.ask(ConfirmOff("c", "n2")).code == "node-up"
    assert harness.ask(ConfirmOff("c", "n1")).done
    (start,) = harness.take_orders()
    assert (start.kind, start.node) == (ActionKind.START, "n2")
    harness.report("n1", clock_s=50.0)  # late
    assert harness.controller.cluster.nodes["n1"].condition is NodeCondition.OFF


def test_a_node_wrongly_taken_for_off_gets_its_old_vm_stopped() -> None:
    harness = silent_harness()
    harness.ask(ConfirmOff("c", "n1"))
    harness.obey()
    harness.now_s += 10.0
    harness.report("n1")
    assert harness.happenings("off-node-reports")
    assert kinds(harness) == [(ActionKind.STOP, "n1")]


def test_a_power_driver_is_asked_and_only_its_proof_counts() -> None:
    harness = submitted(ControllerHarness(fence_after_s=30.0).lead(), job())
    harness.obey()
    harness.wait(60.0, reporting=["n2"])
    assert [(power.node, power.operation) for power in harness.powers] == [("n1", "fence")]
    harness.feed(PowerDone("n1", harness.powers[0].operation, False, "no answer"))
    assert harness.orders == []
    harness.wait(60.0, reporting=["n2"])
    assert len(harness.powers) > 1
    harness.feed(PowerDone("n1", harness.powers[0].operation, True))
    assert kinds(harness) == [(ActionKind.START, "n2")]


def test_a_report_that_does_not_know_of_an_order_in_progress_proves_nothing() -> None:
    harness = submitted(ControllerHarness().lead(), job())
    (start,) = harness.take_orders()
    harness.report("n1")
    harness.report("n1", in_progress=(UnderWay(start.id, start.kind, start.vm),))
    assert phase(harness) is JobPhase.RUNNING
    harness.now_s = start.expires_at_s + 1.0
    harness.report("n1", in_progress=(UnderWay(start.id, start.kind, start.vm),))
    assert phase(harness) is JobPhase.RUNNING
    harness.report("n1")  # past its expiry, not begun, not there: it never will be
    assert phase(harness) is JobPhase.WAITING


def test_what_is_older_than_the_last_word_changes_nothing() -> None:
    harness = submitted(ControllerHarness().lead(), job())
    (start,) = harness.take_orders()
    empty_seq = harness.next_seq("n1")
    harness.result(start)
    harness.vms["n1"], kept = {}, harness.vms["n1"]
    harness.report("n1", seq=empty_seq)  # a report from before the start, late
    harness.vms["n1"] = kept
    assert harness.controller.cluster.instances["j#0"].may_run_on == {"n1"}
    assert harness.orders == []


def test_an_end_that_was_reported_by_an_earlier_attempt_counts_for_a_single_vm() -> None:
    harness = silent_harness()
    harness.ask(ConfirmOff("c", "n1"))
    harness.obey()
    harness.boots["n1"], harness.now_s = "boot-2", harness.now_s + 10.0
    harness.guest("n1", "j#0", GuestChange.ENDED)
    assert phase(harness) is JobPhase.COMPLETED
    assert kinds(harness) == [(ActionKind.STOP, "n2")]


def test_one_unknown_instance_pauses_the_rest_of_its_gang_until_it_is_known() -> None:
    harness = submitted(ControllerHarness().lead(), job(instances=2, memory_mib=3000))
    harness.obey()
    harness.wait(30.0, reporting=["n1"])
    (pause,) = harness.take_orders()
    assert (pause.kind, pause.node) == (ActionKind.PAUSE, "n1")
    harness.result(pause)
    harness.report("n2")
    assert kinds(harness) == [(ActionKind.UNPAUSE, "n1")]


def test_a_vm_of_no_known_job_is_counted_and_never_touched() -> None:
    harness = submitted(ControllerHarness().lead(), job())
    harness.obey()
    stray = structs.replace(harness.vms["n1"]["j#0"], vm="other#0", memory_mib=2500)
    harness.vms["n1"]["other#0"] = stray
    harness.report("n1")
    assert harness.orders == []
    assert len(harness.happenings("unknown-vm")) == 1
    assert harness.controller.cluster.nodes["n1"].room_mib() == 500.0


def test_reports_that_waited_do_not_make_a_clock_wrong() -> None:
    """A report says when it came; that it is heard late is the controller's doing."""
    harness = ControllerHarness(nodes=["n1"]).lead()
    for _ in range(20):
        said = (harness.next_seq("n1"), harness.now_s - 30.0, harness.controller.unit_of_work.term)
        report = Report("n1", harness.boots["n1"], *said, NodeSample(), ())
        harness.feed(Received(None, "agent.n1", report, arrived_s=harness.now_s - 30.0))
    assert not harness.happenings("clock-skewed")


def test_a_node_whose_clock_is_off_is_not_acted_on() -> None:
    harness = ControllerHarness(nodes=["n1"]).lead()
    for _ in range(9):
        harness.report("n1", clock_s=harness.now_s + 5.0)
    submitted(harness, job())
    assert harness.orders == []
    assert harness.happenings("clock-skewed")
    harness.report("n1")
    assert harness.orders == []  # eight earlier readings say otherwise
    for _ in range(9):
        harness.report("n1")
    assert kinds(harness) == [(ActionKind.START, "n1")]


def successor(image: bool) -> ControllerHarness:
    """A new leader over a job that is suspended in the store, after n2 has spoken and n1 has not."""
    harness = submitted(ControllerHarness().lead(), job())
    harness.obey()
    harness.ask(HoldJob("h", "j", True))
    harness.obey()
    second = ControllerHarness(store=harness.store)
    second.seqs, second.vms = harness.seqs, harness.vms
    if not image:
        del second.vms["n1"]["j#0"]
    second.carry(second.controller.start(0.0))
    second.report("n2")
    second.wait(3600.0, reporting=["n2"])
    return second


def test_a_new_leader_takes_no_suspended_job_for_lost_before_its_node_has_spoken() -> None:
    harness = successor(image=True)
    assert (phase(harness), harness.orders) == (JobPhase.SUSPENDED, [])
    harness.report("n1")
    harness.ask(HoldJob("u", "j", False))
    assert kinds(harness) == [(ActionKind.RESUME, "n1")]


@pytest.mark.parametrize("proof", ["report", "confirm-off"])
def test_an_image_that_no_node_has_is_lost_once_all_have_spoken(proof: str) -> None:
    harness = successor(image=False)
    assert phase(harness) is JobPhase.SUSPENDED
    if proof == "report":
        harness.report("n1")
    else:
        harness.ask(ConfirmOff("c", "n1"))
    assert phase(harness) is JobPhase.WAITING


# --- decisions -----------------------------------------------------------------------------------------------------


def test_a_change_to_a_job_that_has_changed_since_the_snapshot_is_dropped_as_stale() -> None:
    harness = ControllerHarness().lead()
    harness.compute = False
    submitted(harness, job())
    harness.ask(CancelJob("c", "j"))
    harness.answer(harness.computations[0])
    harness.settle()
    assert harness.orders == []
    assert harness.happenings("change-stale")


def drained(automation: Automation) -> ControllerHarness:
    harness = submitted(ControllerHarness(automation=automation).lead(), job())
    assert harness.obey()  # starts are not held back
    harness.ask(DrainNode("d", "n1", True))
    return harness


def test_advise_decides_and_does_nothing_but_start_jobs() -> None:
    harness = drained(Automation.ADVISE)
    harness.wait(900.0, reporting=["n1", "n2"])
    assert harness.orders == []


def test_confirm_waits_for_the_operator() -> None:
    harness = drained(Automation.CONFIRM)
    assert harness.orders == []
    pending = harness.controller.deciding.pending
    assert pending is not None
    assert [(step.kind, step.node, step.to_node) for step in pending.plan.steps] == [(ActionKind.MIGRATE, "n1", "n2")]
    assert harness.ask(ApprovePlan("a", 99)).code == "no-such-plan"
    assert harness.ask(ApprovePlan("a", pending.number)).done
    assert kinds(harness) == [(ActionKind.MIGRATE, "n1")]


def test_hold_starts_holds_starts_too() -> None:
    harness = submitted(ControllerHarness(automation=Automation.CONFIRM, hold_starts=True).lead(), job())
    assert harness.orders == []


def test_pausing_stops_deciding_and_resuming_catches_up() -> None:
    harness = ControllerHarness().lead()
    harness.ask(SetDeciding("p", False))
    submitted(harness, job())
    assert harness.orders == []
    harness.ask(SetDeciding("u", True))
    assert kinds(harness) == [(ActionKind.START, "n1")]


def test_an_image_that_cannot_be_resumed_in_time_goes_back_to_being_an_image() -> None:
    jobs = (job("late", memory_mib=4000, goal_s=9e5), job("soon", memory_mib=4000, goal_s=8e5))
    harness = ControllerHarness(nodes=["n1"], placement=PolicyChoice("edf"), gang_timeout_s=30.0).lead()
    submitted(harness, *jobs)
    done = harness.obey()
    assert [(action.kind, action.vm) for action in done] == [
        (ActionKind.START, "late#0"),
        (ActionKind.SUSPEND, "late#0"),
        (ActionKind.START, "soon#0"),
    ]
    harness.guest("n1", "soon#0", GuestChange.ENDED)
    (resume,) = harness.take_orders()
    assert resume.kind is ActionKind.RESUME
    harness.result(resume, Outcome.FAILED)
    harness.wait(40.0, reporting=["n1"])
    assert harness.vms["n1"]["late#0"].state is VmState.SUSPENDED
    assert phase(harness, "late") in (JobPhase.SUSPENDED, JobPhase.RUNNING)
    harness.wait(900.0, reporting=["n1"])
    assert ActionKind.DISCARD_IMAGE not in {action.kind for action in harness.take_orders()}


# --- operators and strangers -----------------------------------------------------------------------------------------


def test_a_submission_delivered_twice_is_one_and_a_name_taken_is_refused() -> None:
    harness = submitted(ControllerHarness().lead(), job())
    assert harness.ask(SubmitJob("r0", job())).done
    assert harness.ask(SubmitJob("other", job())).code == "duplicate-name"
    assert len(harness.take_orders()) == 1


@pytest.mark.parametrize(
    "misfit",
    [
        job(memory_mib=5000),
        job(instances=3, spread=True),
        job(required_labels=("gpu",)),
        replace(job(), stages=(Stage(1e6, 2000.0, min_mhz=1500.0, memory_mib=10),)),
    ],
)
def test_a_job_that_fits_no_node_is_refused_with_the_numbers(misfit: object) -> None:
    harness = submitted(ControllerHarness().lead(), misfit)
    assert harness.replies[-1].code == "fits-no-node"
    assert "nodes" in harness.replies[-1].detail
    assert harness.controller.cluster.jobs == {}


def test_nobody_speaks_for_another() -> None:
    harness = ControllerHarness().lead()
    number = harness.say(SubmitJob("r", job()), "agent.n1")
    assert harness.dead == [(number, "agent.n1 may not ask for submit-job")]
    before = harness.controller.cluster.nodes["n1"].report_seq
    forged = Report("n1", "boot-9", 99, clock_s=0.0, term=1, sample=NodeSample(), vms=())
    harness.feed(Received(None, "agent.n2", forged))
    assert harness.controller.cluster.nodes["n1"].report_seq == before
    assert harness.happenings("message-refused")


def test_a_node_is_removed_only_when_nothing_is_or_may_be_on_it() -> None:
    harness = submitted(ControllerHarness().lead(), job())
    harness.obey()
    assert harness.ask(RemoveNode("x", "n1")).code == "node-not-empty"
    assert harness.ask(RemoveNode("x", "n2")).done
    assert harness.ask(RemoveNode("x", "n9")).code == "unknown-node"
    assert harness.store.get(("node", "n2")) is None


def test_how_a_guest_crashed_is_told() -> None:
    harness = submitted(ControllerHarness().lead(), job())
    harness.obey()
    harness.guest("n1", "j#0", GuestChange.VANISHED, detail="exit status 3; it said: no more paper")
    (event,) = harness.happenings("guest-crashed")
    assert (event.subject, event.detail) == ("j#0", "on n1: exit status 3; it said: no more paper")
    failed = failure_view(harness.controller.cluster.instances["j#0"])
    assert failed is not None
    assert (failed["text"], failed["at_s"]) == (
        "guest on n1: crashed exit status 3; it said: no more paper",
        harness.now_s,
    )
