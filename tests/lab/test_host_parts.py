"""The parts of a lab's hosts that need neither root nor libvirt."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab import network, plan
from tests.lab.configuration import with_account
from tests.lab.errors import LabError
from tests.lab.hosts import HostSpec, lab_hosts
from tests.lab.namespaces import HostProcess, children, processes_with
from tests.lab.partitions import Partitions, find_partitions, folder_of

V2_FILES = ("cgroup.subtree_control", "cpu.max", "cpu.stat")


def mounted(place: Path, kind: str, options: str = "rw") -> str:
    return f"{kind} {place} {kind} {options} 0 0"


def test_the_hierarchies_of_version_1_are_found_with_that_of_version_2_beside_them(tmp_path: Path) -> None:
    cpu, accounts, unified = (tmp_path / name for name in ("cpu", "cpuacct", "unified"))
    lines = [
        mounted(tmp_path, "tmpfs"),
        mounted(cpu, "cgroup", "rw,cpu"),
        mounted(accounts, "cgroup", "rw,cpuacct"),
        mounted(tmp_path / "cpuset", "cgroup", "rw,cpuset"),
        mounted(unified, "cgroup2"),
    ]

    assert find_partitions(lines) == Partitions(1, cpu, accounts, unified)


def test_both_controllers_of_version_1_may_be_one_hierarchy(tmp_path: Path) -> None:
    found = find_partitions([mounted(tmp_path, "cgroup", "rw,cpu,cpuacct")])

    assert found == Partitions(1, tmp_path, tmp_path)
    assert found.roots == (tmp_path,)


@pytest.mark.parametrize(("controllers", "version"), [("cpuset cpu io\n", 2), ("memory pids\n", 0), ("\n", 0)])
def test_version_2_serves_where_it_has_the_cpu_controller(tmp_path: Path, controllers: str, version: int) -> None:
    (tmp_path / "cgroup.controllers").write_text(controllers)
    lines = [mounted(tmp_path, "cgroup2")]

    if version:
        assert find_partitions(lines) == Partitions(2, tmp_path)
    else:
        with pytest.raises(LabError, match="no cgroup hierarchy"):
            find_partitions(lines)


def test_a_machine_without_cgroups_says_so() -> None:
    with pytest.raises(LabError, match="hosts need CPU quotas"):
        find_partitions([])


def test_a_partition_of_version_2_hands_the_controller_down_and_has_the_quota(tmp_path: Path) -> None:
    group = tmp_path / "lab.partition/h1.partition"
    Partitions(2, tmp_path).make("/lab/h1", 0.5)

    handed = [folder / "cgroup.subtree_control" for folder in (tmp_path, group.parent, group)]
    assert [file.read_text() for file in handed] == ["+cpu"] * 3
    assert (group / "cpu.max").read_text() == "50000 100000"
    (group / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    assert Partitions(2, tmp_path).used_s("/lab/h1") == 2.5


def test_a_partition_of_version_1_is_made_in_every_hierarchy_and_has_the_quota(tmp_path: Path) -> None:
    roots = [tmp_path / name for name in ("cpu", "cpuacct", "unified")]
    for root in roots:
        root.mkdir()
    found = Partitions(1, *roots)

    found.make("/lab/h1", 1.5)
    found.make("/lab/h1", 1.5)

    cpu, accounts, unified = (root / "lab.partition/h1.partition" for root in roots)
    assert (cpu / "cpu.cfs_period_us").read_text() == "100000"
    assert (cpu / "cpu.cfs_quota_us").read_text() == "150000"
    for folder in (cpu, unified):
        (folder / "cpu.stat").write_text("nr_periods 0\n")
    (accounts / "cpuacct.usage").write_text("3000000000\n")
    assert found.used_s("/lab/h1") == 3.0
    (unified / "cpu.stat").write_text("usage_usec 4000000\n")
    assert found.used_s("/lab/h1") == 4.0


def test_a_kernel_that_takes_no_quota_is_an_error_that_says_where(tmp_path: Path) -> None:
    (tmp_path / "lab.partition/h1.partition/cpu.max").mkdir(parents=True)

    with pytest.raises(LabError, match=r"no CPU quota for /lab/h1 \(cgroup v2\)"):
        Partitions(2, tmp_path).make("/lab/h1", 1.0)


@pytest.mark.parametrize("name", ["", "/", "/lab//h1", "/lab.slice/h1", "/../h1"])
def test_other_names_than_a_labs_are_refused(name: str) -> None:
    with pytest.raises(LabError):
        folder_of(name)


def test_a_name_says_whether_the_lab_may_live() -> None:
    name = plan.new_name(1)
    pid, ticks, number = name.removeprefix(f"{plan.PREFIX}-").split("-")

    assert (int(pid), number) == (os.getpid(), "1")
    assert plan.runs(name)
    assert not plan.runs(f"{plan.PREFIX}-{pid}-{int(ticks) + 1}-1")
    assert not plan.runs(f"{plan.PREFIX}-0-0-1")
    assert not plan.runs("trimtab-other")


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    host = plan.HostPlan("h1", network.address(3, 1), "/lab/h1", HostSpec(cores=2, core_frac=0.25).cpus, ("--listen",))
    lab = plan.LabPlan("lab", (host,))

    lab.write(tmp_path)

    assert plan.read(tmp_path) == lab
    assert host.address == "10.99.3.11"
    assert network.address(3, 0) == "10.99.3.1"
    assert host.cpus == 0.5


@pytest.mark.parametrize("count", [0, network.HOSTS_MAX + 1])
def test_a_lab_has_some_hosts_and_not_too_many(count: int) -> None:
    with pytest.raises(LabError, match="has 1 to 80 hosts"), lab_hosts(count):
        pass


def test_a_program_that_has_ended_takes_no_signals() -> None:
    process = HostProcess([sys.executable, "-c", ""])
    process.wait()

    process.kill()

    with pytest.raises(LabError, match="has started nothing: status 0"):
        assert process.inner_pid


def test_processes_are_found_by_whole_arguments() -> None:
    words = ["sh", "-c", "echo up; read line", "1000", "0"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            assert process.pid in children(os.getpid())
            assert process.pid in processes_with("1000", "0")
            assert process.pid not in processes_with("100")
        finally:
            process.kill()
    assert children(process.pid) == ()


def test_a_host_has_the_account_that_libvirtd_looks_up_once() -> None:
    """No package of the lab makes it, and the machine may have it from another one."""
    lacking = "root:x:0:0::/root:/bin/sh\n"

    once = with_account(lacking, "libvirt-qemu:x:64055:64055::/:/x")

    assert once == f"{lacking}libvirt-qemu:x:64055:64055::/:/x\n"
    assert with_account(once, "libvirt-qemu:x:1:1::/:/x") == once
