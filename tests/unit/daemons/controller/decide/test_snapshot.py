"""What decisions are told that workloads need."""

from __future__ import annotations

import pytest

from daemons.values.settings import Limits, PolicyChoice
from shared.protocol.account_messages import Assess
from shared.protocol.operator_messages import AdoptVm, DrainNode
from shared.values.actions import ActionKind
from shared.values.jobs import JobPhase
from shared.values.nodes import Ability, Node
from shared.values.vms import VmState, VmStatus
from tests.support.controller_harness import ControllerHarness

NODES = ("n1", "n2", "n3")  # of four cores at 1,000 MHz each


class Busy(ControllerHarness):
    """The first two nodes have four adopted VMs each, which use a whole core, if they get it; the third has `third`.
    `large_mib`, `needs`: the memory of the first VM, and what it needs of nodes that it moves to."""

    def __init__(
        self, third: int = 4, memory_mib: int = 4_000, large_mib: int = 100, needs: tuple[str, ...] = ()
    ) -> None:
        limits = Limits(actions_per_node=8, migrations_per_node=8)
        super().__init__(NODES, placement=PolicyChoice("apc"), limits=limits, decide_s=60.0)
        self.nodes["n1"] = Node("n1", 4, 1_000.0, memory_mib=9_000, abilities=tuple(Ability))
        self.nodes["n3"] = Node("n3", 4, 1_000.0, memory_mib=memory_mib, abilities=tuple(Ability))
        self.lead()
        homes = ["n1"] * 4 + ["n2"] * 4 + ["n3"] * third
        for number, node in enumerate(homes):
            name = f"db{number}"
            self.vms[node][name] = VmStatus(name, VmState.RUNNING, managed=False, memory_mib=100, cpu_mhz=1_000.0)
        self.change("n1", "db0", memory_mib=large_mib, migration_needs=needs)
        self.work(0.0)
        for number, node in enumerate(homes):
            assert self.ask(AdoptVm(f"a-{number}", node, f"db{number}", job=f"db{number}")).done
        self.obey()
        self.work(120.0)

    @property
    def counts(self) -> list[int]:
        """How many VMs each node has."""
        return [len(self.vms[node]) for node in NODES]

    @property
    def min_mhz(self) -> dict[str, float]:
        """The least speed that a decision gives every VM."""
        columns = self.controller.deciding.builder.build(self.now_s).workloads
        return dict(zip(columns.names, columns.min_mhz.tolist(), strict=True))

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


def test_a_drained_node_becomes_empty_although_all_cpu_is_in_use_and_the_others_share_its_vms() -> None:
    busy = Busy()
    assert {entry.phase for entry in busy.controller.cluster.jobs.values()} == {JobPhase.RUNNING}
    assert busy.ask(DrainNode("d", "n1", True)).done
    busy.work(300.0)
    assert busy.counts[0] == 0
    assert max(busy.counts) <= 7


def test_a_drained_node_becomes_empty_where_only_one_other_has_memory() -> None:
    """Ten VMs come to share four cores then, since the third node has room for two in all."""
    busy = Busy(third=2, memory_mib=210)
    assert busy.ask(DrainNode("d", "n1", True)).done
    busy.work(600.0)
    assert busy.counts == [0, 8, 2]


def test_a_dry_run_of_a_drain_shares_cpu_as_the_drain_does() -> None:
    busy = Busy()
    found = busy.ask(Assess("a", "drain", "n1"))
    assert found.done
    assert isinstance(found.data, dict)
    moved = {one["workload"] for one in found.data["follows"] if one["kind"] == "migrate"}
    assert moved == {"db0", "db1", "db2", "db3"}, found.data["refusals"]
    assert busy.counts == [4, 4, 4]


def test_a_node_that_nobody_drains_keeps_vms_that_use_its_cpu() -> None:
    busy = Busy()
    busy.take_orders()
    busy.work(300.0)
    assert busy.counts == [4, 4, 4]
    assert not [one for one in busy.take_orders() if one.kind is ActionKind.MIGRATE]


def test_vms_beside_a_drained_node_keep_half_of_what_they_need_for_one_that_no_node_takes() -> None:
    busy = Busy(large_mib=5_000)
    assert busy.ask(DrainNode("d", "n1", True)).done
    busy.work(300.0)
    assert busy.counts[0] == 1
    needs = busy.min_mhz
    assert needs.pop("db0") == 0.0
    assert sum(needs.values()) == pytest.approx(4_000.0, rel=0.01)


def test_a_second_drain_shares_cpu_evenly_although_an_earlier_one_goes_on() -> None:
    busy = Busy(large_mib=5_000)
    assert busy.ask(DrainNode("d", "n1", True)).done
    busy.work(300.0)
    needs = busy.controller.deciding.builder.drained_min_mhz("n2", busy.now_s)
    assert needs.tolist() == pytest.approx([0.5 * 4_000.0 / 12] * 12)
    assert busy.ask(DrainNode("e", "n2", True)).done
    busy.work(300.0)
    assert busy.counts == [1, 0, 11]


def test_a_vm_that_cannot_move_leaves_others_what_they_need_on_a_drained_node() -> None:
    busy = Busy(needs=("bound=hostdev",))
    assert busy.ask(DrainNode("d", "n1", True)).done
    busy.work(300.0)
    assert busy.counts[0] == 1
    assert sum(busy.min_mhz.values()) == pytest.approx(9_000.0, rel=0.01)
