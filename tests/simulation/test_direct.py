"""The direct engine: published figures, agreement with a plain replay, costs and order of operations by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.plain_replay import plain_replay
from daemons.capacity.swf import read_swf, replay_jobs
from shared.base.errors import ContractViolation, Infeasible, InvalidInput, UnknownPolicy
from shared.policy_api.decision import Change, ChangeKind, PlacementDecision, Reason, ReasonCode
from shared.policy_api.policies import Needs
from shared.policy_api.snapshot import Snapshot, WorkloadState
from shared.ports.plugins import find_policy
from shared.values.jobs import Allotment, Job, Stage
from shared.values.nodes import Node
from shared.values.operation_costs import COSTS, OperationCosts
from shared.values.replay_job import ReplayJob
from sim_backend.conformance.verifier import verify
from sim_backend.replay.engine import run_direct
from sim_backend.replay.workloads import experiment_four, paper_nodes, replay_nodes, replay_workload
from sim_backend.world.figures import BusyNodes, JobRun, ReplayFigures, figures
from tests.extent import examples, first

WEEKS_S = 1_209_600.0
# 1,000 MiB: suspend 10 s, resume 20 s (+5 s from elsewhere), migrate 5 s
BY_HAND = OperationCosts(start_s=2.0, suspend_s_per_mib=0.01, resume_s_per_mib=0.02, migrate_s_per_mib=0.005)
FREE = COSTS["none"]
ScriptedChange = tuple[ChangeKind, str, list[str]]
Script = Mapping[Any, Any]  # by time in s, each a list of `ScriptedChange`


def job(name: str, run_s: float, submit_s: float = 0.0, goal_s: float | None = None, instances: int = 1) -> Job:
    stages = (Stage(run_s * 1_000, 1_000, 0.0, 1_000),)
    return Job(name, stages, submit_s, desired_start_s=submit_s, goal_s=goal_s, instances=instances, spread=True)


@dataclass
class Scripted:
    """Does at stated cycles what it is told; keeps every snapshot it is shown."""

    script: Mapping[float, Sequence[ScriptedChange]]
    spoil: Callable[[Change], Change] = lambda change: change
    seen: list[Snapshot] = field(default_factory=list)
    name: str = "scripted"
    needs: Needs = field(default_factory=Needs)
    event_driven: bool = False

    def check_params(self, params: Mapping[str, Any]) -> None:
        assert params == {}

    def decide(self, snapshot: Snapshot, state: Any, params: Mapping[str, Any]) -> tuple[PlacementDecision, Any]:
        assert params == {}
        self.seen.append(snapshot)
        revisions = dict(zip(snapshot.workloads.names, snapshot.workloads.revision.tolist(), strict=True))
        changes = [
            Change(
                name,
                revisions.get(name, 0),
                kind,
                tuple(Allotment(node, 1_000.0) for node in nodes),
                Reason(ReasonCode.KEEP),
            )
            for kind, name, nodes in self.script.get(snapshot.now_s, ())
        ]
        return PlacementDecision(tuple(map(self.spoil, changes))), state


@dataclass
class Verified:
    """A registered policy whose every decision must be sound."""

    inner: Any
    passes: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def decide(self, snapshot: Snapshot, state: Any, params: Mapping[str, Any]) -> tuple[PlacementDecision, Any]:
        decision, state = self.inner.decide(snapshot, state, params)
        assert verify(snapshot, decision) == []
        self.passes += 1
        return decision, state


def scripted(
    jobs: Sequence[Job], script: Script, nodes: int = 2, costs: OperationCosts = BY_HAND
) -> tuple[ReplayFigures, dict[str, JobRun], Scripted]:
    policy = Scripted(script)
    outcome = run_direct(jobs, replay_nodes(nodes), policy=policy, costs=costs, window_s=10_000, cycle_s=10)
    return outcome, {run.name: run for run in outcome.runs}, policy


START, SUSPEND, RESUME = ChangeKind.START, ChangeKind.SUSPEND, ChangeKind.RESUME
MIGRATE, RESIZE = ChangeKind.MIGRATE, ChangeKind.RESIZE
N0, N1, N2 = (node.name for node in replay_nodes(3))


# --- published figures -------------------------------------------------------------------------------------------


@pytest.mark.full
def test_nasa(data_folder: Path) -> None:
    log = read_swf(data_folder / "nasa-ipsc-1993" / "NASA-iPSC-1993-3.1-cln.swf.gz")
    jobs = replay_workload(replay_jobs(log, WEEKS_S))
    outcome = run_direct(jobs, replay_nodes(128), policy="first-fit", costs=FREE, window_s=WEEKS_S)
    assert (outcome.jobs_submitted, outcome.jobs_completed, outcome.peak_nodes) == (2604, 2603, 128)
    assert outcome.mean_execution_s == pytest.approx(573.23, abs=0.01)
    assert outcome.mean_turnaround_s == pytest.approx(573.23, abs=0.01)
    inside = sum(j.instances * min(j.work_mcycles / 1_000, WEEKS_S - j.submit_s) for j in jobs)
    assert outcome.node_hours == pytest.approx(inside / 3_600)  # nothing ever waits in this log
    assert outcome.utilisation == pytest.approx(outcome.node_hours / (128 * 336))
    assert outcome.wall_s < 5.0  # 0.5 s on an idle core; generous, since tests share theirs


@pytest.mark.full
@pytest.mark.parametrize("policy", ["first-fit", "edf"])
def test_blue(data_folder: Path, policy: str) -> None:
    log = read_swf(data_folder / "sdsc-blue-2000" / "SDSC-BLUE-2000-first-two-weeks.swf.gz")
    jobs = replay_workload(replay_jobs(log, WEEKS_S, 8, {729}))
    outcome = run_direct(jobs, replay_nodes(144), policy=policy, costs=FREE, window_s=WEEKS_S)
    assert (outcome.jobs_submitted, outcome.jobs_completed) == (2672, 2655)
    assert outcome.mean_execution_s == pytest.approx(1973.07, abs=0.01)
    assert outcome.mean_turnaround_s == pytest.approx(2671.04, abs=0.01)


# --- agreement with a plain replay -------------------------------------------------------------------------------

SMALL_JOBS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 30), st.integers(1, 4)),
    max_size=25,
).map(lambda rows: [ReplayJob(n, float(at), float(run), size, n) for n, (at, run, size) in enumerate(rows)])


@given(SMALL_JOBS, st.sampled_from([20.0, 60.0, 61.0, math.inf]))
@settings(max_examples=examples(150))
def test_first_fit_is_the_plain_replay(jobs: list[ReplayJob], window_s: float) -> None:
    inside = [each for each in jobs if each.submit_s < window_s]
    plain = plain_replay(inside, 4, window_s)
    policy = Verified(find_policy("placement", "first-fit"))
    ours = run_direct(replay_workload(jobs), replay_nodes(4), policy=policy, costs=FREE, window_s=window_s)
    assert (ours.jobs_submitted, ours.jobs_completed) == (plain.submitted, plain.completed)
    assert ours.mean_execution_s == plain.mean_execution_s
    assert ours.mean_turnaround_s == plain.mean_turnaround_s


@pytest.mark.full
@pytest.mark.parametrize("policy", ["first-fit", "edf", "apc"])
@pytest.mark.parametrize("costs", first(["none", "paper"]))
def test_contention_keeps_every_rule(policy: str, costs: str) -> None:
    """Many jobs on few nodes: every decision is sound, every job is completed, the snapshot's room adds up."""
    jobs = experiment_four(np.random.default_rng(5), count=60, mean_gap_s=60)
    watched = Verified(find_policy("placement", policy))
    outcome = run_direct(jobs, paper_nodes(4), policy=watched, costs=COSTS[costs], window_s=math.inf)
    assert outcome.jobs_completed == 60
    assert watched.passes >= 60
    for run, declared in zip(outcome.runs, jobs, strict=True):
        assert run.end_s is not None
        assert run.begin_s is not None
        start_s = COSTS[costs].start_s
        assert run.end_s - run.begin_s >= start_s + declared.work_mcycles / declared.max_mhz - 1e-6
    if policy == "edf":
        assert outcome.operations["suspend"] == outcome.operations["resume"] > 0


