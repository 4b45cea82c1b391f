"""What becomes of jobs on nodes that leave service, and how far decisions about nodes go by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from daemons.values.settings import Automation, PolicyChoice, Removal
from shared.protocol.operator_messages import ApprovePlan, DrainNode, DryRun, Query, SubmitJob
from shared.values.actions import GuestChange
from shared.values.nodes import NodeService
from tests.support import parts
from tests.support.controller_harness import job
from tests.support.node_service_harness import PowerDesk, power
from tests.support.window_harness import night

IN_SERVICE, DRAINING, STANDBY = NodeService.IN_SERVICE, NodeService.DRAINING, NodeService.STANDBY


def windowed(removal: Removal, nodes: tuple[str, ...] = ("n1", "n2")) -> PowerDesk:
    """A desk with a window's job of 3,000 MiB on each node: none can be moved."""
    desk = PowerDesk(nodes, windows=(night(removal=removal),))
    desk.lead()
    for index, _ in enumerate(nodes):
        wanted = job(f"j{index}", work=1e9, memory_mib=3000, queue="night", checkpoint_mcycles=1000.0)
        desk.ask(SubmitJob(f"s{index}", wanted))
        desk.obey()
    return desk


def on(desk: PowerDesk, node: str) -> str:
    """The job on a node."""
    return next(iter(desk.controller.cluster.nodes[node].claimed.values())).job.job.name


# --- what becomes of jobs --------------------------------------------------------------------------------------------


def test_jobs_that_cannot_be_moved_are_suspended_so_that_the_node_empties() -> None:
    desk = windowed(Removal.CHECKPOINT)
    desk.want("n1")
    assert desk.take_orders() == []
    desk.go(10.0)
    (suspend,) = desk.take_orders()
    assert (suspend.kind, suspend.node) == ("suspend", "n2")
    desk.result(suspend)
    desk.go(5.0)
    assert desk.service("n2") is STANDBY
    desk.go(600.0)
    assert desk.sleeps == []  # its image would be out of reach


def test_the_suspended_job_goes_on_elsewhere_and_then_the_node_sleeps() -> None:
    desk = windowed(Removal.CHECKPOINT)
    saved, ending = on(desk, "n2"), on(desk, "n1")
    desk.want("n1")
    desk.go(10.0)
    desk.obey()
    desk.go(5.0)
    instance = desk.controller.cluster.jobs[ending].instances[0]
    desk.guest("n1", instance.vm, GuestChange.ENDED)
    (resume,) = desk.take_orders()
    assert (resume.kind, resume.node, resume.from_node) == ("resume", "n1", "n2")
    desk.result(resume)
    desk.go(5.0)
    (discard,) = desk.take_orders()
    assert (discard.kind, discard.node, discard.vm) == ("discard-image", "n2", f"{saved}#0")
    desk.result(discard)
    desk.go(100.0)
    assert [asked.node for asked in desk.sleeps] == ["n2"]


def test_a_node_waits_for_jobs_that_must_not_be_disturbed() -> None:
    desk = windowed(Removal.WAIT)
    left = on(desk, "n2")
    desk.want("n1")
    desk.go(3600.0)  # far beyond the limit on emptying
    assert (desk.service("n2"), desk.take_orders(), desk.happenings("drain-failed")) == (DRAINING, [], [])
    desk.guest("n2", f"{left}#0", GuestChange.ENDED)
    assert desk.service("n2") is STANDBY


def test_jobs_that_may_lose_their_work_do_so_at_once_and_it_is_counted() -> None:
    desk = windowed(Removal.LOSE)
    left = on(desk, "n2")
    desk.change("n2", f"{left}#0", cpu_time_s=2.5)  # 2,500 Mcycles, 2,000 of them saved by the guest
    desk.go(5.0)
    desk.want("n1")
    (stop,) = desk.take_orders()
    assert (stop.kind, stop.node) == ("stop", "n2")
    ((subject, detail),) = [(event.subject, event.detail) for event in desk.happenings("work-lost")]
    assert (subject, detail.startswith("500 Mcycles")) == (left, True)
    assert parts.lifecycle(desk.controller).emptying.lost_mcycles == pytest.approx(500.0)
    desk.result(stop)
    desk.go(5.0)
    assert desk.service("n2") is STANDBY


def test_an_operator_who_empties_a_node_loses_no_work() -> None:
    desk = windowed(Removal.LOSE)
    desk.ask(DrainNode("d", "n2", True))
    desk.go(60.0)
    assert (desk.take_orders(), desk.happenings("work-lost")) == ([], [])


