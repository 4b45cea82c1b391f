"""What fails in a lab while VMs of a cluster move, are saved and work: none is lost, none runs twice, all converges.

A guest prints each unit of its work once: two lives of one VM at the same time, or one that goes back, would show.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.integration.harness import CLOCK, Process, Section
from tests.integration.scene import LIMIT_S, SOON_S, log_lines
from tests.lab.cluster import BALLAST_MIB, MEMORY_MIB, Cluster, cluster
from tests.lab.hosts import Host, HostSpec

pytestmark = [pytest.mark.full, pytest.mark.alone]

SPEC = HostSpec(cores=1, core_mhz=1000.0, core_frac=0.4, memory_mib=512)
ENDLESS = 100_000
LARGE_MIB = 400
ENDS_UNITS = 20  # 25 s of work
LOOK_S = 0.001
CUT_S = 60.0
STAYS_S = 3.0  # how long it is watched that nothing happens
BY_HAND = ("--live", "--p2p", "--unsafe", "--persistent", "--undefinesource")
MIGRATION = {"peer": "qemu+tcp://{host}/system", "data": "tcp://{host}", "tls": False, "bandwidth_mib_per_s": 2}
AGENT: dict[str, Section] = {"libvirt": {"migration": MIGRATION}}
CONTROLLER: dict[str, Section] = {"power": {"driver": "none"}}


@pytest.fixture(scope="module")
def made() -> Iterator[Cluster]:
    """Three hosts; a laden guest takes some ten seconds to move."""
    with cluster(3, SPEC, controller=CONTROLLER, agent=AGENT) as whole:
        yield whole


@pytest.fixture
def town(made: Cluster) -> Iterator[Cluster]:
    """With nothing on it, before and after."""
    yield made
    for job in made.do("jobs", "list", "--output", "json").data["jobs"]:
        if job["phase"] not in ("completed", "cancelled"):
            made.do("jobs", "cancel", job["name"])
    made.wait_for(lambda: not any(defined(host) for host in made.hosts.hosts), LIMIT_S, "all VMs to be gone")


def defined(host: Host) -> list[str]:
    """The VMs that its libvirtd knows, running or not."""
    return host.virsh("list", "--all", "--name").split()


def begin(town: Cluster, job: str, units: int = ENDLESS, **keys: Any) -> tuple[str, str]:
    """Submit a job of one laden guest, unless `keys` say another, and wait until it works: its VM, and its host."""
    memory_mib = keys.pop("memory_mib", MEMORY_MIB)
    file = town.burner_file(job, units, **{"template": "laden", **keys})
    file.write_text(file.read_text().replace(f"memory_mib = {MEMORY_MIB}", f"memory_mib = {memory_mib}"))
    town.do("jobs", "submit", str(file))
    vm = f"{job}#0"
    home = town.running(vm)[vm]
    works_on(town, vm)
    return vm, home


def other(town: Cluster, *nodes: str) -> str:
    """A host that is none of these."""
    return next(name for name in town.lab.hosts if name not in nodes)


def works_on(town: Cluster, vm: str, lives: int = 1) -> None:
    """Wait until the guest has done two units more: in its last life, each unit of every life once and in order."""

    def done() -> int:
        printed = town.printed(vm)
        assert not printed.stray, printed
        assert all(run == tuple(range(1, len(run) + 1)) for run in printed.runs), printed
        assert len(printed.runs) <= lives, printed
        return len(printed.runs[-1]) if len(printed.runs) == lives else 0

    before = done()
    town.wait_for(lambda: done() >= before + 2, LIMIT_S, f"work of {vm}")


def instance(town: Cluster, vm: str) -> dict[str, Any]:
    """What the controller knows of a VM, and wants of it."""
    (found,) = [one for one in town.job(vm.split("#")[0])["instance_list"] if one["vm"] == vm]
    return dict(found)


def agreed(town: Cluster, vm: str, home: str, state: str = "running") -> None:
    """Wait until the VM is wanted there, is known there, and is there by the word of every host's libvirtd."""

    def same() -> bool:
        seen = instance(town, vm)
        wanted = seen["wanted_node"] if state == "running" else home
        known = (seen["node"], wanted, seen["state"], seen["action"]) == (home, home, state, "")
        truly = {host.name: defined(host) for host in town.hosts.hosts if vm in defined(host)}
        return known and list(truly) == [home] and town.homes() == ({vm: home} if state == "running" else {})

    town.wait_for(same, LIMIT_S, f"{vm} {state} on {home}, known, wanted and seen")


