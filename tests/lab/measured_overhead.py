"""What Trimtab uses in a lab: CPU time of an agent with ten VMs, memory of every process, messages on the wire."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http.client import HTTPConnection, HTTPException

import psutil  # type: ignore[import-untyped]

from shared.values.jobs import Rules
from tests.integration.harness import CLOCK, Process
from tests.lab import guest_disk
from tests.lab.cluster import IMAGES, MEMORY_MIB, WEB_MEMORY_MIB, Cluster
from tests.lab.guests import TEMPLATES, Kind
from tests.lab.hosts import Host
from tests.lab.measured_bus import Passed, Tap
from tests.lab.measured_operations import UNITS, Trimtab, create, run
from tests.lab.namespaces import children

VMS = 10
VM_MHZ = 100.0  # each, of a core of 1,000 MHz
READ_MS = 1_000.0  # their disk is slow, so that they use next to no CPU
JOB = "ten"
ADDRESS = 200  # the last part of the web guest's: far from those that VMs of the cluster get
MIB = 1 << 20
LIMIT_S = 120.0
SETTLE_S = 3.0
CPU_CLOCK = 2  # of a process, in the numbers that Linux gives clocks


@dataclass(frozen=True, slots=True)
class Agents:
    """What an agent, its host's libvirtd and the controller with its worker used in a window, in seconds of CPU time
    per minute. `messages`: what passed the broker meanwhile."""

    report_s: float
    over_s: float
    agent_s_per_min: float
    libvirtd_s_per_min: float
    controller_s_per_min: float
    messages: Passed


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one process, in MiB: resident, and with what it shares with others counted in parts."""

    process: str
    rss_mib: float
    pss_mib: float


def start_ten(trimtab: Trimtab, made: Cluster, node: str) -> None:
    """Ten VMs whose guests wait for their disk, on one node."""
    host, path = made.lab.hosts[node], made.lab.places.disk
    guest_disk.wait_for(host.folder / path.relative_to("/"), host.popen(guest_disk.command(path, READ_MS)))
    trimtab.ask(trimtab.submit(JOB, VM_MHZ, kind=Kind.READER, instances=VMS, rules=Rules(node_affinity=(node,))))
    names = {f"{JOB}#{index}" for index in range(VMS)}
    made.wait_for(lambda: made.homes().keys() >= names, LIMIT_S, "ten VMs")
    made.wait_for(lambda: made.heard("job-started", JOB), LIMIT_S, "the start of the job of ten")
    made.wait_for(lambda: all(made.printed(vm).runs for vm in names), LIMIT_S, "the work of ten guests")


def agents(made: Cluster, tap: Tap, node: str, report_s: float, window_s: float) -> Agents:
    """With reports every `report_s`, which is put into the configuration of all agents."""
    for name in made.lab.nodes:
        _report_every(made, name, report_s)
    CLOCK.sleep(SETTLE_S + report_s)
    made.wait_for(lambda: all(_pid(agent) for agent in made.lab.agents.values()), LIMIT_S, "all agents")
    (controller,) = made.lab.controllers.values()
    watched = [[_pid(made.lab.agents[node])], [made.lab.hosts[node].libvirtd_pid]]
    watched.append([controller.pid, *_workers(controller.pid)])
    passed: list[Passed] = []
    before, begun_s = [sum(map(cpu_s, pids)) for pids in watched], CLOCK.monotonic_s()
    with tap.counting(passed):
        CLOCK.sleep(window_s)
    over_s = CLOCK.monotonic_s() - begun_s
    used = [60.0 * (sum(map(cpu_s, pids)) - was) / over_s for pids, was in zip(watched, before, strict=True)]
    return Agents(report_s, over_s, used[0], used[1], used[2], passed[0])


def _report_every(made: Cluster, node: str, report_s: float) -> None:
    """The agent begins anew with another period."""
    file, agent = made.lab.folder / f"agent-{node}.toml", made.lab.agents[node]
    text = file.read_text()
    (old,) = [line for line in text.splitlines() if line.startswith("report_s = ")]
    if old == f"report_s = {report_s!r}":
        return
    file.write_text(text.replace(old, f"report_s = {report_s!r}"))
    agent.kill()
    agent.start()


def _pid(agent: Process) -> int:
    """The agent itself; 0 until it is there."""
    return next(iter(children(agent.pid)), 0)


