"""What a migration of a domain has to move, as libvirt's statistics show it: pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agents.hypervisors.libvirt.domain_xml import Facts
from shared.values.migration_terms import NOT_MEASURED

PROCESS_MIB = 40  # of QEMU 7.2 without a guest
_KIB_PER_MIB = 1 << 10
_BYTES_PER_MIB = 1 << 20
_BISECTIONS = 60
_NOT_RISING = 0.95  # of what a rate that does not fall gives: more is noise of the samples


@dataclass(frozen=True, slots=True)
class DirtyRate:
    """Memory that a guest changes: `mib_per_s` within one second, `working_set_mib` again and again (0: unknown)."""

    mib_per_s: float = NOT_MEASURED
    working_set_mib: int = 0


UNMEASURED = DirtyRate()


@dataclass(frozen=True, slots=True)
class MigrationSize:
    """Memory that the guest has touched, all that is in hugepages included, and local disks to be copied, in MiB (0:
    unknown), and its dirty rate."""

    resident_mib: int = 0
    disk_mib: int = 0
    dirty: DirtyRate = UNMEASURED


NO_SIZE = MigrationSize()


def size_of(row: Mapping[str, Any], facts: Facts, is_local: Callable[[str], bool], dirty: DirtyRate) -> MigrationSize:
    """Return the size of a domain from its row of statistics. Its process also holds memory of its own, about
    `PROCESS_MIB`; hugepages are no part of what the kernel calls resident, and QEMU has touched all of them when the
    guest boots. Of a local disk counts what is allocated."""
    held_mib = int(row.get("balloon.rss", 0)) // _KIB_PER_MIB
    pages_mib = facts.memory_mib - facts.ordinary_mib
    touched_mib = min(max(1, held_mib - PROCESS_MIB), facts.ordinary_mib)
    resident_mib = touched_mib + pages_mib if held_mib > 0 else 0
    written = {disk.source for disk in facts.disks if disk.source}
    disk_bytes = 0
    for number in range(int(row.get("block.count", 0))):
        path = row.get(f"block.{number}.path", "")
        if path in written and is_local(path):
            disk_bytes += _allocated(row, number)
            written.discard(path)  # of two disks in one file
    return MigrationSize(resident_mib, math.ceil(disk_bytes / _BYTES_PER_MIB), dirty)


def _allocated(row: Mapping[str, Any], number: int) -> int:
    """Return the bytes that a disk's file holds; those of its size, and last its capacity, where libvirt reports no
    more."""
    found = (int(row.get(f"block.{number}.{key}", 0)) for key in ("allocation", "physical", "capacity"))
    return next((size for size in found if size > 0), 0)


def working_set_mib(one_mib: float, many_mib: float, many_s: float) -> int:
    """Return the working set of a guest that changes `one_mib` within 1 s and `many_mib` within `many_s` (above 1); 0
    where these do not show it: it is idle, or has not come back to the same pages within that time.

    A guest that writes at random to W MiB changes W (1 - q^t) within t s, with q = 1 - one_mib / W.
    """
    if not (one_mib > 0.0 and many_mib > 0.0 and many_s > 1.0):
        return 0
    ratio = many_mib / one_mib
    if ratio >= _NOT_RISING * many_s:
        return 0
    if ratio <= 1.0:
        return math.ceil(max(one_mib, many_mib))
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):  # (1 - q^t) / (1 - q) rises from 1 to t with q
        q = (low + high) / 2.0
        if (1.0 - q**many_s) / (1.0 - q) < ratio:
            low = q
        else:
            high = q
    return math.ceil(one_mib / (1.0 - low))
