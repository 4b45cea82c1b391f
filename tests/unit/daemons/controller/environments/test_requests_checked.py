"""What is asked of environments and refused: nothing changes; and what may be submitted to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shared.protocol.operator_messages import (
    Change,
    ConfirmOff,
    CreateEnvironment,
    DrainNode,
    RemoveNode,
    SubmitJob,
    SubmitWeb,
)
from shared.values.agreement import Granularity, Scheduling, VmTemplate
from shared.values.host_setup import Setup, SetupPolicy
from shared.values.jobs import Job
from shared.values.nodes import Node
from shared.values.web_app import WebApp
from tests.support.controller_harness import job
from tests.support.environment_cases import agreement
from tests.support.environment_harness import EnvironmentHarness, app

SMALL = VmTemplate("small", 1, 2_000, 1_000.0)
VMS: dict[str, Any] = {"granularity": Granularity.VM, "template": SMALL}


def harness(count: int = 4, **nodes: Any) -> EnvironmentHarness:
    """Hosts of which `nodes` says what differs."""
    made = EnvironmentHarness(count)
    made.nodes = {name: Node(name, 4, 1000.0, memory_mib=4000, **nodes) for name in made.nodes}
    made.lead()
    return made


def asked(name: str = "new", workload: str = "batch", lower: int = 1, **fields: Any) -> Change:
    return CreateEnvironment("new", agreement(name, workload, lower, **fields))


# --- refusals --------------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Change, str, str]] = {
    "name taken": (asked("hpc"), "duplicate-name", "'hpc' already"),
    "no such model": (asked(model="fbb"), "unknown-policy", "no 'fbb'"),
    "bounds against the model": (asked(upper=2), "invalid-value", "fb has one bound"),
    "no such scheduler": (asked(scheduling=Scheduling("lifo")), "unknown-policy", "no 'lifo'"),
    "scheduler's parameters": (asked(scheduling=Scheduling("edf", {"speed": 1})), "invalid-value", "speed"),
    "too many nodes": (
        asked(lower=3),
        "infeasible",
        "environment 'new' needs 3 nodes, 4 are there, of which 1 is promised to 'hpc' and 1 is promised to 'web'",
    ),
    "another system": (asked(os_type="debian"), "infeasible", "needs 1 nodes running debian, 0 are there"),
    "too many VMs": (asked(lower=5, **VMS), "infeasible", "needs 3 nodes for 5 VMs of template 'small', 4 are there"),
    "same type": (asked(coordinated_with="lone"), "coordination", "both of type batch"),
    "partner has one": (asked(workload="web", coordinated_with="hpc"), "coordination", "coordinated with 'web'"),
    "other lease unit": (
        asked(lower=0, coordinated_with="free", lease_s=60.0),
        "coordination",
        "differ in lease_s: 60 and 3600",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refused_creation_changes_nothing(what: str) -> None:
    request, code, said = REFUSED[what]
    made = harness()
    made.create("hpc", lower=1)
    made.create("web", "web", lower=1, coordinated_with="hpc")
    made.create("free", "web", lower=0)
    made.create("lone", lower=0)
    for name in ("hpc", "web"):
        made.activate(name)
    assert made.partners() == {"hpc": "web", "web": "hpc", "free": "", "lone": ""}
    before = made.store.records()
    reply = made.ask(request)
    assert (reply.done, reply.code) == (False, code)
    assert said in reply.detail
    assert made.store.records() == before
    (event,) = made.happenings("environment-refused")
    assert event.detail == f"create-environment: {code}: {reply.detail}"


WRONG: dict[str, tuple[Callable[[EnvironmentHarness], Any], str]] = {
    "activate what is not there": (lambda made: made.activate("hcp"), "unknown-environment"),
    "destroy what is not there": (lambda made: made.destroy("hcp"), "unknown-environment"),
    "deactivate what was never activated": (lambda made: made.deactivate("web"), "not-activated"),
    "activate what is going down": (lambda made: made.activate("down"), "being-deactivated"),
    "resize beyond the cluster": (lambda made: made.resize("hpc", 5), "infeasible"),
    "resize against the model": (lambda made: made.resize("hpc", 1, 2), "invalid-value"),
    "resize to nonsense": (lambda made: made.resize("hpc", 3, 2), "invalid-value"),
    "consent to itself": (lambda made: made.consent("hpc", "hpc"), "coordination"),
    "consent to one of its type": (lambda made: made.consent("hpc", "down"), "coordination"),
    "consent to nobody": (lambda made: made.consent("hpc", "nobody"), "unknown-environment"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_refused_change_changes_nothing(what: str) -> None:
    ask, code = WRONG[what]
    made = harness()
    made.open("hpc", lower=1)
    made.open("down", lower=1)
    made.ask(SubmitJob("j", job("j", environment="down")))
    made.finish()
    made.deactivate("down")
    made.create("web", "web", lower=1)
    before = made.store.records()
    assert ask(made).code == code
    assert made.store.records() == before


def test_upper_bounds_that_cannot_all_be_kept_are_accepted_and_said() -> None:
    made = harness()
    assert made.create("a", lower=1, upper=3, model="flb-nub").detail == ""
    reply = made.create("b", lower=1, upper=3, model="flb-nub")
    assert reply.done
    assert reply.detail.startswith("upper bounds cannot all be reached at once: 'a' 3 nodes, 'b' 3 nodes")


def test_an_owner_is_not_told_of_the_environments_of_others() -> None:
    made = harness()
    made.create("secret", "web", lower=3, owner="eve")
    number = len(made.replies)
    for name, fields in (("big", {"lower": 2}), ("named", {"coordinated_with": "secret", "lease_s": 60.0})):
        made.say(CreateEnvironment(name, agreement(name, **fields)), "owner.anna")
    big, named = made.replies[number:]
    assert (big.code, big.detail) == (
        "infeasible",
        "environment 'big' needs 2 nodes, 4 are there, of which 3 are promised to others",
    )
    assert (named.done, named.detail) == (True, "")


# --- resizing --------------------------------------------------------------------------------------------------------


def test_a_resized_environment_has_its_units_at_once_also_under_the_next_controller() -> None:
    made = harness()
    made.open("hpc", lower=1, lease_s=3600.0)
    assert made.resize("hpc", 3).done
    made.wait(6.0, made.nodes)
    assert (made.entry().agreement.lower, made.entry().size, made.held_by()) == (3, 3, ["n1", "n2", "n3"])
    assert made.resize("hpc", 3).done
    assert made.whats().count("environment-resized") == 1
    later = made.successor()
    assert (later.entry().agreement.lower, later.resize("hpc", 1).done) == (3, True)
    later.finish()
    assert later.held_by() == ["n1"]


# --- nodes that are lost ---------------------------------------------------------------------------------------------


def test_bounds_that_cannot_be_met_any_more_are_told_and_shown_until_they_can() -> None:
    made = harness(2)
    made.open("hpc", lower=2)
    made.wait(40.0, ["n1"])
    made.ask(ConfirmOff("off", "n2"))
    (event,) = made.happenings("environment-short")
    assert (event.subject, event.detail) == ("hpc", "environment 'hpc' needs 2 nodes, 1 is there")
    alarm = {"what": "environment-short", "subject": "hpc", "since_s": None, "detail": event.detail}
    assert alarm in made.shown("status")["alarms"]
    later = made.successor()
    later.boots["n2"] = "boot-2"
    later.hear()
    later.hear()
    assert not [one for one in later.shown("status")["alarms"] if one["what"] == "environment-short"]


def test_a_node_that_an_operator_keeps_out_is_not_counted() -> None:
    made = harness(2)
    made.open("hpc", lower=2)
    made.ask(DrainNode("d", "n1", True))
    made.finish()
    assert [event.subject for event in made.happenings("environment-short")] == ["hpc"]
    made.ask(DrainNode("d2", "n1", False))
    assert [event.subject for event in made.happenings("environment-satisfied")] == ["hpc"]


def test_short_is_who_lacks_nodes_and_not_who_came_later_and_has_them() -> None:
    made = harness(3)
    made.open("hpc", lower=2)
    made.open("late", lower=1)
    made.ask(DrainNode("d", made.held_by("hpc")[0], True))
    made.finish()
    (event,) = made.happenings("environment-short")
    promised = "environment 'hpc' needs 2 nodes, 2 are there, of which 1 is promised to 'late'"
    assert (event.subject, event.detail) == ("hpc", promised)


def test_a_drained_node_is_given_back_and_may_be_removed_then() -> None:
    made = harness(3)
    made.open("hpc", lower=2, setup=Setup(SetupPolicy.WIPE))
    made.ask(SubmitJob("j", job("j", environment="hpc")))
    made.finish()
    busy = made.ask(RemoveNode("r1", "n1"))
    assert (busy.code, busy.detail) == ("node-not-empty", "1 VMs and 0 images may be on it; drain it first")
    idle = made.ask(RemoveNode("r2", "n2"))
    assert (idle.code, idle.detail) == ("node-in-environment", "node 'n2' is environment 'hpc''s; drain it first")
    made.ask(DrainNode("d", "n1", True))
    made.hear()
    made.finish()
    made.hear()
    assert made.held_by() == ["n2", "n3"]
    assert made.controller.cluster.jobs["j"].allotments[0].node != "n1"
    assert [event.subject for event in made.happenings("node-released")] == ["n1"]
    assert made.ask(RemoveNode("r3", "n1")).done


# --- workloads -------------------------------------------------------------------------------------------------------


def separate(count: int, environment: str) -> Job:
    return job("j", environment=environment, instances=count, spread=True)


JOBS: dict[str, tuple[Job, str, str]] = {
    "no such environment": (job("j", environment="hcp"), "unknown-environment", "nearest: 'hpc'"),
    "for web applications": (job("j", environment="web"), "wrong-workload", "is for web workloads"),
    "more than its bounds": (separate(3, "hpc"), "fits-no-environment", "needs 3 nodes, environment 'hpc' can have 2"),
    "more than there are": (separate(5, "wide"), "fits-no-environment", "needs 5 nodes"),
    "larger than a node": (job("j", environment="hpc", memory_mib=5_000), "fits-no-node", "5000 MiB"),
    "larger than a VM": (job("j", environment="vms", memory_mib=3_000), "fits-no-environment", "template 'small' has"),
    "more than its VMs": (job("j", environment="vms", instances=2), "fits-no-environment", "can have 1 at most"),
}


def host() -> EnvironmentHarness:
    """Environments of several kinds on four nodes."""
    made = harness()
    made.create("hpc", lower=2)
    made.create("web", "web", lower=1)
    made.create("wide", lower=0, model="flb-nub")
    made.create("vms", lower=1, **VMS)
    return made


@pytest.mark.parametrize("what", JOBS)
def test_a_job_that_its_environment_cannot_run_is_refused(what: str) -> None:
    submitted, code, said = JOBS[what]
    made = host()
    reply = made.ask(SubmitJob("j", submitted))
    assert reply.code == code, reply
    assert said in reply.detail
    assert made.controller.cluster.jobs == {}


def test_a_job_counts_with_what_its_environment_and_its_partner_have_together() -> None:
    made = host()
    made.create("pair", "web", lower=0, coordinated_with="wide", model="flb-nub")
    assert made.ask(SubmitJob("a", separate(4, "wide"))).done
    made.ask(SubmitJob("b", job("b", environment="hpc", instances=8)))  # eight on two nodes
    assert made.replies[-1].done


APPS: dict[str, tuple[WebApp, str]] = {
    "no such environment": (app("s", "hcp"), "unknown-environment"),
    "for jobs": (app("s", "hpc"), "wrong-workload"),
    "more instances than its bounds": (app("s", "web", 2), "fits-no-environment"),
    "of another environment": (app("known", "web"), "other-environment"),
}


@pytest.mark.parametrize("what", APPS)
def test_a_web_application_that_its_environment_cannot_serve_is_refused(what: str) -> None:
    submitted, code = APPS[what]
    made = host()
    made.ask(SubmitWeb("known", app("known", "")))
    assert made.ask(SubmitWeb("s", submitted)).code == code
    assert set(made.controller.cluster.web) == {"known"}


def test_workloads_of_no_environment_go_on_beside_them() -> None:
    made = host()
    made.activate("hpc")
    made.finish()
    made.ask(SubmitJob("free", job("free")))
    made.ask(SubmitJob("bound", job("bound", environment="hpc")))
    made.finish()
    jobs = made.controller.cluster.jobs
    assert [entry.allotments[0].node in made.held_by() for entry in (jobs["free"], jobs["bound"])] == [False, True]
