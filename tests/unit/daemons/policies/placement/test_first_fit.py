"""First-fit: order, refusals with their numbers, draining, labels, images, and how little it tries."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import pytest

from daemons.policies.placement.first_fit import FirstFit
from shared.base.errors import InvalidInput
from shared.policy_api.decision import ChangeKind, PlacementDecision, Reason, ReasonCode
from shared.policy_api.snapshot import Snapshot, WorkloadState
from shared.values.jobs import Allotment, Constraint, ConstraintKind
from sim_backend.conformance.clusters import NodeRow, WorkRow, snapshot

RUNNING, SUSPENDED = WorkloadState.RUNNING, WorkloadState.SUSPENDED


def decide(seen: Snapshot) -> PlacementDecision:
    """First-fit's decision."""
    return FirstFit().decide(seen, None, {})[0]


def places(decision: PlacementDecision) -> dict[str, tuple[str, list[str]]]:
    """Kind and nodes by workload."""
    return {c.workload: (c.kind.value, [given.node for given in c.allotments]) for c in decision.changes}


def only_reason(nodes: list[NodeRow], job: WorkRow, *others: WorkRow) -> Reason:
    """The reason for which `job` is refused."""
    (refusal,) = decide(snapshot(nodes, [job, *others])).refusals
    assert refusal.workload == job.name
    return refusal.reason


def test_arrival_order_and_later_jobs_that_fit() -> None:
    """The first to arrive is placed first; one that does not fit does not hold up the next."""
    jobs = [WorkRow("late", submit_s=9.0), WorkRow("big", memory_mib=9000.0), WorkRow("early", submit_s=1.0)]
    decision = decide(snapshot([NodeRow("n0", memory_mib=1500.0), NodeRow("n1")], jobs))
    assert places(decision) == {"early": ("start", ["n0"]), "late": ("start", ["n1"])}
    assert [refusal.workload for refusal in decision.refusals] == ["big"]


def test_allotment_is_the_least_of_three_limits() -> None:
    """min(max_mhz, vcpus x core_mhz, cpu_mhz of the node), with the revision copied."""
    nodes = [NodeRow("n0", cores=2, core_mhz=1000.0)]
    for vcpus, max_mhz, expected in ((1, 5000.0, 1000.0), (2, 1500.0, 1500.0), (8, 9000.0, 2000.0)):
        (change,) = decide(snapshot(nodes, [WorkRow("j", vcpus=vcpus, max_mhz=max_mhz, revision=7)])).changes
        assert change.allotments == (Allotment("n0", expected),)
        assert change.revision == 7


def test_gang_fills_nodes_in_order_or_waits() -> None:
    """Instances share nodes unless separate; all are placed or none."""
    nodes = [NodeRow("n0", cores=2), NodeRow("n1", cores=2)]
    assert places(decide(snapshot(nodes, [WorkRow("j", instances=3)])))["j"] == ("start", ["n0", "n0", "n1"])
    assert places(decide(snapshot(nodes, [WorkRow("j", instances=2, spread=True)])))["j"] == ("start", ["n0", "n1"])
    decision = decide(snapshot(nodes, [WorkRow("j", instances=5), WorkRow("k", instances=4)]))
    assert places(decision) == {"k": ("start", ["n0", "n0", "n1", "n1"])}


def test_sums_of_floats_still_fit() -> None:
    """Ten tenths fill a node although their sum is not exactly one; an eleventh finds no room."""
    jobs = [WorkRow(f"j{i}", max_mhz=0.1, memory_mib=0.1) for i in range(11)]
    decision = decide(snapshot([NodeRow("n0", cores=1, core_mhz=1.0, memory_mib=1.0)], jobs))
    assert len(decision.changes) == 10


def test_overhead_counts() -> None:
    """Each VM costs its overhead."""
    nodes = [NodeRow("n0", memory_mib=2000.0)]
    jobs = [WorkRow("a"), WorkRow("b")]
    assert len(decide(snapshot(nodes, jobs)).changes) == 2
    assert len(decide(snapshot(nodes, jobs, vm_overhead_mib=1.0)).changes) == 1


