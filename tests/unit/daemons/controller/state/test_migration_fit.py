"""Live migrations go only where the VM can go alive: planned so, asked so, and looked at again before they are sent."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from daemons.controller.state.migration_fit import migration_columns
from daemons.values.settings import PolicyChoice
from shared.protocol.operator_messages import AddNode, HoldJob, MoveVm, Query, SubmitJob, SubmitWeb
from shared.values.actions import ActionKind, Outcome
from shared.values.migration import lacks
from shared.values.vms import VmState
from shared.values.web_app import Flow, WebApp
from tests.support import parts
from tests.support.controller_harness import ControllerHarness, job

NODES = ("n1", "n2", "n3")
NEEDS = ("machine=pc-q35-7.2", "network=default", "pool=shared")
POLICIES = ("first-fit", "edf", "apc")


def running(has: dict[str, tuple[str, ...]], policy: str = "first-fit", **fields: Any) -> ControllerHarness:
    """A job on n1 that needs something of where it is migrated to."""
    harness = ControllerHarness(NODES, placement=PolicyChoice(policy), decide_s=300.0)
    for name, what in has.items():
        harness.nodes[name] = replace(harness.nodes[name], migration_has=what)
    harness.lead()
    harness.ask(SubmitJob("s", job(**fields)))
    harness.obey()
    (home,) = [name for name in NODES if harness.vms[name]]
    assert home == "n1"
    harness.change("n1", "j#0", migration_needs=NEEDS)
    harness.wait(5.0, reporting=NODES)
    return harness


def drained(harness: ControllerHarness) -> list[tuple[ActionKind, str]]:
    """What is ordered when n1 is to be emptied."""
    parts.lifecycle(harness.controller).hold(harness.controller.cluster.nodes["n1"], True, harness.now_s)
    harness.wait(301.0, reporting=NODES)
    return [(order.kind, order.to_node) for order in harness.take_orders()][:1]


def test_what_is_lacking_is_told_by_kind() -> None:
    has = ("machine=pc-i440fx-7.2", "pool=shared", "pool=default")
    assert lacks(has, NEEDS) == ("machine=pc-q35-7.2",), "of networks nothing is known"
    assert lacks((), NEEDS) == ()
    assert lacks(has, ()) == ()
    assert lacks(NEEDS, NEEDS) == ()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_drained_job_goes_where_it_fits(policy: str) -> None:
    """Given two nodes of which the first lacks a network, when a node is drained, then its job goes to the other."""
    harness = running({"n1": NEEDS, "n2": ("machine=pc-q35-7.2", "network=other"), "n3": NEEDS}, policy)

    assert drained(harness) == [(ActionKind.MIGRATE, "n3")]


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_not_known_fits(policy: str) -> None:
    assert drained(running({"n2": (), "n3": ("pool=none",)}, policy)) == [(ActionKind.MIGRATE, "n2")]


@pytest.mark.parametrize("policy", ["first-fit", "edf"])
def test_where_it_fits_nowhere_it_stays_and_the_reason_says_so(policy: str) -> None:
    harness = running(dict.fromkeys(("n2", "n3"), ("pool=other",)), policy)

    assert drained(harness) == []
    reason = harness.ask(Query("q", "job", "j")).data["job"]["waits_for"]
    assert (reason["code"], reason["numbers"]) == ("migration-fit", {"nodes": 2.0, "nodes_able": 0.0})


def test_apc_suspends_what_cannot_leave_alive_or_says_why_it_stays() -> None:
    """Suspended and resumed it fits anywhere."""
    harness = running(dict.fromkeys(("n2", "n3"), ("pool=other",)), "apc")

    ordered = drained(harness)
    assert ordered in ([], [(ActionKind.SUSPEND, "")])
    reason = harness.ask(Query("q", "job", "j")).data["job"]["waits_for"]
    assert ordered or reason["code"] == "migration-fit"


def test_what_is_suspended_is_resumed_anywhere() -> None:
    harness = running(dict.fromkeys(("n2", "n3"), ("pool=other",)))
    harness.ask(HoldJob("h", "j", True))
    harness.obey()
    assert harness.vms["n1"]["j#0"].state is VmState.SUSPENDED
    parts.lifecycle(harness.controller).hold(harness.controller.cluster.nodes["n1"], True, harness.now_s)
    harness.ask(HoldJob("h2", "j", False))

    assert [(order.kind, order.node) for order in harness.take_orders()] == [(ActionKind.RESUME, "n2")]


def test_an_operator_is_told_what_is_lacking() -> None:
    harness = running({"n2": ("pool=other", "machine=pc-q35-7.2")})
    reply = harness.ask(MoveVm("m", "j#0", "n2"))

    assert (reply.code, "pool=shared" in reply.detail, "machine" in reply.detail) == ("migration-fit", True, False)
    assert harness.ask(MoveVm("m2", "j#0", "n3")).done


def test_what_does_not_fit_any_more_when_it_is_to_be_sent_stays() -> None:
    """Given a decided move that waits for room on its way, when its target changes, then it is given up."""
    harness = running({}, vcpus=1)
    harness.ask(MoveVm("m", "j#0", "n2"))
    (order,) = harness.take_orders()
    harness.result(order, outcome=Outcome.EXPIRED, seq=0)
    harness.nodes["n2"] = replace(harness.nodes["n2"], migration_has=("network=none",))
    allotments = harness.controller.cluster.jobs["j"].allotments
    harness.controller.cluster.set_allotments(
        harness.controller.cluster.jobs["j"], (replace(allotments[0], node="n2"),)
    )
    harness.wait(60.0, reporting=NODES)

    assert harness.take_orders() == []
    assert [allotment.node for allotment in harness.controller.cluster.jobs["j"].allotments] == ["n1"]
    assert "network=default" in harness.happenings("migration-unfit")[0].detail


def test_the_columns_say_what_asking_one_by_one_says() -> None:
    """Naively: instance by instance, node by node."""
    rng = np.random.default_rng(9)
    kinds, values = ("machine", "network", "pool"), ("a", "b")
    tokens = [f"{kind}={value}" for kind, value in product(kinds, values)]
    for _ in range(20):
        harness = ControllerHarness([f"n{i}" for i in range(5)]).lead()
        for name in harness.nodes:
            has = tuple(token for token in tokens if rng.random() < 0.4)
            harness.nodes[name] = replace(harness.nodes[name], migration_has=has)
        for number in range(6):
            harness.ask(SubmitJob(f"s{number}", job(f"j{number}", instances=1 + number % 2, memory_mib=500)))
        harness.obey()
        for vms in harness.vms.values():
            for vm in list(vms):
                needs = tuple(token for token in tokens if rng.random() < 0.3)
                vms[vm] = structs.replace(vms[vm], migration_needs=needs)
        for name in harness.nodes:
            harness.report(name)
        cluster = harness.controller.cluster
        nodes, jobs = list(cluster.nodes.values()), list(cluster.jobs.values())
        columns = migration_columns(cluster, nodes, jobs, 0.0)
        for row, entry in enumerate(jobs):
            homes = {allotment.node for allotment in entry.allotments}
            needs_all = [
                status.migration_needs
                for vms in harness.vms.values()
                for status in vms.values()
                if status.vm.startswith(f"{entry.job.name}#")
            ]
            naive = [
                name in homes or all(not lacks(harness.nodes[name].migration_has, needs) for needs in needs_all)
                for name in harness.nodes
            ]
            got = columns.nodes_of(row) if columns is not None else None
            assert (got.tolist() if got is not None else [True] * 5) == naive


@pytest.mark.parametrize(
    ("has", "template", "refused"),
    [
        ((("render", "web"), ("render",)), "rendr", "there is no template 'rendr' on any node; nodes have render, web"),
        ((("render",), ("render",)), "", "it names no template; nodes have render"),
        (((), ()), "render", "there is no template 'render' on any node; no node has any"),
        ((("render",), ("web",)), "web", ""),
        ((("render",), None), "rendr", ""),  # its driver does not tell
    ],
)
def test_what_is_made_from_an_unknown_template_is_refused(
    has: tuple[tuple[str, ...] | None, ...], template: str, refused: str
) -> None:
    """Given nodes that have told their templates, then jobs and web applications from another one are refused."""
    harness = ControllerHarness(("n1", "n2"))
    for name, templates in zip(("n1", "n2"), has, strict=True):
        harness.nodes[name] = replace(harness.nodes[name], templates=templates)
    harness.lead()
    app = WebApp("shop", (Flow("all", mean_s=1.0, work_mcycles=5.0),), 100, max_mhz=500.0, template=template)
    for ask in (SubmitJob("s", job(template=template)), SubmitWeb("w", app)):
        reply = harness.ask(ask)
        assert (reply.done, reply.code) == ((False, "unknown-template") if refused else (True, ""))
        assert reply.detail.startswith(refused)


def test_a_node_that_has_not_reported_may_have_any_template() -> None:
    harness = ControllerHarness(("n1",))
    harness.nodes["n1"] = replace(harness.nodes["n1"], templates=("render",))
    harness.lead()
    harness.ask(AddNode("add", "n9"))
    assert harness.ask(SubmitJob("s", job(template="other"))).done
