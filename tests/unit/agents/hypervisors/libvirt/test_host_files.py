"""What of a domain lies on its host alone, read from its XML."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from agents.hypervisors.libvirt.host_files import host_files_of
from agents.hypervisors.libvirt.migration_needs import NVRAM_FOLDER, Surroundings
from shared.values.failover import HOST_FILES
from tests.support.domain_shapes import FRAGMENTS, OVMF, Fragment, domain

HERE = Surroundings(
    has=frozenset({"shared=/shared/volumes"}),
    is_local=lambda path: not path.startswith("/shared/"),
    is_local_pool=lambda name: name != "fast",
)
ALONE = {
    "local-disk": "disk=/pool/own.qcow2",
    "elsewhere": "disk=/srv/vm/own.raw",
    "lvm": "disk=/dev/vg0/web",
    "lun": "disk=/dev/sdb",
    "vtpm": "tpm=",
    "vtpm-secret": "tpm=",
    "uefi": f"nvram={NVRAM_FOLDER}",
    "nvram": f"nvram={NVRAM_FOLDER}/x_VARS.fd",
}


def read(xml: str, here: Surroundings = HERE) -> tuple[str, ...]:
    return host_files_of(ET.fromstring(xml), here)


@pytest.mark.parametrize("part", FRAGMENTS, ids=lambda part: part.name)
def test_each_part_of_a_domain_lies_where_it_lies(part: Fragment) -> None:
    assert read(domain("d", [part])) == ((ALONE[part.name],) if part.name in ALONE else ())


def test_only_known_kinds_are_told() -> None:
    found = {text.partition("=")[0] for text in (*ALONE.values(), *read(displays("passwd='x'")))}
    assert found == HOST_FILES.keys() - {"snapshots", "checkpoints", "definition"}


def displays(attributes: str) -> str:
    return f"<domain><name>d</name><devices><graphics type='vnc' {attributes}/></devices></domain>"


def test_a_password_is_told_and_not_shown() -> None:
    assert read(displays("passwd='s3cret'")) == ("password=",)
    assert read(displays("port='-1'")) == ()


def disk(source: str, more: str = "", device: str = "disk") -> tuple[str, ...]:
    return read(f"<domain><devices><disk device='{device}'>{source}{more}</disk></devices></domain>")


def test_disks_and_what_they_are_overlays_of() -> None:
    assert disk("<source file='/shared/a'/>") == ()
    assert disk("<source dir='/srv/fat'/>") == ("disk=/srv/fat",)
    assert disk("<source pool='fast' volume='a'/>") == ()
    assert disk("<source pool='default' volume='a'/>") == ("disk=default/a",)
    assert disk("<source protocol='rbd' name='vms/a'/>") == ()
    base = "<backingStore type='file'><source file='/shared/b'/><backingStore><source file='/pool/c'/>"
    assert disk("<source file='/shared/a'/>", f"{base}</backingStore></backingStore>") == ("disk=/pool/c",)
    data = "<dataStore type='file'><format type='raw'/><source file='/pool/data'/></dataStore></source>"
    assert disk(f"<source file='/shared/a'>{data}") == ("disk=/pool/data",)
    assert disk("<source file='/shared/a'/>", f"<backingStore><source file='/shared/b'>{data}</backingStore>") == (
        "disk=/pool/data",
    )
    assert disk("<source file='/pool/a'/>", "<readonly/>") == disk("<source file='/pool/a'/>", device="cdrom") == ()
    assert disk("") == ()


def firmware(inner: str, attributes: str = "", here: Surroundings = HERE) -> tuple[str, ...]:
    return read(f"<domain><os {attributes}>{inner}</os></domain>", here)


DEFAULT = (f"nvram={NVRAM_FOLDER}",)
FLASH = f"<loader type='pflash' readonly='yes'>{OVMF}</loader>"


@pytest.mark.parametrize(
    ("inner", "attributes", "expected"),
    [
        ("", "", ()),
        ("", "firmware='efi'", DEFAULT),
        ("", "firmware='bios'", ()),
        (FLASH, "", DEFAULT),
        (FLASH.replace("type=", "stateless='yes' type="), "", ()),
        ("<loader stateless='yes'/>", "firmware='efi'", ()),
        ("<loader type='rom'>/x</loader>", "", ()),
        ("<nvram template='/usr/share/OVMF/OVMF_VARS.fd'/>", "", DEFAULT),
        ("<nvram>/pool/x.fd</nvram>", "firmware='efi'", ("nvram=/pool/x.fd",)),
        ("<nvram>/shared/volumes/x.fd</nvram>", "firmware='efi'", ()),
        ("<nvram type='file'><source file='/pool/x.fd'/></nvram>", "", ("nvram=/pool/x.fd",)),
        ("<nvram type='block'><source dev='/dev/vg0/x'/></nvram>", "", ("nvram=/dev/vg0/x",)),
        ("<nvram type='network'><source protocol='iscsi' name='iqn.x'/></nvram>", "", ()),
    ],
)
def test_firmware_variables(inner: str, attributes: str, expected: tuple[str, ...]) -> None:
    assert firmware(inner, attributes) == expected


def test_libvirts_own_folder_is_shared_where_the_node_says_so() -> None:
    """Given a configuration by which no disk is copied, then this folder is still each host's own."""
    text = f"<nvram>{NVRAM_FOLDER}/x.fd</nvram>"
    assert firmware(text, here=Surroundings(is_local=lambda _: False)) == (f"nvram={NVRAM_FOLDER}/x.fd",)
    listed = frozenset({f"shared={NVRAM_FOLDER}"})
    assert firmware(text, here=Surroundings(has=listed, is_local=lambda _: False)) == ()
