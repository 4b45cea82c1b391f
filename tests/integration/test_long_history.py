"""A controller on a store of many months: it leads, prunes and forgets while everybody goes on asking."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from daemons.controller import Controller
from daemons.main import FIRST_PRUNE_S
from daemons.records import JobRecord
from daemons.store import ActionEntry, Batch, SqlStore
from shared.bus import topology
from shared.clock import SystemClock
from shared.codec import encode
from shared.messages import Happened, Query, SubmitJob
from shared.model import Job, JobPhase, Stage
from tests.unit.shell_rig import RealRig
from tests.unit.store_samples import job_record, sqlite_url
from tests.unit.test_shell_history import HurriedClock, skip
from tests.unit.test_store_history import use

DAY_S = 86_400.0
DAYS, JOBS_A_DAY, NODES = 45, 400, 20
WAIT_MAX_S = 1.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    """Forty-five days of four hundred jobs."""
    with closing(SqlStore(sqlite_url(tmp_path / "store.db"))) as made:
        term, begin_s = made.take_lead("before").term, SystemClock().now_s() - DAYS * DAY_S
        for day in range(DAYS):
            made.write(term, tuple(_job(day, number, begin_s) for number in range(JOBS_A_DAY)))
            made.append(_history(day, begin_s + day * DAY_S))
        yield made


def _job(day: int, number: int, begin_s: float) -> Any:
    order, at_s = day * JOBS_A_DAY + number + 1, begin_s + day * DAY_S + number
    return replace(job_record(f"job-{order:06}", order, JobPhase.COMPLETED, at_s + 60.0), accepted_s=at_s)


def _history(day: int, at_s: float) -> Batch:
    names = [f"{day}-{number}" for number in range(JOBS_A_DAY)]
    return Batch(
        events=tuple(Happened(at_s + at, "job-started", name) for at in range(5) for name in names),
        actions=tuple(ActionEntry(name, at_s, "start", f"{name}#0", "n1", 1) for name in names),
        uses=tuple(use(f"n{node}", at_s + at * 300.0) for node in range(NODES) for at in range(288)),
    )


@pytest.mark.full
@pytest.mark.alone
def test_a_first_prune_holds_nobody_up_and_is_forgotten_in_memory_too(store: SqlStore, tmp_path: Path) -> None:
    """Given a long history and a hundred and fifty requests that wait, when a controller takes the lead, then it leads
    in its first life and answers each once; while it prunes no submission waits for more than a second; afterwards it
    knows the jobs that a new leader would know."""
    rig = RealRig(tmp_path, nodes=1)
    rig.clock = HurriedClock()
    kept: Any = store
    rig.store = kept
    for number in range(150):
        _send(rig, Query(f"q{number % 50}", "jobs"))
    running = rig.controller()
    assert rig.ask(Query("ready", "status")).done

    skip(rig, FIRST_PRUNE_S)
    waits_s = [_submit(rig, 0)]
    while not rig.lines("history pruned"):
        waits_s.append(_submit(rig, len(waits_s)))

    print(f"{len(waits_s)} submissions, median {median(waits_s):.3f} s, longest {max(waits_s):.3f} s")
    assert running.exit_status is None
    assert len(waits_s) > 10
    assert max(waits_s) < WAIT_MAX_S
    core = running.shell.core
    assert isinstance(core, Controller)
    rig.end()
    left = {record.job.name for record in store.take_lead("after").image if isinstance(record, JobRecord)}
    assert core.cluster.jobs.keys() == left
    assert len(left) < DAYS * JOBS_A_DAY


def _send(rig: RealRig, request: Query) -> None:
    rig.operator.publish(topology.REQUESTS, topology.CONTROLLER_QUEUE, encode(request), None, "reply.operator.test")


def _submit(rig: RealRig, number: int) -> float:
    """How long it takes until a job is taken in."""
    begun_s = SystemClock().monotonic_s()
    assert rig.ask(SubmitJob(f"new-{number}", Job(f"new-{number}", (Stage(1.0, 1000.0, memory_mib=100),)))).done
    return SystemClock().monotonic_s() - begun_s
