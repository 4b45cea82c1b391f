"""The driver of a fake server's nodes passes the suite of its port against a real server over a real socket."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from shared.base.clock import SystemClock
from shared.ports.agent import Hypervisor
from shared.values.actions import ActionKind
from shared.values.jobs import workload_of
from shared.values.nodes import Node
from shared.values.operation_costs import COSTS
from sim_backend.conformance.hypervisor_bench import Check
from sim_backend.conformance.hypervisor_checks import CHECKS
from sim_backend.fake_server.client import RemoteHypervisor
from sim_backend.fake_server.control import FakeControl
from sim_backend.fake_server.server import FakeServer
from sim_backend.fake_server.wire import How

NODE = Node("n1", cores=2, core_mhz=1_000.0, memory_mib=1_000)
LIMIT_S = 1_000.0
REAL_FACTOR = 20.0
PAUSE_S = 0.002


class Harness:
    """Two nodes of one server. With factor 0 its time moves from event to event as the checks wait for them."""

    template = ""

    def __init__(self, path: Path, costs: str, factor: float) -> None:
        still = factor == 0.0
        slow = {"slow", "scripts"} if still and costs != "none" else {"scripts"} if still else set()
        self.capabilities = frozenset({"migration", "ends", "cpu"} | slow)
        self.tolerance_frac = 1e-6 if still else 0.3
        self._factor = factor
        self._clock = SystemClock()
        self._control = FakeControl(path)
        self._remotes = [RemoteHypervisor(f"unix://{path}?node={name}") for name in ("n1", "n2")]
        self.node: Hypervisor = self._remotes[0]
        self.peer: Hypervisor | None = self._remotes[1]

    def close(self) -> None:
        """Let go of the server."""
        for remote in self._remotes:
            remote.close()
        self._control.close()

    def now_s(self) -> float:
        """The driver does not look at it."""
        return self._clock.now_s()

    def wait(self, seconds: float) -> None:
        """Let the world's time pass."""
        self._settle()
        if self._factor:
            self._clock.sleep(seconds / self._factor)
        else:
            self._control.advance(seconds)
            self._settle()

    def until(self, ready: Callable[[], bool]) -> None:
        """Pass from event to event, or wait."""
        limit_s = self._world_s() + LIMIT_S
        while not ready() and self._world_s() < limit_s:
            self._settle()
            if ready():
                return
            if self._factor:
                self._clock.sleep(PAUSE_S)
            else:
                state = self._control.state()
                due_s = limit_s if state["next_due_s"] is None else min(limit_s, state["next_due_s"])
                self._control.advance(max(0.0, due_s - state["now_s"]) + 1e-6)

    def fail_next(self, kind: ActionKind, how: str) -> None:
        """Script the node."""
        self._control.fail_next("n1", kind, How(how))

    def will_end(self, vm: str, cpu_s: float) -> None:
        """Tell the server what the guest truly does."""
        self._control.work(workload_of(vm)[0], f"fake:work={cpu_s * NODE.core_mhz};max={NODE.core_mhz}")

    def _world_s(self) -> float:
        return float(self._control.state()["now_s"])

    def _settle(self) -> None:
        """Have the server take in all that the drivers have sent, and the drivers all that it has told."""
        for remote in self._remotes:
            remote.inventory()


@contextmanager
def harness(costs: str, factor: float) -> Iterator[Harness]:
    """A server of its own with two empty nodes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fake"
        server = FakeServer(path, [NODE, replace(NODE, name="n2")], COSTS[costs], time_factor=factor)
        server.start()
        try:
            made = Harness(path, costs, factor)
            try:
                yield made
            finally:
                made.close()
        finally:
            server.stop()


@pytest.mark.parametrize("costs", ["none", "paper"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_conforms_in_steps(check: Check, costs: str) -> None:
    """Every check that applies passes, with time that moves only as the check waits."""
    with harness(costs, 0.0) as surroundings:
        if check.applies(surroundings):
            check(surroundings)
        else:
            assert check.lacks or (costs, "slow" in check.needs) == ("none", True)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_conforms_as_time_runs(check: Check) -> None:
    """What asks for no exact timing passes while time runs, faster than real."""
    with harness("paper", REAL_FACTOR) as surroundings:
        if check.applies(surroundings):
            check(surroundings)
        else:
            assert check.lacks or {"slow", "scripts"} & check.needs
