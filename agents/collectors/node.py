"""Reads the node's own counters."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from agents.collectors.source import READ_ERRORS, Source, psutil_source
from shared.base.errors import TransientError
from shared.values.nodes import NodeSample

MIB = 1024 * 1024
LOOPBACK = "lo"
# Made of other disks or of memory: what they read and write is counted there, or is no disk's work.
STACKED_DISK = re.compile(r"(dm-|md|loop|ram|zram)\d")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _CpuSeconds:
    idle_s: float
    iowait_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class _DiskFigures:
    busy_s: float
    read_bytes: int
    write_bytes: int


class NodeSampler:
    """Implements `shared.ports.agent.Sampler` for this machine.

    `path` is where images and disks are kept; its file system's free space is reported. CPU time that another host
    took from this one counts as busy. Memory used is what is not available to new VMs. Disk figures sum the physical
    disks, network figures all interfaces but the loopback.
    """

    def __init__(self, path: str, source: Source | None = None) -> None:
        self._path = path
        self._source = source or psutil_source()
        self._before: _CpuSeconds | None = None

    def sample(self, now_s: float) -> NodeSample:  # noqa: ARG002  the port has it for drivers in virtual time
        """Take one reading. Fractions cover the time since the previous successful call (0 at the first).

        Raises TransientError when CPU, load, memory, disk or network cannot be read; the next call then covers that
        time too. Time waiting for I/O, swap and the disks' busy time are 0 where the system does not report them.
        """
        source = self._source
        cpu = _must("CPU times", lambda: _cpu_seconds(source.cpu_times()))
        load_1min = _must("load", lambda: _finite(source.getloadavg()[0]))
        memory_used_mib = _must("memory", lambda: _memory_used_mib(source.virtual_memory()))
        disks = _must("disk counters", lambda: _disk_figures(source.disk_io_counters() or {}))
        net_rx_bytes, net_tx_bytes = _must("network counters", lambda: _net_bytes(source.net_io_counters() or {}))
        disk_free_mib = _must(f"free space of {self._path}", lambda: source.disk_usage(self._path).free / MIB)
        cpu_frac, iowait_frac = _cpu_fractions(self._before, cpu)
        self._before = cpu
        return NodeSample(
            cpu_frac,
            iowait_frac,
            load_1min,
            memory_used_mib=memory_used_mib,
            swap_used_mib=_swap_used_mib(source),
            disk_busy_s=disks.busy_s,
            disk_read_bytes=disks.read_bytes,
            disk_write_bytes=disks.write_bytes,
            net_rx_bytes=net_rx_bytes,
            net_tx_bytes=net_tx_bytes,
            disk_free_mib=disk_free_mib,
        )


def _must(what: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except READ_ERRORS as error:
        raise TransientError(f"{what} cannot be read: {error}") from error


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a finite number")
    return float(value)


def _cpu_seconds(times: Any) -> _CpuSeconds:
    # The kernel counts guests in `user` and `nice` once already.
    guests_s = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return _CpuSeconds(_finite(times.idle), getattr(times, "iowait", 0.0), _finite(sum(times) - guests_s))


def _cpu_fractions(before: _CpuSeconds | None, after: _CpuSeconds) -> tuple[float, float]:
    """Busy and waiting for I/O, each 0..1. Some kernels' idle and iowait go back a little: those count as unmoved."""
    if before is None:
        return 0.0, 0.0
    total_s = after.total_s - before.total_s
    if total_s <= 0:
        return 0.0, 0.0
    idle_s = max(0.0, after.idle_s - before.idle_s)
    iowait_s = min(max(0.0, after.iowait_s - before.iowait_s), total_s)
    return max(0.0, 1.0 - (idle_s + iowait_s) / total_s), iowait_s / total_s


def _memory_used_mib(memory: Any) -> float:
    return float((memory.total - memory.available) / MIB)


def _swap_used_mib(source: Source) -> float:
    try:
        return float(source.swap_memory().used / MIB)
    except READ_ERRORS:
        return 0.0


def _disk_figures(disks: Mapping[str, Any]) -> _DiskFigures:
    physical = [counters for name, counters in disks.items() if _is_physical(name, disks)]
    return _DiskFigures(
        sum(getattr(counters, "busy_time", 0) for counters in physical) / 1000.0,
        sum(counters.read_bytes for counters in physical),
        sum(counters.write_bytes for counters in physical),
    )


def _is_physical(name: str, names: Collection[str]) -> bool:
    """Neither made of other disks nor a partition of another one named (sda1 of sda, nvme0n1p1 of nvme0n1)."""
    if STACKED_DISK.match(name):
        return False
    whole = re.sub(r"(?<=\d)p\d+$|(?<=\D)\d+$", "", name)
    return whole == name or whole not in names


def _net_bytes(interfaces: Mapping[str, Any]) -> tuple[int, int]:
    real = [counters for name, counters in interfaces.items() if name != LOOPBACK]
    return sum(counters.bytes_recv for counters in real), sum(counters.bytes_sent for counters in real)
