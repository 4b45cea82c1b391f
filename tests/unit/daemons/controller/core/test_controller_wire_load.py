"""The load of the benches is what it says: a cluster in which nothing is due, so that only listening is measured."""

from __future__ import annotations

import pytest

from benchmarks.runner import Figure
from benchmarks.wire_load import VMS, Load, inventory, report
from daemons.controller.core.controller import Controller
from daemons.values.settings import ControllerSettings
from shared.ports import effects as fx
from shared.protocol import topology
from shared.protocol.messages import Order, Probe

NOW_S = 1_000.0
LOAD = Load(3)


def told(core: Controller, rounds: int) -> list[fx.Effect]:
    """Lead over the load and hear so many rounds of reports; every effect."""
    effects = core.start(NOW_S)
    effects += core.handle(fx.Received(1, "controller.bench", Probe("bench", 1)), NOW_S)
    effects += core.handle(fx.LeadTaken(1, LOAD.records(NOW_S)), NOW_S)
    for seq in range(1, rounds + 1):
        for one in LOAD.round(seq, NOW_S, 1):
            effects += core.handle(fx.Received(None, topology.agent_user(one.node), one), NOW_S)
        effects += core.handle(fx.TimerFired("settle"), NOW_S)
    return effects


def test_the_cluster_is_as_wanted() -> None:
    """Given two rounds of reports, then every VM is known where it is wanted and no order is sent."""
    core = Controller("bench", ControllerSettings())

    effects = told(core, rounds=2)

    assert all(node.echoed and len(node.vms) == VMS == len(node.claimed) for node in core.cluster.nodes.values())
    assert len(core.cluster.jobs) == LOAD.workloads == 15
    assert not [one for one in effects if isinstance(one, fx.Publish) and isinstance(one.message, Order)]
    assert not [one for one in effects if isinstance(one, fx.DeadLetter | fx.Exit)]


def test_reports_tell_of_work() -> None:
    """A later report has larger counters, and a node has room for all of its VMs."""
    first, second = (report("n", seq, NOW_S, 1) for seq in (1, 2))

    assert all(late.cpu_time_s > early.cpu_time_s for early, late in zip(first.vms, second.vms, strict=True))
    assert sum(vm.memory_mib for vm in first.vms) <= inventory("n").memory_mib


@pytest.mark.parametrize(
    ("value", "holds"),
    [(0.9, False), (1.0, True), (2.0, True), (2.1, False)],
)
def test_a_figure_knows_whether_it_holds(value: float, holds: bool) -> None:
    """The bounds belong to what is allowed."""
    assert Figure("b", "w", value, "", least=1.0, most=2.0).holds is holds
    assert Figure("b", "w", value, "").holds