def test_reasons_name_what_binds() -> None:
    """Each code, with its numbers."""
    full = WorkRow("r", RUNNING, memory_mib=7000.0, places=((0, 1000.0),))
    busy = WorkRow("r", RUNNING, memory_mib=0.0, instances=4, places=((0, 1000.0),) * 4)
    node = [NodeRow("n0")]
    numbers = (("needed_mib", 2000.0), ("largest_free_mib", 1000.0), ("instances_short", 1.0))
    assert only_reason(node, WorkRow("j", memory_mib=2000.0), full) == Reason(ReasonCode.NO_MEMORY, numbers)
    numbers = (("needed_mhz", 1000.0), ("largest_free_mhz", 0.0), ("instances_short", 2.0))
    assert only_reason(node, WorkRow("j", instances=2), busy) == Reason(ReasonCode.NO_CPU, numbers)
    assert only_reason([], WorkRow("j")) == Reason(ReasonCode.NO_NODES, (("nodes", 0.0),))
    assert only_reason([NodeRow("n0", schedulable=False)], WorkRow("j")).code is ReasonCode.NO_NODES
    assert only_reason(node, WorkRow("j", required_labels=("gpu",))).code is ReasonCode.LABELS
    assert only_reason(node, WorkRow("j", instances=2, spread=True)) == Reason(
        ReasonCode.TOO_FEW_NODES, (("needed_nodes", 2.0), ("nodes", 1.0))
    )
    large = only_reason(node, WorkRow("j", memory_mib=8001.0))
    assert large.code is ReasonCode.FITS_NO_NODE
    assert large.numbers[:2] == (("needed_mib", 8001.0), ("largest_mib", 8000.0))
    slow = only_reason(node, WorkRow("j", min_mhz=2000.0, max_mhz=3000.0))
    assert slow.numbers[2:] == (("needed_mhz", 2000.0), ("largest_mhz", 1000.0))
    assert only_reason(node, WorkRow("j", desired_start_s=1001.0)).numbers == (("from_s", 1001.0), ("now_s", 1000.0))
    assert only_reason(node, WorkRow("j", not_before_s=1001.0)).code is ReasonCode.NOT_YET
    assert only_reason(node, WorkRow("j", fixed=True)).code is ReasonCode.KEEP


def test_nothing_is_said_of_what_runs() -> None:
    """Running jobs, bad profile or not, are neither changed nor refused while their nodes stay."""
    jobs = [WorkRow("r", RUNNING, places=((0, 1.0),)), WorkRow("x", RUNNING, importance=math.nan, places=((0, 1.0),))]
    assert decide(snapshot([NodeRow("n0")], jobs)) == PlacementDecision((), (), 0)


def test_bad_profile_names_every_bad_number() -> None:
    """Finite ones with their value."""
    reason = only_reason([NodeRow("n0")], WorkRow("j", max_mhz=math.nan, memory_mib=-3.0, vcpus=0))
    assert reason == Reason(ReasonCode.BAD_PROFILE, (("max_mhz_not_finite", 1.0), ("memory_mib", -3.0), ("vcpus", 0.0)))


def test_suspended_job_returns_to_its_image() -> None:
    """Where there is room; an instance whose image's node is full goes to the first node that fits."""
    nodes = [NodeRow("n0", cores=1), NodeRow("n1", cores=1), NodeRow("n2", cores=1)]
    alone = WorkRow("s", SUSPENDED, places=((2, 1000.0),))
    assert places(decide(snapshot(nodes, [alone]))) == {"s": ("resume", ["n2"])}
    gang = WorkRow("s", SUSPENDED, instances=2, places=((1, 1000.0), (1, 1000.0)))
    assert places(decide(snapshot(nodes, [gang]))) == {"s": ("resume", ["n1", "n0"])}


def test_draining_moves_only_what_is_there() -> None:
    """The unmoved instance keeps its allotment, the moved one gets that of its new node; drains go first."""
    nodes = [NodeRow("n0", draining=True, schedulable=False), NodeRow("n1", cores=2), NodeRow("n2", cores=1)]
    gang = WorkRow("r", RUNNING, instances=2, spread=True, places=((1, 700.0), (0, 600.0)), submit_s=9.0)
    decision = decide(snapshot(nodes, [WorkRow("j", instances=2), gang]))
    (change,) = decision.changes
    assert change.kind is ChangeKind.MIGRATE
    assert change.reason == Reason(ReasonCode.DRAIN)
    assert change.allotments == (Allotment("n1", 700.0), Allotment("n2", 1000.0))
    assert [refusal.workload for refusal in decision.refusals] == ["j"]


