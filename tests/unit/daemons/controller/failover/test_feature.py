"""What the controller makes of a VM with failover whose node is off, message by message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shared.ports.effects import PowerDone
from shared.protocol.operator_messages import AdoptVm, ConfirmOff, Query, ReleaseVm, SetJob
from shared.values.actions import Action, ActionKind, GuestChange, Outcome
from shared.values.jobs import JobPhase
from shared.values.lease import SeenLease
from shared.values.nodes import HugepagePool, Node, NodeCondition, NumaCell, PowerOperation
from shared.values.vm_terms import TermChanges, VmTerms
from shared.values.vms import VmState, VmStatus
from tests.support.controller_harness import ControllerHarness

FENCE_S = 30.0
DEFINITION = ("<domain><name>db</name>", "</domain>")
NODES, OTHERS = ("n1", "n2"), ("n2",)
PAGED = ("hugepages-2048=100",)
NO_NODE = "db: no node has the memory free, and what it needs, and keeps its rules"


class Rig:
    """Two nodes; on n1 runs an adopted VM with failover."""

    def __init__(
        self, fence_after_s: float | None = FENCE_S, nodes: tuple[str, ...] = ("n1", "n2"), **status: Any
    ) -> None:
        self.harness = ControllerHarness(nodes, fence_after_s=fence_after_s).lead()
        own = {"memory_mib": 100, "vcpus": 1, "cpu_mhz": 100.0, "autostart": True, **status}
        self.harness.vms["n1"]["db"] = VmStatus("db", VmState.RUNNING, managed=False, **own)
        self.harness.report("n1")
        assert self.harness.ask(AdoptVm("a", "n1", "db", job="db", terms=VmTerms(failover=True))).done
        self.obey()

    def obey(self) -> list[Action]:
        """Have all orders done; an adoption is answered with the definition."""
        done: list[Action] = []
        while orders := self.harness.take_orders():
            for action in orders:
                if action.kind is ActionKind.ADOPT:
                    self.harness.result(action, definition=DEFINITION)
                else:
                    self.harness.result(action)
            done += orders
        return done

    def lose(self, node: str = "n1", others: tuple[str, ...] = OTHERS) -> None:
        """The node falls silent and is proven off."""
        self.harness.wait(50.0, others)
        self.harness.feed(PowerDone(node, PowerOperation.FENCE, True, "off"))
        self.harness.settle()

    def returns(self, node: str = "n1") -> None:
        """The host is back; its libvirt knows the VM, shut off."""
        self.harness.boots[node] += "+"
        self.harness.change(node, "db", state=VmState.CRASHED)

    @property
    def instance(self) -> Any:
        return self.harness.controller.cluster.instances["db"]

    @property
    def entry(self) -> Any:
        return self.harness.controller.cluster.jobs["db"]

    def alarms(self) -> dict[str, str]:
        rows = self.harness.ask(Query(f"q-{self.harness.now_s}", "status")).data["alarms"]
        return {row["what"]: row["detail"] for row in rows}


def test_the_definition_goes_with_the_order() -> None:
    rig = Rig()
    rig.lose()
    (start,) = rig.obey()
    assert (start.kind, start.node, start.expects, start.generation) == (ActionKind.START, "n2", 0, 2)
    assert start.spec is not None
    assert (start.spec.definition, start.spec.failover, start.spec.autostart) == (DEFINITION, True, True)
    assert (rig.entry.phase, rig.entry.left_on) == (JobPhase.RUNNING, ("n1",))


def test_how_it_ended_on_a_host_that_is_back_says_nothing_of_where_it_runs() -> None:
    rig = Rig(definition="abc")
    rig.lose()
    rig.obey()
    rig.harness.wait(10.0, OTHERS)
    rig.returns()
    rig.harness.report("n1", term=0, vms=())
    rig.harness.guest("n1", "db", GuestChange.VANISHED)
    assert (rig.instance.exit, rig.instance.failed, rig.entry.phase) == (None, None, JobPhase.RUNNING)
    rig.harness.wait(30.0, NODES)
    (undefine,) = rig.obey()
    assert (undefine.kind, undefine.node, undefine.expects) == (ActionKind.UNDEFINE, "n1", 1)
    assert undefine.digest == "abc"  # as it was when it was started elsewhere
    rig.lose("n2", ("n1",))
    (start,) = rig.obey()
    assert (start.kind, start.node, start.generation) == (ActionKind.START, "n1", 3)


def test_it_is_not_released_while_a_host_that_is_off_may_have_a_definition_of_it() -> None:
    rig = Rig()
    rig.lose()
    rig.obey()
    reply = rig.harness.ask(ReleaseVm("r1", "db"))
    assert (reply.code, "n1 may have a definition" in reply.detail) == ("vm-left-behind", True)
    rig.returns()
    rig.harness.wait(10.0, ("n1", "n2"))
    assert [action.kind for action in rig.obey()] == [ActionKind.UNDEFINE]
    rig.harness.wait(10.0, ("n1", "n2"))
    assert rig.harness.ask(ReleaseVm("r2", "db")).done


def test_a_definition_that_is_not_removed_is_removed_by_hand() -> None:
    """Given a host that refuses, because its definition is newer, then the operator who removes it can release."""
    rig = Rig()
    rig.lose()
    rig.obey()
    rig.returns()
    rig.harness.wait(10.0, NODES)
    (undefine,) = rig.harness.take_orders()
    rig.harness.result(undefine, Outcome.REFUSED, detail="its definition was edited here since")
    reply = rig.harness.ask(ReleaseVm("r1", "db"))
    assert (reply.code, "n1 may have a definition" in reply.detail) == ("vm-left-behind", True)
    del rig.harness.vms["n1"]["db"]
    rig.harness.wait(10.0, NODES)
    assert rig.harness.ask(ReleaseVm("r2", "db")).done


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"host_files": ("disk=/a",)}, "db: its disk /a lies on its host alone"),
        ({"migration_needs": ("bound=pci-device:0000:01:00.0",)}, "db: uses PCI device 0000:01:00.0"),
        (
            {"migration_needs": ("network=dmz",)},
            "db: no node has the memory free, and what it needs, and keeps its rules",
        ),
        ({"memory_mib": 3_000}, NO_NODE),
    ],
)
def test_why_it_waits(status: dict[str, Any], why: str) -> None:
    rig = Rig(**status)
    inventory = rig.harness.nodes["n2"]
    rig.harness.nodes["n2"] = type(inventory)(
        "n2", inventory.cores, inventory.core_mhz, 2_000, migration_has=("network=lan", "disk=rbd:x")
    )
    rig.harness.report("n2")
    rig.lose()
    assert rig.obey() == []
    assert rig.alarms()["failover-blocked"] == why


def test_a_target_that_refuses_is_avoided_for_a_while() -> None:
    rig = Rig(nodes=("n1", "n2", "n3"))
    rig.lose(others=("n2", "n3"))
    (start,) = rig.harness.take_orders()
    rig.harness.result(start, outcome=Outcome.REFUSED, status=None, detail="no such machine type")
    rig.harness.wait(60.0, ("n2", "n3"))
    (again,) = rig.obey()
    assert {start.node, again.node} == {"n2", "n3"}


def test_two_vms_do_not_go_where_hugepages_are_left_for_one() -> None:
    """Each of the other nodes has pages for one of them; when there is one node alone, the second waits."""
    names = ("n1", "n2", "n3")
    rig = Rig(nodes=names, migration_needs=PAGED)
    second = VmStatus("db2", VmState.RUNNING, managed=False, memory_mib=100, autostart=True, migration_needs=PAGED)
    rig.harness.vms["n1"]["db2"] = second
    for name in names:
        pool = (HugepagePool(2_048, 100, 0),)
        has = ("hugepages=", "hugepages-2048=100")
        rig.harness.nodes[name] = Node(name, 4, 1000.0, memory_mib=4000, hugepages=pool, migration_has=has)
        rig.harness.report(name)
    assert rig.harness.ask(AdoptVm("b", "n1", "db2", job="db2", terms=VmTerms(failover=True))).done
    rig.obey()

    rig.lose(others=("n2", "n3"))
    assert sorted(action.node for action in rig.obey()) == ["n2", "n3"]

    for name in ("n2", "n3"):
        (vm,) = rig.harness.vms[name]
        rig.harness.change(name, vm, migration_needs=PAGED)
    rig.lose("n3", others=("n2",))
    assert rig.obey() == []
    assert rig.alarms()["failover-blocked"].endswith(NO_NODE.partition(": ")[2])


@pytest.mark.parametrize(
    ("needs", "free", "missing"),
    [
        (PAGED, 200, None),
        (PAGED, 100, "100 MiB of hugepages"),
        (("numa=0",), 200, None),
        (("numa=0",), 100, "100 MiB"),
    ],
)
def test_memory_that_is_free_once_is_spare_for_one_vm(needs: tuple[str, ...], free: int, missing: str | None) -> None:
    """Two VMs of one node, in hugepages or bound to a NUMA cell; the alarm before their node is lost tells what comes
    of it."""
    rig = Rig(migration_needs=needs)
    second = VmStatus("db2", VmState.RUNNING, managed=False, memory_mib=100, autostart=True, migration_needs=needs)
    rig.harness.vms["n1"]["db2"] = second
    for name, mib in (("n1", 200), ("n2", free)):
        pool = (HugepagePool(2_048, mib, 1),)
        has = ("hugepages=", f"hugepages-2048={mib}", "numa=0-1")
        cells = (NumaCell(0, "0-1", mib), NumaCell(1, "2-3", 3_000))
        rig.harness.nodes[name] = replace(rig.harness.nodes[name], hugepages=pool, migration_has=has, numa_cells=cells)
        rig.harness.report(name)
    assert rig.harness.ask(AdoptVm("b", "n1", "db2", job="db2", terms=VmTerms(failover=True))).done
    rig.obey()
    rig.harness.wait(905.0, NODES)

    said = rig.alarms().get("spare-capacity-short")
    assert said == (missing and f"if it is lost, db2 cannot restart elsewhere: {missing} are missing")
    rig.lose()
    assert [action.vm for action in rig.obey()] == (["db"] if missing else ["db", "db2"])
    assert ("failover-blocked" in rig.alarms()) is bool(missing)


def test_a_start_does_not_need_what_a_live_migration_does() -> None:
    """Given another CPU on the target, then the VM starts there, as it could not be migrated."""
    rig = Rig(migration_needs=("cpu=aaa",))
    rig.harness.nodes["n2"] = Node("n2", 4, 1000.0, memory_mib=4000, migration_has=("cpu=bbb",))
    rig.harness.report("n2")
    rig.lose()
    assert [action.node for action in rig.obey()] == ["n2"]


def test_failover_that_is_turned_off_is_undone_on_the_host() -> None:
    rig = Rig()
    assert rig.harness.ask(SetJob("s", "db", terms=TermChanges.of(VmTerms()))).done
    (adopt,) = rig.obey()
    assert adopt.spec is not None
    assert (adopt.kind, adopt.expects, adopt.spec.failover) == (ActionKind.ADOPT, 1, False)
    rig.lose()
    assert rig.obey() == []


def test_an_operators_word_is_proof_too() -> None:
    rig = Rig(fence_after_s=None)
    rig.harness.wait(30.0, OTHERS)
    assert rig.harness.ask(ConfirmOff("c", "n1")).done
    assert [action.node for action in rig.obey()] == ["n2"]


@pytest.mark.parametrize(
    ("lease", "condition"),
    [
        (SeenLease("n1", "boot", 1, 46.0, 45.0), NodeCondition.OFF),
        (SeenLease("n1", "boot", 1, 44.0, 45.0), NodeCondition.UNKNOWN),
        (SeenLease("n1", "an older boot", 1, 46.0, 45.0), NodeCondition.UNKNOWN),
        (SeenLease("n2", "boot", 1, 46.0, 45.0), NodeCondition.UNKNOWN),
        (SeenLease("nobody", "boot", 1, 46.0, 45.0), NodeCondition.UNKNOWN),
        (SeenLease("n1", "boot", 1, 46.0, 0.0), NodeCondition.UNKNOWN),
    ],
)
def test_which_lease_is_proof(lease: SeenLease, condition: NodeCondition) -> None:
    rig = Rig(fence_after_s=None)
    boot_id = rig.harness.boots["n1"] if lease.boot_id == "boot" else lease.boot_id
    rig.harness.wait(30.0, OTHERS)
    said = SeenLease(lease.node, boot_id, lease.number, lease.unchanged_s, lease.proof_s)
    rig.harness.report("n2", leases=(said,))
    assert rig.harness.controller.cluster.nodes["n1"].condition is condition
