"""What the world is made of: hosts, guests, tasks. Plain state; `world` holds the rules."""

from __future__ import annotations

import math

ROUNDING = 1e-12  # a host whose caps add up to its capacity but for rounding is not contended


class Host:
    """`demand_mhz` is the sum of its guests' caps; while that fits (not `contended`) each gets its cap."""

    __slots__ = (
        "capacity_mhz",
        "contended",
        "core_mhz",
        "demand_mhz",
        "guests",
        "limit_mhz",
        "memory_mib",
        "name",
        "up",
    )

    def __init__(self, name: str, cores: int, core_mhz: float) -> None:
        self.name, self.core_mhz, self.capacity_mhz = name, core_mhz, cores * core_mhz
        self.limit_mhz = self.capacity_mhz * (1.0 + ROUNDING)
        self.guests: dict[str, Guest] = {}
        self.demand_mhz = self.memory_mib = 0.0
        self.contended, self.up = False, True


class Guest:
    """`task` is None for a guest without one: unknown, older attempt, or ended. It idles, or uses what it `wants`.

    `base` is the task's progress when the guest came to this host, `executed` the work done here that no longer follows
    from it; without a task the work up to `since`. `carried`: the work without a task that it did on earlier hosts.
    """

    __slots__ = (
        "attempt",
        "base_mcycles",
        "cap_mhz",
        "carried_mcycles",
        "demand_mhz",
        "executed_mcycles",
        "host",
        "index",
        "memory_mib",
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
        self.wants_mhz = self.carried_mcycles = self.since_s = 0.0

    @property
    def ceiling_mhz(self) -> float:
        """The most that it can use on its host, whatever it has to do."""
        return max(0.0, min(self.vcpus * self.host.core_mhz, self.cap_mhz))

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
    """Progress per instance: `done` at `since`, going on at `rate` until `next_s`, when `targets[stage]` is done."""

    __slots__ = (
        "attempt",
        "checkpoint_mcycles",
        "done_mcycles",
        "ended",
        "executing",
        "instances",
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
        self, name: str, targets: tuple[float, ...], max_mhz: tuple[float, ...], instances: int, checkpoint: float
    ) -> None:
        self.name, self.targets_mcycles, self.max_mhz = name, targets, max_mhz
        self.instances, self.checkpoint_mcycles = instances, checkpoint
        self.members: dict[str, Guest] = {}
        self.attempt = self.executing = self.stage = self.version = 0
        self.done_mcycles = self.since_s = self.rate_mhz = 0.0
        self.next_s = math.inf
        self.ended = False

    def done_at(self, now_s: float) -> float:
        """Work done per instance, in Mcycles."""
        if self.rate_mhz == 0.0:
            return self.done_mcycles
        target = self.targets_mcycles[self.stage]
        if now_s >= self.next_s:
            return target
        return min(target, self.done_mcycles + self.rate_mhz * (now_s - self.since_s))
