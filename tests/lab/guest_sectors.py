"""Guests that work and end: disk images whose boot sector is the program guest_sector.s.

A unit of work is a count of turns of a loop, and of reads; the number of each finished unit is a line on the first
serial port. A guest that is not throttled uses one whole CPU while it does not wait for its disk.
"""

from __future__ import annotations

import os
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration import debian
from tests.lab.guest_disk import DISK_BYTES

SOURCE, WRITER = (Path(__file__).with_name(f"guest_{name}.s") for name in ("sector", "writer"))
PROGRAMS = ("as", "ld")
PACKAGES = ("binutils",)
EMULATOR = "qemu-system-x86_64"
EMULATOR_PACKAGES = ("qemu-system-x86",)
SECTOR_BYTES, MIB = 512, 1 << 20
ORIGIN = 0x7C00  # where the firmware loads a boot sector
PARAMETERS_AT = 476
PARAMETERS, WRITER_PARAMETERS = "<6IB", "<4I"
IMAGE_BYTES = 64 * 1024  # a multiple of what disks without cache read at a time
STEP_TURNS = 2_000_000  # after as many, some milliseconds, the guest looks at its power button
MEMORY_MIB = 2  # what such a guest needs
UNIT_TURNS = 100_000_000
TICKS_PER_S = 18.2  # of a PC's timer
PAGE_BYTES, BEATS = 4 << 10, 5
RUN_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Work:
    """What a guest does, in parameters of its program: `units` of `steps` of `turns` of a loop and `reads` of random
    sectors of a second disk of `sectors`, chosen by `seed`. `heeds`: the power button ends it."""

    units: int
    steps: int
    turns: int
    reads: int = 0
    sectors: int = 1
    seed: int = 1
    heeds: bool = True

    def packed(self) -> bytes:
        """The parameters as they lie in the sector. Raises struct.error where one is not of 32 bits."""
        numbers = (self.units, self.steps, self.turns, self.reads, self.sectors, self.seed)
        return struct.pack(PARAMETERS, *numbers, self.heeds)


def burner(
    units: int, folder: Path, *, unit_turns: int = UNIT_TURNS, heeds: bool = True, name: str = "burner.img"
) -> Path:
    """An image whose guest does `units` units of nothing but CPU work, `unit_turns` turns each, and powers off.

    `opt/trimtab/units` of QEMU's -fw_cfg goes before `units`, so that one image serves jobs of any size. With `heeds` a
    graceful stop ends it at once, without "end" in its output; else it works on, and must be cut off.
    """
    steps = max(1, round(unit_turns / STEP_TURNS))
    return image(folder / name, Work(units, steps, max(1, unit_turns // steps), heeds=heeds))


def reader(
    units: int,
    folder: Path,
    *,
    unit_reads: int = 100,
    read_turns: int = 1,
    seed: int = 1,
    name: str = "reader.img",
) -> Path:
    """An image whose guest does `units` units, each of `unit_reads` times `read_turns` turns of CPU work and then one
    read of a random sector of its second disk; it powers off at the end. While it waits for that disk, which is that of
    guest_disk, it uses no CPU. `turns_per_read` turns a loading vector into `read_turns`."""
    sectors = DISK_BYTES // SECTOR_BYTES
    return image(folder / name, Work(units, unit_reads, max(1, read_turns), reads=1, sectors=sectors, seed=seed))


def writer(folder: Path, *, working_set_mib: int, dirty_mib_per_s: float, seed: int = 1, name: str) -> Path:
    """An image whose guest writes to random pages of a working set, from 16 MiB of its memory on, and prints a line
    every `BEATS` ticks of its timer. `dirty_mib_per_s`: what it writes to; pages that it writes to twice within a
    second count once in what a hypervisor measures."""
    pages = working_set_mib * MIB // PAGE_BYTES
    writes = round(dirty_mib_per_s * MIB / PAGE_BYTES / TICKS_PER_S)
    sector = bytearray(program(WRITER))
    struct.pack_into(WRITER_PARAMETERS, sector, PARAMETERS_AT, pages, writes, BEATS, seed)
    path = folder / name
    path.write_bytes(sector.ljust(IMAGE_BYTES, b"\0"))
    return path


def turns_per_read(cpu: float, io: float, turns_per_s: float, service_s: float) -> int:
    """The CPU work between reads with which a guest that is alone spends the shares `cpu` and `io` of its time on CPU
    and disk, where its CPU does `turns_per_s` and the disk takes `service_s` for a read."""
    return max(1, round(cpu / io * turns_per_s * service_s))


def image(path: Path, work: Work) -> Path:
    """Write the disk image of a guest that does `work`."""
    sector = bytearray(program())
    packed = work.packed()
    sector[PARAMETERS_AT : PARAMETERS_AT + len(packed)] = packed
    path.write_bytes(sector.ljust(IMAGE_BYTES, b"\0"))
    return path


def program(source: Path = SOURCE) -> bytes:
    """A boot sector, assembled. Skips the test, or fails it when CI=true, where there is no assembler."""
    debian.need_programs(PROGRAMS, PACKAGES)
    with tempfile.TemporaryDirectory(prefix="trimtab-sector-") as folder:
        parts, whole = f"{folder}/sector.o", f"{folder}/sector"
        for command in (
            ["as", "--32", "-o", parts, str(source)],
            ["ld", "-m", "elf_i386", f"-Ttext={ORIGIN:#x}", "--oformat", "binary", "-o", whole, parts],
        ):
            subprocess.run(command, check=True, timeout=RUN_LIMIT_S)
        return Path(whole).read_bytes()


def emulator(
    boot: Path, serial: Path | None, *, disk: Path | None = None, units: int | None = None, options: Sequence[str] = ()
) -> list[str]:
    """The command of QEMU alone that runs a guest of `boot`, without libvirt; it ends with the guest. Its lines are
    appended to `serial` (None: go to the output of QEMU); `disk` is the socket of the disk of a reader."""
    port = "stdio,signal=off" if serial is None else f"file,path={serial},append=on"
    disks = [f"file={boot},format=raw,if=ide,index=0,file.locking=off"]
    if disk is not None:
        disks.append(f"file=nbd+unix:///disk?socket={disk},format=raw,if=ide,index=1,cache=none")
    asked = [] if units is None else ["-fw_cfg", f"name=opt/trimtab/units,string={units}"]
    return [
        *(EMULATOR, "-machine", "pc", "-accel", "tcg", "-m", str(MEMORY_MIB)),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *(word for disk in disks for word in ("-drive", disk)),
        *asked,
        *("-chardev", f"{port},id=serial", "-serial", "chardev:serial"),
        *options,
    ]


@contextmanager
def running(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A program that reads commands from its input; it is killed in the end if it has not ended itself."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def cpu_s(command: Sequence[str]) -> float:
    """The CPU time of a program that runs to its end. Raises CalledProcessError where it fails."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return used.ru_utime + used.ru_stime


def turns_per_cpu_s(turns: int = 2 * UNIT_TURNS) -> float:
    """How many turns of the loop a guest does in a second of CPU time on this machine. Takes about a second of it."""
    debian.need_programs([EMULATOR], EMULATOR_PACKAGES)
    with tempfile.TemporaryDirectory(prefix="trimtab-turns-") as folder:
        boot = burner(1, Path(folder), unit_turns=turns)
        serial = Path(folder) / "serial"
        start_s = cpu_s(emulator(boot, serial, units=0))
        return turns / max(0.001, cpu_s(emulator(boot, serial)) - start_s)
