"""What the world is made of: hosts, guests, tasks. Plain state; `world` holds the rules."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shared.base.errors import InvalidValue
from sim_backend.world.disks import constant, progress

ROUNDING = 1e-12  # a host whose caps add up to its capacity but for rounding is not contended


class Host:
    """`demand_mhz` is the sum of its guests' caps; while that fits (not `contended`) each gets its cap. `disk` is None
    until a guest comes that uses it, of `disk_servers` requests at a time."""

    __slots__ = (
        "capacity_mhz",
        "contended",
        "core_mhz",
        "demand_mhz",
        "disk",
        "disk_servers",
        "guests",
        "limit_mhz",
        "memory_mib",
        "name",
        "up",
    )

    def __init__(self, name: str, cores: int, core_mhz: float, disk_servers: int = 1) -> None:
        self.disk_servers = disk_servers
        self.disk: HostDisk | None = None
        self.name, self.core_mhz, self.capacity_mhz = name, core_mhz, cores * core_mhz
        self.limit_mhz = self.capacity_mhz * (1.0 + ROUNDING)
        self.guests: dict[str, Guest] = {}
        self.demand_mhz = self.memory_mib = 0.0
        self.contended, self.up = False, True

    def join_disk(self, guest: Guest, now_s: float) -> None:
        """Add a guest that uses the disk."""
        if self.disk is None:
            self.disk = HostDisk(self.disk_servers, now_s)
        self.disk.join(guest)


class Guest:
    """`task` is None for a guest without one: unknown, older attempt, or ended. It idles, or uses what it `wants`.

    `base` is the task's progress when the guest came to this host, `executed` the work done here that no longer follows
    from it; without a task the work up to `since`. `carried`: the work without a task that it did on earlier hosts.
    `pace`: what it gets done of its share while it waits for the disk, where it uses that (`disk`).
    """

    __slots__ = (
        "attempt",
        "base_mcycles",
        "cap_mhz",
        "carried_mcycles",
        "demand_mhz",
        "disk",
        "executed_mcycles",
        "host",
        "index",
        "memory_mib",
        "pace_mhz",
        "running",
        "share_mhz",
        "since_s",
        "task",
        "vcpus",
        "vm",
        "wants_mhz",
        "weight_mhz",
    )

    def __init__(
        self, vm: str, host: Host, weight_mhz: float, cap_mhz: float, vcpus: int, memory_mib: float, running: bool
    ) -> None:
        self.vm, self.host, self.weight_mhz, self.cap_mhz = vm, host, weight_mhz, cap_mhz
        self.vcpus, self.memory_mib, self.running = vcpus, memory_mib, running
        self.task: Task | None = None
        self.attempt = self.index = 0
        self.demand_mhz = self.share_mhz = self.executed_mcycles = self.base_mcycles = 0.0
        self.wants_mhz = self.carried_mcycles = self.since_s = self.pace_mhz = 0.0
        self.disk: DiskUse | None = None

    @property
    def ceiling_mhz(self) -> float:
        """Maximum MHz that it can use on its host, regardless of its work."""
        return max(0.0, min(self.vcpus * self.host.core_mhz, self.cap_mhz))

    @property
    def used_mhz(self) -> float:
        """What it uses of its share now: less while it waits for the disk."""
        return self.share_mhz if self.disk is None or self.task is None else min(self.share_mhz, self.task.rate_mhz)

    def executed_at(self, now_s: float) -> float:
        """Mcycles executed on this host."""
        if self.task is not None:
            return self.executed_mcycles + self.task.done_at(now_s) - self.base_mcycles
        return self.executed_mcycles + self.share_mhz * (now_s - self.since_s)

    def count(self, now_s: float) -> None:
        """Write down what it executed without a task; to be called before its share changes."""
        self.executed_mcycles += self.share_mhz * (now_s - self.since_s)
        self.since_s = now_s


class Task:
    """Progress per instance: `done` at `since`, going on at `rate` until `next_s`, when `targets[stage]` is done. `io`:
    the part of its time alone that it is at the disk."""

    __slots__ = (
        "attempt",
        "checkpoint_mcycles",
        "done_mcycles",
        "ended",
        "executing",
        "instances",
        "io",
        "max_mhz",
        "members",
        "name",
        "next_s",
        "rate_mhz",
        "since_s",
        "stage",
        "targets_mcycles",
        "version",
    )

    def __init__(
        self,
        name: str,
        targets: tuple[float, ...],
        max_mhz: tuple[float, ...],
        instances: int,
        checkpoint: float,
        io: float = 0.0,
    ) -> None:
        self.io = io
        self.name, self.targets_mcycles, self.max_mhz = name, targets, max_mhz
        self.instances, self.checkpoint_mcycles = instances, checkpoint
        self.members: dict[str, Guest] = {}
        self.attempt = self.executing = self.stage = self.version = 0
        self.done_mcycles = self.since_s = self.rate_mhz = 0.0
        self.next_s = math.inf
        self.ended = False

    def done_at(self, now_s: float) -> float:
        """Return the work done per instance, in Mcycles."""
        if self.rate_mhz == 0.0:
            return self.done_mcycles
        target = self.targets_mcycles[self.stage]
        if now_s >= self.next_s:
            return target
        return min(target, self.done_mcycles + self.rate_mhz * (now_s - self.since_s))


def task_of(
    name: str, stages: Sequence[tuple[float, float]], instances: int, checkpoint_mcycles: float, io: float
) -> Task:
    """Return a task of true stages (work_mcycles per instance, max_mhz). Raises InvalidValue, see `World.add_task`."""
    if not stages or instances < 1:
        raise InvalidValue("stages, instances", (len(stages), instances), "at least one of each")
    for work, max_mhz in stages:
        if not (math.isfinite(work) and work >= 0 and max_mhz > 0):
            raise InvalidValue("stage", (work, max_mhz), "finite work >= 0 at a speed above 0")
    if not (math.isfinite(checkpoint_mcycles) and checkpoint_mcycles >= 0):
        raise InvalidValue("checkpoint_mcycles", checkpoint_mcycles, "a finite number >= 0")
    if not 0.0 <= io <= 1.0:
        raise InvalidValue("io", io, "0 to 1")
    real = [stage for stage in stages if stage[0] > 0] or [stages[-1]]
    targets = tuple(math.fsum(work for work, _ in real[: i + 1]) for i in range(len(real)))
    return Task(name, targets, tuple(speed for _, speed in real), instances, checkpoint_mcycles, io)


class DiskUse:
    """A guest's: seconds served and seconds at the disk for each Mcycle from `mark` on, and both up to there."""

    __slots__ = ("held_s", "held_s_each", "mark_mcycles", "served_s", "served_s_each")

    def __init__(self) -> None:
        self.mark_mcycles = self.served_s = self.held_s = self.served_s_each = self.held_s_each = 0.0

    def served_at(self, executed_mcycles: float) -> float:
        """Return the seconds for which its requests were served."""
        return self.served_s + self.served_s_each * (executed_mcycles - self.mark_mcycles)

    def at(self, executed_mcycles: float) -> tuple[float, float]:
        """Return the seconds for which it waited for its requests, and those for which they were served."""
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
        """Return the seconds for which any guest used the disk."""
        return self._busy_s + self._busy_since * (now_s - self._now_s)

    def served_s(self, now_s: float) -> float:
        """Return the seconds of service, for all guests so far."""
        held = (guest.disk.served_at(guest.executed_at(now_s)) for guest in self.guests.values() if guest.disk)
        return self._served_s + sum(held)

    def parts(self) -> list[float]:
        """Return the fractions of their time alone for which the guests working now use the disk."""
        return [_part(guest) for guest in self.guests.values() if _asks(guest)]

    def join(self, guest: Guest) -> None:
        """Add a guest and reset its counters."""
        guest.disk = DiskUse()
        self.guests[guest.vm] = guest

    def leave(self, guest: Guest, now_s: float) -> None:
        """Remove a guest in its current state."""
        self._settle(now_s)
        del self.guests[guest.vm]
        if guest.disk is not None:
            self._served_s += guest.disk.served_s
            guest.disk = None

    def share(self, now_s: float) -> list[Task]:
        """Recompute the speeds and return the tasks of the guests whose speed changed."""
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
    """Return whether a guest works now and uses the disk."""
    task = guest.task
    return task is not None and task.executing == task.instances and guest.share_mhz > 0.0


def _part(guest: Guest) -> float:
    """Return the fraction of its time alone for which a guest uses the disk. It is smaller if the guest gets less CPU
    than it can use."""
    return guest.task.io * guest.share_mhz / guest.demand_mhz if guest.task is not None else 0.0
