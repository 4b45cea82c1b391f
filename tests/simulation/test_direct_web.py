"""The direct engine with web applications, watched passes, cycles alone, and an end after so many completions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from shared.base.errors import ContractViolation, InvalidInput, InvalidValue
from shared.policy_api.decision import Change, ChangeKind, PlacementDecision, Reason, ReasonCode
from shared.policy_api.policies import Needs
from shared.policy_api.snapshot import Snapshot, WorkloadState
from shared.values.jobs import Allotment, Job, Stage
from shared.values.nodes import Node
from shared.values.operation_costs import COSTS, OperationCosts
from shared.values.web_app import Flow, ModelForm, WebApp
from sim_backend.replay.engine import run_direct
from sim_backend.replay.tasks import Pass
from sim_backend.replay.web_loads import FlowLoad, WebLoad
from sim_backend.replay.workloads import experiment_four, paper_nodes
from sim_backend.world.figures import ReplayFigures

FREE = COSTS["none"]
SLOW_MOVES = OperationCosts(start_s=2.0, migrate_s_per_mib=0.01)  # 5 s for an instance of 500 MiB
START, STOP, RESIZE, MIGRATE, SUSPEND = (
    ChangeKind.START,
    ChangeKind.STOP,
    ChangeKind.RESIZE,
    ChangeKind.MIGRATE,
    ChangeKind.SUSPEND,
)
ScriptedChange = tuple[ChangeKind, str, Sequence[tuple[str, float]]]
NODES = [Node("n0", 4, 1_000.0, memory_mib=4_000), Node("n1", 4, 1_000.0, memory_mib=4_000)]


@dataclass
class Told:
    """Does at stated times what it is told: (kind, workload, node and MHz of each instance)."""

    script: Mapping[float, Sequence[ScriptedChange]]
    seen: list[Snapshot] = field(default_factory=list)
    name: str = "told"
    needs: Needs = field(default_factory=Needs)
    event_driven: bool = False

    def check_params(self, params: Mapping[str, Any]) -> None:
        assert params == {}

    def decide(self, snapshot: Snapshot, state: Any, params: Mapping[str, Any]) -> tuple[PlacementDecision, Any]:
        assert params == {}
        self.seen.append(snapshot)
        revisions = dict(zip(snapshot.workloads.names, snapshot.workloads.revision.tolist(), strict=True))
        changes = tuple(
            Change(name, revisions[name], kind, tuple(Allotment(*given) for given in places), Reason(ReasonCode.KEEP))
            for kind, name, places in self.script.get(snapshot.now_s, ())
        )
        return PlacementDecision(changes), state


CONSTANT = ((0.0, (FlowLoad(load_mhz=5.0),)),)


def shop(
    least: int = 0, steps: tuple[tuple[float, tuple[FlowLoad, ...]], ...] = CONSTANT, each_mhz: float = 4_000.0
) -> WebLoad:
    flow = Flow("all", mean_s=1.0, t_min_s=0.1, model=ModelForm.SHIFTED_HYPERBOLA)
    app = WebApp("shop", (flow,), 500, max_mhz=each_mhz, min_instances=least, max_instances=2, vcpus=4, importance=2.0)
    return WebLoad(app, steps, max_mhz=6_000.0)


def job(name: str, run_s: float, submit_s: float = 0.0) -> Job:
    return Job(
        name, (Stage(run_s * 1_000, 1_000, 0.0, 1_000),), submit_s, desired_start_s=submit_s, goal_s=submit_s + 10_000
    )


def told(
    jobs: Sequence[Job], script: Any, costs: OperationCosts = FREE, window_s: float = 200.0
) -> tuple[ReplayFigures, list[Snapshot]]:
    policy = Told(script)
    outcome = run_direct(jobs, NODES, policy=policy, costs=costs, window_s=window_s, cycle_s=10.0, web_apps=[shop()])
    return outcome, policy.seen


def test_what_a_policy_sees_of_a_web_application() -> None:
    """Given one, then its rows come first, wait, have no stages, and its flow shows the load."""
    _, seen = told([job("a", 20)], {0: [(START, "shop#1", [("n1", 500.0)])]}, window_s=10.0)
    first, second = seen
    assert first.workloads.names == ("shop#0", "shop#1", "a")
    assert first.workloads.app.tolist() == [0, 0, -1]
    assert first.workloads.stages.tolist() == [0, 0, 1]
    assert first.workloads.first_stage.tolist() == [0, 0, 0]
    assert first.stages.work_mcycles.tolist() == [20_000.0]
    assert (first.web.names, first.web.max_instances.tolist(), first.web.max_mhz.tolist()) == (
        ("shop",),
        [2],
        [6_000.0],
    )
    assert (first.flows.goal.tolist(), first.flows.load_mhz.tolist()) == ([1.0], [5.0])
    assert first.flows.model == (ModelForm.SHIFTED_HYPERBOLA,)
    assert second.workloads.state.tolist() == [WorkloadState.WAITING, WorkloadState.RUNNING, WorkloadState.WAITING]
    assert second.nodes.free_memory_mib.tolist() == [4_000.0, 3_500.0]
    assert second.nodes.free_cpu_mhz.tolist() == [4_000.0, 3_500.0]


def test_it_takes_what_it_is_given_and_jobs_share_the_rest() -> None:
    """Given 3,500 of 4,000 MHz to the application, then a job does 500 Mcycles/s until it is less."""
    script = {
        0: [(START, "shop#0", [("n0", 3_500.0)]), (START, "a", [("n0", 500.0)])],
        20: [(RESIZE, "shop#0", [("n0", 3_000.0)])],  # the job gets all of the rest, though it was given 500
    }
    outcome, _ = told([job("a", 20)], script)
    assert outcome.runs[0].end_s == 20 + (20_000 - 20 * 500) / 1_000
    assert outcome.operations == {"resize": 1, "start": 2}


def test_a_stop_gives_the_room_back_and_it_can_start_again() -> None:
    """Given a stop at 10 s and a start elsewhere at 20 s, then the room follows and the row waits in between."""
    script = {
        0: [(START, "shop#0", [("n0", 3_500.0)])],
        10: [(STOP, "shop#0", [])],
        20: [(START, "shop#0", [("n1", 100.0)])],
    }
    outcome, seen = told([], script, window_s=40.0)
    at = {snapshot.now_s: snapshot for snapshot in seen}
    assert [at[now].workloads.state.tolist()[0] for now in (10, 20, 30)] == [1, 0, 1]
    assert at[20].nodes.free_cpu_mhz.tolist() == [4_000.0, 4_000.0]
    assert at[20].instances.node.size == 0
    assert at[30].nodes.free_cpu_mhz.tolist() == [4_000.0, 3_900.0]
    assert at[30].workloads.revision.tolist() == [3, 0]
    assert outcome.operations == {"start": 2, "stop": 1}
    assert outcome.node_hours == pytest.approx(30 / 3_600)


def test_an_instance_migrates() -> None:
    """Given a move that takes 5 s, then the job left behind has the node for itself from then on."""
    script = {
        0: [(START, "shop#0", [("n0", 3_500.0)]), (START, "a", [("n0", 500.0)])],
        10: [(MIGRATE, "shop#0", [("n1", 4_000.0)])],
    }
    outcome, seen = told([job("a", 20)], script, costs=SLOW_MOVES)
    # Both start 0..2; the job does 500 a second to 10, then 1,000: who moves does not execute.
    assert outcome.runs[0].end_s == 10 + (20_000 - 8 * 500) / 1_000
    at = {snapshot.now_s: snapshot for snapshot in seen}
    assert at[20].workloads.changed_s.tolist()[0] == 10.0
    assert at[20].instances.node.tolist() == [1, 0]


def test_kinds_that_do_not_suit_are_caught() -> None:
    """Jobs are not stopped, instances not suspended."""
    with pytest.raises(ContractViolation, match="instances stopped"):
        told([job("a", 20)], {0: [(START, "a", [("n0", 1.0)])], 10: [(STOP, "a", [])]})
    with pytest.raises(ContractViolation, match="instances stopped"):
        told([], {0: [(START, "shop#0", [("n0", 1.0)])], 10: [(SUSPEND, "shop#0", [])]})


def test_the_load_follows_its_steps() -> None:
    """Given a load that doubles at 15 s, then the pass at 20 s is the first that shows it."""
    steps = ((0.0, (FlowLoad(load_mhz=5.0),)), (15.0, (FlowLoad(load_mhz=10.0),)))
    policy = Told({})
    run_direct([], NODES, policy=policy, costs=FREE, window_s=50, cycle_s=10.0, web_apps=[shop(steps=steps)])
    # Nothing ever happens here, so the last pass is the one that saw the last step.
    assert [(s.now_s, s.flows.load_mhz.item(0)) for s in policy.seen] == [(0, 5.0), (10, 5.0), (20, 10.0)]


def test_loads_must_be_in_order_and_names_differ() -> None:
    """Steps begin at 0 and increase, one load per flow; two applications of one name are refused."""
    for steps in ((), ((1.0, (FlowLoad(),)),), ((0.0, (FlowLoad(),)), (0.0, (FlowLoad(),))), ((0.0, ()),)):
        with pytest.raises(InvalidValue):
            shop(steps=steps)
    with pytest.raises(InvalidInput, match="web application 'shop'"):
        run_direct([], NODES, policy=Told({}), costs=FREE, web_apps=[shop(), shop()])


@pytest.mark.parametrize("policy", ["first-fit", "edf"])
def test_other_policies_keep_the_fewest_instances(policy: str) -> None:
    """Given a minimum of two, then one runs on each node from time 0, and the jobs are served as without them."""
    passes: list[Pass] = []
    jobs = [job(f"j{index}", 50, 7.0 * index) for index in range(12)]
    shops = [shop(least=2, each_mhz=2_000.0)]
    outcome = run_direct(jobs, NODES, policy=policy, costs=FREE, web_apps=shops, watch=passes.append)
    assert outcome.jobs_completed == 12
    assert passes[0].web_mhz == {"shop": 4_000.0}
    assert all(each.operations.get("stop", 0) == 0 for each in passes)
    assert outcome.operations["start"] == 14


def test_passes_are_watched() -> None:
    """Given a watcher, then each pass tells what is there and what was done; every cycle where that is asked for."""
    passes: list[Pass] = []
    jobs = [job("a", 25), job("b", 20, 5.0)]
    run_direct(jobs, NODES, policy="first-fit", costs=FREE, cycle_s=10.0, watch=passes.append, every_cycle=True)
    assert [(p.seen.now_s, p.seen.at_cycle, p.jobs, p.placed, p.jobs_mhz) for p in passes] == [
        (0.0, True, 1, 1, 1_000.0),
        (5.0, False, 2, 2, 2_000.0),
        (10.0, True, 2, 2, 2_000.0),
        (20.0, True, 2, 2, 2_000.0),
    ]
    assert [p.operations for p in passes] == [{"start": 1}, {"start": 1}, {}, {}]
    few: list[Pass] = []
    run_direct(jobs, NODES, policy="first-fit", costs=FREE, cycle_s=10.0, watch=few.append)
    assert [p.seen.now_s for p in few] == [0.0, 5.0]  # at 10 s and 20 s both run at full speed


def test_cycles_alone() -> None:
    """Given an event-driven policy that is to act at cycles only, then a job waits for the next one."""
    late = [job("a", 25, 5.0)]
    outcome = run_direct(late, NODES, policy="first-fit", costs=FREE, cycle_s=10.0, event_driven=False)
    assert outcome.runs[0].begin_s == 10.0


def test_an_end_after_so_many_completions() -> None:
    """Given more jobs than are waited for, then the run ends with the completion that makes them up."""
    jobs = experiment_four(np.random.default_rng(2), count=60, mean_gap_s=100.0)
    whole = run_direct(jobs, paper_nodes(4), policy="edf", costs=FREE)
    part = run_direct(jobs, paper_nodes(4), policy="edf", costs=FREE, stop_after=20)
    ends = sorted(run.end_s for run in whole.runs if run.end_s is not None)
    assert sorted(run.end_s for run in part.runs if run.end_s is not None) == ends[:20]
    assert part.node_hours < whole.node_hours


def test_distances_to_the_goal() -> None:
    """Given a job of 25 s with 10,000 s to its goal, then the distance is 9,975 s and the utility that over 10,000."""
    (run,) = run_direct([job("a", 25, 5.0)], NODES, policy="first-fit", costs=FREE, cycle_s=10.0).runs
    assert (run.distance_s, run.utility) == (9_975.0, 0.9975)
    assert math.isfinite(run.utility or math.nan)
