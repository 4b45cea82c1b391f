"""Web applications in the controller: submitted, changed, removed; their instances started, stopped, lost, moved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from daemons.controller.state.jobs import JobEntry
from daemons.values.settings import Automation, PolicyChoice
from shared.policy_api.decision import Change, ChangeKind, Reason, ReasonCode
from shared.protocol.operator_messages import (
    ApprovePlan,
    CancelJob,
    ConfirmOff,
    DrainNode,
    HoldJob,
    MoveVm,
    Query,
    ReleaseVm,
    RemoveWeb,
    SubmitJob,
    SubmitWeb,
)
from shared.values.actions import ActionKind, GuestChange, Outcome
from shared.values.jobs import Allotment, JobPhase, Rules
from shared.values.web_app import Flow, WebApp
from tests.support import parts
from tests.support.controller_harness import ControllerHarness, job

REASON = Reason(ReasonCode.LOAD)
BROWSE = Flow("browse", mean_s=0.2, work_mcycles=10.0)


def shop(name: str = "shop", least: int = 1, most: int = 3, **fields: Any) -> WebApp:
    """An application whose instances can use 1,000 MHz and have 1,000 MiB."""
    given: dict[str, Any] = {"flows": (BROWSE,), "memory_mib": 1000, "max_mhz": 1000.0} | fields
    return WebApp(name, min_instances=least, max_instances=most, **given)


def led(nodes: Iterable[str] = ("n1", "n2"), **settings: Any) -> ControllerHarness:
    """A leader whose policy starts as many instances as must run, and no more."""
    return ControllerHarness(nodes, placement=PolicyChoice("first-fit"), **settings).lead()


def replicas(harness: ControllerHarness, app: str = "shop") -> dict[int, JobEntry]:
    return harness.controller.cluster.replicas[app]


def running(harness: ControllerHarness, app: str = "shop") -> list[str]:
    """Names of the instances that run."""
    return [replica.job.name for _, replica in sorted(replicas(harness, app).items()) if replica.released]


def decide(harness: ControllerHarness, *changes: tuple[str, ChangeKind, str]) -> list[str]:
    """Make changes of the present revision; the names of those dropped."""
    made = []
    for name, kind, node in changes:
        entry = harness.controller.cluster.active[name]
        wanted = (Allotment(node, 500.0),) if node else ()
        made.append(Change(name, entry.revision, kind, wanted, REASON))
    dropped = harness.controller.deciding.desired.apply(made, harness.now_s)
    harness.carry(harness.controller._drain([], harness.now_s))
    harness.settle()
    return [refusal.workload for refusal in dropped]


# --- submitting -------------------------------------------------------------------------------------------------------


def test_what_must_run_is_started_and_no_more() -> None:
    """Given an application of 1 to 3 instances, then one VM is started; its name is that of the replica."""
    harness = led()
    assert harness.ask(SubmitWeb("r", shop())).done
    (order,) = harness.obey()
    assert (order.kind, order.vm, order.spec.memory_mib if order.spec else 0) == (ActionKind.START, "shop#0", 1000)
    assert running(harness) == ["shop#0"]
    assert [replica.phase for replica in replicas(harness).values()] == [
        JobPhase.RUNNING,
        JobPhase.WAITING,
        JobPhase.WAITING,
    ]
    assert [event.subject for event in harness.happenings("web-instance-started")] == ["shop#0"]
    assert not harness.happenings("job-started")


def test_the_same_submission_twice_is_one() -> None:
    harness = led()
    for _ in range(2):
        assert harness.ask(SubmitWeb("r", shop())).done
    assert len(harness.happenings("web-submitted")) == 1
    assert not harness.happenings("web-changed")


@pytest.mark.parametrize(
    ("app", "code"),
    [
        (shop("a"), "duplicate-name"),
        (shop(memory_mib=5000), "fits-no-node"),
        (shop(least=3), "fits-no-node"),
        (shop(rules=Rules(node_affinity=("n9",))), "fits-no-node"),
        (shop(least=2, rules=Rules(node_anti_affinity=("n1",))), "fits-no-node"),
        (shop(metrics_url="file:///etc/passwd"), "invalid-value"),
        (shop(metrics_url="http:///x"), "invalid-value"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(app: WebApp, code: str) -> None:
    harness = led()
    harness.ask(SubmitJob("j", job("a")))
    reply = harness.ask(SubmitWeb("r", app))
    assert (reply.done, reply.code) == (False, code)
    assert not harness.controller.cluster.web
    assert not harness.controller.cluster.replicas


def test_no_job_may_have_the_name_of_an_application_or_pass_for_an_instance() -> None:
    harness = led()
    harness.ask(SubmitWeb("r", shop()))
    assert harness.ask(SubmitJob("j", job("shop"))).code == "duplicate-name"
    assert harness.ask(SubmitJob("j2", shop("other").replica_job(0, 0.0))).code == "invalid-value"
    for request in (CancelJob("c", "shop#0"), HoldJob("h", "shop#0", True), ReleaseVm("f", "shop#0")):
        assert harness.ask(request).code == "unknown-job"
    assert harness.ask(Query("q", "job", "shop#0")).code == "unknown-job"


# --- changing ---------------------------------------------------------------------------------------------------------


def test_more_and_fewer_instances() -> None:
    """Replicas that are too many go when nothing runs in them; a number that is free again is used again."""
    harness = led()
    harness.ask(SubmitWeb("r1", shop(least=2)))
    harness.obey()
    assert harness.ask(SubmitWeb("r2", shop(least=0, most=1))).done
    assert list(replicas(harness)) == [0, 1]  # both run
    decide(harness, ("shop#0", ChangeKind.STOP, ""))
    harness.obey()
    assert list(replicas(harness)) == [1]
    assert harness.ask(SubmitWeb("r3", shop(least=0, most=3))).done
    assert sorted(replicas(harness)) == [0, 1, 2]
    assert replicas(harness)[0].attempt == 1  # goes on counting: what is left of the VM before is older
    assert [event.what for event in harness.events if event.what.startswith("web-changed")] == ["web-changed"] * 2


def test_memory_holds_for_instances_started_later_the_rest_at_once() -> None:
    harness = led()
    harness.ask(SubmitWeb("r1", shop()))
    harness.obey()
    harness.ask(SubmitWeb("r2", shop(memory_mib=500, max_mhz=800.0, importance=2.0)))
    first, second = replicas(harness)[0], replicas(harness)[1]
    assert (first.job.memory_mib, first.job.max_mhz, first.job.importance) == (1000, 800.0, 2.0)
    assert (second.job.memory_mib, second.instances[0].memory_mib) == (500, 500.0)
    assert harness.controller.cluster.nodes["n1"].committed_mib == 1000.0
    decide(harness, ("shop#0", ChangeKind.STOP, ""))
    harness.obey()
    assert harness.controller.cluster.nodes["n1"].committed_mib == 0.0
    harness.ask(SubmitWeb("r3", shop(memory_mib=500, max_mhz=800.0, importance=2.0, least=2)))
    started = {order.vm: order.spec.memory_mib for order in harness.obey() if order.spec}
    assert started == {"shop#0": 500, "shop#1": 500}
    assert not parts.web_apps(harness.controller).untidy


# --- stopping and losing ----------------------------------------------------------------------------------------------


def test_a_stop_frees_the_room_before_a_start_takes_it() -> None:
    """Given a node full of an instance, when that is stopped and a job started there, then the stop goes first."""
    harness = led(["n1"])
    harness.ask(SubmitWeb("r", shop(memory_mib=3000)))
    harness.obey()
    harness.compute = False
    harness.ask(SubmitJob("j", job("big", memory_mib=3000)))
    entry, big = replicas(harness)[0], harness.controller.cluster.active["big"]
    changes = [
        Change("big", big.revision, ChangeKind.START, (Allotment("n1", 1000.0),), REASON),
        Change("shop#0", entry.revision, ChangeKind.STOP, (), REASON),
    ]
    plan = harness.controller.deciding.desired.plan(changes)
    assert [(step.kind, step.wave) for step in plan.steps] == [(ActionKind.STOP, 0), (ActionKind.START, 1)]
    assert decide(harness, ("big", ChangeKind.START, "n1"), ("shop#0", ChangeKind.STOP, "")) == []
    assert [order.kind for order in harness.obey()] == [ActionKind.STOP, ActionKind.START]
    assert (entry.phase, entry.clear) == (JobPhase.WAITING, True)
    assert [event.detail for event in harness.happenings("web-instance-stopped")] == ["load"]


def test_jobs_are_not_stopped_and_instances_not_suspended() -> None:
    harness = led()
    harness.ask(SubmitJob("j", job("a")))
    harness.ask(SubmitWeb("r", shop()))
    harness.obey()
    assert decide(harness, ("a", ChangeKind.STOP, ""), ("shop#0", ChangeKind.SUSPEND, "")) == ["a", "shop#0"]


def test_a_decision_that_brings_two_instances_to_one_node_is_stale() -> None:
    """Given an instance that an operator has moved since, then the one decided for that node is not started."""
    harness = led(["n1", "n2", "n3"])
    harness.ask(SubmitWeb("r", shop(least=1)))
    harness.obey()
    assert harness.ask(MoveVm("m", "shop#0", "n3")).done
    assert decide(harness, ("shop#1", ChangeKind.START, "n3")) == ["shop#1"]
    assert decide(harness, ("shop#1", ChangeKind.START, "n2")) == []
    harness.obey()
    reply = harness.ask(MoveVm("m2", "shop#1", "n3"))
    assert reply.code == "not-separate"


def test_a_vm_is_not_moved_against_the_rules() -> None:
    harness = led(["n1", "n2", "n3"])
    harness.compute = False
    rules = {
        "a": Rules(node_anti_affinity=("n3",)),
        "b": Rules(anti_affinity="x"),
        "c": Rules(anti_affinity="x"),
        "d": Rules(affinity="y"),
    }
    nodes = {"a": "n1", "b": "n1", "c": "n2", "d": "n2", "e": "n2"}
    for name in nodes:
        given = rules.get(name, Rules(affinity="y"))
        harness.ask(SubmitJob(name, job(name, memory_mib=500, rules=given)))
        assert decide(harness, (name, ChangeKind.START, nodes[name])) == []
    harness.obey()
    moves = {"a#0": "n3", "b#0": "n2", "d#0": "n1"}
    assert [harness.ask(MoveVm(vm, vm, node)).code for vm, node in moves.items()] == ["constraint"] * 3
    for vm, node in {"a#0": "n2", "b#0": "n3"}.items():
        assert harness.ask(MoveVm(f"{vm} to {node}", vm, node)).done


@pytest.mark.parametrize("change", [GuestChange.ENDED, GuestChange.VANISHED])
def test_a_guest_that_ends_is_lost_not_complete(change: GuestChange) -> None:
    """It is started again after a back-off that grows while it keeps ending."""
    harness = led(["n1"])
    harness.ask(SubmitWeb("r", shop(most=1)))
    harness.obey()
    waits = []
    for number in (1, 2, 3):
        harness.guest("n1", "shop#0", change, number)
        assert replicas(harness)[0].phase is JobPhase.WAITING
        waits.append(replicas(harness)[0].not_before_s - harness.now_s)
        harness.wait(waits[-1] + 5.0, reporting=["n1"])
        harness.obey()
        assert running(harness) == ["shop#0"]
    assert waits == [15.0, 30.0, 60.0]
    assert [event.subject for event in harness.happenings("web-instance-lost")] == ["shop#0"] * 3
    assert not harness.happenings("job-completed")
    assert not harness.happenings("job-requeued")
    harness.wait(1000.0, reporting=["n1"])
    harness.guest("n1", "shop#0", change, 4)
    assert replicas(harness)[0].not_before_s - harness.now_s == 15.0  # it had run for long


def test_another_instance_takes_the_place_of_one_whose_node_is_off() -> None:
    harness = led()
    harness.ask(SubmitWeb("r", shop()))
    (order,) = harness.obey()
    other = {"n1": "n2", "n2": "n1"}[order.node]
    harness.wait(30.0, reporting=[other])
    assert harness.obey() == []  # silent is not gone
    harness.vms[order.node].clear()
    harness.ask(ConfirmOff("c", order.node))
    (again,) = harness.obey()
    assert (again.kind, again.node, again.vm) == (ActionKind.START, other, "shop#1")


def test_a_drained_node_is_left_by_moving() -> None:
    harness = led()
    harness.ask(SubmitWeb("r", shop()))
    (order,) = harness.obey()
    harness.ask(DrainNode("d", order.node, True))
    moved = harness.obey()
    assert [(action.kind, action.vm) for action in moved] == [(ActionKind.MIGRATE, "shop#0")]


def test_spare_replicas_are_no_reason_to_decide() -> None:
    """Between cycles nothing is computed for them, or every small thing would cost a decision."""
    harness = led()
    harness.ask(SubmitWeb("r", shop()))
    harness.obey()
    before = len(harness.computations)
    harness.controller.unit_of_work.place = True
    harness.report("n1")
    harness.settle()
    assert len(harness.computations) == before
    harness.guest(replicas(harness)[0].allotments[0].node, "shop#0", GuestChange.VANISHED)
    harness.wait(5.0, reporting=["n1", "n2"])
    assert len(harness.computations) > before


# --- removing ---------------------------------------------------------------------------------------------------------


def test_a_removed_application_goes_with_its_last_vm() -> None:
    harness = led()
    harness.ask(SubmitWeb("r", shop(least=2)))
    harness.obey()
    assert harness.ask(RemoveWeb("x", "shop")).done
    assert harness.ask(SubmitWeb("r2", shop())).code == "being-removed"
    orders = harness.take_orders()
    assert sorted(order.vm for order in orders if order.kind is ActionKind.STOP) == ["shop#0", "shop#1"]
    harness.result(orders[0])
    assert "shop" in harness.controller.cluster.web
    harness.result(orders[1])
    assert "shop" not in harness.controller.cluster.web
    assert harness.store.get(("web", "shop")) is None
    assert [event.subject for event in harness.happenings("web-removed")] == ["shop"]
    assert harness.ask(RemoveWeb("y", "shop")).code == "unknown-web-app"
    assert (
        harness.ask(SubmitJob("j", job("shop"))).code == "duplicate-name"
    )  # a VM that turns up would be taken for its
    assert harness.ask(SubmitWeb("r3", shop())).done
    assert [order.kind for order in harness.obey()] == [ActionKind.START]
    assert replicas(harness)[0].attempt == 2


def test_a_vm_of_a_removed_application_that_turns_up_is_stopped() -> None:
    harness = led()
    harness.ask(SubmitWeb("r", shop()))
    (order,) = harness.obey()
    stray = harness.vms[order.node]["shop#0"]
    harness.ask(RemoveWeb("x", "shop"))
    harness.obey()
    harness.vms[order.node]["shop#0"] = stray
    harness.report(order.node)
    assert [(action.kind, action.vm) for action in harness.obey()] == [(ActionKind.STOP, "shop#0")]
    assert not harness.controller.cluster.instances


# --- a new leader -----------------------------------------------------------------------------------------------------


def test_a_new_leader_goes_on_with_the_applications() -> None:
    harness = led()
    harness.ask(SubmitWeb("r", shop(least=2)))
    harness.ask(SubmitWeb("s", shop("gone", least=0)))
    harness.obey()
    harness.ask(RemoveWeb("x", "gone"))
    after = ControllerHarness(store=harness.store, placement=PolicyChoice("first-fit"))
    after.vms, after.boots, after.seqs = harness.vms, harness.boots, harness.seqs
    after.now_s = harness.now_s
    after.lead()
    cluster = after.controller.cluster
    assert list(cluster.web) == ["shop"]
    assert cluster.web["shop"].app == shop(least=2)
    assert running(after) == ["shop#0", "shop#1"]
    assert after.take_orders() == []
    assert after.ask(SubmitWeb("r", shop(least=2))).done
    assert not after.happenings("web-changed")
    assert after.ask(SubmitWeb("again", shop("gone", least=0))).done


def test_replicas_without_an_application_are_ended() -> None:
    """Nothing of a store that lost the application's own record runs on unseen."""
    harness = led()
    harness.ask(SubmitWeb("r", shop()))
    harness.obey()
    del harness.store._records["web", "shop"]
    after = ControllerHarness(store=harness.store)
    after.vms, after.boots, after.seqs, after.now_s = harness.vms, harness.boots, harness.seqs, harness.now_s
    after.lead()
    assert [order.kind for order in after.obey()] == [ActionKind.STOP]
    assert not after.controller.cluster.active