# --- costs by hand -----------------------------------------------------------------------------------------------


def test_a_start_is_part_of_execution() -> None:
    outcome, runs, _ = scripted([job("a", 100)], {10: [(START, "a", [N0])]})
    assert (runs["a"].begin_s, runs["a"].end_s) == (10.0, 112.0)
    assert (outcome.mean_wait_s, outcome.mean_execution_s, outcome.mean_turnaround_s) == (10.0, 102.0, 112.0)
    assert outcome.node_hours == pytest.approx(102 / 3_600)
    assert outcome.peak_nodes == 1
    assert outcome.operations == {"start": 1}


def test_who_takes_a_suspended_jobs_place_waits_for_the_suspend() -> None:
    """a runs 2..50, is suspended 50..60; b starts 60..62, ends 72; a resumes 72..92 and does the other 52 s."""
    jobs = [job("a", 100, 0, goal_s=1_000), job("b", 10, 50, goal_s=65)]
    outcome = run_direct(jobs, replay_nodes(1), policy="edf", costs=BY_HAND, window_s=10_000)
    a, b = outcome.runs
    assert (a.begin_s, a.end_s) == (0.0, 144.0)
    assert (b.begin_s, b.end_s) == (60.0, 72.0)
    assert outcome.operations == {"start": 2, "suspend": 1, "resume": 1}
    assert (outcome.goals, outcome.goals_met) == (2, 1)
    assert outcome.node_hours == pytest.approx(144 / 3_600)


