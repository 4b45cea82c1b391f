"""The node's figures, exact on a made-up machine and plausible on the real one."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from msgspec import structs

from agents.collectors.node import NodeSampler
from agents.collectors.source import Source
from shared.base.errors import TransientError
from shared.ports.agent import Sampler
from shared.values.nodes import NodeSample

MIB = 1024 * 1024
CpuTimes = namedtuple("CpuTimes", "user nice system idle iowait irq softirq steal guest guest_nice")
PlainCpuTimes = namedtuple("PlainCpuTimes", "user nice system idle")


class Machine:
    """A machine whose counters a test sets."""

    def __init__(self) -> None:
        self.cpu: Any = CpuTimes(100.0, 0.0, 50.0, 800.0, 50.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        self.swap: Any = SimpleNamespace(used=3 * MIB)
        self.disks: Any = {
            "sda": disk(10, 20, 1500),
            "sda1": disk(10, 20, 1500),
            "nvme0n1": disk(1, 2, 500),
            "nvme0n1p2": disk(1, 2, 500),
            "dm-0": disk(11, 22, 900),
            "md127": disk(11, 22, 900),
            "loop3": disk(7, 7, 7),
        }
        self.interfaces: Any = {"lo": net(999, 999), "eth0": net(1000, 2000), "eth1": net(30, 40)}
        self.broken: set[str] = set()

    def source(self) -> Source:
        return Source(
            self._read("cpu_times", lambda: self.cpu),
            self._read("getloadavg", lambda: (0.75, 0.5, 0.25)),
            self._read("virtual_memory", lambda: SimpleNamespace(total=1000 * MIB, available=400 * MIB)),
            self._read("swap_memory", lambda: self.swap),
            self._read("disk_io_counters", lambda: self.disks),
            self._read("net_io_counters", lambda: self.interfaces),
            self._usage,
        )

    def _read(self, name: str, value: Callable[[], Any]) -> Callable[[], Any]:
        def read() -> Any:
            if name in self.broken:
                raise OSError(f"no {name}")
            return value()

        return read

    def _usage(self, path: str) -> Any:
        assert path == "/images"
        if "disk_usage" in self.broken:
            raise PermissionError(path)
        return SimpleNamespace(free=5 * MIB)


def disk(read_bytes: int, write_bytes: int, busy_ms: int) -> SimpleNamespace:
    return SimpleNamespace(read_bytes=read_bytes, write_bytes=write_bytes, busy_time=busy_ms)


def net(received: int, sent: int) -> SimpleNamespace:
    return SimpleNamespace(bytes_recv=received, bytes_sent=sent)


def test_a_reading_has_every_figure_in_its_unit() -> None:
    machine = Machine()
    sampler: Sampler = NodeSampler("/images", machine.source())

    assert sampler.sample(0.0) == NodeSample(
        cpu_frac=0.0,
        iowait_frac=0.0,
        load_1min=0.75,
        memory_used_mib=600.0,
        swap_used_mib=3.0,
        disk_busy_s=2.0,
        disk_read_bytes=11,
        disk_write_bytes=22,
        net_rx_bytes=1030,
        net_tx_bytes=2040,
        disk_free_mib=5.0,
    )


def test_fractions_cover_the_time_since_the_last_reading() -> None:
    machine = Machine()
    sampler = NodeSampler("/images", machine.source())
    sampler.sample(0.0)
    machine.cpu = CpuTimes(110.0, 1.0, 54.0, 860.0, 70.0, 1.0, 2.0, 2.0, 0.0, 0.0)  # 100 s, 60 idle, 20 waiting

    sample = sampler.sample(5.0)

    assert sample.cpu_frac == pytest.approx(0.2)
    assert sample.iowait_frac == pytest.approx(0.2)


def test_guests_time_is_not_counted_twice() -> None:
    machine = Machine()
    sampler = NodeSampler("/images", machine.source())
    sampler.sample(0.0)
    # 10 s in all: 8 of user time, all of it a guest's, and 2 idle.
    machine.cpu = CpuTimes(108.0, 0.0, 50.0, 802.0, 50.0, 0.0, 0.0, 0.0, 8.0, 0.0)

    assert sampler.sample(5.0).cpu_frac == pytest.approx(0.8)


def test_counters_that_go_back_give_fractions_within_0_and_1() -> None:
    machine = Machine()
    sampler = NodeSampler("/images", machine.source())
    sampler.sample(0.0)
    machine.cpu = CpuTimes(104.0, 0.0, 50.0, 799.5, 49.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    first = sampler.sample(5.0)
    machine.cpu = CpuTimes(4.0, 0.0, 5.0, 9.5, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    second = sampler.sample(10.0)

    assert (first.cpu_frac, first.iowait_frac) == (1.0, 0.0)
    assert (second.cpu_frac, second.iowait_frac) == (0.0, 0.0)


def test_two_readings_at_once_divide_by_nothing() -> None:
    sampler = NodeSampler("/images", Machine().source())

    assert sampler.sample(0.0) == sampler.sample(0.0)


@pytest.mark.parametrize(
    "figure", ["cpu_times", "getloadavg", "virtual_memory", "disk_io_counters", "net_io_counters", "disk_usage"]
)
def test_a_mandatory_figure_that_cannot_be_read_voids_the_sample(figure: str) -> None:
    machine = Machine()
    sampler = NodeSampler("/images", machine.source())
    sampler.sample(0.0)
    machine.broken = {figure}
    machine.cpu = CpuTimes(110.0, 0.0, 50.0, 890.0, 50.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    with pytest.raises(TransientError, match="cannot be read"):
        sampler.sample(5.0)
    machine.broken = set()

    assert sampler.sample(10.0).cpu_frac == pytest.approx(0.1), "the next one covers the lost period too"


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_figure_that_is_not_finite_voids_the_sample(wrong: float) -> None:
    machine = Machine()
    machine.cpu = CpuTimes(wrong, 0.0, 50.0, 890.0, 50.0, 0.0, 0.0, 0.0, 0.0, 0.0)

    with pytest.raises(TransientError, match="CPU times"):
        NodeSampler("/images", machine.source()).sample(0.0)


def test_optional_figures_are_0_where_the_system_does_not_tell_them() -> None:
    machine = Machine()
    machine.cpu = PlainCpuTimes(1.0, 0.0, 1.0, 8.0)
    machine.broken = {"swap_memory"}
    machine.disks = {"sda": SimpleNamespace(read_bytes=5, write_bytes=6)}
    sampler = NodeSampler("/images", machine.source())
    sampler.sample(0.0)
    machine.cpu = PlainCpuTimes(2.0, 0.0, 1.0, 9.0)

    sample = sampler.sample(5.0)

    assert (sample.cpu_frac, sample.iowait_frac) == (0.5, 0.0)
    assert (sample.swap_used_mib, sample.disk_busy_s, sample.disk_read_bytes) == (0.0, 0.0, 5)


def test_a_machine_without_disks_and_interfaces_has_moved_no_bytes() -> None:
    machine = Machine()
    machine.disks, machine.interfaces = None, None

    sample = NodeSampler("/images", machine.source()).sample(0.0)

    assert (sample.disk_read_bytes, sample.disk_busy_s, sample.net_rx_bytes) == (0, 0.0, 0)


def test_a_disk_is_not_taken_for_the_partition_of_another() -> None:
    machine = Machine()
    machine.disks = {
        name: disk(1, 0, 0) for name in ("sda", "sdaa", "sda15", "nvme0n1", "nvme0n10", "nvme0n1p1", "vdb2")
    }

    # sda, sdaa, nvme0n1, nvme0n10, and vdb2: nothing else stands for what that one does.
    assert NodeSampler("/images", machine.source()).sample(0.0).disk_read_bytes == 5


def test_this_machine_can_be_read() -> None:
    sampler = NodeSampler("/")
    first, second = sampler.sample(0.0), sampler.sample(1.0)

    for sample in (first, second):
        assert all(math.isfinite(value) and value >= 0 for value in structs.astuple(sample))
        assert 0 < sample.memory_used_mib <= psutil.virtual_memory().total / MIB
        assert sample.disk_free_mib <= psutil.disk_usage("/").total / MIB
    assert (first.cpu_frac, first.iowait_frac) == (0.0, 0.0)
    assert 0 <= second.cpu_frac + second.iowait_frac <= 1 + 1e-9
    assert second.net_rx_bytes >= first.net_rx_bytes