def test_draining_that_cannot_be_is_refused() -> None:
    """With the reason: no other node for a separate instance, fixed, a bad profile, an instance nowhere."""
    nodes = [NodeRow("n0", draining=True, schedulable=False), NodeRow("n1")]
    pair = ((0, 500.0), (1, 500.0))
    apart = WorkRow("r", RUNNING, instances=2, spread=True, places=pair)
    assert only_reason(nodes, apart).code is ReasonCode.TOO_FEW_NODES
    assert only_reason(nodes, WorkRow("r", RUNNING, fixed=True, places=pair[:1])).code is ReasonCode.KEEP
    bad = WorkRow("r", RUNNING, goal_s=math.nan, places=pair[:1])
    assert only_reason(nodes, bad).code is ReasonCode.BAD_PROFILE
    lost = WorkRow("r", RUNNING, instances=2, places=((0, 500.0), (-1, 500.0)))
    assert only_reason(nodes, lost).code is ReasonCode.UNKNOWN_NODE


def test_hopeless_jobs_are_not_tried_again() -> None:
    """One trial per job placed and one for all the others that need as much; those that need less are tried."""
    nodes = [NodeRow(f"n{i}", cores=1) for i in range(10)]
    jobs = [WorkRow(f"j{i}") for i in range(500)]
    decision = decide(snapshot(nodes, jobs))
    assert (len(decision.changes), len(decision.refusals), decision.evaluations) == (10, 490, 11)
    sizes = [WorkRow("a", instances=11), WorkRow("b", instances=12), WorkRow("c", instances=10)]
    decision = decide(snapshot(nodes, sizes))
    assert (set(places(decision)), decision.evaluations) == ({"c"}, 2)


@pytest.mark.parametrize(
    "other",
    [
        WorkRow("k", memory_mib=500.0, max_mhz=1000.0, min_mhz=900.0),
        WorkRow("k", max_mhz=1000.0, min_mhz=900.0, vcpus=2),
        WorkRow("k", max_mhz=500.0),
        WorkRow("k", max_mhz=1000.0, min_mhz=0.0),
    ],
)
def test_a_job_that_needs_less_is_tried(other: WorkRow) -> None:
    """A failure rules out only what needs at least as much: less memory, less speed or more vCPUs may do."""
    nodes = [NodeRow("slow", cores=2, core_mhz=500.0), NodeRow("small", cores=1, memory_mib=800.0)]
    first = WorkRow("j", memory_mib=1000.0, max_mhz=1000.0, min_mhz=900.0)
    assert list(places(decide(snapshot(nodes, [first, other])))) == ["k"]


def test_no_parameters() -> None:
    """Any parameter is refused by name."""
    FirstFit().check_params({})
    with pytest.raises(InvalidInput, match="preempt"):
        FirstFit().check_params({"preempt": True})
    with pytest.raises(InvalidInput):
        FirstFit().decide(snapshot([], []), None, {"heads": 4})


def test_decision_travels_between_processes() -> None:
    """Refusals that nobody has read yet survive pickling."""
    decision = decide(snapshot([NodeRow("n0")], [WorkRow("j"), WorkRow("k", memory_mib=1e6)]))
    again = pickle.loads(pickle.dumps(decision))
    assert again.refusals[0].reason.code is ReasonCode.FITS_NO_NODE
    assert (again.changes, list(again.refusals)) == (decision.changes, list(decision.refusals))


# --- rules -----------------------------------------------------------------------------------------------------------

RACKS = [NodeRow(f"n{at}", labels=(f"rack=r{at // 2}",)) for at in range(4)]
APART, TOGETHER, KEEP = ConstraintKind.APART, ConstraintKind.TOGETHER, ConstraintKind.KEEP


