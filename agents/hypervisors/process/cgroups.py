"""Control groups where this process may write to them: of version 2, and of version 1 where the kernel has no other.

`Hierarchies` finds where each controller is; `ControlGroup` is one folder in every hierarchy that counts.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agents.hypervisors.process.record import Usage
from agents.hypervisors.process.runner import Cpu
from shared.base.clock import SystemClock
from shared.base.errors import InvalidInput, Problem, TransientError

MIB = 1024 * 1024
PERIOD_US = 100_000
QUOTA_US_MIN = 1_000  # the kernel refuses less
SHARES_MIN, SHARES_MAX = 2, 262_144
WEIGHT_MIN, WEIGHT_MAX = 1, 10_000
SETTLE_S = 5.0
LOOK_S = 0.005
NEEDED = ("cpu", "cpuacct", "freezer")
WANTED = (*NEEDED, "memory", "io", "cpuset")
ALWAYS = ("cpuacct", "freezer")  # version 2 counts and freezes without a controller
_BLOCKED_AT = 42 - 3  # fields are counted from 1, and what follows the name in brackets begins with the third
_NAMES = {"blkio": "io"}  # as version 2 calls them


@dataclass(frozen=True, slots=True)
class Place:
    """Where the groups of a controller are made, and whether its hierarchy is of version 2."""

    folder: Path
    unified: bool


def mounted(mounts: str) -> dict[str, Place]:
    """Return the place of each controller, from the text of /proc/self/mounts. "unified" is the hierarchy of version 2
    itself, which can always count and freeze."""
    found: dict[str, Place] = {}
    for line in mounts.splitlines():
        _device, folder, kind, options, *_rest = line.split()
        if kind == "cgroup2":
            found.setdefault("unified", Place(Path(folder), True))
        elif kind == "cgroup":
            for option in options.split(","):
                name = _NAMES.get(option, option)
                if name in WANTED:
                    found.setdefault(name, Place(Path(folder), False))
    return found


class Hierarchies:
    """The hierarchies that groups of programs are made in, below `root` in each of them.

    Version 2 is used for all that it has; the kernel offers a controller there unless a hierarchy of version 1 has it.
    Raises InvalidInput where the CPU cannot be shared out, counted or withheld.
    """

    def __init__(self, root: str, places: Mapping[str, Place]) -> None:
        self.root = root.strip("/")
        self.places = {name: place for name, place in places.items() if name in WANTED}
        unified = places.get("unified")
        if unified is not None:
            offered = _words(unified.folder / "cgroup.controllers")
            for name in WANTED:
                always = name in ALWAYS and ("cpu" in offered or name not in self.places)
                if name in offered or always:
                    self.places[name] = unified
        lacking = [name for name in NEEDED if name not in self.places]
        if lacking:
            raise InvalidInput(Problem("process.cgroup", f"no cgroup has {', '.join(lacking)}", "a kernel that has"))
        self.unified = any(place.unified for place in self.places.values())

    def group(self, *names: str) -> ControlGroup:
        """Return the group of that name below the root; without a name, the root."""
        return ControlGroup(self, "/".join((self.root, *names)))

    def make_root(self) -> ControlGroup:
        """Make the root, and let groups below it have what the hierarchy of version 2 offers. Raises TransientError
        where this process may not."""
        for place in {place for place in self.places.values() if place.unified}:
            offered = _words(place.folder / "cgroup.controllers")
            wanted = [f"+{name}" for name, at in self.places.items() if at == place and name in offered]
            folder = place.folder
            for part in self.root.split("/"):
                _delegate(folder, wanted)
                folder = folder / part
                _make(folder)
            _delegate(folder, wanted)
        root = self.group()
        root.make()
        return root


class ControlGroup:
    """One group. Anything that cannot be read or written raises TransientError."""

    def __init__(self, hierarchies: Hierarchies, path: str) -> None:
        self.path = path
        self._at = {name: (place.folder / path, place.unified) for name, place in hierarchies.places.items()}

    @property
    def entrances(self) -> tuple[str, ...]:
        """The files by which a process enters, in order: who enters a frozen group executes nothing more, so that is
        the last one."""
        freezer = self._at["freezer"][0]
        folders = dict.fromkeys(folder for folder, _ in self._at.values() if folder != freezer)
        return tuple(str(folder / "cgroup.procs") for folder in (*folders, freezer))

    @property
    def exists(self) -> bool:
        """Whether it can hold processes."""
        return self._at["freezer"][0].is_dir()

    def make(self) -> None:
        """Make its folders; fine when they are there."""
        for folder, _unified in set(self._at.values()):
            _make(folder)
        if "cpuset" in self._at and not self._at["cpuset"][1]:
            folder = self._at["cpuset"][0]  # of version 1 begins empty, and an empty one takes no process
            for file in ("cpuset.cpus", "cpuset.mems"):
                if not _words(folder / file):
                    _write(folder / file, (folder.parent / file).read_text("ascii").strip())

    def set_cpus(self, cpus: str) -> bool:
        """Let its processes execute on these CPUs only; false where that cannot be said."""
        if "cpuset" not in self._at:
            return False
        _write(self._at["cpuset"][0] / "cpuset.cpus", cpus)
        return True

    def set_cpu(self, cpu: Cpu, all_mhz: float) -> None:
        """Set the weight, in proportion to MHz of `all_mhz`, and the quota."""
        folder, unified = self._at["cpu"]
        quota_us = max(QUOTA_US_MIN, round(cpu.cores * PERIOD_US))
        if unified:
            _write(folder / "cpu.weight", str(weight_of(cpu.weight_mhz, all_mhz)))
            _write(folder / "cpu.max", f"{quota_us} {PERIOD_US}")
        else:
            _write(folder / "cpu.shares", str(shares_of(cpu.weight_mhz)))
            _write(folder / "cpu.cfs_period_us", str(PERIOD_US))
            _write(folder / "cpu.cfs_quota_us", str(quota_us))

    def set_memory(self, memory_mib: int) -> bool:
        """Limit its memory; false where that cannot be done."""
        if "memory" not in self._at:
            return False
        folder, unified = self._at["memory"]
        _write(folder / ("memory.max" if unified else "memory.limit_in_bytes"), str(memory_mib * MIB))
        return True

    def freeze(self, frozen: bool) -> None:
        """Freeze or thaw all that is in it, and wait until that is so."""
        folder, unified = self._at["freezer"]
        if unified:
            _write(folder / "cgroup.freeze", "1" if frozen else "0")
            wanted = f"frozen {int(frozen)}"
            done = _until(lambda: not self.pids() or wanted in _lines(folder / "cgroup.events"))
        else:
            wanted = "FROZEN" if frozen else "THAWED"
            _write(folder / "freezer.state", wanted)
            done = _until(lambda: _lines(folder / "freezer.state") == [wanted])
        if not done:
            _write(*((folder / "cgroup.freeze", "0") if unified else (folder / "freezer.state", "THAWED")))
            raise TransientError(f"{self.path} cannot be {'frozen' if frozen else 'thawed'} within {SETTLE_S:g} s")

    def pids(self) -> tuple[int, ...]:
        """Return the ids of the processes in the group."""
        return tuple(map(int, _words(self._at["freezer"][0] / "cgroup.procs")))

    def signal(self, number: int) -> None:
        """Send a signal to all that is in it."""
        for pid in self.pids():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def kill(self) -> None:
        """End all that is in it, frozen or not."""
        folder, unified = self._at["freezer"]
        if not self.exists or not self.pids():
            return
        if unified and (folder / "cgroup.kill").exists():
            _write(folder / "cgroup.kill", "1")
        elif not _until(self._killed):
            raise TransientError(f"{self.path}: processes that cannot be killed: {self.pids()}")
        if not _until(lambda: not self.pids()):
            raise TransientError(f"{self.path}: processes that cannot be killed: {self.pids()}")

    def _killed(self) -> bool:
        """Once round: what is frozen cannot fork, and dies when it thaws."""
        self.freeze(True)
        self.signal(signal.SIGKILL)
        self.freeze(False)
        return not self.pids()

    def remove(self) -> None:
        """Remove its folders; fine when they are not there. Nothing may be in it."""
        for folder, _unified in set(self._at.values()):
            last: list[str] = []
            if not _until(lambda folder=folder, last=last: _removed(folder, last)):  # type: ignore[misc]
                raise TransientError(f"{folder} cannot be removed: {last[-1]}")

    def usage(self) -> Usage:
        """Return the usage of all processes that are or were in the group."""
        cpuacct, unified = self._at["cpuacct"]
        if unified:
            counted = dict(line.split(maxsplit=1) for line in _lines(cpuacct / "cpu.stat"))
            cpu_time_s = int(counted.get("usage_usec", "0")) / 1e6
        else:
            cpu_time_s = int((_words(cpuacct / "cpuacct.usage") or ["0"])[0]) / 1e9
        return Usage(cpu_time_s, *self._disk_bytes(), self._disk_time_s())

    def _disk_time_s(self) -> float:
        """Return how long some process in the group has waited for the disk. Version 2 counts all processes there ever
        were. Otherwise the kernel counts the present ones, if it counts delays at all."""
        if "io" in self._at and self._at["io"][1]:
            found = stalled_s(self._at["io"][0] / "io.pressure")
            if found is not None:
                return found
        return sum(blocked_s(Path("/proc", str(pid), "stat")) for pid in self.pids())

    def _disk_bytes(self) -> tuple[int, int]:
        if "io" not in self._at:
            return 0, 0
        folder, unified = self._at["io"]
        if unified:
            pairs = [pair.partition("=") for line in _lines(folder / "io.stat") for pair in line.split()[1:]]
            return tuple(sum(int(n) for key, _, n in pairs if key == kind) for kind in ("rbytes", "wbytes"))  # type: ignore[return-value]
        rows = [line.split() for line in _lines(folder / "blkio.throttle.io_service_bytes")]
        counts = [sum(int(row[2]) for row in rows if row[1:2] == [kind]) for kind in ("Read", "Write")]
        return counts[0], counts[1]


def stalled_s(pressure: Path) -> float | None:
    """Return how long some process of a group has waited, in seconds, from its pressure file; None without such a
    file."""
    for line in _lines(pressure):
        kind, *figures = line.split()
        if kind == "some":
            return int(dict(each.split("=", 1) for each in figures)["total"]) / 1e6
    return None


def blocked_s(stat: Path) -> float:
    """Return how long a process has waited for the disk, in seconds, from field 42 of its file `stat`; 0 if it is gone
    or the kernel does not count."""
    fields = " ".join(_lines(stat)).rpartition(")")[2].split()
    return int(fields[_BLOCKED_AT]) / os.sysconf("SC_CLK_TCK") if len(fields) > _BLOCKED_AT else 0.0


def weight_of(mhz: float, all_mhz: float) -> int:
    """Convert a share in MHz of the node's whole capacity to a weight of version 2."""
    return max(WEIGHT_MIN, min(WEIGHT_MAX, round(mhz / all_mhz * WEIGHT_MAX)))


