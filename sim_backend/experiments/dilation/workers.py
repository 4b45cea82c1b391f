"""The processes of the real measurement. Each does units of one kind of work on one core, for as long as requested."""

from __future__ import annotations

import errno
import mmap
import os
import zlib
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

from agents.standard_jobs.programs import ReadFile, Unit, arithmetic, cpu_s
from shared.base.clock import SystemClock, perf_s
from shared.runtime.child_process import live_with_parent

READ_FILE = "random-reads"
SMALL_FILES = 256
SMALL_BYTES = 256 << 10  # each, as in the paper
PATTERN_BYTES = 4096  # small files repeat one, so that compressing takes about as long as reading on fast disks
FASTEST = 1  # level of zlib


class WorkKind(StrEnum):
    """A kind of work."""

    CPU = "cpu"  # STD-CPU
    IO = "io"  # STD-I/O
    FILES = "files"  # FileComp: reads small files and compresses them


@dataclass(frozen=True, slots=True)
class Window:
    """From when to when work is counted, and when it stops; seconds of the monotonic clock. It begins at once."""

    begin_s: float
    end_s: float
    stop_s: float


@dataclass(frozen=True, slots=True)
class Counted:
    """What one process did in its window: units per second, and which parts of the time it was on the CPU, waited for
    it, and was blocked in reads; `idle`, the rest."""

    units_per_s: float
    cpu: float
    queued: float
    blocked: float

    @property
    def idle(self) -> float:
        """What no resource accounts for."""
        return max(0.0, 1.0 - self.cpu - self.queued - self.blocked)


@dataclass(frozen=True, slots=True)
class _Mark:
    at_s: float
    units: int
    cpu_s: float
    queued_s: float
    blocked_s: float


class Reading:
    """Does reads and adds up how long they kept the process off the CPU."""

    def __init__(self) -> None:
        self.blocked_s = 0.0

    def timed(self, read: Unit) -> Unit:
        """Return the same read, with the time that it blocks added to `blocked_s`."""

        def counted() -> None:
            begun_s, begun_cpu_s = perf_s(), cpu_s()
            read()
            self.blocked_s += max(0.0, perf_s() - begun_s - (cpu_s() - begun_cpu_s))

        return counted


def make_files(folder: Path, file_mib: int) -> bool:
    """Create the files that STD-I/O reads and FileComp compresses, on the disk and not in the page cache. Return
    whether STD-I/O's file is read directly. Raises OSError."""
    file = ReadFile(folder / READ_FILE, file_mib)
    for _mib in file.fill():
        continue
    file.close()
    for number in range(SMALL_FILES):
        pattern = Random(number).randbytes(PATTERN_BYTES)
        with (folder / str(number)).open("wb") as small:
            small.write(pattern * (SMALL_BYTES // PATTERN_BYTES))
            small.flush()
            os.fsync(small.fileno())
            os.posix_fadvise(small.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return file.direct


def compressor(folder: Path, seed: int, reading: Reading) -> Unit:
    """Return a unit of FileComp, which reads one small file without the page cache and compresses it."""
    chance, buffer = Random(seed), mmap.mmap(-1, SMALL_BYTES)
    flags = os.O_RDONLY | (os.O_DIRECT if _takes_direct(folder) else 0)

    def read() -> None:
        fd = os.open(folder / str(chance.randrange(SMALL_FILES)), flags)
        try:
            if os.preadv(fd, [buffer], 0) != SMALL_BYTES:
                raise OSError(errno.EIO, "the disk gave only a part")
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)

    timed = reading.timed(read)

    def unit() -> None:
        timed()
        zlib.compress(buffer, FASTEST)

    return unit


def _takes_direct(folder: Path) -> bool:
    try:
        os.close(os.open(folder / "0", os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


def serve(parent: int, kind: WorkKind, seed: int, core: int, folder: Path, file_mib: int, pipe: Connection) -> None:
    """Run one process: for each window from the pipe, do the work and send the counts. Ends on None and when the
    process `parent` ends."""
    live_with_parent(parent)
    os.sched_setaffinity(0, {core})
    reading = Reading()
    unit = _unit(kind, seed, folder, file_mib, reading)
    pipe.send(None)
    while (window := pipe.recv()) is not None:
        pipe.send(count(unit, window, reading))


def _unit(kind: WorkKind, seed: int, folder: Path, file_mib: int, reading: Reading) -> Unit:
    if kind is WorkKind.CPU:
        return arithmetic
    if kind is WorkKind.FILES:
        return compressor(folder, seed, reading)
    return reading.timed(ReadFile(folder / READ_FILE, file_mib).reads(seed))


def count(unit: Unit, window: Window, reading: Reading) -> Counted:
    """Do units of work until the window stops, at least one within it. Return the counts from the window's begin to its
    end."""
    clock = SystemClock()
    units, first, last = 0, None, None
    while True:
        now_s = clock.monotonic_s()
        if first is None:
            if now_s >= window.begin_s:
                first = _mark(now_s, units, reading)
        elif last is None:
            if now_s >= window.end_s and units > first.units:
                last = _mark(now_s, units, reading)
        elif now_s >= window.stop_s:
            return _between(first, last)
        unit()
        units += 1


def _mark(now_s: float, units: int, reading: Reading) -> _Mark:
    return _Mark(now_s, units, cpu_s(), _queued_s(), reading.blocked_s)


def _queued_s() -> float:
    """Return the seconds that this process has waited for a core; 0 where the kernel does not count them."""
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1]) * 1e-9
    except (OSError, IndexError):
        return 0.0


def _between(first: _Mark, last: _Mark) -> Counted:
    elapsed_s = last.at_s - first.at_s
    cpu = min(1.0, (last.cpu_s - first.cpu_s) / elapsed_s)
    queued = min(1.0 - cpu, (last.queued_s - first.queued_s) / elapsed_s)
    blocked = min(1.0 - cpu - queued, (last.blocked_s - first.blocked_s) / elapsed_s)
    return Counted((last.units - first.units) / elapsed_s, cpu, queued, blocked)
