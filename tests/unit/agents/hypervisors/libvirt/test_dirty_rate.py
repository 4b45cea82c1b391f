"""Dirty rates are measured of one VM at a time, in turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from agents.hypervisors.libvirt.binding import Connection
from agents.hypervisors.libvirt.capacity import Cpu
from agents.hypervisors.libvirt.dirty_rate import LONG_S, PATIENCE_S, SHORT_S, DirtyRates
from agents.hypervisors.libvirt.migration_size import DirtyRate
from agents.hypervisors.libvirt.statistics import ObservedDomain, Reader
from sim_backend.fake_libvirt.cluster import Cluster
from sim_backend.fake_libvirt.codes import Err, libvirtError
from sim_backend.fake_libvirt.drift import HostDrift
from sim_backend.fake_libvirt.faults import Fault
from sim_backend.world.migrating import GuestMemory

NO_SUPPORT = 3  # virErrorNumber
META = '<metadata><t:vm xmlns:t="https://trimtab.dev/libvirt/1" generation="1" attempt="1" template="t"/></metadata>'
XML = "<domain type='qemu'><name>{}</name><memory unit='MiB'>400</memory><os><type>hvm</type></os>{}</domain>"


class Node:
    """A host with running VMs, and its dirty rates."""

    def __init__(self, memories: dict[str, GuestMemory]) -> None:
        self.cluster = Cluster()
        self.cluster.add_host("h1")
        self.cluster.memories = memories
        self.raw = self.cluster.module("h1").open()
        self.conn = cast(Connection, self.raw)
        for vm in memories:
            self.raw.defineXML(XML.format(vm, META)).create()
        self.rates = DirtyRates(libvirtError)

    def seen(self) -> list[ObservedDomain]:
        return list(Reader(libvirtError, Cpu(1_000.0)).read(self.conn).values())

    def step(self, seconds: float = 10.0) -> None:
        self.rates.step(self.conn, self.seen(), self.cluster.now_s())
        self.cluster.advance(seconds)

    def known(self) -> dict[str, DirtyRate]:
        names = {one.facts.uuid: one.facts.name for one in self.seen()}
        return {names[uuid]: rate for uuid, rate in self.rates.known.items()}

    def measured(self) -> list[str]:
        return [vm for _, call, vm in self.cluster.calls if call == "startDirtyRateCalc"]


@pytest.fixture
def nodes() -> Iterator[Any]:
    made: list[Node] = []

    def make(**memories: GuestMemory) -> Node:
        made.append(Node(memories))
        return made[-1]

    yield make
    for node in made:
        node.cluster.close()


def test_it_is_behind_until_each_vm_is_measured(nodes: Any) -> None:
    node = nodes(a=GuestMemory(300.0, 60.0, 120.0), b=GuestMemory(300.0, 0.0))
    behind = []
    for _ in range(6):
        node.step()
        behind.append(node.rates.is_behind)
    assert behind == [True, True, True, True, True, False]
    node.raw.defineXML(XML.format("c", META)).create()
    node.step()
    assert node.rates.is_behind


def test_each_vm_has_its_turn_and_its_working_set(nodes: Any) -> None:
    node = nodes(a=GuestMemory(300.0, 60.0, 120.0), b=GuestMemory(300.0, 0.0), c=GuestMemory(300.0, 4.0, 300.0))
    for _ in range(9):
        node.step()
    found = node.known()
    assert found["a"].mib_per_s == 60.0
    assert found["a"].working_set_mib == pytest.approx(120.0, rel=0.05)
    assert found["b"] == DirtyRate(0.0, 0)
    assert found["c"].mib_per_s == 4.0
    assert sorted(set(node.measured())) == ["a", "b", "c"]


def test_a_slow_one_shows_over_the_longer_time(nodes: Any) -> None:
    """Within 1 s none of the pages that QEMU looks at has changed."""
    node = nodes(a=GuestMemory(300.0, 2.0))
    node.step(0.0)
    (domain,) = node.cluster.hosts["h1"].live()
    domain.dirty_rate.mib_per_s = 0
    node.cluster.advance(SHORT_S)
    node.step(LONG_S)
    assert node.known() == {"a": DirtyRate(0.0, 0)}
    node.step(0.0)
    assert node.known() == {"a": DirtyRate(2.0, 0)}


def test_no_two_are_measured_at_once(nodes: Any) -> None:
    node = nodes(a=GuestMemory(300.0, 60.0, 120.0), b=GuestMemory(300.0, 60.0, 120.0))
    node.step(0.0)
    for _ in range(5):
        node.step(0.1)  # not due yet
    assert len(node.measured()) == 1
    node.step(SHORT_S)
    node.step(0.0)  # the long one of the same VM
    assert len(set(node.measured())) == 1
    node.step(LONG_S)
    node.step(0.0)
    assert len(set(node.measured())) == 2


def test_a_vm_that_has_ended_leaves_the_turn_to_others(nodes: Any) -> None:
    node = nodes(a=GuestMemory(300.0, 60.0), b=GuestMemory(300.0, 30.0))
    node.step()
    node.raw.lookupByName(node.measured()[0]).destroy()
    for _ in range(4):
        node.step()
    assert [rate.mib_per_s for rate in node.known().values()][-1] in (30.0, 60.0)
    node.rates.forget_but([])
    assert node.known() == {}


def test_a_hypervisor_that_cannot_is_asked_once(nodes: Any) -> None:
    node = nodes(a=GuestMemory(300.0, 60.0), b=GuestMemory(300.0, 30.0))
    node.cluster.fail(Fault("startDirtyRateCalc", "raise", NO_SUPPORT))
    for _ in range(3):
        node.step()
    assert len(node.measured()) == 1
    assert not node.rates.is_behind


@pytest.mark.parametrize("code", [Err.OPERATION_UNSUPPORTED, Err.ARGUMENT_UNSUPPORTED])
def test_a_vm_that_cannot_be_measured_is_asked_once_while_it_runs(nodes: Any, code: int) -> None:
    node = nodes(a=GuestMemory(300.0, 60.0), b=GuestMemory(300.0, 30.0))
    unable = min(node.seen(), key=lambda one: one.facts.uuid).facts.name
    node.cluster.fail(Fault("startDirtyRateCalc", "raise", code, subject=unable))
    for _ in range(5):
        node.step()
    assert node.measured().count(unable) == 1
    assert len(node.known()) == 1
    assert not node.rates.is_behind
    node.raw.lookupByName(unable).destroy()
    node.step()
    node.raw.lookupByName(unable).create()
    for _ in range(4):
        node.step()
    assert len(node.known()) == 2, "it may have another QEMU by now"


def test_another_failure_is_tried_again(nodes: Any) -> None:
    node = nodes(a=GuestMemory(300.0, 60.0))
    node.cluster.fail(Fault("startDirtyRateCalc", "raise", Err.OPERATION_FAILED))
    for _ in range(4):
        node.step()
    assert node.known()["a"].mib_per_s == 60.0


def test_a_result_that_never_comes_is_not_waited_for(nodes: Any) -> None:
    node = nodes(a=GuestMemory(300.0, 60.0))
    node.step(0.0)
    for dom in node.cluster.hosts["h1"].live():
        dom.dirty_rate.begun_s = 1e9
    node.step(PATIENCE_S - 1.0)
    assert len(node.measured()) == 1
    node.step(2.0)
    node.step(0.0)
    assert len(node.measured()) == 2


def test_a_lost_connection_leaves_what_is_known(nodes: Any) -> None:
    node = nodes(a=GuestMemory(300.0, 60.0))
    node.step()
    node.step()
    seen, known = node.seen(), node.rates.known
    HostDrift(node.cluster, "h1").libvirtd_dies()
    for at_s in (1e3, 2e3):
        node.rates.step(node.conn, seen, at_s)
    assert node.rates.known == known
    assert known[seen[0].facts.uuid].mib_per_s == 60.0
