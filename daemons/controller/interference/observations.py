"""What VMs did between two reports of their node, and what their meters make of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from daemons.models.loading_history import Shares
from daemons.models.loading_profiler import Reading, alone
from shared.protocol.messages import Report
from shared.values.actions import ActionKind
from shared.values.load_vector import Loading
from shared.values.nodes import Node
from shared.values.vms import VmState, VmStatus

WINDOW_MIN_S, WINDOW_MAX_S = 1.0, 900.0
FULL_FRAC = 0.9  # of a node's CPU in use: from there on one VM may wait for another
WHOLE_FRAC = 0.95  # of the speed that it can use: with so much allotted a VM waits for none
BITS = 8e-6  # Mbit of a byte
_HARMLESS = frozenset({"", ActionKind.SET_CPU.value})


@dataclass(slots=True)
class Meter:
    """What is gathered of one VM. given: what its job declares. cpu_s, io_s, net_s, seconds: of its time alone, since
    its last observation. `together`: copies of its class, and nothing else, have shared its node ever since; covered_s,
    work_mcycles: how long that is, and the work done; copies_s: how many there were, times seconds. `ended`: its job is
    over."""

    job: str
    subject: str
    node_type: str
    max_mhz: float
    given: Loading = field(default_factory=Loading)
    cpu_s: float = 0.0
    io_s: float = 0.0
    net_s: float = 0.0
    seconds: float = 0.0
    together: bool = True
    covered_s: float = 0.0
    copies_s: float = 0.0
    work_mcycles: float = 0.0
    ended: bool = False

    def add(self, reading: Reading, seconds: float) -> None:
        """So much it did that would have taken `seconds` alone."""
        self.cpu_s += reading.cpu_s
        self.io_s += reading.io_s
        self.net_s += reading.net_s
        self.seconds += seconds

    def take(self) -> Shares:
        """Return the gathered data as one observation, and reset."""
        parts = (self.cpu_s / self.seconds, self.io_s / self.seconds, self.net_s / self.seconds)
        shares = Shares(parts, self.seconds)
        self.cpu_s = self.io_s = self.net_s = self.seconds = 0.0
        return shares

    def count(self, elapsed_s: float, copies: float, work_mcycles: float) -> None:
        """Count time undisturbed beside copies of its class, itself included."""
        self.covered_s += elapsed_s
        self.copies_s += copies * elapsed_s
        self.work_mcycles += work_mcycles

    @property
    def copies(self) -> float:
        """How many ran together on the average, itself among them."""
        return self.copies_s / self.covered_s if self.covered_s > 0.0 else math.nan

    def begin(self, node_type: str) -> None:
        """Restart on a node of another type: drop what was gathered."""
        self.node_type, self.together = node_type, False
        self.cpu_s = self.io_s = self.net_s = self.seconds = 0.0


@dataclass(frozen=True, slots=True)
class Window:
    """What became of two reports. running: VMs that ran at either end. whole: every VM that ran throughout had all the
    CPU that it could use. work_mcycles: the work of each, where the same VMs ran throughout. alone, alone_s: then, of
    those whose time alone is known, seconds at each resource without waiting, and in all."""

    elapsed_s: float
    running: frozenset[str] = frozenset()
    whole: bool = False
    work_mcycles: Mapping[str, float] = field(default_factory=dict)
    alone: Mapping[str, Reading] = field(default_factory=dict)
    alone_s: Mapping[str, float] = field(default_factory=dict)


def window_of(
    before: Report,
    last: Report,
    node: Node,
    meters: Mapping[str, Meter | None],
    servers: float = 1.0,
    network_mbit_per_s: float = 0.0,
) -> Window:
    """Return the window between two reports of one boot. Isolated times are included only where the same VMs ran
    throughout, for VMs that never had to wait for the CPU: for the others, waiting and idling cannot be
    distinguished."""
    elapsed_s = last.clock_s - before.clock_s
    was, now = _running(before), _running(last)
    running = frozenset(was) | frozenset(now)
    if not WINDOW_MIN_S <= elapsed_s <= WINDOW_MAX_S:
        return Window(max(0.0, elapsed_s), running)
    pairs = [(was[vm], status) for vm, status in now.items() if vm in was and _goes_on(was[vm], status)]
    used_s = [_used_s(prior, status, elapsed_s) for prior, status in pairs]
    full = sum(used_s) > FULL_FRAC * node.cores * elapsed_s
    whole = [not full or _is_whole(prior, status, node, meters.get(status.vm)) for prior, status in pairs]
    if not len(pairs) == len(was) == len(now):
        return Window(elapsed_s, running, all(whole))
    readings = _readings(pairs, before, last, elapsed_s, network_mbit_per_s)
    others = max(0.0, _grown(before, last)[0] - sum(each.io_s for each in readings)) / elapsed_s
    found = alone(readings, elapsed_s, servers, others)
    good = [
        (status.vm, reading, elapsed_s - min(elapsed_s, raw.io_s) + reading.io_s)
        for (_, status), raw, reading, has_all in zip(pairs, readings, found, whole, strict=True)
        if has_all
    ]
    return Window(
        elapsed_s,
        running,
        all(whole),
        {status.vm: cpu_s * node.core_mhz for (_, status), cpu_s in zip(pairs, used_s, strict=True)},
        {vm: reading for vm, reading, _ in good},
        {vm: max(seconds, reading.cpu_s + reading.io_s + reading.net_s) for vm, reading, seconds in good},
    )


def _running(report: Report) -> dict[str, VmStatus]:
    return {status.vm: status for status in report.vms if status.state is VmState.RUNNING}


def _goes_on(before: VmStatus, after: VmStatus) -> bool:
    """Return whether no operation in between would have stopped the VM."""
    same = before.generation == after.generation and before.attempt == after.attempt
    return same and before.busy in _HARMLESS and after.busy in _HARMLESS


def _is_whole(before: VmStatus, after: VmStatus, node: Node, meter: Meter | None) -> bool:
    can_mhz = after.vcpus * node.core_mhz
    if meter is not None:
        can_mhz = min(can_mhz, meter.max_mhz)
    return min(before.cpu_mhz, after.cpu_mhz) >= WHOLE_FRAC * can_mhz


def _readings(
    pairs: list[tuple[VmStatus, VmStatus]], before: Report, last: Report, elapsed_s: float, network_mbit_per_s: float
) -> list[Reading]:
    """Return what each VM did; counters that went back count as 0. The disk time comes from the hypervisor where it
    reports any; otherwise it is the VM's share, by bytes, of the time in which the node's disks were busy."""
    busy_s, node_bytes = _grown(before, last)
    readings = []
    for prior, status in pairs:
        cpu_s = _used_s(prior, status, elapsed_s) / max(1, status.vcpus)
        if status.disk_time_s > 0.0:
            io_s = max(0.0, status.disk_time_s - prior.disk_time_s)
        else:
            io_s = busy_s * min(1.0, _bytes(prior, status) / node_bytes) if node_bytes > 0 else 0.0
        received = max(0, status.net_rx_bytes - prior.net_rx_bytes)
        sent = max(0, status.net_tx_bytes - prior.net_tx_bytes)
        net_s = max(received, sent) * BITS / network_mbit_per_s if network_mbit_per_s > 0.0 else 0.0
        readings.append(Reading(cpu_s, min(elapsed_s, io_s), min(elapsed_s, net_s)))
    return readings


def _used_s(before: VmStatus, after: VmStatus, elapsed_s: float) -> float:
    """Return the CPU seconds used by all virtual CPUs, none of which can use more than the elapsed time."""
    return min(max(0.0, after.cpu_time_s - before.cpu_time_s), max(1, after.vcpus) * elapsed_s)


def _bytes(before: VmStatus, after: VmStatus) -> int:
    read = after.disk_read_bytes - before.disk_read_bytes
    return max(0, read) + max(0, after.disk_write_bytes - before.disk_write_bytes)


def _grown(before: Report, last: Report) -> tuple[float, int]:
    """Return how long the node's disks were busy, and how many bytes they moved."""
    was, now = before.sample, last.sample
    moved = now.disk_read_bytes - was.disk_read_bytes, now.disk_write_bytes - was.disk_write_bytes
    return max(0.0, now.disk_busy_s - was.disk_busy_s), max(0, moved[0]) + max(0, moved[1])
