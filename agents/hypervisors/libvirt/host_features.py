"""What a node has that live migrations may need: its features as `shared.values.migration` has them, its NUMA cells and
its hugepages. Read from libvirt's capabilities, and from the machine where libvirt has no list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from agents.hypervisors.libvirt import domain_xml
from agents.hypervisors.libvirt.binding import Connection, Pool
from agents.hypervisors.libvirt.codes import BASELINE_CPU_EXPAND_FEATURES, LIST_ACTIVE
from agents.hypervisors.libvirt.machine import LocalMachine, Machine
from agents.hypervisors.libvirt.migration_needs import HUGEPAGE_KIB, NVRAM_FOLDER, UNITS_BYTES, memory_bytes
from agents.hypervisors.libvirt.network_disks import source_of
from shared.config.agent import CopyStorage, LibvirtKeys
from shared.values.migration import feature, number_texts, numbers, page_need, ranges
from shared.values.nodes import HugepagePool, NumaCell

MEDIA_SUFFIX = ".iso"
MEDIA_MAX = 256  # of a node; what is beyond is not listed, so that VMs that use it stay
VIRTS = ("kvm", "qemu")
THIS_MACHINE = LocalMachine()


@dataclass(frozen=True, slots=True)
class HostFeatures:
    """What a host has; `has`: as `shared.values.migration` has it (none: unknown)."""

    has: tuple[str, ...] = ()
    numa_cells: tuple[NumaCell, ...] = ()
    hugepages: tuple[HugepagePool, ...] = ()


def features_of(
    conn: Connection,
    errors: type[Exception],
    capabilities: ET.Element,
    keys: LibvirtKeys,
    machine: Machine = THIS_MACHINE,
) -> HostFeatures:
    """Read the features of the host. A kind that libvirt or the machine does not report is left out: it is unknown.
    Raises `errors` where libvirt does not answer at all."""
    cells, pools = topology_of(capabilities)
    found = {*_emulated(capabilities), *_of_domains(conn, errors, capabilities)}
    found.update(_of_topology(cells, pools, int(conn.getInfo()[2])), _of_pools(conn, keys, machine))
    found.update(_of_machine(machine), _defined(conn, errors))
    found.add("snapshots=none")
    return HostFeatures(tuple(sorted(found)), cells, pools)


def default_page_kib(pools: tuple[HugepagePool, ...]) -> int:
    """Return the size of the hugepages that a domain gets on a host with these, where its definition names none."""
    sizes = [pool.size_kib for pool in pools]
    return HUGEPAGE_KIB if HUGEPAGE_KIB in sizes else min(sizes, default=HUGEPAGE_KIB)


# --- capabilities -----------------------------------------------------------------------------------------------------


def _emulated(capabilities: ET.Element) -> Iterator[str]:
    for arch in capabilities.findall("guest/arch"):
        yield feature("arch", arch.get("name", ""))
        for emulator in arch.iter("emulator"):
            yield feature("emulator", emulator.text or "")
        for machine in arch.iter("machine"):
            yield feature("machine", machine.text or "")
            if canonical := machine.get("canonical"):
                yield feature("machine", canonical)
        for domain in arch.findall("domain"):
            yield feature("virt", domain.get("type", ""))
    for model in capabilities.findall("host/cpu/model"):
        yield feature("cpu", model.text or "")


def topology_of(capabilities: ET.Element) -> tuple[tuple[NumaCell, ...], tuple[HugepagePool, ...]]:
    """Return the NUMA cells of the host and its hugepages, sizes without any included."""
    cells: list[NumaCell] = []
    pools: list[HugepagePool] = []
    for cell in capabilities.findall("host/topology/cells/cell"):
        number = int(cell.get("id", "0"))
        cpus = ranges(int(cpu.get("id", "0")) for cpu in cell.findall("cpus/cpu"))
        cells.append(NumaCell(number, cpus, memory_bytes(cell.find("memory")) >> 20))
        sizes = [(_size_kib(pages), int(pages.text or "0")) for pages in cell.findall("pages")]
        ordinary_kib = min((size_kib for size_kib, _ in sizes), default=0)  # 4 KiB, or 64 KiB on some ARM servers
        for size_kib, count in sizes:
            if size_kib > ordinary_kib:
                pools.append(HugepagePool(size_kib, count * size_kib >> 10, number))
    return tuple(cells), tuple(pools)


def _size_kib(pages: ET.Element) -> int:
    return int(pages.get("size", "0")) * UNITS_BYTES.get(pages.get("unit", "KiB"), 1 << 10) >> 10


def _of_topology(cells: tuple[NumaCell, ...], pools: tuple[HugepagePool, ...], cpus: int) -> Iterator[str]:
    """Yield the features of the host's `cells`; a host of which libvirt shows none has one, with all its CPUs."""
    listed = frozenset().union(*(numbers(cell.cpus) for cell in cells))
    yield from number_texts("cpus", listed or range(cpus))
    yield from number_texts("numa", [cell.cell for cell in cells] or [0])
    amounts: dict[int, int] = {}
    for pool in pools:
        amounts[pool.size_kib] = amounts.get(pool.size_kib, 0) + pool.total_mib
    yield "hugepages="
    yield from (page_need(size_kib, amount_mib) for size_kib, amount_mib in amounts.items())


