"""What a domain needs of a node that it is migrated to, read from its XML."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from agents.hypervisors.libvirt.domain_xml import facts_of
from agents.hypervisors.libvirt.metadata import Meta, element_of
from agents.hypervisors.libvirt.migration_needs import Surroundings
from shared.values import migration
from shared.values.migration import KINDS, parted
from tests.support.domain_shapes import FRAGMENTS, Fragment, domain

PLAIN = {"arch=x86_64", "machine=pc", "virt=qemu"}
CPUS = ("vendor", "forbidden")
HERE = Surroundings("EPYC", is_local=lambda path: not path.startswith("/shared/"))


def needs(xml: str, here: Surroundings = HERE) -> set[str]:
    return set(facts_of(xml, here).needs) - PLAIN


@pytest.mark.parametrize("part", FRAGMENTS, ids=lambda part: part.name)
def test_each_part_of_a_domain_brings_its_need(part: Fragment) -> None:
    found = needs(domain("d", [part]))
    if not part.kind:
        assert found == set()
    assert part.kind in {"", *(parted(need)[0] for need in found)}
    if part.what:
        assert any(need.removeprefix("bound=").split(":")[0] == part.what for need in found)


def test_every_kind_is_read_from_some_domain() -> None:
    of_domains = {part.kind for part in FRAGMENTS} | {text.split("=")[0] for text in PLAIN}
    assert KINDS.keys() - {"tls", "snapshots", migration.CELL_MEMORY} <= of_domains
    assert migration.BOUND.keys() - {part.what for part in FRAGMENTS} == {"backup-job", "job", "snapshot-job"}


def sized(memory: str, pages: str, cells: str = "") -> set[str]:
    numa = f"<cpu><numa>{cells}</numa></cpu>" if cells else ""
    backing = f"<memoryBacking><hugepages>{pages}</hugepages></memoryBacking>"
    return needs(f"<domain type='qemu'><name>d</name>{memory}<vcpu>1</vcpu>{backing}{numa}</domain>") - {"virt=qemu"}


def test_hugepages_are_counted_in_whole_pages() -> None:
    gib = "<page size='1' unit='GiB'/>"
    assert sized("<memory unit='MiB'>1025</memory>", gib) == {"hugepages-1048576=2048"}
    assert sized("<memory unit='MiB'>1025</memory>", "") == {"hugepages-2048=1026"}
    assert sized("<memory>2097152</memory>", "<page size='2048'/>") == {"hugepages-2048=2048"}
    assert sized("<memory unit='MiB'>0</memory>", "") == {"hugepages-2048=0"}
    assert sized("", "") == {"hugepages-2048=0"}


def test_hugepages_of_cells_are_of_their_sizes() -> None:
    cells = (
        "<cell id='0' memory='1' unit='GiB'/><cell id='1' memory='2' unit='GiB'/><cell id='2' memory='1' unit='GiB'/>"
    )
    memory = "<memory unit='GiB'>4</memory>"
    pages = "<page size='1' unit='G' nodeset='1'/><page size='2048' nodeset='0,2'/>"
    assert sized(memory, pages, cells) == {"hugepages-1048576=2048", "hugepages-2048=2048"}
    assert sized(memory, "<page size='1' unit='G' nodeset='1'/>", cells) == {"hugepages-1048576=2048"}
    rest = "<page size='2048'/><page size='1' unit='G' nodeset='1'/>"
    assert sized(memory, rest, cells) == {"hugepages-1048576=2048", "hugepages-2048=2048"}


def test_pages_of_no_stated_size_are_of_the_hosts() -> None:
    xml = domain("d", [part for part in FRAGMENTS if part.name == "pages"])
    assert needs(xml, Surroundings(page_kib=16_384)) == {"hugepages-16384=256"}


def test_what_the_own_host_does_not_list_of_its_cpu_is_no_need() -> None:
    """Given a VM that runs here with a feature that libvirt has no word for, then other nodes need none either."""
    (xml,) = (domain("d", [part]) for part in FRAGMENTS if part.name == "skylake")
    listed = frozenset({"cpu-flag=qemu:sse", "cpu-model=qemu:Skylake-Server"})
    assert needs(xml, Surroundings(has=listed)) == {"cpu-model=qemu:Skylake-Server"}
    assert needs(xml, Surroundings(has=frozenset({"pool=a"}))) == {
        "cpu-model=qemu:Skylake-Server",
        "cpu-flag=qemu:aes",
    }


def test_what_the_own_host_has_against_its_cpu_is_no_need() -> None:
    """Given a VM that runs here nevertheless, then nobody looks at that, and other nodes need not either."""
    vendor, forbidden = (domain("d", [part for part in FRAGMENTS if part.name == name]) for name in CPUS)
    own = {"cpu-model=qemu:Westmere"}, {"cpu-model=qemu:Nehalem"}
    assert (needs(vendor) - own[0], needs(forbidden) - own[1]) == ({"cpu-vendor=qemu:AMD"}, {"cpu-forbid=qemu:svm"})
    other = Surroundings(has=frozenset({"cpu-vendor=", "cpu-vendor=qemu:Intel", "cpu-flag=", "cpu-flag=qemu:svm"}))
    assert (needs(vendor, other), needs(forbidden, other)) == own


@pytest.mark.parametrize("cpu", ["<cpu check='none'>", "<cpu mode='host-passthrough'>"])
def test_a_cpu_that_libvirt_does_not_compare_forbids_nothing(cpu: str) -> None:
    cpu += "<vendor>AMD</vendor><feature policy='forbid' name='svm'/></cpu>"
    xml = f"<domain type='kvm'><name>d</name>{cpu}</domain>"
    assert not {parted(need)[0] for need in needs(xml)} & {"cpu-forbid", "cpu-vendor"}


def test_a_volume_of_a_network_pool_needs_the_same_source() -> None:
    """A pool of that name on another node may be of another cluster."""
    here = Surroundings(pool_sources={"fast": ("rbd:fast@mon1,mon2",)})
    volume = domain("d", [part for part in FRAGMENTS if part.name == "volume"])
    root = ET.fromstring(domain("d", []))
    ET.SubElement(root, "metadata").append(element_of(Meta(pool="fast", volume="own")))

    for xml in (volume, ET.tostring(root, encoding="unicode")):
        assert needs(xml, here) == {"pool=fast", "disk=rbd:fast@mon1,mon2"}


def test_an_own_disk_needs_its_pool_and_no_folder() -> None:
    meta = Meta(pool="default", volume="own.qcow2")
    xml = domain("d", [part for part in FRAGMENTS if part.name == "local-disk"])
    root = ET.fromstring(xml)
    ET.SubElement(root, "metadata").append(element_of(meta))
    assert needs(ET.tostring(root, encoding="unicode")) == {"pool=default"}


@pytest.mark.parametrize("listen", ["", "0.0.0.0", "::", "127.0.0.1", "::1", "host.example", "999.1.1.1"])
def test_displays_that_any_host_can_have_bind_nobody(listen: str) -> None:
    xml = f"<domain><name>d</name><devices><graphics type='vnc' listen='{listen}'/></devices></domain>"
    assert needs(xml) == set()


def test_strange_values_end_nothing() -> None:
    xml = """<domain type='qemu'><name>d</name><vcpu cpuset='all'>1</vcpu>
    <numatune><memory mode='strict' nodeset='x'/></numatune><devices>
    <hostdev mode='subsystem' type='pci'><source><address domain='z' bus='0x1' slot='q'/></source></hostdev>
    <hostdev mode='subsystem' type='later'/><interface type='hostdev'/><interface type='later'><source/></interface>
    <disk type='network'><source protocol='later' name=''/></disk><tpm/><filesystem/><memory/></devices></domain>"""
    found = needs(xml) - {"virt=qemu"}
    assert found == {
        "bound=pci-device:0000:01:00.0",
        "bound=scsi-device",
        "bound=sr-iov",
        "bound=tpm-passthrough",
        "bound=filesystem-9p",
        "disk=later:",
    }


@pytest.mark.parametrize(("has", "need"), [((), "media=/boot/linux"), (("shared=/boot",), "shared=/boot")])
def test_a_kernel_in_a_folder_that_all_nodes_share_needs_the_folder(has: tuple[str, ...], need: str) -> None:
    """Such as one of `libvirt.reachable_storage`, which is no pool."""
    xml = "<domain type='kvm'><name>x</name><os><type>hvm</type><kernel>/boot/linux</kernel></os></domain>"
    assert need in needs(xml, Surroundings(has=frozenset({"cpu-flag=", *has})))


def test_whatever_is_read_of_the_host_is_a_medium() -> None:
    """A folder that the guest reads as a floppy, and files that firmware hands to it, as much as a CD-ROM."""
    folder = "<disk type='dir' device='floppy'><source dir='/srv/fat'/><target dev='fda'/><readonly/></disk>"
    given = "<sysinfo type='fwcfg'><entry name='opt/x' file='{}'/><entry name='opt/y'>text</entry></sysinfo>"
    assert needs(domain("d", [Fragment("folder", folder)])) == {"media=/srv/fat"}
    assert needs(domain("d", [Fragment("given", given.format("/etc/x"), at="domain")])) == {"media=/etc/x"}
    assert needs(domain("d", [Fragment("given", given.format("/shared/a/x"), at="domain")])) == {"shared=/shared/a"}
