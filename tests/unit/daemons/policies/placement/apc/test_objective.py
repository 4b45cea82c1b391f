"""Whom APC starts beside jobs that could use all CPU of a node."""

from __future__ import annotations

import pytest

from daemons.models.outlook import outlook_of
from daemons.policies.placement.apc import Apc
from shared.policy_api.decision import ChangeKind
from shared.policy_api.snapshot import WorkloadState
from sim_backend.conformance.clusters import NodeRow, WorkRow, snapshot

NOW_S = 10_000.0
NODE = NodeRow("n0", cores=1, core_mhz=1000.0, memory_mib=4000.0)


def _job(name: str, goal_s: float, **more: object) -> WorkRow:
    """Needs 10,000 s at the full speed of the node, and had all the time to its goal for it."""
    values = {"memory_mib": 1000.0, "work_mcycles": 1e7, "desired_start_s": NOW_S, "max_mhz": 1000.0, **more}
    return WorkRow(name, goal_s=NOW_S + goal_s, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("tolerance", [0.02, 0.1])
def test_a_more_urgent_job_is_started_where_everybody_gains_less_than_the_tolerance(tolerance: float) -> None:
    """Given a job that holds a node and is in no hurry, when a more urgent one waits and there is memory, then it is
    started: the level rises by less than a decision with a disruption would have to gain, and nobody loses."""
    running = _job("calm", 200_000.0, state=WorkloadState.RUNNING, places=((0, 1000.0),))
    seen = snapshot([NODE], [running, _job("urgent", 60_000.0)], NOW_S)
    decision = Apc().decide(seen, None, {"tolerance": tolerance})[0]
    assert {change.workload: change.kind for change in decision.changes} == {
        "calm": ChangeKind.RESIZE,
        "urgent": ChangeKind.START,
    }
    before, outlook = outlook_of(seen, ()), decision.outlook
    assert outlook is not None
    gains = [new - old for new, old in zip(outlook.predicted, before.predicted, strict=True)]
    assert min(gains) >= 0.0
    assert 0.0 < max(gains) < tolerance


def test_a_less_urgent_job_waits_for_idle_cpu() -> None:
    running = _job("urgent", 60_000.0, state=WorkloadState.RUNNING, places=((0, 1000.0),))
    decision = Apc().decide(snapshot([NODE], [running, _job("calm", 200_000.0)], NOW_S), None, {})[0]
    assert not decision.changes
