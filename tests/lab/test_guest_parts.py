"""The parts of guests that need no emulator: their output, templates, images and initramfs."""

from __future__ import annotations

import gzip
import io
import struct
from pathlib import Path
from xml.etree import ElementTree

import pytest

from agents.hypervisors.libvirt.templates import check, filled, read_all
from shared.config.agent import LibvirtTemplate
from shared.values.vms import VmSpec
from tests.lab import guest_linux, guest_sectors
from tests.lab.guest_linux import WebFiles
from tests.lab.guest_output import Output, output, requests_served, units_done
from tests.lab.guests import Kind, Places, domain_xml, templates

WEB = WebFiles(Path("/k"), Path("/i"), ())
VM = {"vm": "a<b#0", "memory_mib": "16", "vcpus": "1", "argument.0": "7", "volume": "/v&w", "address": "10.0.0.1"}


def written(folder: Path, text: str) -> Path:
    file = folder / "vm#0.log"
    file.write_text(text)
    return file


def test_work_that_is_whole_has_no_fault(tmp_path: Path) -> None:
    file = written(tmp_path, "start\n0001\n0002\r\n0003\nend\n")

    assert output(file) == Output(((1, 2, 3),), 1, ())
    assert output(file).fault(3) == ""
    assert units_done([file, file]) == [1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("start\n0001\n0003\nend\n", "missing (2,), doubled ()"),
        ("start\n0001\n0001\n0002\n0003\nend\n", "missing (), doubled (1,)"),
        ("start\n0001\nstart\n0001\n0002\n0003\nend\n", "2 runs and 1 ends; missing (), doubled (1,)"),
        ("start\n0001\n0002\n0003\n", "1 runs and 0 ends; missing ()"),
        ("start\n0001\n0002\n0003\nend", "1 runs and 0 ends; missing ()"),
        ("start\n0001\n00020002\n\n0003\nend\n", "missing (2,), doubled (), stray ('',)"),
        ("start\n0002\n0001\n0003\nend\n", "missing (), doubled (), stray (), in order ((2, 1, 3),)"),
        ("0001\nstart\n0001\n0002\n0003\nend\n", "stray ('0001',)"),
    ],
)
def test_work_that_is_not_done_once_says_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    assert words in output(written(tmp_path, text)).fault(3)


def test_a_guest_that_never_started_has_done_nothing(tmp_path: Path) -> None:
    absent = tmp_path / "absent.log"

    assert output(absent).missing(2) == (1, 2)
    assert units_done([absent]) == []


def test_requests_are_counted_among_what_the_kernel_prints(tmp_path: Path) -> None:
    assert requests_served([written(tmp_path, "[ 1.0] unserved\r\nready\r\nserved\r\nserved\r\nserv")]) == 2


def test_templates_are_filled_in_as_values_not_as_text(tmp_path: Path) -> None:
    files = templates(tmp_path, Places(Path("/serial"), web=WEB, ballast=Path("/ballast")))

    assert set(files) == set(Kind)
    for file in files.values():
        left = domain_xml(file, VM)
        assert "{" not in left
        assert ElementTree.fromstring(left).findtext("name") == "a<b#0"
    volume = ElementTree.fromstring(domain_xml(files[Kind.BURNER], VM)).find("devices/disk/source")
    assert volume is not None
    assert volume.get("file") == "/v&w"


