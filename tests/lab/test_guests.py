"""The guests at work: by QEMU alone, which needs no root, and moved between hosts of a lab by virsh."""

from __future__ import annotations

import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.integration import debian
from tests.lab import guest_disk, guest_linux, guest_sectors
from tests.lab.guest_linux import WebFiles, web_guest
from tests.lab.guest_output import output, requests_served, units_done
from tests.lab.guest_sectors import burner, emulator, reader, running, turns_per_cpu_s, turns_per_read
from tests.lab.guests import TEMPLATES, Kind, Places, domain_xml, serial_file, templates
from tests.lab.hosts import Host, HostSpec, Lab, lab_hosts
from tests.ports import free_ports

pytestmark = [pytest.mark.full, pytest.mark.alone]
LIMIT_S = 60.0
LOOK_S = 0.02
WEB_READY_S = 30.0  # 3 s of CPU time, on a machine that others use too


def wait_until(met: Callable[[], object], what: str) -> None:
    until_s = time.monotonic() + LIMIT_S
    while not met():
        assert time.monotonic() < until_s, f"not within {LIMIT_S} s: {what}"
        time.sleep(LOOK_S)


def cpu_wanted(pid: int, over_s: float) -> float:
    """Which part of the time that others left it the busiest thread of an emulator, which is the guest, used a CPU."""

    def look() -> dict[Path, tuple[float, float]]:
        """What each thread has used, and how long it has waited for a CPU."""
        files = Path(f"/proc/{pid}/task").glob("*/schedstat")
        return {file: (float(used), float(waited)) for file in files for used, waited, _ in [file.read_text().split()]}

    before, before_s = look(), time.monotonic()
    time.sleep(over_s)
    after, after_s = look(), time.monotonic()
    both = before.keys() & after.keys()
    changes = [(after[file][0] - before[file][0], after[file][1] - before[file][1]) for file in both]
    used_ns, waited_ns = max(changes)
    return used_ns / ((after_s - before_s) * 1e9 - waited_ns)