def test_a_resume_elsewhere_also_costs_the_move() -> None:
    at_home = {0: [(START, "a", [N0])], 10: [(SUSPEND, "a", [])], 30: [(RESUME, "a", [N0])]}
    elsewhere = {**at_home, 30: [(RESUME, "a", [N1])]}
    assert scripted([job("a", 100)], at_home)[1]["a"].end_s == 30 + 20 + 92
    assert scripted([job("a", 100)], elsewhere)[1]["a"].end_s == 30 + 25 + 92


def test_a_gang_waits_for_its_slowest_instance() -> None:
    script = {0: [(START, "a", [N0, N1])], 10: [(SUSPEND, "a", [])], 30: [(RESUME, "a", [N0, N2])]}
    outcome, runs, _ = scripted([job("a", 100, instances=2)], script, nodes=3)
    assert runs["a"].end_s == 30 + 25 + 92
    assert outcome.peak_nodes == 2
    assert outcome.node_hours == pytest.approx((2 * 20 + 2 * 117) / 3_600)


def test_a_migration_holds_both_nodes_and_stops_progress() -> None:
    outcome, runs, policy = scripted([job("a", 100)], {0: [(START, "a", [N0])], 10: [(MIGRATE, "a", [N1])]})
    assert runs["a"].end_s == 10 + 5 + 92
    assert outcome.peak_nodes == 2
    assert outcome.node_hours == pytest.approx((15 + 97) / 3_600)
    assert policy.seen[-1].nodes.free_memory_mib.tolist() == [1_000, 0]


def test_migrations_that_wait_for_each_other_are_broken_up() -> None:
    """a is suspended 10..20, b moves 20..25 into its place, a resumes on b's node 25..50."""
    script = {0: [(START, "a", [N0]), (START, "b", [N1])], 10: [(MIGRATE, "a", [N1]), (MIGRATE, "b", [N0])]}
    _, runs, _ = scripted([job("a", 100), job("b", 100)], script)
    assert runs["b"].end_s == 25 + (100 - 18)
    assert runs["a"].end_s == 50 + (100 - 8)
    free = scripted([job("a", 100), job("b", 100)], script, costs=FREE)[1]
    assert (free["a"].end_s, free["b"].end_s) == (100.0, 100.0)


def test_a_resize_takes_no_time_but_changes_the_room() -> None:
    _, runs, policy = scripted([job("a", 100)], {0: [(START, "a", [N0])], 20: [(RESIZE, "a", [N0])]})
    assert runs["a"].end_s == 102.0
    assert policy.seen[3].workloads.revision.tolist() == [2]


# --- what the policy sees ----------------------------------------------------------------------------------------


def test_snapshots_show_states_progress_and_room() -> None:
    script = {0: [(START, "a", [N1])], 10: [(SUSPEND, "a", [])]}
    _, _, policy = scripted([job("a", 100), job("b", 1, submit_s=15)], script, costs=BY_HAND)
    at = {seen.now_s: seen for seen in policy.seen}
    assert at[0].workloads.state.tolist() == [WorkloadState.WAITING]
    assert at[0].instances.node.size == 0
    running = at[10]
    assert running.workloads.state.tolist() == [WorkloadState.RUNNING]
    assert running.workloads.done_mcycles.tolist() == [8_000.0]
    assert (running.instances.node.tolist(), running.instances.cpu_mhz.tolist()) == ([1], [1_000.0])
    assert running.nodes.free_memory_mib.tolist() == [1_000, 0]
    suspended = at[20]  # both jobs; the image lies where it ran and holds nothing
    assert suspended.workloads.names == ("a", "b")
    assert suspended.workloads.state.tolist() == [WorkloadState.SUSPENDED, WorkloadState.WAITING]
    assert suspended.workloads.fixed.tolist() == [False, False]
    assert (suspended.instances.node.tolist(), suspended.instances.cpu_mhz.tolist()) == ([1], [0.0])
    assert suspended.workloads.first_instance.tolist() == [0, 1]
    assert suspended.nodes.free_memory_mib.tolist() == [1_000, 1_000]
    with pytest.raises(ValueError, match="read-only"):
        suspended.nodes.free_memory_mib[0] = 5


