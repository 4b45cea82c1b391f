"""What the standard jobs do (d-factor.txt, section 4.2): each uses one resource, without a pause."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from resource import RUSAGE_SELF, getrusage

from shared.base.clock import SystemClock
from shared.values.load_vector import StandardPace

MIB = 1 << 20
READ_BYTES = 256 << 10  # of one read: what small files are read by, so that requests of both take about as long
READ_ALIGN_BYTES = 4096
BLOCK_STEPS = 10_000  # of arithmetic in one unit
FILE_SEED = 1
FILE_MODE = 0o600

Unit = Callable[[], object]
"""Does one unit of work."""


def arithmetic() -> int:
    """Run one unit of STD-CPU: a fixed number of steps of integer arithmetic."""
    x = 1
    for _ in range(BLOCK_STEPS):
        x = (x * 1_103_515_245 + 12_345) & 0x7FFF_FFFF
    return x


class ReadFile:
    """A file to be read at random places. `direct`: it is read and written past the page cache; where the file system
    refuses that, what is read is dropped from the cache each time.

    Raises OSError when it can be neither opened nor made.
    """

    def __init__(self, path: Path, mib: int) -> None:
        self.mib, self.direct = mib, hasattr(os, "O_DIRECT")
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self.fd = os.open(path, flags | getattr(os, "O_DIRECT", 0), FILE_MODE)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self.direct = False
            self.fd = os.open(path, flags, FILE_MODE)
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_RANDOM)

    def fill(self) -> Iterator[int]:
        """Write all of it to the disk; yields how many MiB there are so far. What is written is not all the same, so
        that no layer below keeps less of it."""
        chance = Random(FILE_SEED)
        buffer = mmap.mmap(-1, MIB)  # aligned to pages, as direct writes need it
        buffer[:] = chance.randbytes(MIB)
        for at in range(self.mib):
            buffer[:8] = at.to_bytes(8, "little")
            if os.pwrite(self.fd, buffer, at * MIB) != MIB:
                raise OSError(errno.ENOSPC, "the disk took only a part")
            yield at + 1
        os.fsync(self.fd)
        if not self.direct:
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def reads(self, seed: int) -> Unit:
        """Return a unit of STD-I/O: one read at a random place."""
        chance, buffer = Random(seed), mmap.mmap(-1, READ_BYTES)
        places = (self.mib * MIB - READ_BYTES) // READ_ALIGN_BYTES + 1

        def read() -> None:
            at = chance.randrange(places) * READ_ALIGN_BYTES
            if os.preadv(self.fd, [buffer], at) != READ_BYTES:
                raise OSError(errno.EIO, "the disk gave only a part")
            if not self.direct:
                os.posix_fadvise(self.fd, at, READ_BYTES, os.POSIX_FADV_DONTNEED)

        return read

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)


def cpu_s() -> float:
    """Return the seconds of CPU that this process has used, in user and kernel mode."""
    used = getrusage(RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def pace(unit: Unit, begin_s: float, run_s: float, clock: SystemClock) -> StandardPace:
    """Do units from `begin_s` (monotonic) for `run_s` seconds: whole units, at least one."""
    clock.sleep(begin_s - clock.monotonic_s())
    first_s, first_cpu_s = clock.monotonic_s(), cpu_s()
    units, now_s = 0, first_s
    while not units or now_s < begin_s + run_s:
        unit()
        units += 1
        now_s = clock.monotonic_s()
    return StandardPace(float(units), now_s - first_s, cpu_s() - first_cpu_s)