def test_a_late_repeat_of_a_change_changes_nothing() -> None:
    harness = led()
    harness.ask(SubmitWeb("r1", shop()))
    harness.ask(SubmitWeb("r2", shop(most=5)))
    assert harness.ask(SubmitWeb("r1", shop())).done
    assert harness.controller.cluster.web["shop"].app == replace(shop(), max_instances=5)


@pytest.mark.parametrize("policy", ["first-fit", "edf", "apc"])
def test_a_drain_stops_an_instance_that_no_other_node_takes(policy: str) -> None:
    """Given as many instances as nodes and a minimum of one, when a node is drained, then it becomes empty."""
    harness = ControllerHarness(("n1", "n2", "n3"), placement=PolicyChoice(policy)).lead()
    harness.ask(SubmitWeb("w", shop(least=3)))
    harness.obey()
    assert len(running(harness)) == 3
    harness.ask(SubmitWeb("w2", shop(least=1)))
    harness.obey()
    harness.ask(DrainNode("d", "n3", True))
    for _ in range(6):
        harness.wait(30.0, reporting=list(harness.nodes))
        harness.obey()
    assert harness.vms["n3"] == {}
    assert len(running(harness)) >= 1


def test_a_drain_leaves_the_least_instances_that_must_run() -> None:
    harness = ControllerHarness(("n1", "n2", "n3"), placement=PolicyChoice("first-fit")).lead()
    harness.ask(SubmitWeb("w", shop(least=3)))
    harness.obey()
    harness.ask(DrainNode("d", "n3", True))
    for _ in range(6):
        harness.wait(30.0, reporting=list(harness.nodes))
        harness.obey()
    assert len(running(harness)) == 3


