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
from tests.support.node_service_harness import PowerHarness, power
from tests.support.window_harness import night

IN_SERVICE, DRAINING, STANDBY = NodeService.IN_SERVICE, NodeService.DRAINING, NodeService.STANDBY


def windowed(removal: Removal, nodes: tuple[str, ...] = ("n1", "n2")) -> PowerHarness:
    """A harness with a window's job of 3,000 MiB on each node: none can be moved."""
    harness = PowerHarness(nodes, windows=(night(removal=removal),))
    harness.lead()
    for index, _ in enumerate(nodes):
        wanted = job(f"j{index}", work=1e9, memory_mib=3000, queue="night", checkpoint_mcycles=1000.0)
        harness.ask(SubmitJob(f"s{index}", wanted))
        harness.obey()
    return harness


def on(harness: PowerHarness, node: str) -> str:
    """The job on a node."""
    return next(iter(harness.controller.cluster.nodes[node].claimed.values())).job.job.name


# --- what becomes of jobs --------------------------------------------------------------------------------------------


def test_jobs_that_cannot_be_moved_are_suspended_so_that_the_node_empties() -> None:
    harness = windowed(Removal.CHECKPOINT)
    harness.want("n1")
    assert harness.take_orders() == []
    harness.go(10.0)
    (suspend,) = harness.take_orders()
    assert (suspend.kind, suspend.node) == ("suspend", "n2")
    harness.result(suspend)
    harness.go(5.0)
    assert harness.service("n2") is STANDBY
    harness.go(600.0)
    assert harness.sleeps == []  # its image would be out of reach


def test_the_suspended_job_goes_on_elsewhere_and_then_the_node_sleeps() -> None:
    harness = windowed(Removal.CHECKPOINT)
    saved, ending = on(harness, "n2"), on(harness, "n1")
    harness.want("n1")
    harness.go(10.0)
    harness.obey()
    harness.go(5.0)
    instance = harness.controller.cluster.jobs[ending].instances[0]
    harness.guest("n1", instance.vm, GuestChange.ENDED)
    (resume,) = harness.take_orders()
    assert (resume.kind, resume.node, resume.from_node) == ("resume", "n1", "n2")
    harness.result(resume)
    harness.go(5.0)
    (discard,) = harness.take_orders()
    assert (discard.kind, discard.node, discard.vm) == ("discard-image", "n2", f"{saved}#0")
    harness.result(discard)
    harness.go(100.0)
    assert [asked.node for asked in harness.sleeps] == ["n2"]


def test_a_node_waits_for_jobs_that_must_not_be_disturbed() -> None:
    harness = windowed(Removal.WAIT)
    left = on(harness, "n2")
    harness.want("n1")
    harness.go(3600.0)  # far beyond the limit on emptying
    assert (harness.service("n2"), harness.take_orders(), harness.happenings("drain-failed")) == (DRAINING, [], [])
    harness.guest("n2", f"{left}#0", GuestChange.ENDED)
    assert harness.service("n2") is STANDBY


def test_jobs_that_may_lose_their_work_do_so_at_once_and_it_is_counted() -> None:
    harness = windowed(Removal.LOSE)
    left = on(harness, "n2")
    harness.change("n2", f"{left}#0", cpu_time_s=2.5)  # 2,500 Mcycles, 2,000 of them saved by the guest
    harness.go(5.0)
    harness.want("n1")
    (stop,) = harness.take_orders()
    assert (stop.kind, stop.node) == ("stop", "n2")
    ((subject, detail),) = [(event.subject, event.detail) for event in harness.happenings("work-lost")]
    assert (subject, detail.startswith("500 Mcycles")) == (left, True)
    assert parts.lifecycle(harness.controller).emptying.lost_mcycles == pytest.approx(500.0)
    harness.result(stop)
    harness.go(5.0)
    assert harness.service("n2") is STANDBY


def test_an_operator_who_empties_a_node_loses_no_work() -> None:
    harness = windowed(Removal.LOSE)
    harness.ask(DrainNode("d", "n2", True))
    harness.go(60.0)
    assert (harness.take_orders(), harness.happenings("work-lost")) == ([], [])


# --- how far decisions go --------------------------------------------------------------------------------------------


