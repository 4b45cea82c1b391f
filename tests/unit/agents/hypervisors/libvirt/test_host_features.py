"""What a node has, as its libvirt and its kernel tell it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.hypervisors.libvirt import capacity, host_features
from agents.hypervisors.libvirt.domain_xml import parse
from agents.hypervisors.libvirt.host_features import default_page_kib, features_of, topology_of
from agents.hypervisors.libvirt.machine import LocalMachine, NetDevices, NoMachine
from shared.config.agent import CopyStorage, LibvirtKeys, LibvirtMigration
from shared.values.migration_terms import DEFAULT_BOUNDS, MigrationBounds
from shared.values.nodes import HugepagePool, NumaCell
from sim_backend.fake_libvirt.cluster import Cluster
from sim_backend.fake_libvirt.codes import Err, libvirtError
from sim_backend.fake_libvirt.connection import add_pool
from sim_backend.fake_libvirt.faults import Fault
from sim_backend.fake_libvirt.hardware import Cell, Hardware
from tests.support.host_shapes import EVERYTHING, FakeMachine

KEYS = LibvirtKeys(shared_pools=("shared",), reachable_storage=("/mnt/nfs", "nbd:store1"))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster(shared_folders=("/shared",))
    host = made.add_host("h1", memory_mib=65_536)
    add_pool(host, "default", "/pool")
    add_pool(host, "shared", "/shared/volumes")
    host.hardware = EVERYTHING
    yield made
    made.close()


def read(cluster: Cluster, keys: LibvirtKeys = KEYS, **hardware: Any) -> host_features.HostFeatures:
    host = cluster.hosts["h1"]
    host.hardware = replace(host.hardware, **hardware)
    conn = cluster.module("h1").open()
    return features_of(conn, libvirtError, parse(conn.getCapabilities()), keys, FakeMachine(host.hardware))


def values(found: host_features.HostFeatures, kind: str) -> list[str]:
    return [text.partition("=")[2] for text in found.has if text.partition("=")[0] == kind]


def test_a_host_tells_all_that_it_has(cluster: Cluster) -> None:
    found = read(cluster)
    assert values(found, "virt") == ["kvm", "qemu"]
    assert {"pc", "pc-i440fx-7.2", "pc-q35-8.1"} <= set(values(found, "machine"))
    assert "kvm:Westmere" in values(found, "cpu-model")
    assert not [model for model in values(found, "cpu-model") if "Denverton" in model], "which it cannot run"
    assert "qemu:aes" in values(found, "cpu-flag")
    assert values(found, "cpu-vendor") == ["", "kvm:AMD", "qemu:AMD"]
    assert values(found, "tpm") == ["", "emulator"]
    assert values(found, "bridge") == ["", "br-dmz", "br0", "virbr0"]
    assert (values(found, "ovs"), values(found, "direct")) == (["", "br-int"], ["", "eth0", "eth1", "lo", "tap7"])
    assert values(found, "network") == ["", "default", "prod"]
    assert values(found, "nwfilter") == ["", "clean-traffic"]
    assert [len(one) for one in values(found, "secret")] == [0, 36, len("usage:/vm/luks2")]
    assert (values(found, "cpus"), values(found, "numa")) == (["0-63"], ["0-3"])


def test_storage_is_what_pools_and_the_configuration_reach(cluster: Cluster) -> None:
    found = read(cluster, mounts=("/mnt/ceph",))
    assert values(found, "storage") == ["", "/pool", "/shared/volumes"]
    assert values(found, "shared") == ["", "/mnt/ceph", "/mnt/nfs", "/shared/volumes"]
    assert values(found, "disk") == ["", "nbd:store1"]
    everywhere = replace(KEYS, migration=LibvirtMigration(copy_storage=CopyStorage.NEVER))
    assert "/pool" in values(read(cluster, everywhere), "shared")


@pytest.mark.parametrize(
    ("xml", "place"),
    [
        (
            "<pool type='rbd'><source><host name='mon2' port='6789'/><host name='mon1'/><name>vms</name></source>"
            "</pool>",
            ["rbd:vms@mon1,mon2"],
        ),
        (
            "<pool type='gluster'><source><host name='g1'/><dir path='/'/><name>gv0</name></source></pool>",
            ["gluster:gv0@g1"],
        ),
        (
            "<pool type='iscsi'><source><host name='s1' port='3261'/><device path='iqn.a:b'/></source></pool>",
            ["iscsi:iqn.a:b@s1:3261"],
        ),
        ("<pool type='netfs'><source><name>x</name></source></pool>", []),
    ],
)
def test_pools_of_the_network_verify_its_disks(xml: str, place: list[str]) -> None:
    assert list(host_features._places(parse(xml))) == place


def test_pools_of_the_network_are_told_by_name(cluster: Cluster) -> None:
    add_pool(cluster.hosts["h1"], "ceph", "", hosts=("mon2", "mon1"))

    assert host_features.pool_sources(cluster.module("h1").open()) == {"ceph": ("rbd:ceph@mon1,mon2",)}
    assert values(read(cluster), "disk") == ["", "nbd:store1", "rbd:ceph@mon1,mon2"]


def test_cd_roms_are_listed_up_to_a_number(cluster: Cluster) -> None:
    host = cluster.hosts["h1"]
    for name in ("a.iso", "B.ISO", "c.iso", "d.img", "e.qcow2"):
        host.files.put(f"/pool/{name}", b"")
    cluster.module("h1").open().storagePoolLookupByName("default").refresh()
    assert values(read(cluster), "media") == ["", "/pool/B.ISO", "/pool/a.iso", "/pool/c.iso"]
    for number in range(host_features.MEDIA_MAX):
        host.files.put(f"/shared/volumes/{number:03}.iso", b"")
    cluster.module("h1").open().storagePoolLookupByName("shared").refresh()
    assert len(values(read(cluster), "media")) == 1 + host_features.MEDIA_MAX


def test_what_libvirt_does_not_tell_is_left_out(cluster: Cluster) -> None:
    """Given calls that fail, then the kinds that they are about are unknown, and all others are there."""
    for call in ("getDomainCapabilities", "listAllNetworks", "listAllNWFilters", "listAllSecrets"):
        cluster.fail(Fault(call, "raise", Err.ARGUMENT_UNSUPPORTED, times=2))
    kinds = {text.partition("=")[0] for text in read(cluster).has}
    assert not kinds & {"cpu-model", "firmware", "tpm", "network", "nwfilter", "secret"}
    assert {"machine", "storage", "bridge", "numa"} <= kinds


def test_cells_and_hugepages(cluster: Cluster) -> None:
    cells = (Cell(0, (0, 1, 4), 4_096, {2_048: 1_024, 1_048_576: 0}), Cell(2, (5,), 2_048, {2_048: 512}))
    found = read(cluster, cells=cells)
    assert found.numa_cells == (NumaCell(0, "0-1,4", 4_096), NumaCell(2, "5", 2_048))
    pools = (HugepagePool(2_048, 1_024, 0), HugepagePool(1_048_576, 0, 0), HugepagePool(2_048, 512, 2))
    assert found.hugepages == pools
    assert values(found, "hugepages-2048") == ["1536"]
    assert (values(found, "cpus"), values(found, "numa")) == (["0-1,4-5"], ["0,2"])


def test_a_machine_without_cells_has_one(cluster: Cluster) -> None:
    found = read(cluster, cells=())
    assert (found.numa_cells, found.hugepages) == ((), ())
    assert (values(found, "cpus"), values(found, "numa"), values(found, "hugepages")) == (["0-1"], ["0"], [""])


def test_pages_of_other_machines_are_told_from_ordinary_ones() -> None:
    """As libvirt tells it of ARM servers with pages of 64 KiB."""
    xml = """<capabilities><host><cpu><pages unit='KiB' size='64'/><pages unit='KiB' size='2048'/></cpu>
    <topology><cells num='1'><cell id='0'><memory unit='KiB'>1048576</memory><pages unit='KiB' size='64'>8192</pages>
    <pages unit='KiB' size='2048'>256</pages><cpus num='1'><cpu id='0'/></cpus></cell></cells></topology></host>
    </capabilities>"""
    assert topology_of(parse(xml))[1] == (HugepagePool(2_048, 512, 0),)
    assert topology_of(parse("<capabilities/>")) == ((), ())


def test_the_size_of_a_hugepage_is_the_usual_one_where_there_is_such() -> None:
    assert default_page_kib(()) == 2_048
    assert default_page_kib((HugepagePool(1_048_576, 1), HugepagePool(2_048, 1))) == 2_048
    assert default_page_kib((HugepagePool(16_777_216, 1), HugepagePool(524_288, 1))) == 524_288


def test_the_node_counts_hugepages_apart(cluster: Cluster) -> None:
    cluster.hosts["h1"].hardware = Hardware(cells=(Cell(0, (0, 1), 65_536, {2_048: 4_096}),))
    conn = cluster.module("h1").open()
    for features in (capacity.Features(), capacity.Features(migrate=False)):
        node = capacity.node_of(conn, libvirtError, "h1", replace(KEYS, core_mhz=1.0), features, NoMachine())
        assert (node.memory_mib, node.usable_mib, node.hugepages_mib) == (65_536, 61_440, 4_096)
        assert bool(node.migration_has) is features.migrate


def test_the_node_says_what_its_configuration_allows_of_migrations(cluster: Cluster) -> None:
    conn = cluster.module("h1").open()
    for migration, bounds in (
        (LibvirtMigration(), DEFAULT_BOUNDS),
        (
            LibvirtMigration(bandwidth_mib_per_s=500, downtime_ms=2_000, limit_s=900.0),
            MigrationBounds(900.0, 2_000, 500),
        ),
    ):
        keys = replace(KEYS, core_mhz=1.0, migration=migration)
        node = capacity.node_of(conn, libvirtError, "h1", keys, capacity.Features(), NoMachine())
        assert node.migration_bounds == bounds


# --- the kernel -------------------------------------------------------------------------------------------------------


def device(
    root: Path, name: str, kind: str = "1", index: int = 1, link: int = 1, uevent: str = "", **parts: bool
) -> None:
    folder = root / "sys/class/net" / name
    folder.mkdir(parents=True)
    for file, text in {"type": kind, "ifindex": str(index), "iflink": str(link), "uevent": uevent}.items():
        (folder / file).write_text(f"{text}\n")
    for part, there in parts.items():
        if there and part == "tun_flags":
            (folder / part).write_text("0x1002\n")
        elif there:
            (folder / part).mkdir()


def test_network_devices_are_told_apart(tmp_path: Path) -> None:
    device(tmp_path, "lo", kind="772")
    device(tmp_path, "eth0", device=True)
    device(tmp_path, "br0", uevent="DEVTYPE=bridge\nINTERFACE=br0", bridge=True)
    device(tmp_path, "vnet0", tun_flags=True)
    device(tmp_path, "veth1", index=7, link=8)
    device(tmp_path, "br-int")
    assert LocalMachine(tmp_path).net_devices() == NetDevices(("br0",), (), ("br-int", "br0", "eth0", "veth1"))
    device(tmp_path, "ovs-system")
    assert LocalMachine(tmp_path).net_devices().ovs == ("br-int",)


def test_mounts_of_other_machines_and_virtual_functions(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    lines = ("/dev/sda1 / ext4 rw 0 0", "nas:/a /mnt/a\\040b nfs4 rw 0 0", "c:/ /mnt/c ceph rw 0 0", "broken")
    (tmp_path / "proc/self/mounts").write_text("\n".join(lines))
    functions = tmp_path / "sys/bus/pci/devices"
    (functions / "0000:3b:00.0").mkdir(parents=True)
    (functions / "0000:3b:02.1/physfn").mkdir(parents=True)
    machine = LocalMachine(tmp_path)
    assert (machine.shared_mounts(), machine.virtual_functions()) == (("/mnt/a b", "/mnt/c"), ("0000:3b:02.1",))


def test_a_machine_that_cannot_be_looked_at_is_unknown(tmp_path: Path) -> None:
    for machine in (LocalMachine(tmp_path), NoMachine()):
        assert list(host_features._of_machine(machine)) == []
        assert (machine.shared_mounts(), machine.virtual_functions()) == ((), ())


def test_this_machine_can_be_looked_at() -> None:
    assert "lo" not in LocalMachine().net_devices().devices
    assert isinstance(LocalMachine().shared_mounts(), tuple)
