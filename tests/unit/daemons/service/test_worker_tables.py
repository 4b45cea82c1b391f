"""Tables are computed in a worker of their own while decisions go on."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daemons.controller.core.controller import Controller
from daemons.decision.pipeline import DecideOutcome, DecideRequest, Prepared, PrepareRequest
from daemons.models.deadline.problem import DeadlineProblem
from daemons.models.deadline.rules import TableSpec
from daemons.service.main import ControllerShell, Decider, link_of, tables_folder
from daemons.service.table_server import TableServer
from daemons.service.worker import Worker
from daemons.values.settings import PolicyChoice
from shared.protocol.operator_messages import DryRun
from shared.runtime import logs
from tests.support.provisioning_cases import cluster, window
from tests.support.shell_harness import FAST, InlineDecider, RealRig, Running, wait_for

SPEC = TableSpec(
    "threshold",
    DeadlineProblem(
        np.zeros((3, 1)), 0.5, 1, servers_max=2, confidence=0.9, price=np.ones(3), removal_price=np.ones(3)
    ),
)
WAIT_S = 20.0


class Lacking(InlineDecider):
    """Every decision lacks a table. Counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.decisions = 0

    def compute(self, request: Any, limit_s: float) -> tuple[Any, str]:
        outcome, error = super().compute(request, limit_s)
        assert isinstance(outcome, DecideOutcome)
        self.decisions += 1
        return replace(outcome, missing=(SPEC,)), error


class Slow(InlineDecider):
    """Computes tables when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Any] = []
        self.let = threading.Event()

    def compute(self, request: Any, limit_s: float) -> tuple[Any, str]:
        self.requests.append((request, limit_s))
        assert self.let.wait(WAIT_S)
        return Prepared(len(request.specs)), ""


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[RealRig]:
    made = RealRig(tmp_path)
    yield made
    made.end()


def controller(rig: RealRig, decider: Decider, preparer: Decider | None) -> Running:
    link = link_of("a", lambda: rig._connect("controller.a"))
    core = Controller("a", replace(FAST, decide_s=0.5, decide_limit_s=5.0))
    shell = ControllerShell(core, link, rig.store, decider, seed=1, clock=rig.clock, preparer=preparer)
    return rig._started(shell)


def test_decisions_go_on_while_tables_are_computed(rig: RealRig) -> None:
    decider, preparer = Lacking(), Slow()
    controller(rig, decider, preparer)
    wait_for(lambda: len(preparer.requests) == 1)
    [(request, limit_s)] = preparer.requests
    assert isinstance(request, PrepareRequest)
    assert (request.specs[0].problem.digest(), limit_s) == (SPEC.problem.digest(), 600.0)
    before = decider.decisions
    assert rig.ask(DryRun("dry")).done
    wait_for(lambda: decider.decisions > before + 2)
    assert len(preparer.requests) == 1
    preparer.let.set()


def test_without_somebody_who_computes_tables_decisions_go_on(rig: RealRig) -> None:
    decider = Lacking()
    running = controller(rig, decider, None)
    wait_for(lambda: decider.decisions > 3)
    assert running.error is None


def test_where_tables_lie() -> None:
    assert tables_folder("sqlite:////srv/trimtab/controller.db") == Path("/srv/trimtab/tables")
    assert tables_folder("postgresql+psycopg://db/trimtab") == Path("/var/lib/trimtab-controller/tables")


@pytest.mark.full
def test_two_processes_share_the_tables(tmp_path: Path) -> None:
    """Given two workers on one folder, when one has computed what the other lacked, then that decides by it."""
    logs.configure("info", stream=io.StringIO())
    server = TableServer(tmp_path / "tables")
    deciding, preparing = Worker(server), Worker(server)
    request = DecideRequest(cluster(window()), PolicyChoice("first-fit"), None, PolicyChoice("threshold"), None)
    try:
        first, error = deciding.compute(request, WAIT_S)
        assert (error, len(first.missing)) == ("", 2)
        done, error = preparing.compute(PrepareRequest(first.missing), WAIT_S)
        assert (done, error) == (Prepared(2), "")
        then, error = deciding.compute(request, WAIT_S)
        assert (error, then.missing) == ("", ())
        assert then.provisioning.windows[0].reason.code.value != "no-tables"
    finally:
        deciding.close()
        preparing.close()