def page(url: str, limit_s: float = LIMIT_S) -> str:
    """What a page has, as soon as it can be had."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    until_s = time.monotonic() + limit_s
    while True:
        try:
            with direct.open(url, timeout=2) as answer:
                return str(answer.read(), "utf-8")
        except OSError:
            if time.monotonic() > until_s:
                raise
            time.sleep(LOOK_S)


@pytest.fixture(scope="module", autouse=True)
def emulators() -> None:
    debian.need_programs([guest_sectors.EMULATOR], guest_sectors.EMULATOR_PACKAGES)


@pytest.fixture(scope="module")
def web() -> WebFiles:
    return web_guest()


# By QEMU alone


def test_a_burner_does_its_work_and_powers_off(tmp_path: Path) -> None:
    serial = tmp_path / "serial"
    boot = burner(12, tmp_path, unit_turns=1_000_000)

    subprocess.run(emulator(boot, serial), check=True, timeout=LIMIT_S)
    assert output(serial).fault(12) == ""


def test_the_units_of_a_domain_go_before_those_of_its_image(tmp_path: Path) -> None:
    serial = tmp_path / "serial"
    boot = burner(12, tmp_path, unit_turns=1000)

    subprocess.run(emulator(boot, serial, units=10_203), check=True, timeout=LIMIT_S)
    assert output(serial).fault(10_203) == ""


def test_a_burner_wants_a_whole_cpu(tmp_path: Path) -> None:
    serial = tmp_path / "serial"
    boot = burner(1_000_000, tmp_path)

    with running(emulator(boot, serial)) as guest:
        wait_until(lambda: units_done([serial]), "the first unit")
        assert cpu_wanted(guest.pid, 2.0) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("heeds", [True, False])
def test_the_power_button_ends_a_burner_that_heeds_it(tmp_path: Path, heeds: bool) -> None:
    serial = tmp_path / "serial"
    boot = burner(60, tmp_path, unit_turns=10_000_000, heeds=heeds)

    with running(emulator(boot, serial, options=["-monitor", "stdio"])) as guest:
        wait_until(lambda: units_done([serial]), "the first unit")
        guest.communicate("system_powerdown\n", timeout=LIMIT_S)
    done = output(serial)
    assert done.ends == (0 if heeds else 1)
    assert (len(done.missing(60)) > 0) is heeds


def test_nothing_is_lost_where_output_is_taken_late(tmp_path: Path) -> None:
    units = 20_000
    boot = burner(units, tmp_path, unit_turns=1)

    with running(emulator(boot, None)) as guest:
        assert guest.stdout is not None
        first = guest.stdout.readline()
        time.sleep(1)  # by then the pipe is full
        (tmp_path / "serial").write_text(first + guest.stdout.read())
    assert output(tmp_path / "serial").fault(units) == ""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    with running(guest_disk.command(path, service_ms=5)) as serving:
        guest_disk.wait_for(path, serving)
        yield path


def test_a_reader_has_the_loading_vector_that_it_is_asked_for(tmp_path: Path, disk: Path) -> None:
    turns_per_s = turns_per_cpu_s()
    serial = tmp_path / "serial"
    boot = reader(1_000_000, tmp_path, unit_reads=20, read_turns=turns_per_read(0.2, 0.8, turns_per_s, 0.005))

    with running(emulator(boot, serial, disk=disk)) as guest:
        wait_until(lambda: units_done([serial]), "the first unit")
        assert cpu_wanted(guest.pid, 3.0) == pytest.approx(0.2, abs=0.1)


def test_readers_of_one_disk_wait_for_one_another(tmp_path: Path, disk: Path) -> None:
    boot = reader(2, tmp_path, unit_reads=100)
    took_s = []
    for count in (1, 3):
        serials = [tmp_path / f"serial-{count}-{number}" for number in range(count)]
        begin_s = time.monotonic()
        guests = [subprocess.Popen(emulator(boot, serial, disk=disk)) for serial in serials]
        assert [guest.wait(LIMIT_S) for guest in guests] == [0] * count
        took_s.append(time.monotonic() - begin_s)
        assert [output(serial).fault(2) for serial in serials] == [""] * count

    # 200 reads of 5 ms each, one after the other
    assert took_s[0] >= 1.0
    assert took_s[1] >= 3.0


def test_a_web_guest_serves_and_heeds_its_power_button(tmp_path: Path, web: WebFiles) -> None:
    serial = tmp_path / "serial"
    (port,) = free_ports(1)

    with running(web_emulator(web, serial, port)) as guest:
        begin_s = time.monotonic()
        assert page(f"http://127.0.0.1:{port}/up", WEB_READY_S) == "up\n"
        print(f"first answer after {time.monotonic() - begin_s:.1f} s")
        assert page(f"http://127.0.0.1:{port}/") == "10.0.2.15/24 100\n"
        assert page(f"http://127.0.0.1:{port}/?turns=3") == "10.0.2.15/24 3\n"
        assert requests_served([serial]) == 2
        guest.communicate("system_powerdown\n", timeout=LIMIT_S)
    assert "Power down" in serial.read_text()


def web_emulator(web: WebFiles, serial: Path, port: int) -> list[str]:
    """The command of QEMU alone that runs a web guest, reached at a port of this machine."""
    values = {"address": "10.0.2.15", "lab.prefix": "24", "lab.gateway": "", "argument.0": "100"}
    words = ElementTree.fromstring(domain_xml(TEMPLATES / "web.xml", values)).findtext("os/cmdline", "")
    return [
        *(guest_sectors.EMULATOR, "-machine", "pc", "-accel", "tcg", "-m", str(guest_linux.MEMORY_MIB)),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-monitor", "stdio"),
        *("-kernel", str(web.kernel), "-initrd", str(web.initrd), "-append", words),
        *("-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{port}-:80", "-device", "virtio-net-pci,netdev=net,romfile="),
        *("-chardev", f"file,id=serial,path={serial},append=on", "-serial", "chardev:serial"),
    ]


# In a lab, by virsh


@pytest.fixture(scope="module")
def lab(lab_tools: None) -> Iterator[Lab]:  # noqa: ARG001
    with lab_hosts(2, HostSpec(core_frac=1.0)) as running_lab:
        yield running_lab


@pytest.fixture(scope="module")
def places(lab: Lab, web: WebFiles) -> Places:
    serial = lab.shared / "serial"
    serial.mkdir()
    return Places(serial, web=web)


@pytest.fixture(scope="module")
def kinds(lab: Lab, places: Places) -> dict[Kind, Path]:
    return templates(lab.shared, places)


def domain(lab: Lab, template: Path, vm: str, **values: str) -> str:
    """The file of a VM's domain XML, on all hosts."""
    file = lab.shared / f"{vm}.xml"
    words = {name.replace("_0", ".0"): value for name, value in values.items()}
    file.write_text(domain_xml(template, {"vm": vm, "memory_mib": "16", "vcpus": "1", **words}))
    return str(file)


