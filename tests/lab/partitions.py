"""The hosts' shares of the machine: a cgroup with a CPU quota each, libvirt's resource partition of the guests."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from shared.base.clock import SystemClock
from tests.lab.errors import LabError

PERIOD_US = 100_000
SHARES_MAX, WEIGHT_MAX = 262_144, 10_000  # of version 1, of version 2
REMOVE_LIMIT_S = 20.0
LOOK_S = 0.02
MOUNTS = Path("/proc/self/mounts")
_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class Partitions:
    """Where this machine's cgroups are: `cpu`, of version 1 also `accounts`, which counts CPU time, and `beside`, the
    hierarchy of version 2 where that is mounted too: libvirt then counts there."""

    version: int
    cpu: Path
    accounts: Path | None = None
    beside: Path | None = None

    @property
    def roots(self) -> tuple[Path, ...]:
        """Every hierarchy that partitions are made in."""
        return tuple(dict.fromkeys(root for root in (self.cpu, self.accounts, self.beside) if root))

    def make(self, partition: str, cpus: float) -> None:
        """Make a partition, or find it, that may use so many of the machine's CPUs. Raises LabError where the kernel
        does not let it."""
        try:
            for root in self.roots:
                folder = root
                for part in Path(folder_of(partition)).parts:
                    self._delegate(folder)
                    folder = folder / part
                    folder.mkdir(exist_ok=True)
                self._delegate(folder)
            self._limit(self.cpu / folder_of(partition), round(cpus * PERIOD_US))
        except OSError as error:
            raise LabError(f"no CPU quota for {partition} (cgroup v{self.version}): {error}") from error

    def _delegate(self, folder: Path) -> None:
        """Let the groups below have CPU quotas; version 1 has them anyway."""
        if self.version == 2:
            (folder / "cgroup.subtree_control").write_text("+cpu")

    def _limit(self, folder: Path, quota_us: int) -> None:
        if self.version == 2:
            (folder / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        else:
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (folder / "cpu.cfs_quota_us").write_text(str(quota_us))

    def favour(self, partition: str) -> None:
        """Let what runs in a partition come before others on this machine, as far as its quota goes. Raises LabError
        where the kernel does not let it."""
        name, most = ("cpu.weight", WEIGHT_MAX) if self.version == 2 else ("cpu.shares", SHARES_MAX)
        try:
            (self.cpu / folder_of(partition) / name).write_text(str(most))
        except OSError as error:
            raise LabError(f"{partition} cannot be favoured (cgroup v{self.version}): {error}") from error

    def used_s(self, partition: str) -> float:
        """CPU time used by all that ever ran in a partition. Raises LabError when there is no such partition."""
        try:
            return max(_used_s(root / folder_of(partition)) for root in self.roots)
        except FileNotFoundError as error:
            raise LabError(f"there is no partition {partition}") from error

    def remove(self, partition: str) -> None:
        """Remove a partition with all groups in it as soon as the last process has left it; fine when it is not there.
        Raises LabError after `REMOVE_LIMIT_S`."""
        for root in self.roots:
            remove_group(root / folder_of(partition))


def _used_s(group: Path) -> float:
    """As the hierarchy of this group counts; 0 where it does not."""
    if (group / "cpuacct.usage").exists():
        return int((group / "cpuacct.usage").read_text("ascii")) / 1e9
    counts = dict(line.split() for line in (group / "cpu.stat").read_text("ascii").splitlines())
    return int(counts.get("usage_usec", "0")) / 1e6


def folder_of(partition: str) -> str:
    """Where libvirt keeps a partition, relative to a hierarchy: "/lab/h1" is lab.partition/h1.partition."""
    parts = partition.strip("/").split("/")
    if not all(parts) or any("." in part for part in parts):
        raise LabError(f"not the name of a partition of a lab: {partition!r}")
    return "/".join(f"{part}.partition" for part in parts)


def remove_group(folder: Path) -> None:
    """Remove a cgroup with all below it, as soon as it is empty. Raises LabError after `REMOVE_LIMIT_S`."""
    until_s = _CLOCK.monotonic_s() + REMOVE_LIMIT_S
    while folder.exists():
        for below, _, _ in os.walk(folder, topdown=False):
            with suppress(OSError):
                Path(below).rmdir()
        if folder.exists():
            if _CLOCK.monotonic_s() > until_s:
                raise LabError(f"{folder} is still in use")
            _CLOCK.sleep(LOOK_S)


def find_partitions(mounts: Iterable[str] | None = None) -> Partitions:
    """What this machine has (`mounts`: lines as in /proc/self/mounts). Raises LabError where there is no controller."""
    kinds: dict[str, Path] = {}
    for line in MOUNTS.read_text("utf-8").splitlines() if mounts is None else mounts:
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup":
            kinds.update((name, Path(place)) for name in options.split(",") if name in ("cpu", "cpuacct"))
        elif kind == "cgroup2":
            kinds[kind] = Path(place)
    unified = kinds.get("cgroup2")
    if "cpu" in kinds and "cpuacct" in kinds:
        return Partitions(1, kinds["cpu"], kinds["cpuacct"], unified)
    if unified and "cpu" in (unified / "cgroup.controllers").read_text("ascii").split():
        return Partitions(2, unified)
    raise LabError("hosts need CPU quotas: no cgroup hierarchy (v1 cpu and cpuacct, or v2 with cpu) is mounted here")