def shares_of(mhz: float) -> int:
    """Convert a share in MHz to shares of version 1."""
    return max(SHARES_MIN, min(SHARES_MAX, round(mhz)))


# --- files ------------------------------------------------------------------------------------------------------------


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("ascii").splitlines()
    except OSError:
        return []


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()


def _write(path: Path, text: str) -> None:
    try:
        with path.open("r+b", buffering=0) as file:  # never makes a file where there is none
            file.write(text.encode("ascii"))
    except OSError as error:
        raise TransientError(f"{text!r} cannot be written to {path}: {error.strerror}") from error


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TransientError(f"{folder} cannot be made: {error.strerror}") from error


def _delegate(folder: Path, wanted: list[str]) -> None:
    given = _words(folder / "cgroup.subtree_control")
    for name in wanted:
        if name[1:] not in given:
            _write(folder / "cgroup.subtree_control", name)


def _removed(folder: Path, why: list[str]) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:  # busy for a moment after its last process has ended
        why.append(error.strerror or str(error))
        return False
    return True


def _until(ready: Callable[[], bool]) -> bool:
    """Wait for something that takes the kernel a moment; false when it does not come."""
    clock = SystemClock()
    limit_s = clock.monotonic_s() + SETTLE_S
    while not ready():
        if clock.monotonic_s() > limit_s:
            return False
        clock.sleep(LOOK_S)
    return True
