"""A closed loop whose history is in a real store, for what looks back at it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np

from agents.core.settings import AgentSettings
from daemons.store import SqlStore
from daemons.values.settings import ControllerSettings, PolicyChoice
from shared.base.clock import ManualClock
from shared.values.operation_costs import COSTS
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings
from sim_backend.replay.workloads import experiment_four, paper_nodes, shop
from tests.support.recording import Recording, recorded
from tests.support.store_samples import sqlite_url

EPOCH_S = 1_790_000_100.0
REPORT_S = 60.0


def record_span(
    path: Path, *, nodes: int, jobs: int, hours: float, web_load: float = 0.2, placement: str = "apc"
) -> str:
    """Run a cluster for some hours from `EPOCH_S` on; returns the URL of the store that holds its history."""
    controller = ControllerSettings(
        report_s=REPORT_S,
        reconcile_s=REPORT_S,
        unreachable_after_s=3 * REPORT_S,
        probe_s=REPORT_S,
        placement=PolicyChoice(placement),
        provisioning=PolicyChoice("static"),
    )
    settings = LoopSettings(controller, AgentSettings(report_s=REPORT_S), costs=COSTS["paper"], epoch_s=EPOCH_S)
    cluster = paper_nodes(nodes)
    loop = ClosedLoop(cluster, recorded(settings))
    if web_load:
        loop.submit_web(*shop(cluster, web_load, 1), REPORT_S, REPORT_S)
    for job in experiment_four(np.random.default_rng(1), jobs, 3_600.0 * hours / jobs):
        loop.submit(job)
    with closing(SqlStore(sqlite_url(path), ManualClock(EPOCH_S))) as store:
        recording = Recording(loop, store)
        loop.run_until(3_600.0 * hours)
        recording.finish()
    return sqlite_url(path)