def _of_domains(conn: Connection, errors: type[Exception], capabilities: ET.Element) -> Iterator[str]:
    """Yield what the hypervisors of the host's own architecture can do: CPU models and features, firmware, TPMs."""
    own = capabilities.findtext("host/cpu/arch", "")
    arches = [arch for arch in capabilities.findall("guest/arch") if arch.get("name") == own]
    virts = {domain.get("type", "") for arch in arches for domain in arch.findall("domain")}
    for virt in VIRTS:
        if virt not in virts:
            continue
        with suppress(errors):  # of a hypervisor that cannot be asked, nothing is known
            text = conn.getDomainCapabilities(None, own, None, virt, 0)
            yield from _of_hypervisor(domain_xml.parse(text), virt)
            yield from _flags(conn, domain_xml.parse(text), own, virt)


def _of_hypervisor(root: ET.Element, virt: str) -> Iterator[str]:
    models = root.findall("cpu/mode[@name='custom']/model")
    if models:
        yield "cpu-model="
        yield from (feature("cpu-model", f"{virt}:{one.text}") for one in models if one.get("usable") != "no")
    loader = root.find("os/loader")
    if loader is not None:
        yield "firmware="
        yield from (feature("firmware", value.text or "") for value in loader.findall("value"))
    tpm = root.find("devices/tpm")
    if tpm is not None:
        yield "tpm="
        if tpm.get("supported") == "yes":
            backends = tpm.findall("enum[@name='backendModel']/value")
            yield from (feature("tpm", value.text or "") for value in backends if value.text != "passthrough")


def _flags(conn: Connection, root: ET.Element, arch: str, virt: str) -> Iterator[str]:
    """Yield the CPU's vendor, and the features that guests can have: those of `host-model`, with what its model stands
    for."""
    mode = root.find("cpu/mode[@name='host-model']")
    if mode is None or mode.get("supported") != "yes" or mode.find("model") is None:
        return
    yield "cpu-vendor="
    if vendor := mode.findtext("vendor"):
        yield feature("cpu-vendor", f"{virt}:{vendor}")
    cpu = ET.Element("cpu", mode="custom", match="exact")
    cpu.extend(part for part in mode if part.tag in ("model", "vendor", "feature"))
    expand = BASELINE_CPU_EXPAND_FEATURES
    whole = conn.baselineHypervisorCPU(None, arch, None, virt, [domain_xml.text_of(cpu)], expand)
    flags = [flag for flag in domain_xml.parse(whole).findall("feature") if flag.get("policy") != "disable"]
    if flags:
        yield "cpu-flag="
        yield from (feature("cpu-flag", f"{virt}:{flag.get('name', '')}") for flag in flags)


