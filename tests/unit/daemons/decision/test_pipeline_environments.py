"""Decisions where there are environments: each has its policy, provisioning leaves their nodes alone, and a live
controller brings no VM to a node of others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from daemons.controller.state.environment import EnvironmentEntry
from daemons.decision import pipeline
from daemons.decision.pipeline import DecideRequest
from daemons.decision.request_codec import from_bytes, header_bytes, to_bytes
from daemons.values.settings import Limits, PolicyChoice
from shared.policy_api.decision import ReasonCode
from shared.policy_api.snapshot import NOBODY, POOL, EnvironmentColumns, PowerColumns, Snapshot
from shared.protocol.operator_messages import MoveVm, SubmitJob
from shared.values.agreement import EnvironmentState, Granularity, Scheduling, VmTemplate
from shared.values.jobs import JobPhase
from shared.values.nodes import Handover
from sim_backend.conformance.clusters import NodeRow, WorkRow, snapshot
from tests.support import parts
from tests.support.controller_harness import ControllerHarness, job
from tests.support.environment_cases import agreement, environment_record
from tests.support.window_harness import WindowHarness

WRONG = PolicyChoice("edf", {"nonsense": 1})
SMALL = VmTemplate("small", 1, 1000, 1000.0)
NODES = ("p1", "p2", "a1", "a2", "b1")


def cluster() -> Snapshot:
    """Two nodes of the pool, two of a, one of b; a job waits in each, one in an environment that does not run."""
    rows = [NodeRow(name) for name in NODES]
    held = EnvironmentColumns(
        ("a", "b"),
        np.array([POOL, POOL, 0, 0, 1]),
        np.array([POOL, 0, 1, NOBODY]),
        np.array([-1, -1]),
        np.zeros(5, dtype=np.bool_),
    )
    seen = snapshot(rows, [WorkRow("free"), WorkRow("of-a", goal_s=9000.0), WorkRow("of-b"), WorkRow("idle")])
    yes, none = np.ones(5, dtype=np.bool_), np.zeros(5)
    power = PowerColumns(
        yes,
        yes,
        np.array([False, False, True, True, True]),
        on=yes,
        deploy_s=none,
        remove_s=none,
        idle_w=none,
        peak_w=none,
        off_w=none,
        types=("",) * 5,
    )
    return replace(seen, environments=held, power=power)


def run(seen: Snapshot, **fields: Any) -> pipeline.DecideOutcome:
    scheduling = {"a": PolicyChoice("edf"), "b": PolicyChoice("apc")}
    request = DecideRequest(seen, PolicyChoice("first-fit"), None, None, None, {}, scheduling)
    return pipeline.run(replace(request, **fields))


def starts(outcome: pipeline.DecideOutcome) -> dict[str, list[str]]:
    return {change.workload: [given.node for given in change.allotments] for change in outcome.placement.changes}


# --- one decision ----------------------------------------------------------------------------------------------------


def test_each_environment_is_scheduled_by_its_own_policy_on_its_own_nodes() -> None:
    outcome = run(cluster())
    assert starts(outcome) == {"free": ["p1"], "of-a": ["a1"], "of-b": ["b1"]}
    codes = {refusal.workload: refusal.reason.code for refusal in outcome.placement.refusals}
    assert codes == {"idle": ReasonCode.ENVIRONMENT}
    assert outcome.standing.keys() == {"free", "of-a", "of-b"}


@pytest.mark.parametrize("name", ["a", "b", ""])
def test_one_that_fails_takes_no_other_with_it(name: str) -> None:
    fields: dict[str, Any] = {"placement": WRONG} if not name else {"scheduling": {name: WRONG}}
    outcome = run(cluster(), **fields)
    assert list(outcome.failed) == [name]
    assert "nonsense" in outcome.failed[name]
    lost = {"a": "of-a", "b": "of-b", "": "free"}[name]
    assert {"free", "of-a", "of-b"} - starts(outcome).keys() == {lost}


def test_states_are_kept_by_environment_and_for_the_policy_that_left_them() -> None:
    kept = {"environments": {"": ["first-fit", None], "a": ["edf", None], "b": ["apc", None]}}
    first = run(cluster())
    assert first.placement_state == kept
    failed = run(cluster(), scheduling={"a": WRONG}, placement_state={"environments": {"a": ["edf", {"x": 1}]}})
    assert failed.placement_state["environments"]["a"] == ["edf", {"x": 1}]
    other = run(cluster(), scheduling={"a": WRONG}, placement_state={"environments": {"a": ["apc", {"x": 1}]}})
    assert other.placement_state["environments"]["a"] == ["edf", None]
    alone = replace(cluster(), environments=None)
    assert run(alone, placement_state=kept).placement_state is None


@pytest.mark.parametrize("policy", ["static", "cost-aware", "threshold"])
def test_provisioning_is_about_the_pool_and_keeps_the_nodes_of_environments(policy: str) -> None:
    """Given one job in the pool and more in the environments, then one node of the pool is enough."""
    params = {"nodes": 1} if policy == "static" else {}
    outcome = run(cluster(), provisioning=PolicyChoice(policy, params))
    assert outcome.provisioning is not None
    assert outcome.provisioning.in_service == ("p1", "a1", "a2", "b1")
    assert starts(outcome) == {"free": ["p1"], "of-a": ["a1"], "of-b": ["b1"]}


def test_when_nothing_is_known_of_the_pool_environments_are_served() -> None:
    """A provisioning policy that fails is told of; the nodes stay as they are."""
    outcome = run(cluster(), provisioning=PolicyChoice("threshold", {"nonsense": 1}), provisioning_state={"kept": 1})
    assert (list(outcome.failed), outcome.provisioning, outcome.provisioning_state) == ([""], None, {"kept": 1})
    assert starts(outcome) == {"of-a": ["a1"], "of-b": ["b1"]}


# --- a live controller -----------------------------------------------------------------------------------------------


def add(harness: ControllerHarness, name: str, nodes: tuple[str, ...], **fields: Any) -> EnvironmentEntry:
    """An environment that runs and has these nodes."""
    record = environment_record(name, agreement=agreement(name, **fields), size=len(nodes))
    entry = EnvironmentEntry.of(record)
    harness.controller.cluster.environments[name] = entry
    for each in nodes:
        node = harness.controller.cluster.nodes[each]
        node.environment = node.given = name
    return entry


def submit(harness: ControllerHarness, name: str, **fields: Any) -> None:
    reply = harness.ask(SubmitJob(f"r-{name}", job(name, **fields)))
    assert reply.done, reply


def where(harness: ControllerHarness, name: str) -> tuple[str, list[str]]:
    entry = harness.controller.cluster.jobs[name]
    return entry.phase.value, [given.node for given in entry.allotments]


def test_what_a_decision_sees_of_nodes_and_jobs() -> None:
    """Whose a node is: who has it until it is empty, then nobody, until it serves who gets it."""
    names = ("pool", "mine", "emptying", "releasing", "acquiring", "failed", "to-empty", "of-idle")
    harness = ControllerHarness(nodes=names).lead()
    add(harness, "e", ("mine", "emptying", "releasing", "acquiring", "failed"))
    add(harness, "vms", (), granularity=Granularity.VM, template=SMALL).size = 7
    idle = add(harness, "idle", ("of-idle",))
    idle.state = EnvironmentState.DEACTIVATED
    nodes = harness.controller.cluster.nodes
    for name in ("emptying", "releasing", "acquiring", "failed"):
        nodes[name].handover, nodes[name].given = Handover(name), "" if name != "acquiring" else "e"
    nodes["to-empty"].given = "e"
    seen = harness.controller.deciding.builder.build(0.0)
    held = seen.environments
    assert held is not None
    assert (held.names, held.quota.tolist()) == (("e", "vms"), [-1, 7])
    assert dict(zip(seen.nodes.names, held.node.tolist(), strict=True)) == {
        "pool": POOL, "mine": 0, "emptying": 0, "releasing": NOBODY, "acquiring": NOBODY, "failed": NOBODY,
        "to-empty": POOL, "of-idle": NOBODY,
    }  # fmt: skip
    gone = {"emptying", "to-empty"}
    assert {n for n, out in zip(seen.nodes.names, held.leaving, strict=True) if out} == gone
    assert {n for n, out in zip(seen.nodes.names, seen.nodes.draining, strict=True) if out} == gone
    assert {n for n, able in zip(seen.nodes.names, seen.nodes.schedulable, strict=True) if able} == {
        "pool",
        "mine",
        "of-idle",
    }


def test_jobs_run_on_the_nodes_of_their_environment_only() -> None:
    harness = ControllerHarness(nodes=("n1", "n2", "n3")).lead()
    add(harness, "batch", ("n2",))
    for name in ("one", "two"):
        submit(harness, name, memory_mib=2500, environment="batch")
    submit(harness, "free", memory_mib=2500)
    harness.obey()
    assert where(harness, "one") == ("running", ["n2"])
    assert where(harness, "two") == ("waiting", [])
    assert where(harness, "free") == ("running", ["n1"])
    said = {refusal.workload: refusal.reason.code for refusal in harness.controller.deciding.refusals}
    assert said["two"] is ReasonCode.NO_MEMORY


def test_an_environment_of_vms_runs_as_many_as_it_may_on_nodes_of_nobodys() -> None:
    """Also where what it may run has become less since the decision was asked for."""
    harness = ControllerHarness(nodes=("n1", "n2")).lead()
    add(harness, "batch", ("n1",))
    vms = add(harness, "vms", (), granularity=Granularity.VM, template=SMALL)
    vms.size = 2
    for name in ("one", "two", "three"):
        submit(harness, name, environment="vms")
    harness.obey()
    assert [where(harness, name) for name in ("one", "two")] == [("running", ["n2"])] * 2
    said = {refusal.workload: refusal.reason for refusal in harness.controller.deciding.refusals}
    assert said["three"].code is ReasonCode.OVER_QUOTA
    vms.size, harness.compute = 3, False
    harness.controller.deciding.ask(harness.now_s, cycle=True)
    harness.report("n2")
    request = harness.computations[-1].request
    assert from_bytes(header_bytes({}) + to_bytes(request), "f").request.scheduling == request.scheduling
    vms.size = 2
    harness.answer(harness.computations[-1])
    harness.settle()
    assert where(harness, "three") == ("waiting", [])
    assert [event.subject for event in harness.happenings("change-stale")] == ["three"]


def test_a_decision_that_is_overtaken_by_a_change_of_hands_is_dropped() -> None:
    harness = ControllerHarness(nodes=("n1", "n2")).lead()
    add(harness, "batch", ("n2",))
    harness.compute = False
    submit(harness, "one", environment="batch")
    harness.controller.cluster.nodes["n2"].given = ""
    harness.answer(harness.computations[-1])
    harness.settle()
    assert where(harness, "one") == ("waiting", [])
    assert [event.subject for event in harness.happenings("change-stale")] == ["one"]


def test_what_waits_to_be_started_on_a_node_that_is_to_be_emptied_is_taken_back_at_once() -> None:
    """Given a limit of one action, so that the second start waits, when the node is given away, then the second never
    gets there, and the node is empty when the first has left it."""
    harness = ControllerHarness(nodes=("n1", "n2"), limits=Limits(actions_total=1)).lead()
    add(harness, "batch", ("n2",))
    submit(harness, "one", environment="batch")
    submit(harness, "two", environment="batch")
    assert where(harness, "two") == ("running", ["n2"])
    parts.lifecycle(harness.controller).handovers.give(harness.controller.cluster.nodes["n2"], "", harness.now_s)
    harness.wait(5.0, reporting=("n1", "n2"))
    assert where(harness, "two") == ("waiting", [])
    orders = [(action.kind.value, action.vm, action.node) for action in harness.obey()]
    assert orders[:2] == [("start", "one#0", "n2"), ("suspend", "one#0", "n2")]
    assert ("start", "two#0", "n2") not in orders
    assert harness.controller.cluster.nodes["n2"].handover is Handover.SETTLED
    assert harness.controller.cluster.nodes["n2"].environment == ""


def test_a_vm_is_moved_to_no_node_of_others() -> None:
    harness = ControllerHarness(nodes=("n1", "n2", "n3")).lead()
    add(harness, "batch", ("n2", "n3"))
    submit(harness, "one", environment="batch")
    submit(harness, "free")
    harness.obey()
    for vm, node in (("one#0", "n1"), ("free#0", "n2")):
        reply = harness.ask(MoveVm("m", vm, node))
        assert (reply.done, reply.code) == (False, "node-in-environment")
    assert harness.ask(MoveVm("m2", "one#0", "n3")).done


def test_an_environment_whose_policy_fails_is_told_of_and_the_others_are_served() -> None:
    harness = ControllerHarness(nodes=("n1", "n2")).lead()
    add(harness, "batch", ("n2",), scheduling=Scheduling("edf", {"nonsense": 1}))
    submit(harness, "one", environment="batch")
    submit(harness, "free")
    assert where(harness, "free") == ("running", ["n1"])
    told = harness.happenings("decision-failed")[-1]
    assert (told.subject, "nonsense" in told.detail) == ("batch", True)
    assert harness.controller.deciding.trouble is not None


def test_nothing_is_decided_for_jobs_of_an_environment_that_does_not_run() -> None:
    harness = ControllerHarness(nodes=("n1", "n2")).lead()
    entry = add(harness, "batch", ("n2",))
    submit(harness, "one", environment="batch")
    harness.obey()
    entry.wanted = EnvironmentState.DEACTIVATED
    harness.controller.cluster.jobs["one"].phase = JobPhase.SUSPENDED
    before = len(harness.computations)
    harness.controller.deciding.ask(harness.now_s, cycle=False)
    harness.report("n1")
    assert len(harness.computations) == before


def test_nodes_of_environments_are_worth_nothing_to_deadline_windows() -> None:
    harness = WindowHarness(nodes=("n1", "n2", "n3"))
    harness.lead()
    add(harness, "batch", ("n2",))
    harness.controller.cluster.nodes["n3"].given = "batch"
    assert (harness.view().rate.tolist(), harness.view().nodes) == ([1.0, 0.0, 0.0], 1)
