"""How much CPU VMs use, from the reports of their nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from daemons.controller.state.nodes import NodeEntry
from shared.protocol.messages import Report
from shared.values.vms import LIVE_STATES, VmStatus

HEADROOM = 1.25  # what a VM is taken to need beside what it used last
LEAST_MHZ = 50.0  # that an adopted VM is given, however idle it is


def used_mhz(node: NodeEntry, vm: str) -> float | None:
    """Return the speed of a VM in MHz between the node's last report and the one that is kept for it; None where that
    is not known."""
    return _used_mhz(node, _rows(node.before).get(vm), _rows(node.last).get(vm))


def needed_mhz(node: NodeEntry, vm: str) -> float:
    """Return the CPU in MHz that an adopted VM is taken to need: what it used last with head-room, in whole steps of
    `LEAST_MHZ`, so that a little more or less changes nothing; `LEAST_MHZ` where that is not known."""
    steps = math.ceil((used_mhz(node, vm) or 0.0) * HEADROOM / LEAST_MHZ)
    return LEAST_MHZ * max(1, steps)


def fair_needs(needed_mhz: Mapping[str, float], room_mhz: float) -> dict[str, float]:
    """Return what VMs of a node need, in MHz by name, of the CPU that they may have together: all of it where that is
    enough, else at most an equal part each.

    What is used on a node without CPU to spare is what was given, so that without the limit who once has more would be
    taken to need more.
    """
    if not needed_mhz or math.fsum(needed_mhz.values()) <= room_mhz:
        return dict(needed_mhz)
    equal_mhz = max(0.0, room_mhz / len(needed_mhz))
    return {name: min(mhz, equal_mhz) for name, mhz in needed_mhz.items()}


def unmanaged_mhz(node: NodeEntry) -> float:
    """Return the CPU in MHz that VMs that are not ours use on a node, with head-room; O(VMs of the node)."""
    if node.unmanaged_mib <= 0.0 or node.last is None or node.inventory is None:
        return 0.0
    earlier = _rows(node.before)
    total_mhz = 0.0
    for status in node.last.vms:
        if not status.managed and status.state in LIVE_STATES:
            total_mhz += _used_mhz(node, earlier.get(status.vm), status) or 0.0
    return min(total_mhz * HEADROOM, node.inventory.cpu_mhz)


def _rows(report: Report | None) -> dict[str, VmStatus]:
    return {} if report is None else {status.vm: status for status in report.vms}


def _used_mhz(node: NodeEntry, first: VmStatus | None, last: VmStatus | None) -> float | None:
    if first is None or last is None or node.before is None or node.last is None or node.inventory is None:
        return None
    seconds = node.last.clock_s - node.before.clock_s
    if first.generation != last.generation or seconds <= 0.0:
        return None
    return max(0.0, last.cpu_time_s - first.cpu_time_s) / seconds * node.inventory.core_mhz