def outcomes(town: Cluster, kind: str, vm: str) -> list[str]:
    """How the operations of a kind on a VM ended, as the controller was told."""
    lines = log_lines(town.lab.controllers["c1"])
    ends = [line for line in lines if line["event"] == "result received"]
    return [line["outcome"] for line in ends if (line["kind"], line["vm"]) == (kind, vm)]


def happened(town: Cluster, what: str, subject: str) -> list[str]:
    """Details of such events in the controller's log, which has them also while there is no broker."""
    lines = log_lines(town.lab.controllers["c1"])
    found = [line for line in lines if line["event"] == "happened"]
    return [line.get("detail", "") for line in found if (line["what"], line["subject"]) == (what, subject)]


def again(town: Cluster, what: str, subject: str) -> Callable[[], bool]:
    """Whether that has happened since this was called."""
    before = len(happened(town, what, subject))
    return lambda: len(happened(town, what, subject)) > before


def alarms(town: Cluster) -> set[tuple[str, str]]:
    """What is wrong now, and with what."""
    return {(one["what"], one["subject"]) for one in town.do("status", "--output", "json").data["alarms"]}


def ordered(town: Cluster, kind: str, vm: str) -> list[str]:
    """The nodes that were told to do that, in order."""
    return [order["node"] for order in town.orders(vm) if order["kind"] == kind]


def arriving(town: Cluster, vm: str, source: str) -> str:
    """Wait until a VM is on its way; to where."""
    hosts = [host for host in town.hosts.hosts if host.name != source]
    return town.wait_for(lambda: next((host.name for host in hosts if vm in defined(host)), ""), SOON_S, "a move")


def emulators(town: Cluster, vm: str) -> list[int]:
    """The processes that are this VM."""
    disk = f"{town.hosts.shared}/volumes/{vm}.".encode()
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError, NotADirectoryError):
            if folder.name.isdigit() and disk in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


# --- libvirtd --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whose", ["source", "target"])
def test_a_libvirtd_killed_during_a_migration(whose: str, town: Cluster) -> None:
    """The migration comes to nothing: the VM works on where it is, and is wanted there."""
    vm, source = begin(town, f"moves-{whose}")
    wanted = other(town, source)
    town.do("vms", "migrate", vm, wanted)
    assert arriving(town, vm, source) == wanted
    victim = town.lab.hosts[source if whose == "source" else wanted]
    victim.kill_libvirtd()
    victim.start_libvirtd()

    town.wait_for(lambda: outcomes(town, "migrate", vm), LIMIT_S, "how it ended")
    assert outcomes(town, "migrate", vm) == ["failed"]
    agreed(town, vm, source)
    works_on(town, vm)
    assert ordered(town, "start", vm) == [source]


# --- an agent --------------------------------------------------------------------------------------------------------


def test_an_agent_killed_during_a_suspend(town: Cluster) -> None:
    """QEMU stands still in the middle of writing the image: what is there, half, is not taken for one."""
    vm, home = begin(town, "sleeper")
    (emulator,) = emulators(town, vm)
    agent, saved = town.lab.agents[home], town.hosts.shared / "saved"
    with ThreadPoolExecutor(1) as watcher:
        frozen = watcher.submit(freeze_when_saved, emulator, saved, vm)
        town.do("vms", "suspend", "sleeper")
        frozen.result(SOON_S)
    agent.kill()
    agent.start()
    town.wait_for(lambda: times(agent, "connected to libvirt") > 1, SOON_S, "the new agent")
    town.watch(STAYS_S, lambda: len(emulators(town, vm)) == 1, "one VM, half saved")
    os.kill(emulator, signal.SIGCONT)

    agreed(town, vm, home, "suspended")
    assert not emulators(town, vm)
    done = town.printed(vm)
    town.do("vms", "resume", "sleeper")
    agreed(town, vm, town.running(vm)[vm])
    works_on(town, vm)
    assert town.printed(vm).runs[0][: len(done.runs[0])] == done.runs[0]
    assert ordered(town, "start", vm) == [home]
    town.wait_for(lambda: not list(saved.glob(f"{vm}*")), SOON_S, "the removal of the image")