# --- storage ----------------------------------------------------------------------------------------------------------


def _of_pools(conn: Connection, keys: LibvirtKeys, machine: Machine) -> Iterator[str]:
    """Yield what the active storage pools reach, and what the configuration says can be reached without one."""
    yield from ("disk=", "media=", "pool=", "shared=", "storage=")
    yield feature("nvram", NVRAM_FOLDER)
    everywhere = keys.migration.copy_storage is CopyStorage.NEVER
    media_left = MEDIA_MAX
    for pool in conn.listAllStoragePools(LIST_ACTIVE):
        root = domain_xml.parse(pool.XMLDesc(0))
        name, folder = pool.name(), root.findtext("target/path", "")
        yield feature("pool", name)
        yield from (feature("disk", place) for place in _places(root))
        if folder:
            yield feature("storage", folder)
            yield feature("nvram", folder)
            if everywhere or name in keys.shared_pools:
                yield feature("shared", folder)
            for path in _media(pool, root.get("type", ""), folder)[:media_left]:
                media_left -= 1
                yield feature("media", path)
    for folder in machine.shared_mounts():
        yield feature("shared", folder)
    for place in keys.reachable_storage:
        yield feature("shared" if place.startswith("/") else "disk", place)


def pool_sources(conn: Connection) -> Mapping[str, tuple[str, ...]]:
    """Return the network disks that the active storage pools of a host are on, by the pool's name."""
    pools = {pool.name(): domain_xml.parse(pool.XMLDesc(0)) for pool in conn.listAllStoragePools(LIST_ACTIVE)}
    return {name: found for name, root in pools.items() if (found := tuple(_places(root)))}


def _places(root: ET.Element) -> Iterator[str]:
    """Yield what a pool verifies of network disks, in the form of needs."""
    kind, hosts = root.get("type", ""), root.findall("source/host")
    if kind in ("rbd", "gluster"):
        yield source_of(kind, root.findtext("source/name", ""), hosts)
    elif kind in ("iscsi", "iscsi-direct"):
        yield from (source_of("iscsi", device.get("path", ""), hosts) for device in root.findall("source/device"))


def _media(pool: Pool, kind: str, folder: str) -> list[str]:
    """Return the paths of a pool's CD-ROM images."""
    if kind not in ("dir", "fs", "netfs"):
        return []
    names = sorted(volume.name() for volume in pool.listAllVolumes(0))
    return [f"{folder}/{name}" for name in names if name.lower().endswith(MEDIA_SUFFIX)]


# --- the machine, and what is defined in libvirt ----------------------------------------------------------------------


def _of_machine(machine: Machine) -> Iterator[str]:
    net = machine.net_devices()
    if net.devices:  # else it cannot be looked at: every machine has some
        for kind, names in (("bridge", net.bridges), ("ovs", net.ovs), ("direct", net.devices)):
            yield f"{kind}="
            yield from (feature(kind, name) for name in names)
        yield "vf="
        yield from (feature("vf", address) for address in machine.virtual_functions())


def _defined(conn: Connection, errors: type[Exception]) -> Iterator[str]:
    """Yield what is defined in libvirt beside domains. Some hosts run without these parts of libvirt."""
    with suppress(errors):
        yield from _of_kind("network", [network.name() for network in conn.listAllNetworks(LIST_ACTIVE)])
    with suppress(errors):
        yield from _of_kind("nwfilter", [one.name() for one in conn.listAllNWFilters(0)])
    with suppress(errors):
        secrets = conn.listAllSecrets(0)
        yield from _of_kind("secret", [secret.UUIDString() for secret in secrets])
        yield from (feature("secret", f"usage:{secret.usageID()}") for secret in secrets)


def _of_kind(kind: str, values: Iterable[str]) -> Iterator[str]:
    yield f"{kind}="
    yield from (feature(kind, value) for value in values)