def on(name: str, *nodes: int, **more: object) -> WorkRow:
    """Runs there with 1,000 MHz each."""
    given = tuple((node, 1000.0) for node in nodes)
    return WorkRow(name, RUNNING, instances=len(nodes), places=given, **more)  # type: ignore[arg-type]


def ruled(rows: list[WorkRow], *constraints: Constraint, **more: object) -> PlacementDecision:
    """The decision on two racks of two nodes."""
    return decide(replace(snapshot(RACKS, rows), constraints=constraints, **more))  # type: ignore[arg-type]


def test_starts_obey_rules_and_the_others_are_refused_by_name() -> None:
    apart = Constraint(APART, ("a", "b", "c"), scope="rack")
    decision = ruled([WorkRow("a"), WorkRow("b"), WorkRow("c"), WorkRow("free")], apart)
    assert places(decision) == {"a": ("start", ["n0"]), "b": ("start", ["n2"]), "free": ("start", ["n0"])}
    (refusal,) = decision.refusals
    assert refusal.reason == Reason(ReasonCode.CONSTRAINT, (("nodes_with_room", 4.0), ("anti_affinity", 4.0)))


def test_of_the_nodes_that_fit_the_one_that_breaks_least() -> None:
    wish = Constraint(APART, ("a",), about=("b",), scope="rack", weight=5)
    assert places(ruled([WorkRow("a"), on("b", 1)], wish)) == {"a": ("start", ["n2"])}


def test_a_rule_that_does_not_hold_is_repaired_at_a_cycle() -> None:
    rows = [on("a", 0), on("b", 1)]
    apart = Constraint(APART, ("a", "b"), scope="rack")
    decision = ruled(rows, apart)
    assert places(decision) == {"a": ("migrate", ["n2"])}
    assert decision.changes[0].reason.code is ReasonCode.RULE
    assert not ruled(rows, apart, at_cycle=False).changes
    (refusal,) = [
        each
        for each in ruled([on("a", 0, fixed=True), on("b", 1, memory_mib=9000.0)], apart).refusals
        if each.workload == "b"
    ]
    assert refusal.reason.numbers[:2] == (("anti_affinity", 1.0), ("nodes_allowed", 2.0))


def test_those_that_must_be_together_leave_a_node_together() -> None:
    """n0 is drained, and n1, the other node of its rack, is full."""
    nodes = [replace(RACKS[0], draining=True), *RACKS[1:]]
    rows = [on("a", 0), on("b", 0), on("full", 1, memory_mib=8000.0)]
    seen = replace(snapshot(nodes, rows), constraints=(Constraint(TOGETHER, ("a", "b"), scope="rack"),))
    assert places(decide(seen)) == {"a": ("migrate", ["n2"]), "b": ("migrate", ["n2"])}
    apart = Constraint(APART, ("a", "b"))
    seen = replace(seen, constraints=(*seen.constraints, apart))
    assert places(decide(seen)) == {"a": ("migrate", ["n2"]), "b": ("migrate", ["n3"])}


def test_what_is_kept_stays_on_a_draining_node_and_is_resumed_where_its_image_is() -> None:
    nodes = [replace(RACKS[0], draining=True), *RACKS[1:]]
    rows = [on("a", 0), WorkRow("s", SUSPENDED, places=((2, 0.0),))]
    seen = replace(snapshot(nodes, rows), constraints=(Constraint(KEEP, ("a",)), Constraint(KEEP, ("s",))))
    decision = decide(seen)
    assert places(decision) == {"s": ("resume", ["n2"])}
    (refusal,) = decision.refusals
    assert refusal.reason == Reason(ReasonCode.CONSTRAINT, (("keep", 1.0),))
    full = replace(seen, nodes=replace(seen.nodes, schedulable=seen.nodes.schedulable & (seen.nodes.memory_mib < 0)))
    assert not decide(full).changes


def test_contradictory_rules_refuse_their_workloads_alone() -> None:
    both = Constraint(TOGETHER, ("a", "b")), Constraint(APART, ("a", "b"))
    decision = ruled([WorkRow("a"), WorkRow("b"), WorkRow("c")], *both)
    assert places(decision) == {"c": ("start", ["n0"])}
    assert {each.workload: each.reason.code.value for each in decision.refusals} == dict.fromkeys("ab", "contradiction")