def test_a_submitted_application_has_a_decision_at_once_that_others_give_way_by() -> None:
    """Given a cluster full of jobs under `confirm`, when an application comes, then a decision that makes room for it
    waits for approval, its start waits with it, and the application says so."""
    harness = ControllerHarness(
        ("n1",), placement=PolicyChoice("apc"), automation=Automation.CONFIRM, decide_s=900.0
    ).lead()
    for name in ("a", "b", "c", "d"):
        harness.ask(SubmitJob(name, job(name, memory_mib=700, goal_s=1e6)))
    harness.obey()
    harness.wait(30.0, reporting=["n1"])
    harness.ask(SubmitWeb("w", shop(least=1, most=1)))
    harness.wait(30.0, reporting=["n1"])
    pending = harness.controller.deciding.pending
    assert pending is not None
    assert "shop#0" in [change.workload for change in pending.held]
    assert [action for action in harness.take_orders() if action.kind is ActionKind.START] == []
    harness.ask(Query("q", "web-app", "shop"))
    waits = harness.replies[-1].data["app"]["waits_for"]
    assert waits["text"] == f"no room until decision {pending.number} is approved"
    assert not harness.happenings("web-instance-lost")
    harness.ask(ApprovePlan("ok", pending.number))
    harness.wait(30.0, reporting=["n1"])
    harness.obey()
    assert running(harness) == ["shop#0"]


def test_an_instance_of_which_there_never_was_a_vm_is_not_lost() -> None:
    harness = led(("n1",))
    harness.ask(SubmitWeb("w", shop(least=1, most=1)))
    (start,) = harness.take_orders()
    harness.result(start, Outcome.NO_ROOM)
    assert (harness.happenings("web-instance-lost"), len(harness.happenings("web-instance-waiting"))) == ([], 1)