def freeze_when_saved(emulator: int, saved: Path, vm: str) -> None:
    """Stop the process of a VM when its image has begun to grow."""
    until_s = CLOCK.monotonic_s() + SOON_S
    while not any(file.stat().st_size for file in saved.glob(f"{vm}*")):
        assert CLOCK.monotonic_s() < until_s, "nothing was saved"
        CLOCK.sleep(LOOK_S)
    os.kill(emulator, signal.SIGSTOP)


def times(process: Process, event: str) -> int:
    """How often a log has an event."""
    return sum(line["event"] == event for line in log_lines(process))


# --- the broker ------------------------------------------------------------------------------------------------------


def test_a_broker_killed_during_a_migration_and_while_a_job_ends(town: Cluster) -> None:
    """Both go on without it, and are told when it is back."""
    town.submit_burner("ends", units=ENDS_UNITS)
    vm, source = begin(town, "moves")
    target = other(town, source, town.homes()["ends#0"])
    town.do("vms", "migrate", vm, target)
    assert arriving(town, vm, source) == target
    town.kill_broker()
    assert not happened(town, "job-completed", "ends")
    town.wait_for(lambda: town.homes() == {vm: target}, LIMIT_S, "the end of the move and of the job")
    assert not outcomes(town, "migrate", vm)
    town.broker.start()

    town.wait_for(lambda: happened(town, "job-completed", "ends"), LIMIT_S, "word of the job's end")
    assert town.printed("ends#0").fault(ENDS_UNITS) == ""
    agreed(town, vm, target)
    works_on(town, vm)
    town.wait_for(lambda: outcomes(town, "migrate", vm), LIMIT_S, "word of the move's end")
    assert outcomes(town, "migrate", vm) == ["ok"]
    assert [len(ordered(town, "start", one)) for one in (vm, "ends#0")] == [1, 1]


# --- memory and disks ------------------------------------------------------------------------------------------------


def test_a_target_without_memory(town: Cluster) -> None:
    """The VM works on at its source, it is told why, and its host is emptied to another one."""
    vm, source = begin(town, "large", memory_mib=LARGE_MIB)
    poor = town.lab.hosts[other(town, source)]
    poor.stop_libvirtd()
    poor.start_libvirtd(address_space_mib=LARGE_MIB + 1000)
    try:
        town.do("vms", "migrate", vm, poor.name)
        town.wait_for(lambda: outcomes(town, "migrate", vm), LIMIT_S, "how it ended")
        assert outcomes(town, "migrate", vm) == ["no-room"]
        assert "Cannot allocate memory" in happened(town, "action-failed", vm)[0]
        agreed(town, vm, source)
        works_on(town, vm)
        town.do("nodes", "drain", source)
        town.wait_for(lambda: town.homes().get(vm, source) != source, LIMIT_S, "another way")
    finally:
        town.run("nodes", "undrain", source)
        poor.stop_libvirtd()
        poor.start_libvirtd()
    agreed(town, vm, other(town, source, poor.name))
    works_on(town, vm)
    assert ordered(town, "start", vm) == [source]


def test_a_disk_of_saved_images_that_is_full(town: Cluster) -> None:
    """The VM works on, it is told why, and it is saved when there is room."""
    vm, home = begin(town, "dreamer")
    saved = str(town.hosts.shared / "saved")
    host = town.lab.hosts[home]
    host.run(["mount", "-t", "tmpfs", "-o", f"size={BALLAST_MIB // 4}m", "full", saved])
    try:
        town.do("vms", "suspend", "dreamer")
        town.wait_for(lambda: outcomes(town, "suspend", vm), LIMIT_S, "how it ended")
        assert outcomes(town, "suspend", vm) == ["failed"]
        assert "No space left" in happened(town, "action-failed", vm)[0]
        works_on(town, vm)
    finally:
        host.run(["umount", saved])
    agreed(town, vm, home, "suspended")
    town.do("vms", "resume", "dreamer")
    agreed(town, vm, town.running(vm)[vm])
    works_on(town, vm)
    assert ordered(town, "start", vm) == [home]