def deciding(automation: Automation, **more: Any) -> PowerHarness:
    """A harness that decides every 100 s to keep one node in service."""
    harness = PowerHarness(
        automation=automation, provisioning=PolicyChoice("static", {"nodes": 1}), decide_s=100.0, **more
    )
    harness.lead()
    harness.go(105.0)
    return harness


def plan(harness: PowerHarness) -> dict[str, Any]:
    reply = harness.ask(Query("q", "plan"))
    return dict(reply.data["decision"]["provisioning"])


def test_advice_about_nodes_is_only_recorded() -> None:
    harness = deciding(Automation.ADVISE)
    assert {harness.service(name) for name in harness.nodes} == {IN_SERVICE}
    shown = plan(harness)
    assert (shown["held"], shown["added"], shown["removed"], shown["in_service"]) == (True, [], ["n2", "n3"], 1)
    assert harness.controller.deciding.pending is None
    assert harness.happenings("nodes-proposed")
    assert not harness.happenings("nodes-decided")


def test_an_approved_plan_takes_nodes_out_of_service() -> None:
    harness = deciding(Automation.CONFIRM)
    assert harness.service("n2") is IN_SERVICE
    number = harness.ask(Query("q", "plan")).data["decision"]["number"]
    assert harness.ask(ApprovePlan("a", number)).done
    assert [harness.service(name) for name in ("n1", "n2", "n3")] == [IN_SERVICE, STANDBY, STANDBY]


def test_an_approved_plan_leaves_nodes_alone_that_have_changed_since() -> None:
    harness = deciding(Automation.CONFIRM)
    number = harness.ask(Query("q", "plan")).data["decision"]["number"]
    harness.ask(DrainNode("d", "n2", True))
    harness.ask(DrainNode("u", "n2", False))
    harness.ask(ApprovePlan("a", number))
    assert [harness.service(name) for name in ("n2", "n3")] == [IN_SERVICE, STANDBY]


def test_decisions_about_nodes_are_carried_out() -> None:
    harness = deciding(Automation.AUTO)
    assert [harness.service(name) for name in ("n1", "n2", "n3")] == [IN_SERVICE, STANDBY, STANDBY]
    assert plan(harness)["held"] is False
    record = harness.store.get(("node", "n2"))
    assert (record.wanted, record.service) == (False, STANDBY)


def test_a_decision_about_a_node_that_has_changed_since_its_snapshot_is_dropped() -> None:
    harness = PowerHarness(provisioning=PolicyChoice("static", {"nodes": 1}), decide_s=100.0)
    harness.lead()
    harness.compute = False
    harness.go(105.0)
    harness.ask(DrainNode("d", "n2", True))
    harness.ask(DrainNode("u", "n2", False))
    harness.answer(harness.computations[-1])
    harness.settle()
    assert [harness.service(name) for name in ("n2", "n3")] == [IN_SERVICE, STANDBY]
    assert plan(harness)["dropped"] == ["n2"]


def test_a_dry_run_says_what_would_become_of_nodes() -> None:
    harness = deciding(Automation.ADVISE)
    shown = harness.ask(DryRun("dry")).data["decision"]["provisioning"]
    assert (shown["removed"], shown["policy"], shown["held"]) == (["n2", "n3"], "static", True)
    assert {harness.service(name) for name in harness.nodes} == {IN_SERVICE}


def test_policies_see_where_nodes_are() -> None:
    harness = PowerHarness(
        ("n1", "n2", "n3", "n4"), settings=power(never=frozenset({"n4"}), deploy_s=40.0, remove_s=7.0)
    )
    harness.lead()
    harness.put_to_sleep("n3")
    harness.ask(DrainNode("d", "n2", True))
    seen = harness.controller.deciding.builder.build(harness.now_s).power
    assert seen is not None
    assert seen.wanted.tolist() == [True, False, False, True]
    assert seen.available.tolist() == [True, False, True, True]
    assert seen.must_stay.tolist() == [False, False, False, True]
    assert seen.on.tolist() == [True, True, False, True]
    assert seen.deploy_s.tolist() == [0.0, 0.0, 40.0, 0.0]
    (removed,) = [record.mean_s for record in parts.lifecycle(harness.controller).durations]
    assert seen.remove_s.tolist() == [removed] * 4
