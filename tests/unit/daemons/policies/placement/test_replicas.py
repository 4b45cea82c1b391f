"""Instances of web applications under policies that know nothing of response times: the fewest, apart, never taken."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shared.policy_api.decision import ChangeKind, PlacementDecision, Reason, ReasonCode
from shared.policy_api.snapshot import Snapshot, WebColumns, WorkloadState
from shared.ports.plugins import find_policy
from sim_backend.conformance.clusters import NodeRow, WorkRow, snapshot
from sim_backend.conformance.verifier import verify

RUNNING = WorkloadState.RUNNING
POLICIES = ["first-fit", "edf"]


def replica(
    index: int, state: WorkloadState = WorkloadState.WAITING, node: int | None = None, **fields: Any
) -> WorkRow:
    """Instance `index` of the application in row 0, running where a node is given."""
    places = () if node is None else ((node, 1000.0),)
    state = state if node is None else RUNNING
    return replace(WorkRow(f"shop#{index}", state, work_mcycles=0.0, app=0, places=places), **fields)


def seen(nodes: list[NodeRow], rows: list[WorkRow], least: int, most: int = 9) -> Snapshot:
    """A cluster with one web application of `least` to `most` instances."""
    web = WebColumns(("shop",), np.array([least]), np.array([most]), np.array([math.inf]), np.array([1.0]))
    return replace(snapshot(nodes, rows), web=web)


def decide(policy: str, cluster: Snapshot) -> PlacementDecision:
    """A decision, which must be sound."""
    decision: PlacementDecision = find_policy("placement", policy).decide(cluster, None, {})[0]
    assert verify(cluster, decision) == []
    return decision


def made(decision: PlacementDecision) -> dict[str, tuple[str, list[str]]]:
    """Kind and nodes by workload."""
    return {c.workload: (c.kind.value, [given.node for given in c.allotments]) for c in decision.changes}


@pytest.mark.parametrize("policy", POLICIES)
def test_the_fewest_are_started_before_any_job_and_the_others_left(policy: str) -> None:
    """Given room for two VMs and a minimum of two, then the job waits, whatever its goal."""
    nodes = [NodeRow("n0", cores=1), NodeRow("n1", cores=1)]
    rows = [WorkRow("job", goal_s=1.0), *(replica(index) for index in range(4))]
    decision = decide(policy, seen(nodes, rows, least=2))
    assert made(decision) == {"shop#0": ("start", ["n0"]), "shop#1": ("start", ["n1"])}
    reasons = {refusal.workload: refusal.reason for refusal in decision.refusals}
    assert reasons["shop#2"] == reasons["shop#3"] == Reason(ReasonCode.KEEP, (("min_instances", 2.0),))
    assert reasons["job"].code is ReasonCode.NO_CPU


@pytest.mark.parametrize("policy", POLICIES)
def test_what_runs_counts_and_bars_its_node(policy: str) -> None:
    """Given one instance on the first node, then the second goes elsewhere, although the first node has room."""
    nodes = [NodeRow("n0"), NodeRow("n1"), NodeRow("n2")]
    decision = decide(policy, seen(nodes, [replica(0), replica(1, node=0), replica(2)], least=2))
    assert made(decision) == {"shop#0": ("start", ["n1"])}


@pytest.mark.parametrize("policy", POLICIES)
def test_too_few_nodes_is_said(policy: str) -> None:
    """Given one node for two instances, then the second is refused with the number of nodes."""
    decision = decide(policy, seen([NodeRow("n0")], [replica(0), replica(1)], least=2))
    assert made(decision) == {"shop#0": ("start", ["n0"])}
    (refusal,) = decision.refusals
    assert refusal.reason == Reason(ReasonCode.TOO_FEW_NODES, (("needed_nodes", 1.0), ("nodes", 0.0)))


@pytest.mark.parametrize("policy", POLICIES)
def test_more_than_the_fewest_stay_and_are_never_resized(policy: str) -> None:
    """Given more instances than the minimum, with little CPU, then nothing is done about them."""
    decision = decide(policy, seen([NodeRow("n0"), NodeRow("n1")], [replica(0, node=0), replica(1, node=1)], least=1))
    assert not decision.changes
    assert not decision.refusals


@pytest.mark.parametrize("policy", POLICIES)
def test_an_instance_with_a_bad_profile_is_refused_alone(policy: str) -> None:
    """Given one that is fixed and one with a NaN, then the third is started."""
    rows = [replica(0, fixed=True), replica(1, memory_mib=math.nan), replica(2)]
    decision = decide(policy, seen([NodeRow("n0")], rows, least=1))
    assert list(made(decision)) == ["shop#2"]
    codes = {refusal.workload: refusal.reason.code for refusal in decision.refusals}
    assert codes == {"shop#0": ReasonCode.KEEP, "shop#1": ReasonCode.BAD_PROFILE}


def test_no_goal_takes_an_instances_place() -> None:
    """Given a full node, then EDF suspends the job without a goal and never the web application."""
    rows = [replica(0, node=0), WorkRow("idle", RUNNING, places=((0, 1000.0),)), WorkRow("a", goal_s=5000.0)]
    decision = decide("edf", seen([NodeRow("n0", cores=2)], rows, least=1))
    assert {name: kind for name, (kind, _) in made(decision).items()} == {"idle": "suspend", "a": "start"}
    rows[1] = replica(1, node=0)
    assert not decide("edf", seen([NodeRow("n0", cores=2)], rows, least=1)).changes


@pytest.mark.parametrize("policy", POLICIES)
def test_draining_keeps_them_apart(policy: str) -> None:
    """Given two draining nodes and one free besides that of a third instance, then one moves and one stays."""
    nodes = [NodeRow("n0", draining=True), NodeRow("n1", draining=True), NodeRow("n2"), NodeRow("n3")]
    rows = [replica(0, node=0), replica(1, node=1), replica(2, node=2), replica(3)]
    decision = decide(policy, seen(nodes, rows, least=4))
    assert made(decision) == {"shop#0": (ChangeKind.MIGRATE.value, ["n3"])}
    assert {refusal.workload for refusal in decision.refusals} == {"shop#1", "shop#3"}
