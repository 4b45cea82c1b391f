"""How guests of one host slow one another on one CPU and one disk, beside what three models say.

It is the measurement of real processes (`sim_backend.experiments.dilation.measured`) with guests in their place: a
burner for STD-CPU, a reader for STD-I/O, a reader that computes more for the compressor. Guests stand still until their
set is to run; a unit of each is one turn of what it does.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agents.hypervisors.libvirt.binding import real
from agents.hypervisors.libvirt.build import from_module
from agents.hypervisors.libvirt.driver import LibvirtHypervisor
from shared.base.clock import perf_s
from shared.config.agent import AgentConfig, HypervisorChoice, LibvirtKeys, NodeFacts
from shared.values.vms import VmStatus
from sim_backend.experiments.dilation.measured import (
    FORMULA,
    LINEAR,
    PRODUCT_FORM,
    Measured,
    Measuring,
    compared,
    disturbances,
    error,
    measure_on,
    parallelism,
    profiles,
    servers,
    sets_of,
)
from sim_backend.experiments.dilation.measured_rows import tables_measured
from sim_backend.experiments.dilation.rig import Set
from sim_backend.experiments.dilation.workers import Counted, WorkKind
from sim_backend.experiments.experiment import mean
from tests.integration.harness import CLOCK
from tests.lab import guest_disk, guests
from tests.lab.guests import Places
from tests.lab.hosts import Host, HostSpec, Lab, lab_hosts
from tests.lab.measured_operations import create, run
from tests.lab.measured_overhead import Memory, memory_of_guests, qemu_pid
from tests.lab.needs import need_lab
from tests.lab.partitions import folder_of

NAMES: Mapping[WorkKind, str] = {WorkKind.CPU: "burner", WorkKind.IO: "reader", WorkKind.FILES: "mixed reader"}
LOADING = {WorkKind.IO: (0.2, 0.8), WorkKind.FILES: (0.6, 0.4)}  # of CPU and disk, as the images are made
SERVICE_S = 0.005  # the disk takes this for every read
BURNER_UNIT_S = 0.005
ENDLESS = 1_000_000
SPEC = HostSpec(cores=2, core_frac=1.0, memory_mib=1_000)  # no quota is in the way of one CPU
LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class _Guest:
    vm: str
    serial: Path
    pid: int


@dataclass(frozen=True, slots=True)
class _Mark:
    """What a guest has done, and had of CPU and disk, so far; when units were counted, and when the rest was read."""

    units_s: float
    units: int
    read_s: float
    status: VmStatus
    queued_s: float


class GuestRig:
    """Guests of one host that stand still; see `dfactor_measured.Running`."""

    direct = True

    def __init__(self, host: Host, driver: LibvirtHypervisor, all_guests: Mapping[WorkKind, list[_Guest]]) -> None:
        self._host, self._driver, self._guests = host, driver, all_guests

    def run(self, together: Set, window_s: float, settle_s: float) -> list[Counted]:
        """Let a set run for `settle_s`, then count for `window_s`. One answer each, in order."""
        chosen = [self._guests[kind][together[:index].count(kind)] for index, kind in enumerate(together)]
        run(self._host, "; ".join(f"resume {guest.vm}" for guest in chosen))
        CLOCK.sleep(settle_s)
        before = self._marks(chosen, units_first=False)
        CLOCK.sleep(window_s)
        after = self._marks(chosen, units_first=True)
        run(self._host, "; ".join(f"suspend {guest.vm}" for guest in chosen))
        return [_counted(*each) for each in zip(before, after, strict=True)]

    def memory(self) -> list[Memory]:
        """Of one emulator of each kind."""
        return memory_of_guests(self._host, [(NAMES[kind], found[0].vm) for kind, found in self._guests.items()])

    def _marks(self, chosen: list[_Guest], units_first: bool) -> list[_Mark]:
        """Units are counted within the rest."""
        units = [_units(guest) for guest in chosen] if units_first else []
        begun_s = perf_s()
        statuses = {status.vm: status for status in self._driver.vms(0.0)}
        queued = [queued_s(guest.pid) for guest in chosen]
        read_s = (begun_s + perf_s()) / 2
        units = units or [_units(guest) for guest in chosen]
        return [
            _Mark(at_s, done, read_s, statuses[guest.vm], waited_s)
            for (at_s, done), guest, waited_s in zip(units, chosen, queued, strict=True)
        ]


def _units(guest: _Guest) -> tuple[float, int]:
    return perf_s(), guest.serial.read_bytes().count(b"\n")


def queued_s(pid: int) -> float:
    """For how long the busiest thread of a process, which is the guest, has waited for a CPU."""
    looks = [file.read_text("ascii").split() for file in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    _, waited_ns = max((int(used), int(waited)) for used, waited, _ in looks)
    return waited_ns / 1e9


def _counted(before: _Mark, after: _Mark) -> Counted:
    over_s = after.read_s - before.read_s
    return Counted(
        (after.units - before.units) / (after.units_s - before.units_s),
        (after.status.cpu_time_s - before.status.cpu_time_s) / over_s,
        (after.queued_s - before.queued_s) / over_s,
        (after.status.disk_time_s - before.status.disk_time_s) / over_s,
    )


@contextmanager
def guest_rig(settings: Measuring) -> Iterator[GuestRig]:
    """Guests enough for every set, all on the machine's last CPU, and the disk elsewhere. Skips the test, or fails it
    when CI=true, where there can be none."""
    need_lab()
    wanted = (*profiles(settings), *sets_of(settings))
    copies = {kind: max(together.count(kind) for together in wanted) for kind in WorkKind}
    with lab_hosts(1, SPEC) as lab:
        (host,) = lab.hosts
        _favour(lab)
        serial = lab.shared / "serial"
        serial.mkdir()
        places = Places(serial)
        cpus = sorted(os.sched_getaffinity(0))
        elsewhere = ",".join(map(str, cpus[:-1] or cpus))
        served = guest_disk.command(places.disk, SERVICE_S * 1e3)
        disk = host.popen(["nice", "-n", "-20", "taskset", "-c", elsewhere, *served])
        guest_disk.wait_for(Path(f"/proc/{host.first_pid}/root{places.disk}"), disk)
        images = _images(lab.shared)
        made = {
            kind: [_start(host, places, kind, number, images[kind], str(cpus[-1])) for number in range(count)]
            for kind, count in copies.items()
        }
        driver = _driver(host)
        try:
            yield GuestRig(host, driver, made)
        finally:
            driver.close()


def _favour(lab: Lab) -> None:
    """Whatever else wants the guests' CPU gets next to nothing of it."""
    group = lab.partitions.cpu / folder_of(f"/{lab.name}")
    name, most = ("cpu.shares", 262_144) if lab.partitions.version == 1 else ("cpu.weight", 10_000)
    (group / name).write_text(str(most))