def test_the_driver_takes_the_templates_and_fills_them_in(tmp_path: Path) -> None:
    files = templates(tmp_path, Places(Path("/serial"), web=WEB, ballast=Path("/ballast")))
    keys = {
        Kind.BURNER: LibvirtTemplate(str(files[Kind.BURNER]), volume="burner.img"),
        Kind.LADEN: LibvirtTemplate(str(files[Kind.LADEN]), volume="burner.img"),
        Kind.READER: LibvirtTemplate(str(files[Kind.READER]), volume="reader.img"),
        Kind.WEB: LibvirtTemplate(str(files[Kind.WEB]), first_address="10.0.0.1"),
    }
    spec = VmSpec("a<b#0", 1, 1, memory_mib=16, vcpus=1, cpu_mhz=500.0, arguments=("7",))

    for kind, template in read_all({str(kind): key for kind, key in keys.items()}).items():
        check(template, spec)
        made = ElementTree.tostring(filled(template, spec, "h1", "/v&w"), encoding="unicode")
        for path in ("devices/serial/source", "devices/disk/source", "sysinfo/entry", "os/cmdline"):
            mine = ElementTree.fromstring(domain_xml(files[Kind(kind)], VM)).find(path)
            its = ElementTree.fromstring(made).find(path)
            assert (mine is None) == (its is None)
            assert mine is None or its is None or (mine.attrib, mine.text) == (its.attrib, its.text)


def test_a_lab_without_files_for_them_has_no_template_of_web_and_laden_guests(tmp_path: Path) -> None:
    assert set(templates(tmp_path, Places(Path("/serial")))) == {Kind.BURNER, Kind.READER}


def test_what_guests_print_is_kept_when_they_start_again(tmp_path: Path) -> None:
    for file in templates(tmp_path, Places(Path("/serial"), web=WEB, ballast=Path("/ballast"))).values():
        source = ElementTree.fromstring(file.read_text()).find("devices/serial/source")
        assert source is not None
        assert source.attrib == {"path": "/serial/{vm}.log", "append": "on"}


def test_a_unit_is_as_many_turns_as_asked(tmp_path: Path) -> None:
    sector = guest_sectors.burner(5, tmp_path, unit_turns=100_000_000, heeds=False).read_bytes()

    units, steps, turns, reads, *_, heeds = struct.unpack_from("<6IB", sector, guest_sectors.PARAMETERS_AT)
    assert (units, steps * turns, reads, heeds) == (5, 100_000_000, 0, 0)
    assert sector[510:512] == b"\x55\xaa"


def test_a_loading_vector_is_turns_between_reads() -> None:
    # 0.2 of the time computing and 0.8 reading, 4 ms each: 1 ms of computing
    assert guest_sectors.turns_per_read(0.2, 0.8, turns_per_s=3e8, service_s=0.004) == 300_000


def test_modules_are_loaded_after_those_that_they_need() -> None:
    modules = {
        "net": b"\0depends=pci-bus,ring\0",
        "pci_bus": b"\0depends=ring\0",
        "ring": b"\0depends=\0",
        "button": b"\0license=GPL\0",
    }

    assert guest_linux.loading_order(["net", "button"], modules) == ("ring", "pci_bus", "net", "button")


def test_an_initramfs_is_a_cpio_archive_of_format_newc() -> None:
    entries = [
        guest_linux.Entry("dev", guest_linux.FOLDER_MODE),
        guest_linux.Entry("dev/console", guest_linux.DEVICE_MODE, device=(5, 1)),
        guest_linux.Entry("init", guest_linux.PROGRAM_MODE, b"12345"),
    ]

    packed = io.BytesIO(gzip.decompress(guest_linux.initramfs(entries)))
    found = []
    while (header := packed.read(110)) and header.startswith(b"070701"):
        fields = [int(header[at : at + 8], 16) for at in range(6, 110, 8)]
        name = packed.read(fields[11])[:-1].decode()
        packed.seek(-packed.tell() % 4, io.SEEK_CUR)
        content = packed.read(fields[6])
        packed.seek(-packed.tell() % 4, io.SEEK_CUR)
        found.append((name, fields[1], tuple(fields[9:11]), content))
    assert found == [
        ("dev", 0o040755, (0, 0), b""),
        ("dev/console", 0o020600, (5, 1), b""),
        ("init", 0o100755, (0, 0), b"12345"),
        ("TRAILER!!!", 0, (0, 0), b""),
    ]
