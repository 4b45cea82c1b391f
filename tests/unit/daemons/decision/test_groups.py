"""Parting a snapshot by environment and joining decisions, case by case."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from daemons.decision import groups, pipeline
from daemons.decision.pipeline import DecideRequest
from daemons.values.settings import PolicyChoice
from shared.policy_api.decision import Change, ChangeKind, Outlook, PlacementDecision, Reason, ReasonCode, Refusal
from shared.policy_api.snapshot import (
    ELSEWHERE,
    NOBODY,
    POOL,
    EnvironmentColumns,
    PowerColumns,
    Snapshot,
    WebColumns,
    WorkloadState,
)
from shared.values.jobs import Allotment, Constraint, ConstraintKind
from sim_backend.conformance.clusters import NodeRow, WorkRow, rows_of, snapshot

RUNNING, SUSPENDED = WorkloadState.RUNNING, WorkloadState.SUSPENDED
POLICIES = ("first-fit", "edf", "apc")
_WHY = Reason(ReasonCode.ARRIVAL_ORDER)


def ints(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def seen(
    nodes: dict[str, int], jobs: list[tuple[WorkRow, int]], quota: tuple[int, ...] = (-1, -1), leaving: str = ""
) -> Snapshot:
    """A cluster of environments a, b, ...: whose each node and each workload is; nodes named in `leaving` go."""
    rows = [
        NodeRow(
            name, cores=2, memory_mib=4000.0, schedulable=name not in leaving.split(), draining=name in leaving.split()
        )
        for name in nodes
    ]
    held = EnvironmentColumns(
        tuple("ab"[: len(quota)]),
        ints(list(nodes.values())),
        ints([env for _, env in jobs]),
        ints(list(quota)),
        np.array([name in leaving.split() for name in nodes], dtype=np.bool_),
    )
    return replace(snapshot(rows, [row for row, _ in jobs]), environments=held)


def running(name: str, *nodes: int, **fields: object) -> WorkRow:
    given = {"instances": len(nodes), "places": tuple((node, 1000.0) for node in nodes)} | fields
    return replace(WorkRow(name, RUNNING), **given)  # type: ignore[arg-type]


def outcome_of(cluster: Snapshot, policy: str, **fields: object) -> pipeline.DecideOutcome:
    request = DecideRequest(cluster, PolicyChoice(policy), None, None, None)
    scheduling = dict.fromkeys("ab", PolicyChoice(policy))
    return pipeline.run(replace(request, scheduling=scheduling, **fields))  # type: ignore[arg-type]


def decided(cluster: Snapshot, policy: str) -> PlacementDecision:
    outcome = outcome_of(cluster, policy)
    assert not outcome.failed
    return outcome.placement


def made(decision: PlacementDecision) -> dict[str, tuple[str, list[str]]]:
    return {c.workload: (c.kind.value, [given.node for given in c.allotments]) for c in decision.changes}


def reasons(decision: PlacementDecision) -> dict[str, Reason]:
    return {refusal.workload: refusal.reason for refusal in decision.refusals}


# --- parting ---------------------------------------------------------------------------------------------------------


def test_without_environments_a_snapshot_is_its_own_part() -> None:
    plain = snapshot([NodeRow("n0")], [WorkRow("j")])
    (part,) = groups.parts(plain)
    assert part.snapshot is plain
    assert groups.give_way(part, PlacementDecision(evaluations=7)).evaluations == 7


def test_what_lies_or_runs_elsewhere_is_nowhere_for_a_part() -> None:
    """An image on a node of others is still there to be resumed, one on a silent node is not; a VM on one of others
    must not be touched."""
    nodes = {"p": POOL, "a": 0, "x": NOBODY}
    jobs = [
        (WorkRow("image", SUSPENDED, places=((0, 0.0),)), 0),
        (WorkRow("silent", SUSPENDED, places=((-1, 0.0),)), 0),
        (running("astray", 2), 0),
        (running("half", 1, 0), 0),
        (running("here", 1), 0),
    ]
    part = groups.parts(seen(nodes, jobs))[1]
    found = {row.name: ([node for node, _ in row.places], row.fixed) for row in rows_of(part.snapshot)[1]}
    assert found == {
        "image": ([ELSEWHERE], False),
        "silent": ([-1], False),
        "astray": ([-1], True),
        "half": ([0, -1], True),
        "here": ([0], False),
    }


@pytest.mark.parametrize("policy", ["first-fit", "edf", "apc"])
@pytest.mark.parametrize("keep", [False, True])
def test_a_job_whose_image_lies_on_a_node_of_others_is_resumed(policy: str, keep: bool) -> None:
    """Also one that is to be kept where it was, since that is not to be had any more."""
    nodes = {"p": POOL, "a": 0, "b": 0}
    row = WorkRow("image", SUSPENDED, places=((0, 0.0),), work_mcycles=1e6)
    of = (Constraint(ConstraintKind.KEEP, ("image",)),) if keep and policy == "apc" else ()
    found = made(decided(replace(seen(nodes, [(row, 0)]), constraints=of), policy))
    assert found in ({"image": ("resume", ["a"])}, {"image": ("resume", ["b"])})


def test_groups_of_constraints_are_kept_among_those_inside() -> None:
    jobs = [(WorkRow(name), env) for name, env in (("a1", 0), ("a2", 0), ("b1", 1), ("p1", POOL))]
    of = ConstraintKind
    demands = (
        Constraint(of.PIN, ("a1",), ("n1",)),
        Constraint(of.APART, ("a1", "b1", "a2")),
        Constraint(of.TOGETHER, ("a1", "p1")),
        Constraint(of.APART, ("p1",)),
        Constraint(of.APART, ("b1", "gone")),
        Constraint(of.APART, ("a1", "p1"), scope="rack", weight=5, about=("a2", "b1")),
        Constraint(of.TOGETHER, ("p1",), about=("a1",)),
        Constraint(of.PIN, ("a1", "p1"), labels=("ssd",), weight=9),
    )
    parts = groups.parts(replace(seen({"p": POOL, "a": 0, "b": 1}, jobs), constraints=demands))
    assert [part.snapshot.constraints for part in parts] == [
        (Constraint(of.APART, ("p1",)), Constraint(of.PIN, ("p1",), labels=("ssd",), weight=9)),
        (
            Constraint(of.PIN, ("a1",), ("n1",)),
            Constraint(of.APART, ("a1", "a2")),
            Constraint(of.APART, ("a1",), scope="rack", weight=5, about=("a2",)),
            Constraint(of.PIN, ("a1",), labels=("ssd",), weight=9),
        ),
        (Constraint(of.APART, ("b1", "gone")),),
    ]


def test_the_pool_counts_on_no_node_that_another_is_to_have() -> None:
    cluster = seen({"p": POOL, "q": POOL, "a": 0}, [], leaving="q")
    yes, some = np.ones(3, dtype=np.bool_), np.zeros(3)
    power = PowerColumns(
        yes, yes, ~yes, on=yes, deploy_s=some, remove_s=some, idle_w=some, peak_w=some, off_w=some, types=("",) * 3
    )
    parts = groups.parts(replace(cluster, power=power))
    assert parts[0].snapshot.power is not None
    assert parts[0].snapshot.power.available.tolist() == [True, False]
    assert parts[1].snapshot.power is None


# --- units that are VMs ----------------------------------------------------------------------------------------------


def test_a_quota_is_used_to_its_end_and_never_beyond() -> None:
    """Two of five VMs run: what comes first and fits into the other three may start; one that is too large holds up
    nobody; what may not start yet takes nothing."""
    jobs = [
        (running("runs", 0, 0), 0),
        (WorkRow("late", submit_s=9.0), 0),
        (WorkRow("two", instances=2, submit_s=1.0), 0),
        (WorkRow("large", instances=2, submit_s=2.0), 0),
        (WorkRow("waits", desired_start_s=9e9, submit_s=0.0), 0),
        (WorkRow("first", submit_s=3.0), 0),
        (WorkRow("free"), POOL),
    ]
    decision = decided(seen(dict.fromkeys(("p", "q", "r", "s", "t"), POOL), jobs, quota=(5,)), "first-fit")
    assert set(made(decision)) == {"two", "first", "free"}
    wanted = (("quota", 5.0), ("in_use", 2.0))
    assert reasons(decision)["large"] == Reason(ReasonCode.OVER_QUOTA, (("queued", 2.0), *wanted))
    assert reasons(decision)["late"] == Reason(ReasonCode.OVER_QUOTA, (("queued", 1.0), *wanted))
    assert reasons(decision)["waits"].code is ReasonCode.NOT_YET


@pytest.mark.parametrize(("quota", "started"), [(0, []), (1, []), (2, ["y#0"]), (3, ["x#1", "y#0"])])
def test_web_instances_that_must_be_come_first(quota: int, started: list[str]) -> None:
    """Given two applications, one of which runs one of its least two instances, then each gets its least in turn."""
    jobs = [(replace(running("x#0", 0), app=0, work_mcycles=0.0), 0)]
    jobs += [
        (WorkRow(name, app=app, work_mcycles=0.0), 0) for name, app in (("x#1", 0), ("x#2", 0), ("y#0", 1), ("y#1", 1))
    ]
    cluster = seen(dict.fromkeys(("p", "q", "r", "s"), POOL), jobs, quota=(quota,))
    web = WebColumns(("x", "y"), ints([2, 1]), ints([3, 2]), np.full(2, np.inf), np.ones(2))
    decision = decided(replace(cluster, web=web), "first-fit")
    assert sorted(made(decision)) == started


# --- nodes that another is to have -----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_what_has_room_elsewhere_moves_and_the_rest_gives_way_at_once(policy: str) -> None:
    """Given node a1 to be emptied and room for one VM on a2 of the same environment, then one moves there, the other
    is suspended, although there is room in the pool; what must not be changed stays."""
    nodes = {"p": POOL, "a1": 0, "a2": 0}
    jobs = [
        (running("one", 1, goal_s=9000.0, memory_mib=2000.0), 0),
        (running("two", 1, goal_s=9000.0, memory_mib=2000.0), 0),
        (running("there", 2, goal_s=9000.0, memory_mib=2000.0), 0),
    ]
    placed = made(decided(seen(nodes, jobs, leaving="a1"), policy))
    assert sorted(placed.values()) == [("migrate", ["a2"]), ("suspend", [])]
    held = [(replace(row, fixed=True), env) for row, env in jobs]
    assert made(decided(seen(nodes, held, leaving="a1"), policy)) == {}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_gang_gives_way_as_a_whole_and_an_instance_of_an_application_is_stopped(policy: str) -> None:
    jobs = [
        (running("gang", 0, 1, memory_mib=3000.0, goal_s=9000.0), 0),
        (replace(running("w#0", 0), memory_mib=900.0, app=0, work_mcycles=0.0), 0),
    ]
    cluster = seen({"a1": 0, "a2": 0}, jobs, leaving="a1")
    columns = replace(cluster.nodes, free_memory_mib=np.array([100.0, 100.0]))
    web = WebColumns(("w",), ints([1]), ints([1]), np.full(1, np.inf), np.ones(1))
    decision = decided(replace(cluster, nodes=columns, web=web), policy)
    assert made(decision) == {"gang": ("suspend", []), "w#0": ("stop", [])}
    assert {change.reason.code for change in decision.changes} <= {ReasonCode.RECLAIMED, ReasonCode.DRAIN}
    assert not reasons(decision)


def test_a_change_that_would_stay_there_is_replaced() -> None:
    cluster = seen({"a1": 0, "a2": 0}, [(running("j", 0, 1), 0)], leaving="a1")
    part = groups.parts(cluster)[1]
    resize = Change("j", 1, ChangeKind.RESIZE, (Allotment("a1", 500.0), Allotment("a2", 500.0)), _WHY)
    moved = replace(resize, kind=ChangeKind.MIGRATE, allotments=(Allotment("a2", 500.0),) * 2)
    refused = (Refusal("j", _WHY), Refusal("k", _WHY))
    (ends,) = groups.give_way(part, PlacementDecision((resize,), refused)).changes
    assert (ends.kind, ends.allotments) == (ChangeKind.SUSPEND, ())
    assert groups.give_way(part, PlacementDecision((resize,), refused)).refusals == refused[1:]
    assert groups.give_way(part, PlacementDecision((moved,), refused)) == PlacementDecision((moved,), refused)


# --- joining ---------------------------------------------------------------------------------------------------------


def test_decisions_are_joined() -> None:
    """Names one after another; the worst utility and the worst level are those of the whole."""

    def one(name: str, utility: float | None, level: float | None) -> PlacementDecision:
        change = Change(name, 1, ChangeKind.SUSPEND, (), _WHY)
        outlook = None if utility is None else Outlook((name,), (0.1,), (utility,), (0.9,), level)
        return PlacementDecision((change,), (Refusal(f"{name}2", _WHY),), 3, utility, outlook)

    hidden = Refusal("x", Reason(ReasonCode.ENVIRONMENT))
    part = replace(groups.parts(snapshot([], []))[0], refused=(hidden,))
    joined = groups.merge((part,), [one("a", 0.5, 0.6), one("b", None, None), one("c", 0.2, 0.3)])
    assert [change.workload for change in joined.changes] == ["a", "b", "c"]
    assert [refusal.workload for refusal in joined.refusals] == ["x", "a2", "b2", "c2"]
    assert (joined.evaluations, joined.predicted_utility) == (9, 0.2)
    assert joined.outlook == Outlook(("a", "c"), (0.1, 0.1), (0.5, 0.2), (0.9, 0.9), 0.3)
    nothing = groups.merge((part,), [])
    assert (nothing.outlook, nothing.predicted_utility, nothing.changes) == (None, None, ())
