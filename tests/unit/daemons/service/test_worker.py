"""The worker that decides: a policy that hangs, crashes or dies costs one decision."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemons.controller.contract.feature_set import FeatureSet
from daemons.controller.decide.snapshot import SnapshotBuilder
from daemons.controller.state.cluster import Cluster
from daemons.decision import pipeline
from daemons.decision.pipeline import DecideOutcome, DecideRequest
from daemons.service.worker import Worker
from daemons.values.settings import ControllerSettings
from shared.base.clock import SystemClock
from shared.runtime import logs
from tests.extent import first
from tests.support.paths import ROOT
from tests.support.shell_harness import wait_for
from tests.support.worker_acts import act


@pytest.fixture
def log() -> io.StringIO:
    stream = io.StringIO()
    logs.configure("info", stream=stream)
    return stream


@pytest.fixture
def worker(log: io.StringIO) -> Iterator[Worker]:
    del log
    made = Worker(act)
    yield made
    made.close()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"


@pytest.mark.full
def test_one_process_answers_request_after_request(worker: Worker) -> None:
    assert worker.warm()
    pid = worker.pid

    answers = [worker.compute(("echo", value), 30.0) for value in ("a", ["b"])]

    assert answers == [((pid, "a"), ""), ((pid, ["b"]), "")]
    assert pid != os.getpid()


@pytest.mark.full
def test_a_decision_that_hangs_is_killed_at_the_limit(worker: Worker) -> None:
    worker.warm()
    pid = worker.pid
    assert pid is not None
    clock = SystemClock()
    begun_s = clock.monotonic_s()

    assert worker.compute(("hang", 0), 0.3) == (None, "out of time")

    assert 0.3 <= clock.monotonic_s() - begun_s < 5.0
    assert gone(pid)
    answer, error = worker.compute(("echo", "again"), 30.0)
    assert (answer[1], error) == ("again", "")


@pytest.mark.full
def test_an_exception_of_a_policy_is_told_and_logged_and_the_worker_stays(worker: Worker, log: io.StringIO) -> None:
    worker.warm()
    pid = worker.pid

    assert worker.compute(("divide", 0), 30.0) == (None, "ZeroDivisionError: division by zero")

    (line,) = [json.loads(line) for line in log.getvalue().splitlines()]
    assert line["event"] == "a policy has failed"
    assert "in act" in line["traceback"]
    assert worker.pid == pid


@pytest.mark.full
@pytest.mark.parametrize(("how", "status"), first([("die", "-9"), ("exit", "3")]))
def test_a_worker_that_dies_is_begun_anew(worker: Worker, how: str, status: str) -> None:
    assert worker.compute((how, 0), 30.0) == (None, f"the worker has died (exit status {status})")

    assert worker.compute(("echo", 1), 30.0)[1] == ""


@pytest.mark.full
def test_what_cannot_travel_is_told(worker: Worker) -> None:
    outcome, error = worker.compute(("unsendable", 0), 30.0)
    assert outcome is None
    assert error.startswith("the decision cannot be sent")

    outcome, error = worker.compute(("echo", threading.Lock()), 30.0)
    assert outcome is None
    assert error.startswith("the request cannot be sent")
    assert worker.compute(("echo", 1), 30.0)[1] == ""


@pytest.mark.full
def test_closing_ends_a_computation_from_another_thread(worker: Worker) -> None:
    worker.warm()
    answers: list[tuple[Any, str]] = []
    thread = threading.Thread(target=lambda: answers.append(worker.compute(("hang", 0), 60.0)))
    thread.start()

    worker.close()
    thread.join(20.0)

    assert not thread.is_alive()
    assert answers[0][0] is None


@pytest.mark.full
def test_a_worker_does_not_outlive_its_controller(log: io.StringIO) -> None:
    """Given a process whose worker computes for ever, when it is killed, then the worker ends too."""
    del log
    script = (
        "import threading, time\nfrom daemons.service.worker import Worker\nfrom shared.runtime import logs\n"
        "from tests.support.worker_acts import act\nlogs.configure()\nworker = Worker(act)\nworker.warm()\n"
        "print(worker.pid, flush=True)\nworker.compute(('hang', 0), 600.0)\n"
    )
    root = ROOT
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=root, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        try:
            pid = int(process.stdout.readline())
        finally:
            process.kill()

    wait_for(lambda: gone(pid))


def test_a_real_request_gives_in_the_worker_what_it_gives_here(log: io.StringIO) -> None:
    del log
    settings = ControllerSettings()
    snapshot = SnapshotBuilder(Cluster(0.0), settings, FeatureSet()).build(0.0)
    request = DecideRequest(snapshot, settings.placement, None, settings.provisioning, None)
    worker = Worker()
    try:
        outcome, error = worker.compute(request, 30.0)
    finally:
        worker.close()

    assert error == ""
    assert isinstance(outcome, DecideOutcome)
    assert outcome == pipeline.run(request)
