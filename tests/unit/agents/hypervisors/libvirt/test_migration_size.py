"""What a migration of a domain has to move."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from agents.hypervisors.libvirt.domain_xml import Disk, Facts
from agents.hypervisors.libvirt.migration_size import UNMEASURED, DirtyRate, MigrationSize, size_of, working_set_mib

MIB = 1 << 20
DISKS = (Disk("/pool/a", "vda"), Disk("/shared/b", "vdb"), Disk("", "vdc"))
FACTS = Facts("vm", "u", memory_mib=1_000, vcpus=1, meta=None, disks=DISKS)


def local(path: str) -> bool:
    return path.startswith("/pool/")


def test_local_disks_and_touched_memory_count() -> None:
    row = {"balloon.rss": 640 << 10, "block.count": 3, "block.0.path": "/pool/a", "block.0.allocation": 5 * MIB + 1}
    row |= {"block.1.path": "/shared/b", "block.1.allocation": 70 * MIB, "block.2.path": "/pool/cdrom.iso"}
    assert size_of(row, FACTS, local, UNMEASURED) == MigrationSize(600, 6)


@pytest.mark.parametrize(("rss_mib", "resident_mib"), [(1_100, 1_000), (140, 100), (30, 1), (0, 0)])
def test_a_process_s_own_memory_does_not(rss_mib: int, resident_mib: int) -> None:
    assert size_of({"balloon.rss": rss_mib << 10}, FACTS, local, UNMEASURED).resident_mib == resident_mib


@pytest.mark.parametrize(("rss_mib", "resident_mib"), [(240, 968), (60, 788), (900, 1_000), (0, 0)])
def test_hugepages_count_beside_what_the_kernel_calls_resident(rss_mib: int, resident_mib: int) -> None:
    paged = replace(FACTS, needs=("hugepages-2048=768",))
    assert size_of({"balloon.rss": rss_mib << 10}, paged, local, UNMEASURED).resident_mib == resident_mib
    whole = replace(FACTS, needs=("hugepages-2048=1000",))
    assert size_of({"balloon.rss": rss_mib << 10}, whole, local, UNMEASURED).resident_mib == (1_000 if rss_mib else 0)


def test_two_disks_in_one_file_count_once() -> None:
    row = {"block.count": 2, "block.0.path": "/pool/a", "block.0.physical": MIB, "block.1.path": "/pool/a"}
    assert size_of({**row, "block.1.physical": MIB}, FACTS, local, UNMEASURED).disk_mib == 1


def test_what_libvirt_does_not_report_is_unknown() -> None:
    rate = DirtyRate(3.0, 9)
    assert size_of({}, FACTS, local, rate) == MigrationSize(0, 0, rate)
    assert size_of({"block.count": 1}, FACTS, local, rate).disk_mib == 0


@pytest.mark.parametrize("working", [50.0, 120.0, 800.0])
@pytest.mark.parametrize("one", [5.0, 20.0, 45.0])
def test_a_working_set_is_found_from_two_measurements(working: float, one: float) -> None:
    kept = 1.0 - one / working
    many = working * (1.0 - kept**8)
    if many >= 0.95 * 8 * one:
        assert working_set_mib(one, many, 8.0) == 0  # it hardly came back to a page
    else:
        assert working_set_mib(one, many, 8.0) == pytest.approx(working, abs=1.0)


def test_a_guest_that_changes_it_all_within_a_second_has_no_more() -> None:
    assert working_set_mib(200.0, 200.0, 8.0) == 200
    assert working_set_mib(200.0, 190.0, 8.0) == 200  # samples differ


@pytest.mark.parametrize("odd", [0.0, -1.0, math.nan])
def test_an_idle_or_odd_guest_shows_none(odd: float) -> None:
    assert working_set_mib(odd, 10.0, 8.0) == 0
    assert working_set_mib(10.0, odd, 8.0) == 0
    assert working_set_mib(10.0, 10.0, odd) == 0
