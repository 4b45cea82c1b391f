"""What APC does with web applications: CPU up to the jobs' common level, instances where they help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from daemons.models.outlook import outlook_of
from daemons.policies.placement.apc import Apc
from daemons.policies.placement.apc.params import Params
from daemons.policies.placement.apc.problem import problem_of
from daemons.policies.placement.apc.web import apps_of, filled
from shared.policy_api.decision import Change, ChangeKind, PlacementDecision, ReasonCode
from shared.policy_api.snapshot import FlowColumns, Snapshot, WebColumns, WorkloadState
from shared.values.web_app import ModelForm
from sim_backend.conformance.clusters import NodeRow, WorkRow, snapshot

NOW_S, CYCLE_S = 10_000.0, 600.0
RUNNING = WorkloadState.RUNNING
NODE = NodeRow("n0", cores=4, core_mhz=1000.0, memory_mib=4000.0)


def _job(name: str, goal_s: float, needs_s: float = 1200.0, **more: Any) -> WorkRow:
    values = {"memory_mib": 1000.0, "work_mcycles": needs_s * 1000.0, "desired_start_s": NOW_S, **more}
    return WorkRow(name, goal_s=NOW_S + goal_s, **values)


def _replica(index: int, node: int | None = None, mhz: float = 500.0, app: int = 0) -> WorkRow:
    row = WorkRow(f"web#{index}", memory_mib=1000.0, max_mhz=4000.0, vcpus=4, work_mcycles=0.0, app=app)
    return row if node is None else replace(row, state=RUNNING, places=((node, mhz),))


def _seen(
    nodes: Sequence[NodeRow],
    rows: Sequence[WorkRow],
    load_mhz: float = 1000.0,
    least: int = 1,
    most_mhz: float = np.inf,
    **more: Any,
) -> Snapshot:
    """One application of as many instances as there are rows: t / goal = 0.1 + 500 / (w - load)."""
    one, none, replicas = np.ones(1), np.zeros(1), sum(row.app == 0 for row in rows)
    web = WebColumns(("web",), np.array([least]), np.array([replicas]), one * most_mhz, one)
    form = (ModelForm.SHIFTED_HYPERBOLA,)
    fixed = (none > 0, form, one * 0.1, one * 500.0, one * load_mhz, none, none, one, none)
    flows = FlowColumns(("requests",), np.array([0]), one, none, *fixed)
    made = replace(snapshot(nodes, rows, NOW_S), cycle_s=CYCLE_S, web=web, flows=flows)
    return replace(made, **more)


def _decide(seen: Snapshot, **params: Any) -> PlacementDecision:
    return Apc().decide(seen, None, params)[0]


def _changes(decision: PlacementDecision) -> dict[str, Change]:
    return {change.workload: change for change in decision.changes}


def _utility(decision: PlacementDecision, name: str) -> float:
    outlook = decision.outlook
    assert outlook is not None
    return outlook.predicted[outlook.names.index(name)]


@pytest.mark.parametrize("goal_s", [2000.0, 2500.0, 4000.0, 8000.0])
def test_web_and_jobs_meet_where_both_could_use_more(goal_s: float) -> None:
    jobs = [_job(f"j{at}", goal_s, state=RUNNING, places=((0, 1000.0),)) for at in range(3)]
    decision = _decide(_seen([NODE], [_replica(0, 0, 1000.0), *jobs], load_mhz=800.0))
    outlook = decision.outlook
    assert outlook is not None
    assert outlook.level is not None
    assert _utility(decision, "web") == pytest.approx(outlook.level, abs=1e-6)
    assert _utility(decision, "web") > outlook.now[outlook.names.index("web")]


def test_what_jobs_leave_idle_goes_to_the_web() -> None:
    decision = _decide(_seen([NODE], [_replica(0, 0, 1000.0), _job("j", 2500.0, state=RUNNING, places=((0, 1000.0),))]))
    (change,) = decision.changes
    assert (change.workload, change.kind) == ("web#0", ChangeKind.RESIZE)
    assert change.allotments[0].cpu_mhz == pytest.approx(3000.0)
    assert change.reason.code is ReasonCode.LOAD


def test_nothing_is_gained_above_the_most_that_helps() -> None:
    decision = _decide(_seen([NODE], [_replica(0, 0, 1000.0)], most_mhz=2000.0))
    assert _changes(decision)["web#0"].allotments[0].cpu_mhz == pytest.approx(2000.0)


def test_a_loaded_application_gets_more_instances_on_other_nodes() -> None:
    nodes = [replace(NODE, name=f"n{at}") for at in range(3)]
    decision = _decide(
        _seen(nodes, [_replica(0, 0, 4000.0), _replica(1), _replica(2)], load_mhz=5000.0, most_mhz=8000.0)
    )
    started = [change for change in decision.changes if change.kind is ChangeKind.START]
    assert {change.allotments[0].node for change in started} <= {"n1", "n2"}
    assert len({change.allotments[0].node for change in started}) == len(started) >= 1
    assert _utility(decision, "web") == pytest.approx(1.0 - 0.1 - 500.0 / 3000.0)


def test_instances_that_would_not_help_are_refused_for_want_of_demand() -> None:
    nodes = [NODE, replace(NODE, name="n1")]
    decision = _decide(_seen(nodes, [_replica(0, 0, 2000.0), _replica(1)], load_mhz=10.0, most_mhz=2000.0))
    assert not decision.changes
    assert {refusal.workload: refusal.reason.code for refusal in decision.refusals} == {"web#1": ReasonCode.NO_DEMAND}


def test_as_many_as_must_run_are_started() -> None:
    nodes = [replace(NODE, name=f"n{at}") for at in range(3)]
    decision = _decide(_seen(nodes, [_replica(at) for at in range(3)], load_mhz=1.0, most_mhz=10.0, least=2))
    assert [change.kind for change in decision.changes] == [ChangeKind.START] * 2


def test_an_instance_gives_way_to_a_job_that_finds_no_memory() -> None:
    """Two instances where one will do; the job needs the memory of one."""
    nodes = [replace(NODE, memory_mib=1000.0), replace(NODE, name="n1", memory_mib=1000.0)]
    rows = [_replica(0, 0, 1000.0), _replica(1, 1, 1000.0), _job("j", 5000.0)]
    seen = _seen(nodes, rows, load_mhz=100.0, most_mhz=2000.0)
    changes = _changes(_decide(seen))
    assert changes["j"].kind is ChangeKind.START
    assert [change.kind for name, change in changes.items() if name.startswith("web")].count(ChangeKind.STOP) == 1
    needed = _seen(nodes, rows, load_mhz=100.0, most_mhz=2000.0, least=2)
    assert "j" not in _changes(_decide(needed))


def test_more_than_may_run_are_stopped() -> None:
    nodes = [NODE, replace(NODE, name="n1")]
    seen = _seen(nodes, [_replica(0, 0), _replica(1, 1)], least=0)
    seen = replace(seen, web=replace(seen.web, max_instances=np.array([1])))
    kinds = [change.kind for change in _decide(seen).changes]
    assert kinds.count(ChangeKind.STOP) == 1


def test_an_instance_leaves_a_draining_node() -> None:
    nodes = [replace(NODE, draining=True, schedulable=False), replace(NODE, name="n1")]
    (change,) = _decide(_seen(nodes, [_replica(0, 0, 1000.0)], most_mhz=1000.0)).changes
    assert (change.kind, change.allotments[0].node) == (ChangeKind.MIGRATE, "n1")
    assert change.reason.code is ReasonCode.DRAIN


def test_between_cycles_an_instance_leaves_a_draining_node_for_idle_cpu() -> None:
    nodes = [replace(NODE, draining=True, schedulable=False), replace(NODE, name="n1"), replace(NODE, name="n2")]
    busy = _job("j", 9000.0, state=RUNNING, max_mhz=4000.0, vcpus=4, places=((1, 3500.0),))
    seen = _seen(nodes, [busy, _replica(0, 0, 1000.0)], most_mhz=1000.0, at_cycle=False)
    (change,) = _decide(seen).changes
    assert (change.workload, change.kind, change.reason.code) == ("web#0", ChangeKind.MIGRATE, ReasonCode.DRAIN)
    (given,) = change.allotments
    assert given.node == "n2"
    assert given.cpu_mhz == pytest.approx(4000.0)
    full = _seen(nodes[:2], [replace(busy, places=((1, 4000.0),)), _replica(0, 0, 1000.0)], at_cycle=False)
    decision = _decide(full)
    assert not decision.changes
    assert [(one.workload, one.reason.code) for one in decision.refusals] == [("web#0", ReasonCode.NO_CPU)]


def test_between_cycles_web_applications_are_left_alone() -> None:
    nodes = [NODE, replace(NODE, name="n1")]
    assert not _decide(_seen(nodes, [_replica(0, 0, 100.0), _replica(1)], at_cycle=False)).changes


def test_figures_that_make_no_sense_leave_the_application_and_the_rest_is_placed() -> None:
    seen = _seen([NODE], [_replica(0, 0, 1000.0), _job("j", 5000.0)])
    seen = replace(seen, flows=replace(seen.flows, c_mhz_s=np.array([np.nan])))
    assert _changes(_decide(seen))["j"].kind is ChangeKind.START


def test_even_parts_up_to_bounds() -> None:
    assert filled(7.0, np.array([1.0, 5.0, 5.0])).tolist() == [1.0, 3.0, 3.0]
    assert filled(20.0, np.array([1.0, 5.0])).tolist() == [1.0, 5.0]
    assert filled(0.0, np.array([1.0, 5.0])).tolist() == [0.0, 0.0]


def test_the_fewest_instances_start_between_cycles_where_cpu_is_idle() -> None:
    """An application that lost its instances does not wait for the next cycle; what runs is not touched."""
    nodes = [replace(NODE, name=f"n{i}") for i in range(3)]
    busy = [
        _job(f"j{i}", 9000.0, state=RUNNING, max_mhz=4000.0, vcpus=4, places=((i, 4000.0 - 700.0 * i),))
        for i in range(2)
    ]
    seen = _seen(nodes[:2], [*busy, *(_replica(index) for index in range(3))], least=2, at_cycle=False)
    found = _changes(_decide(seen))
    assert set(found) == {"web#0"}
    assert (found["web#0"].kind, found["web#0"].allotments[0].node) == (ChangeKind.START, "n1")
    assert found["web#0"].allotments[0].cpu_mhz == pytest.approx(700.0)
    assert _changes(_decide(seen, event_driven_start=False)) == {}
    roomy = _seen(nodes, [*busy, *(_replica(index) for index in range(3))], least=2, at_cycle=False)
    given = {name: change.allotments[0] for name, change in _changes(_decide(roomy)).items()}
    assert {name: one.node for name, one in given.items()} == {"web#0": "n2", "web#1": "n1"}


def test_an_application_beside_one_without_figures_keeps_its_own_response_factor() -> None:
    """Each is modelled alone then, and with all its columns."""
    one = _seen([NODE], [_replica(0)])
    both: dict[str, Any] = {
        name: np.tile(column, 2) if isinstance(column, np.ndarray) else column * 2
        for name, column in ((each.name, getattr(one.flows, each.name)) for each in fields(FlowColumns))
    }
    flows = FlowColumns(**both)
    flows = replace(
        flows, app=np.array([0, 1]), c_mhz_s=np.array([np.nan, 500.0]), response_factor=np.array([1.0, 2.0])
    )
    web = WebColumns(("bad", "good"), *(np.tile(getattr(one.web, each.name), 2) for each in fields(WebColumns)[1:]))
    bad, good = (app.utility for app in apps_of(problem_of(replace(one, web=web, flows=flows), Params())))
    assert bad is None
    assert good is not None
    assert good.flows[0].tail == 2.0


def test_it_decides_for_the_load_to_plan_for_and_predicts_for_the_one_to_expect() -> None:
    """Given a planned load of 1,500 MHz of which 1,000 are to be expected, when a node of 3,000 is shared with nobody,
    then the prediction is of the latter, and what the number of nodes is chosen by is of the former."""
    seen = _seen([NODE], [_replica(0, 0, 1000.0)], load_mhz=1500.0)
    seen = replace(seen, flows=replace(seen.flows, expected_mhz=np.array([1000.0])))
    decision = _decide(seen)
    outlook = decision.outlook
    assert outlook is not None
    given_mhz = decision.changes[0].allotments[0].cpu_mhz
    assert list(outlook.predicted) == pytest.approx([0.9 - 500.0 / (given_mhz - 1000.0)])
    assert list(outlook.under_planned_load()) == pytest.approx([0.9 - 500.0 / (given_mhz - 1500.0)])
    assert list(outlook_of(seen, decision.changes).predicted) == pytest.approx(list(outlook.predicted))


def test_near_its_best_an_application_takes_nothing_from_jobs_that_are_better_off() -> None:
    """The last 0.01 of utility, the tolerance, would cost the jobs 75 MHz here; unbounded, any amount."""
    jobs = [_job(f"j{at}", 12_000.0, state=RUNNING, places=((0, 1000.0),)) for at in range(3)]
    decision = _decide(_seen([NODE], [_replica(0, 0, 1000.0), *jobs], load_mhz=10.0, most_mhz=2000.0))
    best = 1.0 - 0.1 - 500.0 / 1990.0
    assert _utility(decision, "web") == pytest.approx(best - 0.01, abs=1e-6)
    assert min(_utility(decision, f"j{at}") for at in range(3)) > best
