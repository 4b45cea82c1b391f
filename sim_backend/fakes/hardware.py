"""What guests of fake hosts hold of their host's hardware, and what a host without it says to them.

A host has what its `Node` lists; the guest's side is kept apart from the texts that an agent reports of it, so that a
planner that misreads those is found out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shared.values.migration import bound, feature, page_need
from shared.values.nodes import Node

PAGE_KIB = 2_048


@dataclass(frozen=True, slots=True)
class GuestHardware:
    """`device`: the address of a PCI device ("": none). `cpu_flag`: a CPU feature, `folder`: a shared folder with its
    disk ("": none). `pages_mib`: memory in hugepages of 2 MiB. `cell`: the NUMA cell that they are in (-1: any)."""

    device: str = ""
    cpu_flag: str = ""
    folder: str = ""
    pages_mib: int = 0
    cell: int = -1

    @property
    def needs(self) -> tuple[str, ...]:
        """What an agent reports that a migration needs."""
        found = [bound("pci-device", self.device)] if self.device else []
        found += [feature("cpu-flag", f"kvm:{self.cpu_flag}")] if self.cpu_flag else []
        found += [feature("shared", self.folder)] if self.folder else []
        found += [page_need(PAGE_KIB, self.pages_mib)] if self.pages_mib else []
        found += [feature("numa", f"{self.cell}")] if self.cell >= 0 else []
        return tuple(found)


PLAIN = GuestHardware()


def lacking(node: Node, guest: GuestHardware, there: Iterable[GuestHardware], anew: bool) -> str:
    """Return what a host lacks for a guest, beside those that are there ("": nothing). `anew`: the guest does not run
    there yet, and a device does not come with it."""
    if guest.device and anew:
        return f"PCI device {guest.device} is another host's"
    for kind, value in (("cpu-flag", guest.cpu_flag and f"kvm:{guest.cpu_flag}"), ("shared", guest.folder)):
        if value and f"{kind}={value}" not in node.migration_has:
            return f"no {kind} {value}"
    if guest.cell >= 0 and all(cell.cell != guest.cell for cell in node.numa_cells):
        return f"no NUMA cell {guest.cell}"
    return (
        "" if guest.pages_mib <= _free_mib(node, guest.cell, there) else f"no hugepages: {guest.pages_mib} MiB wanted"
    )


def _free_mib(node: Node, cell: int, there: Iterable[GuestHardware]) -> int:
    """Return the MiB in pages that are free in a cell (-1: in all)."""
    pools = {pool.cell: pool.total_mib for pool in node.hugepages if pool.size_kib == PAGE_KIB}
    held = list(there)
    for one in (each for each in held if each.cell >= 0):
        pools[one.cell] -= one.pages_mib
    for one in (each for each in held if each.cell < 0):
        left_mib = one.pages_mib
        for number in sorted(pools, key=lambda each: -pools[each]):
            taken_mib = min(left_mib, pools[number])
            pools[number] -= taken_mib
            left_mib -= taken_mib
    return sum(pools.values()) if cell < 0 else pools.get(cell, 0)