def cpu_s(pid: int) -> float:
    """CPU time of a process, of threads that have ended too."""
    return time.clock_gettime(~pid << 3 | CPU_CLOCK)


def memory(made: Cluster, node: str) -> list[Memory]:
    """Of the daemons, as they are now."""
    (controller,) = made.lab.controllers.values()
    found = [
        _memory(f"agent with {VMS} VMs", _pid(made.lab.agents[node])),
        _memory("controller", controller.pid),
        *(_memory("controller's worker", pid) for pid in _workers(controller.pid)),
        _memory("libvirtd", made.lab.hosts[node].libvirtd_pid),
    ]
    beam = [one for one in _below(made.broker.server_pid) if "beam" in one.name()]
    return found + [_memory("RabbitMQ", one.pid) for one in beam]


def memory_of_kinds(made: Cluster, node: str) -> list[Memory]:
    """Of QEMU with a guest of each of the kinds that only a cluster has the files for, once it works."""
    host, places = made.lab.hosts[node], replace(made.lab.places, disk_format="raw")
    address = f"10.99.{made.hosts.number}.{ADDRESS}"
    disk = made.lab.folder / "laden.img"
    shutil.copy(made.hosts.shared / "volumes" / IMAGES[Kind.LADEN], disk)
    own = {
        Kind.LADEN: {"memory_mib": str(MEMORY_MIB), "volume": str(disk), "argument.0": str(UNITS)},
        Kind.WEB: {"memory_mib": str(WEB_MEMORY_MIB), "address": address, "argument.0": "1"},
    }
    for kind, values in own.items():
        whole = {"vm": kind.value, "vcpus": "1", **places.values(), **values}
        create(host, TEMPLATES / f"{kind}.xml", whole, made.lab.folder / f"{kind}-memory.xml")
    made.wait_for(lambda: made.printed(Kind.LADEN).runs and _serves(address), LIMIT_S, "guests of all kinds")
    found = memory_of_guests(host, [(kind.value, kind.value) for kind in own])
    run(host, "; ".join(f"destroy {kind}" for kind in own))
    return found


def _serves(address: str) -> bool:
    connection = HTTPConnection(address, timeout=2)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def memory_of_guests(host: Host, guests: Sequence[tuple[str, str]]) -> list[Memory]:
    """Of QEMU, each of a kind and a VM."""
    return [_memory(f"QEMU, {kind}", qemu_pid(host, vm)) for kind, vm in guests]


def qemu_pid(host: Host, vm: str) -> int:
    """The emulator of a VM on a host of the lab."""
    wanted = f"guest={vm},"
    found = [one.pid for one in _below(host.first_pid) if any(word.startswith(wanted) for word in one.cmdline())]
    assert len(found) == 1, f"{vm}: {found}"
    return int(found[0])


def _below(pid: int) -> Iterator[psutil.Process]:
    for one in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if one.cmdline():
                yield one


def _workers(pid: int) -> list[int]:
    """Processes in which decisions are made, without what Python starts beside them."""
    return [one.pid for one in _below(pid) if not any("resource_tracker" in word for word in one.cmdline())]


def _memory(process: str, pid: int) -> Memory:
    info = psutil.Process(pid).memory_full_info()
    return Memory(process, info.rss / MIB, info.pss / MIB)


def lines_of_agents(found: Sequence[Agents]) -> list[dict[str, object]]:
    """A line for each period of reports."""
    return [
        {
            "reports every s": one.report_s,
            "agent CPU s/min": round(one.agent_s_per_min, 3),
            "libvirtd CPU s/min": round(one.libvirtd_s_per_min, 3),
            "controller CPU s/min": round(one.controller_s_per_min, 3),
            "messages/s": round(sum(one.messages.messages.values()) / one.messages.over_s, 2),
            "of them": ", ".join(f"{kind} {n}" for kind, n in sorted(one.messages.messages.items())),
            "kB/s": round(sum(one.messages.octets.values()) / one.messages.over_s / 1e3, 2),
            "window s": round(one.over_s, 1),
        }
        for one in found
    ]


def lines_of_memory(found: Sequence[Memory]) -> list[dict[str, object]]:
    """A line for each process."""
    return [
        {"process": one.process, "RSS MiB": round(one.rss_mib, 1), "PSS MiB": round(one.pss_mib, 1)} for one in found
    ]
