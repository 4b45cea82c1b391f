"""The lab's hosts: what they are and what can be done to them."""

from __future__ import annotations

import signal
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemons.config.controller import PowerExec, PowerKeys
from daemons.drivers.power.exec import ExecPower
from shared.base.clock import SystemClock
from shared.values.nodes import PowerOperation
from tests.lab.errors import LabError
from tests.lab.guest_sectors import burner
from tests.lab.hosts import Host, HostSpec, Lab, lab_hosts

pytestmark = [pytest.mark.full, pytest.mark.alone]

WATCH_S = 4.0
DOMAIN = """<domain type="qemu"><name>{name}</name>
<uuid>{uuid}</uuid><memory unit="MiB">{memory_mib}</memory><vcpu>1</vcpu>
<resource><partition>{partition}</partition></resource>
<os><type arch="x86_64" machine="pc">hvm</type><boot dev="hd"/></os><features><acpi/></features>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator>
<disk type="file" device="disk"><driver name="qemu" type="raw" cache="none"/><source file="{image}"/>
<target dev="hda" bus="ide"/><shareable/></disk>
<interface type="bridge"><source bridge="br0"/><mac address="52:54:00:00:00:{number:02x}"/>
<model type="e1000"/></interface>
<controller type="usb" model="none"/><video><model type="none"/></video><memballoon model="none"/></devices></domain>
"""
CLOCK = SystemClock()


@pytest.fixture(scope="module")
def lab(lab_tools: None) -> Iterator[Lab]:  # noqa: ARG001
    with lab_hosts(2, HostSpec(tls=True)) as running:
        burner(1_000_000, running.shared / "volumes")
        for host in running.hosts:
            host.make_pools()
        yield running


@pytest.fixture
def empty(lab: Lab) -> Iterator[tuple[Host, ...]]:
    """Hosts that have power and no guests, and are left so."""
    yield lab.hosts
    for host in lab.hosts:
        host.power_on()
        for name in host.virsh("list", "--name").split():
            host.virsh("destroy", name)
        for name in host.virsh("list", "--all", "--name").split():
            host.virsh("undefine", name)


def domain(host: Host, name: str, memory_mib: int = 16) -> str:
    """A file on all hosts that describes a guest of this host which burns CPU."""
    file = host.lab.shared / f"{name}-{host.name}.xml"
    image = host.lab.shared / "volumes/burner.img"
    identity = uuid.uuid5(uuid.NAMESPACE_OID, name)
    file.write_text(
        DOMAIN.format(
            name=name, uuid=identity, number=ord(name), memory_mib=memory_mib, partition=host.partition, image=image
        )
    )
    return str(file)


def reaches(host: Host) -> bool:
    """Whether this machine gets a connection to the host's libvirtd."""
    try:
        socket.create_connection((host.address, 16509), 0.5).close()
    except TimeoutError:
        return False
    return True


def boot_id(host: Host) -> str:
    return host.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout


def guest_pid(host: Host, name: str) -> str:
    """The process of a guest, as the host sees it."""
    return (host.folder / f"run/libvirt/qemu/{name}.pid").read_text()


def test_each_host_is_a_machine_of_its_own(lab: Lab) -> None:
    looks = [
        host.run(["cat", "/etc/hostname", "/proc/sys/kernel/random/boot_id", "/etc/machine-id"]).stdout.split()
        for host in lab.hosts
    ]

    assert [look[0] for look in looks] == ["h1", "h2"]
    assert all(one != other for one, other in zip(*looks, strict=True))


def test_hosts_reach_one_another_by_name_and_the_machine_reaches_them(lab: Lab) -> None:
    first, second = lab.hosts

    assert first.virsh("-c", "qemu+tcp://h2/system", "hostname") == "h2"
    assert first.virsh("-c", "qemu+tls://h2/system", "hostname") == "h2"
    assert second.virsh("-c", f"qemu+tls://{first.address}/system", "hostname") == "h1"
    assert second.virsh("-c", first.uri, "hostname") == "h1"
    assert all(reaches(host) for host in lab.hosts)
    assert first.virsh("pool-list", "--name").split() == ["default", "shared", "trimtab-saved"]


def test_the_guests_of_a_host_get_its_capacity_and_no_more(empty: tuple[Host, ...]) -> None:
    host, _ = empty
    for name in ("a", "b"):
        host.virsh("create", domain(host, name))
    before_s, began_s = host.cpu_used_s, CLOCK.monotonic_s()

    CLOCK.sleep(WATCH_S)

    used_frac = (host.cpu_used_s - before_s) / (CLOCK.monotonic_s() - began_s)
    # the machine may be too busy to give it all
    assert 0.4 * host.spec.cpus <= used_frac <= 1.1 * host.spec.cpus


def test_guests_live_on_when_libvirtd_is_killed(empty: tuple[Host, ...]) -> None:
    host, _ = empty
    host.virsh("create", domain(host, "a"))
    was, used_s = guest_pid(host, "a"), host.cpu_used_s

    host.kill_libvirtd()

    assert "refused" in host.run(["virsh", "list"], check=False).stderr
    CLOCK.sleep(1.0)
    assert host.cpu_used_s > used_s
    host.start_libvirtd()
    assert host.virsh("list", "--name") == "a"
    assert guest_pid(host, "a") == was


