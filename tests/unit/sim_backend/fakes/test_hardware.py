"""What fake hosts say to guests whose hardware they lack."""

from __future__ import annotations

import pytest

from shared.values.migration import lacks
from shared.values.nodes import HugepagePool, Node, NumaCell
from sim_backend.fakes.hardware import PAGE_KIB, PLAIN, GuestHardware, lacking

HOST = Node(
    "n1",
    4,
    1_000.0,
    memory_mib=4_000,
    migration_has=("numa=0-1", "cpu-flag=kvm:avx2", "shared=/a", "hugepages-2048=512", "hugepages-2048=256"),
    numa_cells=(NumaCell(0, "0-1"), NumaCell(1, "2-3")),
    hugepages=(HugepagePool(PAGE_KIB, 512, 0), HugepagePool(PAGE_KIB, 256, 1)),
)
PAGED = GuestHardware(pages_mib=256)


@pytest.mark.parametrize(
    ("guest", "there", "word"),
    [
        (PLAIN, (), ""),
        (GuestHardware(device="0000:01:00.0"), (), "PCI device"),
        (GuestHardware(cpu_flag="avx2"), (), ""),
        (GuestHardware(cpu_flag="avx512f"), (), "cpu-flag"),
        (GuestHardware(folder="/a"), (), ""),
        (GuestHardware(folder="/b"), (), "shared"),
        (GuestHardware(pages_mib=768), (), ""),
        (GuestHardware(pages_mib=769), (), "hugepages"),
        (GuestHardware(pages_mib=256, cell=1), (), ""),
        (GuestHardware(pages_mib=257, cell=1), (), "hugepages"),
        (GuestHardware(pages_mib=1, cell=2), (), "NUMA cell 2"),
        (GuestHardware(pages_mib=256, cell=1), (GuestHardware(pages_mib=1, cell=1),), "hugepages"),
        (GuestHardware(pages_mib=256, cell=1), (PAGED, PAGED), ""),  # they take of the cell that has more
        (GuestHardware(pages_mib=256, cell=1), (PAGED, PAGED, PAGED), "hugepages"),
    ],
)
def test_what_a_host_lacks_is_said(guest: GuestHardware, there: tuple[GuestHardware, ...], word: str) -> None:
    said = lacking(HOST, guest, there, anew=True)
    assert (word in said) if word else said == ""


def test_a_guest_has_its_device_where_it_is() -> None:
    assert lacking(HOST, GuestHardware(device="0000:01:00.0"), (), anew=False) == ""


@pytest.mark.parametrize(
    "guest",
    [
        GuestHardware(cpu_flag="avx2"),
        GuestHardware(cpu_flag="x"),
        GuestHardware(folder="/a"),
        GuestHardware(folder="/b"),
    ],
)
def test_agents_report_it_in_the_words_that_are_compared(guest: GuestHardware) -> None:
    assert bool(lacks(HOST.migration_has, guest.needs)) is bool(lacking(HOST, guest, (), anew=True))