def test_what_is_in_progress_is_fixed_and_room_is_that_of_what_is_wanted() -> None:
    long = OperationCosts(start_s=2.0, suspend_s_per_mib=0.025)  # 25 s
    script = {0: [(START, "a", [N0])], 10: [(START, "b", [N0]), (SUSPEND, "a", [])]}
    _, runs, policy = scripted([job("a", 100), job("b", 10)], script, nodes=1, costs=long)
    seen = policy.seen[2]
    assert seen.now_s == 20
    assert seen.workloads.fixed.tolist() == [True, True]
    assert seen.workloads.state.tolist() == [WorkloadState.SUSPENDED, WorkloadState.RUNNING]
    assert seen.nodes.free_memory_mib.tolist() == [0]  # what is wanted counts, what is being taken away does not
    assert runs["b"].begin_s == 35


def test_truth_is_kept_apart_from_belief() -> None:
    policy = Scripted({0: [(START, "a", [N0])]})
    outcome = run_direct(
        [job("a", 100)],
        replay_nodes(1),
        policy=policy,
        true_stages={"a": ((150_000.0, 1_000.0),)},
        costs=FREE,
        window_s=1_000,
        cycle_s=10,
    )
    assert outcome.runs[0].end_s == 150.0
    last = policy.seen[-1].workloads
    assert (last.work_mcycles[0], last.done_mcycles[0]) == (100_000.0, 140_000.0)


# --- time --------------------------------------------------------------------------------------------------------


def test_a_policy_that_is_not_event_driven_acts_at_cycles_only() -> None:
    policy = Verified(find_policy("placement", "first-fit"))
    policy.__dict__["event_driven"] = False
    outcome = run_direct([job("a", 100, 10)], replay_nodes(1), policy=policy, costs=FREE, window_s=5_000)
    assert outcome.runs[0].begin_s == 900.0


def test_cycles_in_which_nothing_can_happen_are_skipped() -> None:
    """A run time of 30,000 years is no longer to play than one of a minute."""
    jobs = [job("a", 1e12), job("b", 60.0, submit_s=5e11)]

    outcome = run_direct(jobs, replay_nodes(2), policy="first-fit", costs=COSTS["none"])

    assert {run.name: run.end_s for run in outcome.runs} == {"a": 1e12, "b": 5e11 + 60.0}


def test_a_desired_start_is_waited_for() -> None:
    late = Job("late", (Stage(1_000, 1_000),), submit_s=0, desired_start_s=1_000)
    outcome = run_direct([late], replay_nodes(1), policy="first-fit", costs=FREE, window_s=math.inf)
    assert outcome.runs[0].begin_s == 1_000.0
    slow = Verified(find_policy("placement", "first-fit"))
    slow.__dict__["event_driven"] = False
    outcome = run_direct([late], replay_nodes(1), policy=slow, costs=FREE, window_s=math.inf)
    assert outcome.runs[0].begin_s == 1_800.0  # the next cycle


def test_the_end_of_an_operation_is_an_event() -> None:
    """a runs 2..100 and is suspended 100..110 for b; the other node falls free at 107.5, when a cannot resume yet."""
    jobs = [job("a", 200, goal_s=9_000), job("c", 105.5, goal_s=500), job("b", 300, 100, goal_s=450)]
    outcome = run_direct(jobs, replay_nodes(2), policy="edf", costs=BY_HAND, window_s=10_000)
    runs = {run.name: run for run in outcome.runs}
    assert runs["c"].end_s == 107.5  # while a is still being suspended: only the end of that can let it resume
    assert runs["a"].end_s == 110 + 25 + 200 - 98


def test_the_window() -> None:
    jobs = [job("ends-with-it", 100), job("too-long", 101), job("too-late", 1, 100)]
    outcome = run_direct(jobs, replay_nodes(3), policy="first-fit", costs=FREE, window_s=100)
    assert (outcome.jobs_submitted, outcome.jobs_completed) == (2, 1)
    assert outcome.node_hours == pytest.approx(200 / 3_600)
    assert outcome.utilisation == pytest.approx(2 / 3)