def test_a_guest_moves_between_hosts(empty: tuple[Host, ...]) -> None:
    first, second = empty
    first.virsh("create", domain(first, "a"))

    # libvirt cannot see that the folder is shared, hence --unsafe
    there = ("--xml", domain(second, "a"), "--unsafe", "a", "qemu+tls://h2/system")
    first.virsh("migrate", "--live", "--p2p", "--tls", *there)

    assert [host.virsh("list", "--name") for host in empty] == ["", "a"]
    CLOCK.sleep(1.0)
    assert second.cpu_used_s > 0.1


def test_nothing_gets_through_a_cut_network(lab: Lab) -> None:
    first, second = lab.hosts

    first.cut_network()

    try:
        assert [reaches(host) for host in lab.hosts] == [False, True]
        look = "import socket; socket.create_connection(('h1', 16509), 0.5)"
        assert "TimeoutError" in second.run(["python3", "-c", look], check=False).stderr
        assert first.virsh("uri") == "qemu:///system"
    finally:
        first.restore_network()
    assert [reaches(host) for host in lab.hosts] == [True, True]


def test_all_processes_of_a_host_die_with_its_power_and_its_disk_stays(empty: tuple[Host, ...]) -> None:
    _, host = empty
    boot = boot_id(host)
    host.virsh("define", domain(host, "a"))
    host.virsh("start", "a")
    daemon = host.popen(["sleep", "1000"])
    pids = [host.first_pid, host.libvirtd_pid, daemon.inner_pid]

    host.power_off()

    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    assert daemon.wait(1.0) == -signal.SIGKILL
    assert not host.has_power
    assert not reaches_soon(host)
    with pytest.raises(LabError, match="h2 has no power"):
        host.run(["true"])
    host.power_on()
    assert boot_id(host) != boot
    assert host.virsh("list", "--all", "--name") == "a"
    assert host.virsh("list", "--name") == ""
    assert host.virsh("pool-list", "--name").split() == ["default", "shared", "trimtab-saved"]
    assert reaches(host)


def reaches_soon(host: Host) -> bool:
    """As `reaches`, of a host that may not be there at all."""
    try:
        return reaches(host)
    except OSError:
        return False


def test_the_power_of_hosts_is_a_matter_for_the_driver_exec(empty: tuple[Host, ...]) -> None:
    lab, (_, host) = empty[0].lab, empty
    commands = PowerExec(fence=lab.power_command("fence"), wake=lab.power_command("wake"))
    driver = ExecPower(PowerKeys(driver="exec", exec=commands))

    fenced = driver.operate(PowerOperation.FENCE, "h2", [])
    again = driver.operate(PowerOperation.FENCE, "h2", [])
    off = not host.has_power
    woken = driver.operate(PowerOperation.WAKE, "h2", [])
    unknown = driver.operate(PowerOperation.FENCE, "h7", [])

    assert (fenced.ok, again.ok, off, woken.ok) == (True, True, True, True)
    host.wait_until_up()
    assert not unknown.ok
    assert "no host h7" in unknown.detail


def test_a_guest_that_is_too_large_for_the_address_space_does_not_start(empty: tuple[Host, ...]) -> None:
    _, host = empty
    host.stop_libvirtd()
    host.start_libvirtd(address_space_mib=1400)

    said = host.run(["virsh", "create", domain(host, "a", memory_mib=400)], check=False).stderr

    assert "Cannot allocate memory" in said
    host.stop_libvirtd()
    host.start_libvirtd()
    host.virsh("create", domain(host, "a", memory_mib=400))


def test_signals_reach_the_program_on_the_host(lab: Lab) -> None:
    """At once one after the other: what entered the host for the program follows each before the next."""
    host, _ = lab.hosts
    for _ in range(20):  # without that one in ten is lost
        ended = host.popen(["sh", "-c", "trap 'exit 7' TERM; while :; do sleep 0.01; done"])
        killed = host.popen(["sleep", "1000"])
        CLOCK.sleep(0.1)  # until the trap is set

        for process in (ended, killed):
            process.send_signal(signal.SIGSTOP)
            process.send_signal(signal.SIGCONT)
        ended.terminate()
        killed.send_signal(signal.SIGSTOP)
        killed.kill()

        assert (ended.wait(5.0), killed.wait(5.0)) == (7, -signal.SIGKILL)


def test_a_host_loses_power_while_a_program_on_it_is_stopped(empty: tuple[Host, ...]) -> None:
    """What entered the host for it is stopped too, and would keep the host from ending."""
    host, _ = empty
    stopped = host.popen(["sleep", "1000"])
    stopped.send_signal(signal.SIGSTOP)

    host.power_off()

    assert stopped.wait(5.0) == -signal.SIGKILL
    assert not host.has_power
