"""When a cluster is too small, and by how much."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from daemons.models.shortage import shortage_of
from shared.policy_api.snapshot import FlowColumns, Snapshot, WebColumns, WorkloadState
from shared.values.web_app import ModelForm
from sim_backend.conformance.clusters import NodeRow, WorkRow, snapshot

NOW_S = 10_000.0
NODES = [NodeRow(f"n{number}", cores=4, core_mhz=1_000.0) for number in range(2)]


def job(name: str, work: float, left_s: float, full_mhz: float = 4_000.0) -> WorkRow:
    return WorkRow(
        name, WorkloadState.WAITING, work_mcycles=work, max_mhz=full_mhz, goal_s=NOW_S + left_s, submit_s=NOW_S - 100.0
    )


def cluster(*jobs: WorkRow, load_mhz: float = 0.0, **changes: Any) -> Snapshot:
    """Two nodes of 4,000 MHz and an application that needs its load and 100 MHz to meet its goal of 0.2 s."""
    seen = replace(snapshot(NODES, list(jobs), NOW_S), **changes)
    if not load_mhz:
        return seen
    one = np.ones(1)
    web = WebColumns(("shop",), np.array([1]), np.array([2]), one * 8_000.0, one)
    flows = FlowColumns(
        ("browse",),
        np.array([0]),
        one * 0.2,
        percentile=one * 0.0,
        throughput=one < 0,
        model=(ModelForm.PROCESSOR_SHARING,),
        t_min_s=one * 0.0,
        c_mhz_s=one * 20.0,
        load_mhz=one * load_mhz,
        rate_per_s=one,
        work_mcycles=one * 20.0,
        response_factor=one,
        expected_mhz=np.zeros_like(one),
    )
    return replace(seen, web=web, flows=flows)


def test_what_is_enough_is_not_short() -> None:
    assert shortage_of(cluster()) is None
    assert shortage_of(cluster(job("a", 4e6, 1_000.0), load_mhz=3_900.0)) is None


def test_it_says_by_how_much_and_for_how_long() -> None:
    """A job that needs 3,000 MHz to be in time, and an application that needs 6,100."""
    short = shortage_of(cluster(job("a", 3e6, 1_000.0), load_mhz=6_000.0))
    assert short is not None
    assert short.web_mhz == pytest.approx(6_100.0)
    assert short.jobs_mhz == pytest.approx(3_000.0)
    assert short.missing_mhz == pytest.approx(1_100.0)
    assert short.lasts_s == pytest.approx(3e6 / 1_900.0)


def test_a_load_above_all_cpu_is_told_in_full_and_never_ends() -> None:
    short = shortage_of(cluster(job("a", 1e6, 1_000.0), load_mhz=9_000.0))
    assert short is not None
    assert short.web_mhz == pytest.approx(9_100.0)
    assert short.lasts_s == math.inf


def test_a_late_job_asks_for_no_more_than_it_can_use() -> None:
    late = [job(f"late{number}", 1e9, -50.0) for number in range(3)]
    short = shortage_of(cluster(*late))
    assert short is not None
    assert short.jobs_mhz == pytest.approx(12_000.0)


def test_jobs_of_later_cycles_and_without_goals_do_not_count() -> None:
    later = replace(job("later", 1e9, 1e6), desired_start_s=NOW_S + 5_000.0)
    assert shortage_of(cluster(later, replace(job("free", 1e9, 1.0), goal_s=math.inf))) is None


def test_nodes_that_cannot_serve_do_not_count() -> None:
    seen = cluster(job("a", 6e6, 1_000.0, 8_000.0))
    assert shortage_of(seen) is None
    down = replace(seen.nodes, schedulable=np.array([True, False]))
    short = shortage_of(replace(seen, nodes=down))
    assert short is not None
    assert short.missing_mhz == pytest.approx(2_000.0)