def move(vm: str, source: Host, target: Host) -> None:
    """Move a VM while it runs. Its disk is on storage that all hosts share, which libvirt cannot know."""
    source.virsh("migrate", "--live", "--p2p", "--unsafe", vm, f"qemu+tcp://{target.address}/system")


def test_work_is_done_exactly_once_however_often_a_guest_is_moved(
    lab: Lab, places: Places, kinds: dict[Kind, Path]
) -> None:
    first, second = lab.hosts
    serial, saved, units = serial_file(places, "job#0"), str(lab.shared / "job#0.saved"), 1500
    boot = burner(1, lab.shared, unit_turns=2_000_000)

    def go_on() -> None:
        before = len(units_done([serial]))
        wait_until(lambda: len(units_done([serial])) > before, "more units")

    first.virsh("create", domain(lab, kinds[Kind.BURNER], "job#0", argument_0=str(units), volume=str(boot)))
    go_on()
    first.virsh("save", "job#0", saved)
    first.virsh("restore", saved)
    go_on()
    move("job#0", first, second)
    go_on()
    second.virsh("save", "job#0", saved)
    first.virsh("restore", saved)
    go_on()
    move("job#0", first, second)
    assert len(units_done([serial])) < units
    wait_until(lambda: second.virsh("list", "--all") == "", "its end")
    assert output(serial).fault(units) == ""
    assert first.virsh("list", "--all") == ""


def test_the_end_of_a_burner_is_a_shutdown_by_the_guest(lab: Lab, places: Places, kinds: dict[Kind, Path]) -> None:
    host = lab.hosts[0]
    boot = burner(1, lab.shared, unit_turns=1000, name="short.img")

    host.virsh("define", domain(lab, kinds[Kind.BURNER], "short#0", argument_0="3", volume=str(boot)))
    host.virsh("start", "short#0")
    wait_until(lambda: host.virsh("domstate", "short#0", "--reason") == "shut off (shutdown)", "its end")
    host.virsh("undefine", "short#0")
    assert output(serial_file(places, "short#0")).fault(3) == ""


def test_a_reader_reads_the_disk_of_the_host_that_it_is_on(lab: Lab, places: Places, kinds: dict[Kind, Path]) -> None:
    first, second = lab.hosts
    serial = serial_file(places, "reads#0")
    boot = reader(1, lab.shared, unit_reads=10)
    disks = [host.popen(guest_disk.command(places.disk, service_ms=2)) for host in lab.hosts]
    for host, disk_process in zip(lab.hosts, disks, strict=True):
        guest_disk.wait_for(Path(f"/proc/{host.first_pid}/root{places.disk}"), disk_process)

    first.virsh("create", domain(lab, kinds[Kind.READER], "reads#0", argument_0="200", volume=str(boot)))
    wait_until(lambda: units_done([serial]), "the first unit")
    move("reads#0", first, second)
    disks[0].kill()
    disks[0].wait()
    wait_until(lambda: second.virsh("list", "--all") == "", "its end")
    disks[1].kill()
    disks[1].wait()
    assert output(serial).fault(200) == ""


def test_a_web_guest_serves_on_when_it_is_moved(lab: Lab, places: Places, kinds: dict[Kind, Path]) -> None:
    first, second = lab.hosts
    address = f"10.99.{lab.number}.100"
    file = domain(lab, kinds[Kind.WEB], "web#0", argument_0="10", address=address, memory_mib="96")

    first.virsh("create", file)
    assert page(f"http://{address}/up", WEB_READY_S) == "up\n"
    assert page(f"http://{address}/") == f"{address}/24 10\n"
    move("web#0", first, second)
    assert page(f"http://{address}/") == f"{address}/24 10\n"
    assert requests_served([serial_file(places, "web#0")]) == 2
    second.virsh("shutdown", "web#0")
    wait_until(lambda: second.virsh("list", "--all") == "", "its end")
