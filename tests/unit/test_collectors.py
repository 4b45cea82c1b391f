"""The node's and the VMs' figures, exact on a made-up machine and plausible on the real one."""

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
from agents.collectors.vm_figures import Loading, VmRates, vm_loading, vm_rates
from shared.errors import InvalidValue, TransientError
from shared.model import NodeSample, VmState, VmStatus
from shared.ports import Sampler

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


# --- VMs ---------------------------------------------------------------------------------------------------------


def vm(generation: int = 1, cpu_time_s: float = 0.0, name: str = "j#0", vcpus: int = 2, **counters: int) -> VmStatus:
    return VmStatus(
        name,
        VmState.RUNNING,
        generation=generation,
        vcpus=vcpus,
        cpu_time_s=cpu_time_s,
        **counters,  # type: ignore[arg-type]
    )


def test_rates_are_what_a_vm_did_per_second() -> None:
    before = vm(cpu_time_s=10.0, disk_read_bytes=100, disk_write_bytes=200, net_rx_bytes=300, net_tx_bytes=400)
    after = vm(cpu_time_s=14.0, disk_read_bytes=150, disk_write_bytes=300, net_rx_bytes=310, net_tx_bytes=400)

    assert vm_rates(before, after, 5.0, 2000.0) == VmRates(1600.0, 10.0, 20.0, 2.0, 0.0)


def test_a_counter_that_went_back_began_again_at_0() -> None:
    before = vm(cpu_time_s=10.0, disk_read_bytes=100, net_rx_bytes=50)
    after = vm(cpu_time_s=1.0, disk_read_bytes=20, net_rx_bytes=60)

    assert vm_rates(before, after, 2.0, 1000.0) == VmRates(500.0, 10.0, 0.0, 5.0, 0.0)


def test_a_new_life_began_at_0_even_where_its_counters_are_higher() -> None:
    rates = vm_rates(vm(1, 10.0, net_tx_bytes=5), vm(2, 12.0, net_tx_bytes=8), 4.0, 1000.0)

    assert (rates.cpu_mhz, rates.net_tx_bytes_per_s) == (3000.0, 2.0)


def test_the_loading_vector_is_the_time_on_cpu_and_on_disk() -> None:
    node_before = NodeSample(disk_busy_s=5.0, disk_read_bytes=1000, disk_write_bytes=1000)
    node_after = NodeSample(disk_busy_s=9.0, disk_read_bytes=1300, disk_write_bytes=1100)
    after = vm(cpu_time_s=6.0, disk_read_bytes=60, disk_write_bytes=40)

    # 6 s on 2 virtual CPUs in 10 s; a quarter of the bytes of 4 busy seconds.
    assert vm_loading(vm(), after, node_before, node_after, 10.0) == Loading(0.3, 0.1)


def test_the_loading_vector_stays_within_0_and_1() -> None:
    still = NodeSample(disk_busy_s=5.0)
    busier = NodeSample(disk_busy_s=50.0, disk_read_bytes=10)
    after = vm(cpu_time_s=100.0, disk_read_bytes=1000)

    assert vm_loading(vm(), after, still, busier, 10.0) == Loading(1.0, 1.0)
    assert vm_loading(vm(), after, still, still, 10.0).io_frac == 0.0


@pytest.mark.parametrize("elapsed_s", [0.0, -1.0, math.nan])
def test_rates_need_a_period(elapsed_s: float) -> None:
    with pytest.raises(InvalidValue, match="elapsed_s"):
        vm_rates(vm(), vm(), elapsed_s, 1000.0)


def test_rates_of_two_vms_are_refused() -> None:
    with pytest.raises(InvalidValue, match=r"after\.vm"):
        vm_rates(vm(), vm(name="k#0"), 1.0, 1000.0)
