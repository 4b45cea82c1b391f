"""What a VM did between two readings."""

from __future__ import annotations

from dataclasses import dataclass

from shared.errors import InvalidValue
from shared.model import NodeSample, VmStatus


@dataclass(frozen=True, slots=True)
class VmRates:
    """Mean CPU use in MHz and bytes per second over a period; all 0 or above."""

    cpu_mhz: float
    disk_read_bytes_per_s: float
    disk_write_bytes_per_s: float
    net_rx_bytes_per_s: float
    net_tx_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Loading:
    """Fractions of the time in which a VM used the CPU and kept the disks busy, each 0..1 (d-factor.txt, 3.2)."""

    cpu_frac: float
    io_frac: float


def vm_rates(before: VmStatus, after: VmStatus, elapsed_s: float, core_mhz: float) -> VmRates:
    """Rates of one VM between two readings `elapsed_s` apart on a node whose cores run at `core_mhz`.

    A counter that went back, or all of them when the VM came to life anew, began again at 0: then only what it shows
    since is counted. Raises InvalidValue unless `elapsed_s` is above 0 and both readings are of the same VM.
    """
    _check(before, after, elapsed_s)
    anew = before.generation != after.generation
    return VmRates(
        _grown(before.cpu_time_s, after.cpu_time_s, anew) * core_mhz / elapsed_s,
        _grown(before.disk_read_bytes, after.disk_read_bytes, anew) / elapsed_s,
        _grown(before.disk_write_bytes, after.disk_write_bytes, anew) / elapsed_s,
        _grown(before.net_rx_bytes, after.net_rx_bytes, anew) / elapsed_s,
        _grown(before.net_tx_bytes, after.net_tx_bytes, anew) / elapsed_s,
    )


def vm_loading(
    before: VmStatus, after: VmStatus, node_before: NodeSample, node_after: NodeSample, elapsed_s: float
) -> Loading:
    """A VM's loading vector over a period, as far as counters tell it.

    CPU: its CPU time per virtual CPU. I/O: its share, by bytes, of the time in which the node's disks were busy. It is
    the vector of the VM as it ran, with whatever contention there was. Raises InvalidValue as `vm_rates` does.
    """
    _check(before, after, elapsed_s)
    anew = before.generation != after.generation
    cpu_s = _grown(before.cpu_time_s, after.cpu_time_s, anew) / max(1, after.vcpus)
    own_bytes = _grown(before.disk_read_bytes, after.disk_read_bytes, anew) + _grown(
        before.disk_write_bytes, after.disk_write_bytes, anew
    )
    node_bytes = _grown(node_before.disk_read_bytes, node_after.disk_read_bytes, False) + _grown(
        node_before.disk_write_bytes, node_after.disk_write_bytes, False
    )
    busy_s = _grown(node_before.disk_busy_s, node_after.disk_busy_s, False)
    share = min(1.0, own_bytes / node_bytes) if node_bytes > 0 else 0.0
    return Loading(min(1.0, cpu_s / elapsed_s), min(1.0, busy_s * share / elapsed_s))


def _check(before: VmStatus, after: VmStatus, elapsed_s: float) -> None:
    if before.vm != after.vm:
        raise InvalidValue("after.vm", after.vm, before.vm)
    if not elapsed_s > 0:
        raise InvalidValue("elapsed_s", elapsed_s, "a number above 0")


def _grown(before: float, after: float, anew: bool) -> float:
    return after if anew or after < before else after - before
