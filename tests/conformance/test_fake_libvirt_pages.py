"""Hosts with hugepages: the driver counts them apart from ordinary memory, and VMs in them go where there are some."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.hypervisors.libvirt import domain_xml
from agents.hypervisors.libvirt.metadata import Meta
from shared.values.actions import ActionKind, Outcome
from shared.values.migration import lacks, pages_of, with_cell_memory
from shared.values.vms import VmSpec, VmState
from sim_backend.fake_libvirt.hardware import Cell, Hardware
from tests.conformance.fake_libvirt_rig import MEMORY_MIB, TEMPLATE, fakes
from tests.conformance.test_fake_libvirt_adopted import Hosts

VM = "job#0"
PAGES = "<memoryBacking><hugepages><page size='2' unit='MiB'/></hugepages></memoryBacking><devices>"
POOLS_MIB = {"h1": 400, "h2": 400, "h3": 100}


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with fakes(tmp_path, count=3, durations_s={}, shared=True) as made:
        made.template.write_text(TEMPLATE.replace("<devices>", PAGES))
        for name, pages_mib in POOLS_MIB.items():
            cell = Cell(0, (0, 1), MEMORY_MIB + 200, {2_048: pages_mib})
            made.cluster.hosts[name].hardware = Hardware(cells=(cell,))
            made.drivers[name].close()
            made.drivers[name] = made.driver(name)
        yield Hosts(made)


def start(hosts: Hosts, vm: str, memory_mib: int) -> Outcome:
    spec = VmSpec(vm, 1, 1, memory_mib=memory_mib, vcpus=1, cpu_mhz=100.0, template="guest")
    return hosts.do(ActionKind.START, "h1", vm, generation=1, spec=spec).outcome


def test_hugepages_are_no_ordinary_memory(hosts: Hosts) -> None:
    """Given 1,000 MiB of which 400 are hugepages and a VM in these, then 600 MiB are there for others."""
    node = hosts.made.drivers["h1"].inventory()
    assert (node.memory_mib, node.usable_mib, node.hugepages_mib) == (1_000, 600, 400)
    assert start(hosts, VM, 300) is Outcome.OK
    status = hosts.status("h1", VM)
    assert status is not None
    assert pages_of(status.migration_needs).total_mib == 300
    assert hosts.made.drivers["h1"]._room("other")[1].free_mib == 600
    stranger = TEMPLATE.format(memory_mib=500, vcpus=1, volume="").replace('<source file=""/>', "")
    hosts.made.drift("h1").define(stranger.replace("<name>x<", "<name>stranger<"))
    hosts.made.drift("h1").start("stranger")
    assert hosts.made.drivers["h1"]._room("other")[1].free_mib == 100
    assert start(hosts, "job#1", 101) is Outcome.NO_ROOM


def test_a_vm_in_hugepages_goes_where_there_are_enough(hosts: Hosts) -> None:
    assert start(hosts, VM, 300) is Outcome.OK
    status = hosts.status("h1", VM)
    assert status is not None
    there = {name: hosts.made.drivers[name].inventory().migration_has for name in POOLS_MIB}
    assert [lacks(there[name], status.migration_needs) for name in ("h2", "h3")] == [(), ("hugepages-2048=300",)]
    answer = hosts.do(ActionKind.MIGRATE, "h1", VM, expects=1, generation=1, to_node="h3")
    assert (answer.outcome, "hugepages" in answer.detail or "pages" in answer.detail) == (Outcome.FAILED, True)
    hosts.settle()
    assert hosts.do(ActionKind.MIGRATE, "h1", VM, expects=1, generation=1, to_node="h2").outcome is Outcome.OK
    hosts.settle()
    moved = hosts.status("h2", VM)
    assert moved is not None
    assert (moved.state, pages_of(moved.migration_needs).total_mib) == (VmState.RUNNING, 300)


def test_a_vm_that_is_bound_to_a_cell_goes_where_that_has_its_memory(hosts: Hosts) -> None:
    """Given hosts with 500 MiB in cell 0, and on one of them another VM that must be there."""
    bound = "<numatune><memory mode='strict' nodeset='0'/></numatune><devices>"
    hosts.made.template.write_text(TEMPLATE.replace("<devices>", bound))
    for name in POOLS_MIB:
        hosts.made.cluster.hosts[name].hardware = Hardware(cells=(Cell(0, (0,), 500), Cell(1, (1,), 500)))
        hosts.made.drivers[name].close()
        hosts.made.drivers[name] = hosts.made.driver(name)
    assert start(hosts, VM, 300) is Outcome.OK
    status = hosts.status("h1", VM)
    assert status is not None
    assert with_cell_memory(status.migration_needs, status.memory_mib)[-1] == "numa-memory=300"
    other = TEMPLATE.format(memory_mib=300, vcpus=1, volume="").replace('<source file=""/>', "")
    hosts.made.drift("h3").define(other.replace("<name>x<", "<name>other<").replace("<devices>", bound))
    hosts.made.drift("h3").start("other")
    stranger = hosts.status("h3", "other")
    assert (stranger is not None and stranger.managed, stranger and stranger.migration_needs) == (False, ("numa=0",))
    answer = hosts.do(ActionKind.MIGRATE, "h1", VM, expects=1, generation=1, to_node="h3")
    assert (answer.outcome, "Cannot allocate memory" in answer.detail) == (Outcome.NO_ROOM, True)
    hosts.settle()
    assert hosts.do(ActionKind.MIGRATE, "h1", VM, expects=1, generation=1, to_node="h2").outcome is Outcome.OK


def test_one_in_hugepages_alone_that_somebody_moves_here_is_noted(hosts: Hosts) -> None:
    assert start(hosts, VM, 300) is Outcome.OK
    hosts.made.drift("h1").migrate(VM, "h2")
    hosts.settle()

    def noted() -> str:
        text = hosts.made.drift("h2").connection().lookupByName(VM).XMLDesc(2)
        return (domain_xml.facts_of(text).meta or Meta()).node

    hosts.until(lambda: noted() == "h2")


def test_a_guest_in_hugepages_has_touched_all_of_them(hosts: Hosts) -> None:
    assert start(hosts, VM, 300) is Outcome.OK
    status = hosts.status("h1", VM)
    assert status is not None
    assert status.resident_mib == 300