def _images(folder: Path) -> dict[WorkKind, Path]:
    turns_per_s = guests.turns_per_cpu_s()
    made = {WorkKind.CPU: guests.burner(1, folder, unit_turns=round(BURNER_UNIT_S * turns_per_s))}
    for kind, (cpu, io) in LOADING.items():
        turns = guests.turns_per_read(cpu, io, turns_per_s, SERVICE_S)
        made[kind] = guests.reader(1, folder, unit_reads=1, read_turns=turns, name=f"{kind}.img")
    return made


def _start(host: Host, places: Places, kind: WorkKind, number: int, image: Path, cpu: str) -> _Guest:
    """A guest that has begun its work and stands still."""
    vm, template = f"{kind}-{number}", guests.Kind.BURNER if kind is WorkKind.CPU else guests.Kind.READER
    own = image.with_name(f"{vm}.img")
    shutil.copy(image, own)
    values = {"vm": vm, "memory_mib": "16", "vcpus": "1", "argument.0": str(ENDLESS), "volume": str(own)}
    values |= places.values()
    create(host, guests.TEMPLATES / f"{template}.xml", values, own.with_suffix(".xml"), cpu)
    serial, until_s = guests.serial_file(places, vm), CLOCK.monotonic_s() + LIMIT_S
    while not guests.units_done([serial]):
        assert CLOCK.monotonic_s() < until_s, f"{vm} does not begin"
        CLOCK.sleep(0.02)
    run(host, f"suspend {vm}")
    return _Guest(vm, serial, qemu_pid(host, vm))


def _driver(host: Host) -> LibvirtHypervisor:
    """The driver, as an agent would read the guests with it."""
    keys = LibvirtKeys(partition=host.partition, cores=SPEC.cores, core_mhz=SPEC.core_mhz, memory_mib=SPEC.memory_mib)
    config = AgentConfig(NodeFacts(name=host.name), hypervisor=HypervisorChoice("libvirt", host.uri), libvirt=keys)
    driver = from_module(config, lambda: None, real())
    driver.inventory()
    return driver


@dataclass(frozen=True, slots=True)
class Found:
    """The measurement, and the memory of the emulators."""

    measured: Measured
    memory: list[Memory]


def measure(settings: Measuring) -> Found:
    """Measure guests on this machine, which should do nothing else."""
    with guest_rig(settings) as made:
        measured = measure_on(made, settings)
        return Found(measured, made.memory())


def tables(found: Measured) -> dict[str, list[dict[str, object]]]:
    """The tables of `sim reproduce dfactor --experiment measured`, with the names of the guests; then the errors."""
    made = {title: [dict(line) for line in lines] for title, lines in tables_measured([found], NAMES).items()}
    errors: list[dict[str, object]] = []
    for size, name in ((2, "pairs"), (3, "triples")):
        cases = compared(found, size)
        line: dict[str, object] = {"sets": name, "dilations": len(cases)}
        errors.append(line | {f"{model} (%)": round(100 * error(cases, model), 1) for model in MODELS})
    made["Measured: mean errors"] = errors
    parts = disturbances(found.runs)
    made["Measured: conditions"] = [
        {
            "CPU serves at a time": servers(found.profiled, WorkKind.CPU),
            "disk serves at a time": servers(found.profiled, WorkKind.IO),
            "pace of 2 readers": round(parallelism(found.profiled, WorkKind.IO, 2), 2),
            "something else had the CPU, mean (%)": round(100 * mean(parts), 1),
            "at most (%)": round(100 * max(parts), 1),
        }
    ]
    return made


MODELS = (FORMULA, PRODUCT_FORM, LINEAR)
