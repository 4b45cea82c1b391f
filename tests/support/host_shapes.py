"""Hosts of the stand-in for libvirt that differ in what migrations may need, and what agents report of them."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from agents.hypervisors.libvirt import capacity
from agents.hypervisors.libvirt.binding import Connection
from agents.hypervisors.libvirt.machine import NetDevices
from shared.config.agent import LibvirtKeys
from shared.values.nodes import Node
from sim_backend.fake_libvirt.cluster import Cluster
from sim_backend.fake_libvirt.codes import libvirtError
from sim_backend.fake_libvirt.connection import add_pool
from sim_backend.fake_libvirt.hardware import EMULATOR, FLAGS, MACHINES, MODELS, NVRAM_FOLDER, Cell, Hardware
from sim_backend.fake_libvirt.host import Host
from tests.support.domain_shapes import OVMF, SECRET

SHARED = "/shared/volumes"
POOLS = {"default": "/pool", "shared": SHARED, "srv": "/srv/vm", "vg0": "/dev/vg0", "fast": "/fast"}
ISO = "/pool/debian.iso"
SOURCE_FILES = ("/pool/own.qcow2", "/srv/vm/own.raw", "/pool/answers.img", "/boot/guest/vmlinuz", ISO)
SHARED_FILES = ("a.qcow2", "luks", "luks2", "tools.iso", "m")
REACHED = ("rbd:vms", "nbd:store1:10809", "iscsi:iqn.2013-07.com.example:a@store1", "gluster:gv0@g1")
MEMORY_MIB = 65_536
SMALL_MIB = 768  # some NUMA cells have no more

EVERYTHING = Hardware(
    virts=("kvm", "qemu"),
    machines=(*MACHINES, "pc-q35-8.1"),
    emulators=(EMULATOR, "/opt/qemu/bin/qemu-kvm"),
    models=dict.fromkeys(("kvm", "qemu"), (*MODELS, "Skylake-Server")),
    flags=dict.fromkeys(("kvm", "qemu"), (*FLAGS, "vmx", "invtsc")),
    firmware=(OVMF, "/usr/share/seabios/bios.bin"),
    tpms=("emulator",),
    cells=tuple(
        Cell(at, tuple(range(16 * at, 16 * at + 16)), MEMORY_MIB // 4, {2_048: 4_096, 1_048_576: 4_096})
        for at in range(4)
    ),
    bridges=("br0", "br-dmz", "virbr0"),
    ovs=("br-int",),
    devices=("lo", "eth0", "eth1", "tap7", "/dev/ttyS0", "/dev/sr0"),
    addresses=("192.0.2.9",),
    functions=("0000:3b:02.1",),
    networks=("default", "prod"),
    filters=("clean-traffic",),
    secrets={SECRET: "/vm/luks2"},
    reached=REACHED,
)


@dataclass(frozen=True, slots=True)
class FakeMachine:
    """What the kernel of a host would say. `servers`: those of other machines that answer now."""

    hardware: Hardware
    servers: Collection[tuple[str, int]] = ()

    def net_devices(self) -> NetDevices:
        hardware = self.hardware
        return NetDevices(hardware.bridges, hardware.ovs, tuple(one for one in hardware.devices if "/" not in one))

    def shared_mounts(self) -> tuple[str, ...]:
        return self.hardware.mounts

    def virtual_functions(self) -> tuple[str, ...]:
        return self.hardware.functions

    def connects(self, host: str, port: int) -> bool:
        return (host, port) in self.servers


def hardware_of(rng: random.Random) -> Hardware:
    """A host that has about four fifths of everything."""

    def some(values: Sequence[str]) -> tuple[str, ...]:
        return tuple(value for value in values if rng.random() < 0.8)

    whole = EVERYTHING
    cells = whole.cells[: rng.choice((0, 1, 2, 4, 4))]
    cells = tuple(
        replace(
            cell, pages_mib={size: rng.choice((0, 256, 1_024, 4_096)) for size in cell.pages_mib if rng.random() < 0.9}
        )
        for cell in cells
    )
    models = {virt: some(models) for virt, models in whole.models.items()}
    secrets = dict(whole.secrets) if rng.random() < 0.8 else {}
    return Hardware(
        virts=rng.choice((("kvm", "qemu"), ("kvm", "qemu"), ("qemu",))),
        machines=(whole.machines[0], *some(whole.machines[1:])),
        emulators=(EMULATOR, *some(whole.emulators[1:])),
        models=models,
        flags={virt: (*some(flags), *(("svm",) if rng.random() < 0.2 else ())) for virt, flags in whole.flags.items()},
        vendor=rng.choice(("AMD", "AMD", "Intel")),
        firmware=some(whole.firmware),
        tpms=some(whole.tpms),
        cells=cells,
        bridges=some(whole.bridges),
        ovs=some(whole.ovs),
        devices=("lo", "eth0", *some(("eth1",))),
        functions=some(whole.functions),
        networks=some(whole.networks),
        filters=some(whole.filters),
        secrets=secrets,
        reached=some(whole.reached),
    )


def _small(cell: Cell) -> Cell:
    """Return the cell with little memory beside its hugepages."""
    return replace(cell, memory_mib=sum(cell.pages_mib.values()) + SMALL_MIB)


def add_host(cluster: Cluster, name: str, hardware: Hardware, cpu_model: str, pools: Sequence[str]) -> Host:
    """Add a host with these active pools."""
    cores = sum(len(cell.cpus) for cell in hardware.cells) or 8
    host = cluster.add_host(name, cores=cores, memory_mib=MEMORY_MIB)
    folders = (NVRAM_FOLDER, *(POOLS[pool] for pool in pools))
    host.hardware, host.cpu_model = replace(hardware, nvram_folders=folders), cpu_model
    for pool in pools:
        add_pool(host, pool, POOLS[pool])
    return host


def hosts(cluster: Cluster, count: int = 40, seed: int = 11) -> list[Host]:
    """Add the source, which has everything, and that many others."""
    rng = random.Random(seed)
    made = [add_host(cluster, "source", EVERYTHING, "EPYC", tuple(POOLS))]
    for path in SOURCE_FILES:
        made[0].files.put(path, b"data")
    for name in SHARED_FILES:
        made[0].files.put(f"{SHARED}/{name}", b"data")
    for at in range(1, count + 1):
        pools = [pool for pool in POOLS if rng.random() < 0.85]
        hardware = EVERYTHING if at == 1 else hardware_of(rng)
        if at % 4 == 2:
            hardware.cells = tuple(map(_small, hardware.cells))
        host = add_host(cluster, f"t{at}", hardware, rng.choice(("EPYC", "EPYC", "EPYC-Milan")), pools)
        if rng.random() < 0.7:
            host.files.put(ISO, b"data")
        made.append(host)
    for host in made:
        conn = cluster.module(host.name).open()
        for pool in host.pools:
            conn.storagePoolLookupByName(pool).refresh()
        conn.close()
    return made


def keys_of(host: Host) -> LibvirtKeys:
    """As an operator configures the agent of a host."""
    return LibvirtKeys(
        pool="default", shared_pools=("shared",), core_mhz=1_000.0, reachable_storage=host.hardware.reached
    )


def reported(cluster: Cluster, host: Host) -> Node:
    """What the agent of a host reports of it."""
    conn: Connection = cluster.module(host.name).open()
    try:
        features = capacity.Features()
        return capacity.node_of(conn, libvirtError, host.name, keys_of(host), features, FakeMachine(host.hardware))
    finally:
        conn.close()
