"""What the kernel says of processes, and what their logs say, read again and again."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.harness import Process
from tests.soak.judge import Course, counted, levels, slope

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Reading:
    """A process at one moment. cpu_s: all that it has used."""

    at_s: float
    pid: int
    rss_kib: int
    descriptors: int
    threads: int
    cpu_s: float


def read(pid: int, at_s: float) -> Reading | None:
    """A process as it is, None when it has ended, or is just ending."""
    folder = PROC / str(pid)
    try:
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        descriptors = len(os.listdir(folder / "fd"))
    except OSError:
        return None
    if "VmRSS" not in status:
        return None
    cpu_s = (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    return Reading(at_s, pid, int(status["VmRSS"].split()[0]), descriptors, int(status["Threads"]), cpu_s)


def children(pid: int) -> list[tuple[str, int]]:
    """What a process has started, the first first: what each is, by its command line, and its id."""
    found: list[int] = []
    with suppress(OSError):
        for task in (PROC / str(pid) / "task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return [(_kind(child), child) for child in sorted(found, key=_begun)]


def _begun(pid: int) -> int:
    """When a process has begun, in ticks; ids begin anew at some time."""
    try:
        return int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 0


def _kind(pid: int) -> str:
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return "gone"
    if any(b"resource_tracker" in word for word in words):
        return "tracker"
    return "worker" if any(b"spawn_main" in word for word in words) else "child"


class LogTail:
    """Counts the lines of a log that grows, and may be cut."""

    def __init__(self, file: Path) -> None:
        self.file, self.counts = file, Counter[str]()
        self._offset = 0

    def look(self) -> None:
        """Count what is new and whole."""
        if not self.file.exists():
            return
        with self.file.open("rb") as log:
            if log.seek(0, os.SEEK_END) < self._offset:
                self._offset = 0
            log.seek(self._offset)
            whole, newline, _ = log.read().rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        self.counts += counted(whole.decode("utf-8", errors="replace").splitlines())

    def cut(self) -> None:
        """Make the file empty, as who rotates logs does; what it had is counted."""
        self.look()
        os.truncate(self.file, 0)
        self._offset = 0


@dataclass(slots=True)
class Watch:
    """Readings of daemons and of what they start, and their logs."""

    daemons: tuple[Process, ...]
    readings: dict[str, list[Reading]] = field(default_factory=dict)
    logs: dict[str, LogTail] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.logs = {daemon.name: LogTail(daemon.log) for daemon in self.daemons}

    def look(self, now_s: float) -> None:
        """Read all that run."""
        for daemon in self.daemons:
            if daemon.lives and daemon.alive:
                for name, pid in _family(daemon):
                    reading = read(pid, now_s)
                    if reading is not None:
                        self.readings.setdefault(name, []).append(reading)
            self.logs[daemon.name].look()

    def counts(self) -> dict[str, Counter[str]]:
        """What each log has said so far."""
        return {name: Counter(log.counts) for name, log in self.logs.items()}

    def courses(self, since_s: float, until_s: float, cycles_per_s: dict[str, float]) -> list[Course]:
        """Each process over that time. `cycles_per_s`: by the beginning of its name."""
        found = []
        for name, every in self.readings.items():
            within = [one for one in every if since_s <= one.at_s <= until_s]
            if len(within) >= 3 and "tracker" not in name:
                per_s = next(rate for prefix, rate in cycles_per_s.items() if name.startswith(prefix))
                found.append(_course(name, within, per_s))
        return found

    def restarted(self, since_s: float, until_s: float) -> list[str]:
        """The processes that did not live all of that time."""
        found = []
        for name, every in self.readings.items():
            pids = {one.pid for one in every if since_s <= one.at_s <= until_s}
            if len(pids) > 1:
                found.append(f"{name} had {len(pids)} lives in the calm phase")
        return found


def _family(daemon: Process) -> Iterator[tuple[str, int]]:
    yield daemon.name, daemon.pid
    numbers: Counter[str] = Counter()
    for kind, pid in children(daemon.pid):
        numbers[kind] += 1
        yield f"{daemon.name} {kind} {numbers[kind]}", pid


def _course(name: str, within: list[Reading], cycles_per_s: float) -> Course:
    times_s, kib = [one.at_s for one in within], [one.rss_kib for one in within]
    lasted_s = max(times_s[-1] - times_s[0], 1e-9)
    return Course(
        name,
        kib[0],
        kib[-1],
        kib_per_1000=1_000.0 * slope(times_s, kib) / max(cycles_per_s, 1e-9),
        cycles=lasted_s * cycles_per_s,
        descriptors=levels([one.descriptors for one in within]),
        threads=levels([one.threads for one in within]),
        cpu_frac=(within[-1].cpu_s - within[0].cpu_s) / lasted_s,
    )