def test_nothing_to_do() -> None:
    outcome = run_direct([], replay_nodes(2), policy="first-fit", costs=FREE, window_s=100)
    assert (outcome.jobs_submitted, outcome.mean_execution_s, outcome.peak_nodes) == (0, None, 0)
    endless = run_direct([job("a", 5)], replay_nodes(1), policy=Scripted({}), costs=FREE, window_s=math.inf)
    assert (endless.jobs_submitted, endless.jobs_completed) == (1, 0)  # it ends, although the job waits


def test_the_same_again() -> None:
    jobs = experiment_four(np.random.default_rng(1), count=40, mean_gap_s=30)
    first, second = (
        run_direct(jobs, paper_nodes(2), policy="edf", costs=COSTS["paper"], window_s=50_000).runs for _ in range(2)
    )
    assert first == second


# --- refusals ----------------------------------------------------------------------------------------------------


def test_what_can_never_run_is_refused() -> None:
    with pytest.raises(Infeasible, match="wide: 3 instances, but the empty nodes can hold 2"):
        run_direct([job("wide", 1, instances=3)], replay_nodes(2), policy="first-fit", costs=FREE, window_s=9)
    heavy = Job("heavy", (Stage(1_000, 1_000, 0.0, 1_001),))
    with pytest.raises(Infeasible, match="heavy"):
        run_direct([heavy], replay_nodes(2), policy="first-fit", costs=FREE, window_s=9)
    picky = Job("picky", (Stage(1_000, 1_000),), required_labels=("gpu",))
    with pytest.raises(Infeasible, match="picky"):
        run_direct([picky], replay_nodes(2), policy="first-fit", costs=FREE, window_s=9)


def test_names_must_differ_and_policies_exist() -> None:
    node = Node("n", 1, 1_000, memory_mib=1_000)
    with pytest.raises(InvalidInput, match="job 'a'"):
        run_direct([job("a", 1), job("a", 2)], [node], policy="first-fit", costs=FREE, window_s=9)
    with pytest.raises(InvalidInput, match="node 'n'"):
        run_direct([], [node, node], policy="first-fit", costs=FREE, window_s=9)
    with pytest.raises(InvalidInput, match="nodes"):
        run_direct([], [], policy="first-fit", costs=FREE, window_s=9)
    with pytest.raises(UnknownPolicy, match="first-fit"):
        run_direct([], [node], policy="best-fit", costs=FREE, window_s=9)


@pytest.mark.parametrize(
    "change",
    [
        (START, "nobody", [N0]),
        (START, "a", [N0, N1]),
        (START, "a", ["nowhere"]),
        (SUSPEND, "a", []),
        (RESUME, "a", [N0]),
        (START, "b", [N0]),
    ],
)
def test_a_policy_that_breaks_its_contract_is_caught(change: ScriptedChange) -> None:
    script = {0: [(START, "b", [N1])], 10: [change]}
    with pytest.raises(ContractViolation):
        scripted([job("a", 100), job("b", 100)], script)


def test_room_given_away_twice_and_stale_revisions_are_caught() -> None:
    with pytest.raises(ContractViolation, match="room that there is not"):
        scripted([job("a", 100), job("b", 100)], {0: [(START, "a", [N0]), (START, "b", [N0])]})
    stale = Scripted({0: [(START, "a", [N0])]}, spoil=lambda c: Change(c.workload, 7, c.kind, c.allotments, c.reason))
    with pytest.raises(ContractViolation, match="revision 7"):
        run_direct([job("a", 100)], replay_nodes(1), policy=stale, costs=FREE, window_s=100)


# --- figures -----------------------------------------------------------------------------------------------------


def test_figures_from_runs() -> None:
    busy = BusyNodes()
    busy.hold(["n0", "n0", "n1"], 10.0)
    busy.release(["n0"], 20.0)  # another VM is left on n0
    busy.release(["n0", "n1"], 30.0)
    runs = [
        JobRun("a", 0.0, 10.0, 30.0, goal_s=30.0),
        JobRun("b", 5.0, 10.0, 101.0, goal_s=90.0),
        JobRun("c", 6.0),
    ]
    found = figures(runs, busy, nodes=2, window_s=100.0, wall_s=0.5, operations={"start": 2})
    assert (found.jobs_submitted, found.jobs_completed) == (3, 1)
    assert (found.mean_execution_s, found.mean_wait_s, found.mean_turnaround_s) == (20.0, 10.0, 30.0)
    assert (found.peak_nodes, found.node_hours, found.utilisation) == (2, 40 / 3_600, 0.2)
    assert (found.goals, found.goals_met) == (2, 1)
    assert "runs" not in found.to_json()
    assert found.to_json()["operations"] == {"start": 2}