# --- other hands -----------------------------------------------------------------------------------------------------


def test_what_somebody_does_to_a_vm(town: Cluster) -> None:
    """It is told and left alone, until an operator says that hands are free again."""
    vm, first = begin(town, "touched", template="burner")
    second = other(town, first)
    hosts = town.lab.hosts
    hosts[first].virsh(
        "migrate", "--live", "--p2p", "--unsafe", "--persistent", "--undefinesource", vm, hosts[second].uri
    )
    told(town, "moved-externally", vm)
    agreed(town, vm, second)
    works_on(town, vm)
    town.do("vms", "reconcile", vm)
    hosts[second].virsh("suspend", vm)
    told(town, "paused-externally", vm)
    orders = town.orders(vm)
    town.watch(STAYS_S, lambda: town.orders(vm) == orders, "nothing is done")
    town.do("vms", "reconcile", vm)
    agreed(town, vm, second)
    works_on(town, vm)
    hosts[second].virsh("destroy", vm)
    told(town, "stopped-externally", vm)
    town.watch(STAYS_S, lambda: not town.homes(), "nothing is done")
    town.do("vms", "reconcile", vm)
    third = town.running(vm)[vm]
    works_on(town, vm, lives=2)
    agreed(town, vm, third)
    assert ordered(town, "start", vm) == [first, third]


def told(town: Cluster, what: str, vm: str) -> None:
    """Wait until it was told, once, and is an alarm."""
    town.wait_for(lambda: happened(town, what, vm), LIMIT_S, what)
    assert len(happened(town, what, vm)) == 1
    assert (what, vm) in alarms(town)


# --- the network -----------------------------------------------------------------------------------------------------


def test_a_host_that_is_cut_off_for_a_minute(town: Cluster) -> None:
    """Its VM works on there and is started nowhere else; what ended meanwhile is told afterwards."""
    vm, home = begin(town, "silent")
    host = town.lab.hosts[home]
    silent, up = again(town, "node-unreachable", home), again(town, "node-up", home)
    host.cut_network()
    until_s = CLOCK.monotonic_s() + CUT_S
    town.wait_for(silent, SOON_S, "the host to be missed")
    before = len(town.printed(vm).runs[0])
    town.watch(until_s - CLOCK.monotonic_s(), lambda: town.homes() == {vm: home}, "one VM on a silent host")
    assert len(town.printed(vm).runs[0]) > before
    host.restore_network()

    town.wait_for(up, LIMIT_S, "the host to be back")
    agreed(town, vm, home)
    works_on(town, vm)
    assert ordered(town, "start", vm) == [home]
    assert len(town.orders(vm)) == 1


def test_a_host_that_is_cut_off_and_fenced(town: Cluster) -> None:
    """Once it is proven off its VM is started elsewhere, once; when the host is back nothing of it runs there."""
    fence(town)
    vm, home = begin(town, "fenced")
    host = town.lab.hosts[home]
    host.cut_network()
    new = town.wait_for(lambda: elsewhere(town, vm, home), LIMIT_S, "another host")
    assert happened(town, "node-off", home)
    assert not host.has_power
    first_life = town.printed(vm).runs[0]
    works_on(town, vm, lives=2)
    town.lab.power_on(home)

    town.wait_for(lambda: happened(town, "node-rebooted", home), LIMIT_S, "the host to be back")
    agreed(town, vm, new)
    works_on(town, vm, lives=2)
    assert town.printed(vm).runs[0] == first_life
    assert ordered(town, "start", vm) == [home, new]


def fence(town: Cluster) -> None:
    """The controller begins anew with a power driver that proves hosts off."""
    controller = town.lab.controllers["c1"]
    file = town.lab.folder / "controller-c1.toml"
    file.write_text(file.read_text().replace('driver = "none"', 'driver = "exec"'))
    ups = [again(town, "node-up", node) for node in town.lab.nodes]
    controller.stop()
    controller.start()
    town.wait_for(lambda: all(up() for up in ups), LIMIT_S, "all nodes")


def elsewhere(town: Cluster, vm: str, node: str) -> str:
    """Where a VM runs that is not this node."""
    home = town.homes().get(vm, node)
    return "" if home == node else home
