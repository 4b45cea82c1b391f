"""Disks of the world's hosts: who waits for whom, and what their counters show.

A task with a disk part spends that part of its time alone at the disk, and asks for it again and again in small pieces.
With the CPU that the guests of a host are given, host and guests are a closed queueing network: the disk, which serves
so many requests at a time and is shared evenly by those at it, and for each guest the time that it spends elsewhere.
Weights are summed over how many guests are at the disk; guest j goes on at its share of CPU times G(all but j) / G(all)
(Baskett, Chandy, Muntz, Palacios 1975). A gang's member waits as if it went at its own pace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim_backend.world_parts import Guest, Task

BYTES_PER_S = 100e6  # what one request after the other moves while it is served
SERVERS_MAX = 1024


def constant(parts: Sequence[float], servers: int) -> float:
    """G of guests that are at the disk for these parts (0..1) of their time alone."""
    ways = [1.0]
    for part in parts:
        ways = [
            (1.0 - part) * (ways[at] if at < len(ways) else 0.0) + part * (ways[at - 1] if at else 0.0)
            for at in range(len(ways) + 1)
        ]
    total, weight = 0.0, 1.0
    for count, way in enumerate(ways):
        weight *= max(count, 1) / min(max(count, 1), servers)
        total += weight * way
    return total


def progress(parts: Sequence[float], servers: int) -> list[float]:
    """How fast each guest goes on, 0..1 of its pace alone."""
    whole = constant(parts, servers)
    return [constant([*parts[:at], *parts[at + 1 :]], servers) / whole for at in range(len(parts))]


class DiskUse:
    """A guest's: seconds served and seconds at the disk for each Mcycle from `mark` on, and both up to there."""

    __slots__ = ("held_s", "held_s_each", "mark_mcycles", "served_s", "served_s_each")

    def __init__(self) -> None:
        self.mark_mcycles = self.served_s = self.held_s = self.served_s_each = self.held_s_each = 0.0

    def served_at(self, executed_mcycles: float) -> float:
        """Seconds that its requests were served."""
        return self.served_s + self.served_s_each * (executed_mcycles - self.mark_mcycles)

    def at(self, executed_mcycles: float) -> tuple[float, float]:
        """Seconds that its requests kept it waiting, and that they were served."""
        held_s = self.held_s + self.held_s_each * (executed_mcycles - self.mark_mcycles)
        return held_s, self.served_at(executed_mcycles)

    def settle(self, executed_mcycles: float) -> None:
        """Count up to here; to be called before anything changes."""
        self.held_s, self.served_s = self.at(executed_mcycles)
        self.mark_mcycles = executed_mcycles


class HostDisk:
    """The disk of a host on which a guest with a disk part has ever been; `guests`: those that are there."""

    __slots__ = ("_busy_s", "_busy_since", "_now_s", "_served_s", "guests", "servers")

    def __init__(self, servers: int, now_s: float) -> None:
        self.servers = servers
        self.guests: dict[str, Guest] = {}
        self._busy_s = self._served_s = self._busy_since = 0.0
        self._now_s = now_s

    def busy_s(self, now_s: float) -> float:
        """For how long anybody was at the disk."""
        return self._busy_s + self._busy_since * (now_s - self._now_s)

    def served_s(self, now_s: float) -> float:
        """Seconds of service, of all guests that were ever there."""
        held = (guest.disk.served_at(guest.executed_at(now_s)) for guest in self.guests.values() if guest.disk)
        return self._served_s + sum(held)

    def parts(self) -> list[float]:
        """The parts of their time alone that those guests are at the disk who work now."""
        return [_part(guest) for guest in self.guests.values() if _asks(guest)]

    def join(self, guest: Guest) -> None:
        """A guest comes; its counters begin anew."""
        guest.disk = DiskUse()
        self.guests[guest.vm] = guest

    def leave(self, guest: Guest, now_s: float) -> None:
        """A guest goes, as it is now."""
        self._settle(now_s)
        del self.guests[guest.vm]
        if guest.disk is not None:
            self._served_s += guest.disk.served_s
            guest.disk = None

    def share(self, now_s: float) -> list[Task]:
        """Find the paces anew; the tasks of the guests whose pace changed."""
        self._settle(now_s)
        users = [guest for guest in self.guests.values() if _asks(guest)]
        parts = [_part(guest) for guest in users]
        paces = progress(parts, self.servers)
        changed: list[Task] = []
        for guest in self.guests.values():
            if guest.pace_mhz and not _asks(guest):
                guest.pace_mhz = 0.0
                changed += [guest.task] if guest.task is not None else []
        idle = 1.0
        for guest, part, pace in zip(users, parts, paces, strict=True):
            idle *= 1.0 - part
            if guest.disk is not None and guest.task is not None:
                guest.disk.served_s_each = part / guest.share_mhz
                guest.disk.held_s_each = (1.0 / pace - (1.0 - part)) / guest.share_mhz
                if guest.pace_mhz != pace * guest.share_mhz:
                    guest.pace_mhz = pace * guest.share_mhz
                    changed.append(guest.task)
        self._busy_since = 1.0 - idle / constant(parts, self.servers)
        return changed

    def _settle(self, now_s: float) -> None:
        for guest in self.guests.values():
            if guest.disk is not None:
                guest.disk.settle(guest.executed_at(now_s))
        self._busy_s, self._now_s = self.busy_s(now_s), now_s


def _asks(guest: Guest) -> bool:
    """Whether a guest works now and comes to the disk."""
    task = guest.task
    return task is not None and task.executing == task.instances and guest.share_mhz > 0.0


def _part(guest: Guest) -> float:
    """The part of its time alone that it is at the disk: less of it where it is given less CPU than it can use."""
    return guest.task.io * guest.share_mhz / guest.demand_mhz if guest.task is not None else 0.0