# --- how far decisions go --------------------------------------------------------------------------------------------


def deciding(automation: Automation, **more: Any) -> PowerDesk:
    """A desk that decides every 100 s to keep one node in service."""
    desk = PowerDesk(automation=automation, provisioning=PolicyChoice("static", {"nodes": 1}), decide_s=100.0, **more)
    desk.lead()
    desk.go(105.0)
    return desk


def plan(desk: PowerDesk) -> dict[str, Any]:
    reply = desk.ask(Query("q", "plan"))
    return dict(reply.data["decision"]["provisioning"])


def test_advice_about_nodes_is_only_recorded() -> None:
    desk = deciding(Automation.ADVISE)
    assert {desk.service(name) for name in desk.nodes} == {IN_SERVICE}
    shown = plan(desk)
    assert (shown["held"], shown["added"], shown["removed"], shown["in_service"]) == (True, [], ["n2", "n3"], 1)
    assert desk.controller.deciding.pending is None
    assert desk.happenings("nodes-proposed")
    assert not desk.happenings("nodes-decided")


def test_an_approved_plan_takes_nodes_out_of_service() -> None:
    desk = deciding(Automation.CONFIRM)
    assert desk.service("n2") is IN_SERVICE
    number = desk.ask(Query("q", "plan")).data["decision"]["number"]
    assert desk.ask(ApprovePlan("a", number)).done
    assert [desk.service(name) for name in ("n1", "n2", "n3")] == [IN_SERVICE, STANDBY, STANDBY]


def test_an_approved_plan_leaves_nodes_alone_that_have_changed_since() -> None:
    desk = deciding(Automation.CONFIRM)
    number = desk.ask(Query("q", "plan")).data["decision"]["number"]
    desk.ask(DrainNode("d", "n2", True))
    desk.ask(DrainNode("u", "n2", False))
    desk.ask(ApprovePlan("a", number))
    assert [desk.service(name) for name in ("n2", "n3")] == [IN_SERVICE, STANDBY]


def test_decisions_about_nodes_are_carried_out() -> None:
    desk = deciding(Automation.AUTO)
    assert [desk.service(name) for name in ("n1", "n2", "n3")] == [IN_SERVICE, STANDBY, STANDBY]
    assert plan(desk)["held"] is False
    record = desk.store.get(("node", "n2"))
    assert (record.wanted, record.service) == (False, STANDBY)


def test_a_decision_about_a_node_that_has_changed_since_its_snapshot_is_dropped() -> None:
    desk = PowerDesk(provisioning=PolicyChoice("static", {"nodes": 1}), decide_s=100.0)
    desk.lead()
    desk.compute = False
    desk.go(105.0)
    desk.ask(DrainNode("d", "n2", True))
    desk.ask(DrainNode("u", "n2", False))
    desk.answer(desk.computations[-1])
    desk.settle()
    assert [desk.service(name) for name in ("n2", "n3")] == [IN_SERVICE, STANDBY]
    assert plan(desk)["dropped"] == ["n2"]


def test_a_dry_run_says_what_would_become_of_nodes() -> None:
    desk = deciding(Automation.ADVISE)
    shown = desk.ask(DryRun("dry")).data["decision"]["provisioning"]
    assert (shown["removed"], shown["policy"], shown["held"]) == (["n2", "n3"], "static", True)
    assert {desk.service(name) for name in desk.nodes} == {IN_SERVICE}


def test_policies_see_where_nodes_are() -> None:
    desk = PowerDesk(("n1", "n2", "n3", "n4"), settings=power(never=frozenset({"n4"}), deploy_s=40.0, remove_s=7.0))
    desk.lead()
    desk.put_to_sleep("n3")
    desk.ask(DrainNode("d", "n2", True))
    seen = desk.controller.deciding.builder.build(desk.now_s).power
    assert seen is not None
    assert seen.wanted.tolist() == [True, False, False, True]
    assert seen.available.tolist() == [True, False, True, True]
    assert seen.must_stay.tolist() == [False, False, False, True]
    assert seen.on.tolist() == [True, True, False, True]
    assert seen.deploy_s.tolist() == [0.0, 0.0, 40.0, 0.0]
    (removed,) = [record.mean_s for record in parts.lifecycle(desk.controller).durations]
    assert seen.remove_s.tolist() == [removed] * 4
