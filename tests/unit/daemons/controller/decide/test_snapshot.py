"""What decisions are told that workloads need."""

from __future__ import annotations

from daemons.values.settings import Limits, PolicyChoice
from shared.protocol.operator_messages import AdoptVm, DrainNode
from shared.values.actions import ActionKind
from shared.values.jobs import JobPhase
from shared.values.vms import VmState, VmStatus
from tests.support.controller_harness import ControllerHarness

NODES = ("n1", "n2")  # of four cores at 1,000 MHz each


class Busy(ControllerHarness):
    """Each node has four adopted VMs, and all of them use a whole core, if they get it."""

    def __init__(self) -> None:
        limits = Limits(actions_per_node=8, migrations_per_node=8)
        super().__init__(NODES, placement=PolicyChoice("apc"), limits=limits, decide_s=60.0)
        self.lead()
        for number in range(8):
            name, node = f"db{number}", NODES[number % 2]
            self.vms[node][name] = VmStatus(name, VmState.RUNNING, managed=False, memory_mib=100, cpu_mhz=1_000.0)
        self.work(0.0)
        for number in range(8):
            name, node = f"db{number}", NODES[number % 2]
            assert self.ask(AdoptVm(f"a-{name}", node, name, job=name)).done
        self.obey()
        self.work(120.0)

    def work(self, seconds: float) -> None:
        """Let time pass; orders are carried out."""
        end_s = self.now_s + seconds
        while True:
            for node in NODES:
                for name in [*self.vms[node]]:
                    self.change(node, name, cpu_time_s=self.now_s)
                self.report(node)
            self.obey()
            if self.now_s >= end_s:
                return
            self.wait(5.0)


def test_a_node_that_an_operator_drains_becomes_empty_although_all_cpu_is_in_use() -> None:
    busy = Busy()
    assert {entry.phase for entry in busy.controller.cluster.jobs.values()} == {JobPhase.RUNNING}
    assert busy.ask(DrainNode("d", "n1", True)).done
    busy.work(300.0)
    assert (len(busy.vms["n1"]), len(busy.vms["n2"])) == (0, 8)


def test_a_node_that_nobody_drains_keeps_vms_that_use_its_cpu() -> None:
    busy = Busy()
    busy.take_orders()
    busy.work(300.0)
    assert (len(busy.vms["n1"]), len(busy.vms["n2"])) == (4, 4)
    assert not [one for one in busy.take_orders() if one.kind is ActionKind.MIGRATE]
