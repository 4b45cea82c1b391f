"""What two reports of a node say of its VMs, by counters of every kind."""

from __future__ import annotations

import pytest

from daemons.controller.interference.observations import WINDOW_MAX_S, Meter, Window, window_of
from daemons.models.loading_profiler import Reading
from shared.protocol.messages import Report
from shared.values.nodes import Node, NodeSample
from shared.values.vms import VmState, VmStatus

NODE = Node("n1", 4, 1000.0, memory_mib=4000)


def vm(name: str = "j#0", state: VmState = VmState.RUNNING, vcpus: int = 2, **fields: float) -> VmStatus:
    return VmStatus(name, state, 1, attempt=1, memory_mib=1000, vcpus=vcpus, **({"cpu_mhz": 2000.0} | fields))  # type: ignore[arg-type]


def report(clock_s: float, *vms: VmStatus, **sample: float) -> Report:
    return Report("n1", "boot-1", 1, clock_s=clock_s, term=1, sample=NodeSample(**sample), vms=vms)  # type: ignore[arg-type]  # whole bytes


def window(before: Report, last: Report, max_mhz: float = 2000.0, **settings: float) -> Window:
    names = {status.vm for status in (*before.vms, *last.vms)}
    return window_of(before, last, NODE, {name: Meter("j", "sort", "", max_mhz=max_mhz) for name in names}, **settings)


def test_where_the_hypervisor_is_silent_the_disk_is_shared_out_by_bytes() -> None:
    """Given 6 s on 2 virtual CPUs in 10 s and a quarter of the bytes of 4 busy seconds, of which others had the rest,
    then the VM had the CPU for 3 s and the disk for 1 s, of which 0.3 of waiting are taken off."""
    before = report(0.0, vm(), disk_busy_s=5.0, disk_read_bytes=1000, disk_write_bytes=1000)
    last = report(
        10.0,
        vm(cpu_time_s=6.0, disk_read_bytes=60, disk_write_bytes=40),
        disk_busy_s=9.0,
        disk_read_bytes=1300,
        disk_write_bytes=1100,
    )

    found = window(before, last)

    assert found.alone["j#0"] == Reading(3.0, pytest.approx(1.0 / 1.3))  # type: ignore[arg-type]
    assert found.alone_s["j#0"] == pytest.approx(9.0 + 1.0 / 1.3)
    assert found.work_mcycles == {"j#0": 6000.0}


def test_time_that_the_hypervisor_tells_goes_before_bytes() -> None:
    before = report(0.0, vm(disk_time_s=1.0), disk_busy_s=5.0)
    last = report(10.0, vm(disk_time_s=5.0, disk_read_bytes=60), disk_busy_s=7.0, disk_read_bytes=60)

    assert window(before, last).alone["j#0"].io_s == 4.0


def test_networks_count_where_their_speed_is_known() -> None:
    """Given 50 MB received and 10 sent in 10 s over a link of 100 Mbit/s, then it was used for 4 s."""
    before, last = report(0.0, vm()), report(10.0, vm(net_rx_bytes=50_000_000, net_tx_bytes=10_000_000))

    assert window(before, last).alone["j#0"].net_s == 0.0
    assert window(before, last, network_mbit_per_s=100.0).alone["j#0"].net_s == pytest.approx(4.0)


def test_counters_that_go_back_and_more_seconds_than_there_were_do_no_harm() -> None:
    before = report(0.0, vm(cpu_time_s=50.0, disk_time_s=50.0), disk_busy_s=5.0)
    last = report(10.0, vm(cpu_time_s=10.0, disk_time_s=500.0), disk_busy_s=12.0)

    found = window(before, last)

    assert found.alone["j#0"] == Reading(0.0, 10.0)
    assert found.alone_s["j#0"] == 10.0
    assert found.work_mcycles == {"j#0": 0.0}
    found = window(report(0.0, vm()), report(10.0, vm(cpu_time_s=1e308)))
    assert found.work_mcycles == {"j#0": 20_000.0}


@pytest.mark.parametrize("other", [vm("k#0"), vm("k#0", VmState.PAUSED)])
def test_only_vms_that_run_throughout_tell_their_shares(other: VmStatus) -> None:
    before = report(0.0, vm(), other)
    last = report(10.0, vm(cpu_time_s=1.0), vm("k#0", VmState.SUSPENDED))

    assert bool(window(before, last).alone) is (other.state is not VmState.RUNNING)


def test_who_waits_for_the_cpu_tells_nothing_where_it_is_all_in_use() -> None:
    """Given a node whose CPU is all in use, then of a VM with less than it can use nothing is told; one that has all is
    heard."""
    before = report(0.0, vm(), vm("k#0", cpu_mhz=1000.0))
    last = report(10.0, vm(cpu_time_s=20.0), vm("k#0", cpu_mhz=1000.0, cpu_time_s=18.0))

    found = window(before, last)

    assert (set(found.alone), found.whole) == ({"j#0"}, False)
    assert set(window(before, last, max_mhz=1000.0).alone) == {"j#0", "k#0"}


@pytest.mark.parametrize("elapsed_s", [0.0, 0.5, WINDOW_MAX_S + 1.0])
def test_too_short_and_too_long_windows_say_nothing(elapsed_s: float) -> None:
    assert window(report(0.0, vm()), report(elapsed_s, vm(cpu_time_s=0.1))).alone == {}
