"""What a domain needs of a node that it is migrated to alive, read from its XML: texts of `shared.values.migration`.

Sources: libvirt's qemuMigrationSrcIsAllowed and qemuMigrationSrcIsSafe, what qemuProcessLaunch checks on the target,
and https://libvirt.org/formatdomain.html.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from xml.etree import ElementTree as ET

from agents.hypervisors.libvirt.metadata import Meta
from agents.hypervisors.libvirt.network_disks import source_of
from shared.values.migration import bound, feature, lacks, number_texts, numbers, page_need

OF_HOST = frozenset({"host-passthrough", "host-model", "maximum"})  # modes of <cpu>
OWN_MACHINE = frozenset({"cpu-flag", "cpu-model", "cpu-vendor"})  # what its host's list lacks of these is no need
SNAPSHOTS = "snapshots=carried"  # what the definition does not show
HUGEPAGE_KIB = 2_048  # of most hosts, where the definition gives no size
NVRAM_FOLDER = "/var/lib/libvirt/qemu/nvram"  # libvirt makes it, and files in it from a template
LEAVES = frozenset({"optional", "requisite"})  # startupPolicy: a medium that is missing is left out
HOST_PORTS = frozenset({"dev", "nmdm"})
HOST_FILES = ("kernel", "initrd", "shim", "dtb")  # of <os>
SHARED_MEMORY_MODELS = {"nvdimm": "nvdimm", "virtio-pmem": "virtio-pmem", "sgx-epc": "sgx"}
UNITS_BYTES = {"b": 1, "bytes": 1, "KB": 10**3, "k": 1 << 10, "KiB": 1 << 10, "MB": 10**6, "M": 1 << 20, "MiB": 1 << 20}
UNITS_BYTES |= {"GB": 10**9, "G": 1 << 30, "GiB": 1 << 30, "TB": 10**12, "T": 1 << 40, "TiB": 1 << 40}


def every_disk(_path_or_pool: str) -> bool:
    """Take every disk, or pool, for one that this node alone has."""
    return True


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What of its node decides on a domain's needs. `cpu`: the model of the host's CPU ("": unknown). `has`: the node's
    own features (none: unknown). `page_kib`: the size of its hugepages where a domain gives none. `is_local`: whether a
    disk lies on this node alone; `is_local_pool`: whether the volumes of a storage pool, by its name, do.
    `pool_sources`: the network disks that storage pools are on, by name."""

    cpu: str = ""
    has: frozenset[str] = frozenset()
    page_kib: int = HUGEPAGE_KIB
    is_local: Callable[[str], bool] = every_disk
    is_local_pool: Callable[[str], bool] = every_disk
    pool_sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Nvram:
    """Where a domain keeps the variables of its firmware: in a `file`, on a block `device`, or in what `network` names;
    in none of them where libvirt is to make a file in `NVRAM_FOLDER`."""

    file: str = ""
    device: str = ""
    network: ET.Element | None = None


def nvram_of(root: ET.Element) -> Nvram | None:
    """Return where a definition says that the firmware's variables are: its text, or, since libvirt 8.5, a source. None
    where it says nothing of them."""
    element = root.find("os/nvram")
    if element is None:
        return None
    source, text = element.find("source"), (element.text or "").strip()
    if source is None:
        return Nvram(text)
    if source.get("protocol"):
        return Nvram(network=source)
    return Nvram(text or source.get("file", ""), source.get("dev", ""))


def is_nvram_local(path: str, here: Surroundings) -> bool:
    """Return whether firmware variables lie on this node alone: in libvirt's own folder they do unless the node lists
    it, whatever was said of disks."""
    own = path.startswith(f"{NVRAM_FOLDER}/") and not is_shared(NVRAM_FOLDER, here)
    return own or here.is_local(path)


def needs_of(root: ET.Element, meta: Meta | None, here: Surroundings) -> tuple[str, ...]:
    """Return the needs of a domain, sorted. `meta`: Trimtab's metadata of it."""
    found = {need for read in _READERS for need in read(root, meta, here)}
    kinds = {text.partition("=")[0] for text in here.has}
    own = OWN_MACHINE & kinds
    had = {need for need in found if need.partition("=")[0] not in own or need in here.has}
    return tuple(sorted(need for need in had if not _is_forbidden_here(need, here)))


def _is_forbidden_here(need: str, here: Surroundings) -> bool:
    """Return whether the host has what its VM must not have: then nobody looks at that."""
    kind, _, value = need.partition("=")
    return kind == "cpu-forbid" and feature("cpu-flag", value) in here.has


def written_disks(root: ET.Element) -> Iterator[ET.Element]:
    """Yield the disks that are written to."""
    for disk in root.findall("devices/disk"):
        if disk.find("readonly") is None and disk.get("device", "disk") not in ("cdrom", "floppy"):
            yield disk


def memory_bytes(element: ET.Element | None) -> int:
    """Return an amount of memory in bytes (0: there is none)."""
    if element is None:
        return 0
    return int(element.text or "0") * UNITS_BYTES.get(element.get("unit", "KiB"), 1 << 10)


# --- machine ----------------------------------------------------------------------------------------------------------


def _machine(root: ET.Element, _meta: Meta | None, _here: Surroundings) -> Iterator[str]:
    kind = root.find("os/type")
    if kind is not None:
        for key in ("machine", "arch"):
            if value := kind.get(key):
                yield feature(key, value)
    if root.get("type"):
        yield feature("virt", root.get("type", ""))
    if emulator := root.findtext("devices/emulator"):
        yield feature("emulator", emulator)


def _cpu(root: ET.Element, _meta: Meta | None, here: Surroundings) -> Iterator[str]:
    """Yield the needs of its CPU. Of a running domain libvirt shows `host-model` as the model and features chosen. What
    is forbidden and the vendor are compared with the target's CPU (virCPUx86Compare) unless `check` is none."""
    cpu = root.find("cpu")
    if cpu is None:
        return
    virt = root.get("type", "")
    if cpu.get("mode") in OF_HOST:
        if here.cpu:
            yield feature("cpu", here.cpu)
    elif (model := cpu.findtext("model")) and cpu.get("match", "exact") != "minimum":
        yield feature("cpu-model", f"{virt}:{model}")
    compared = cpu.get("check") != "none" and cpu.get("mode", "custom") not in OF_HOST
    for flag in cpu.findall("feature"):
        policy, value = flag.get("policy", "require"), f"{virt}:{flag.get('name', '')}"
        if policy == "require":
            yield feature("cpu-flag", value)
        elif policy == "forbid" and compared:
            yield feature("cpu-forbid", value)
    if (vendor := cpu.findtext("vendor")) and compared:
        yield feature("cpu-vendor", f"{virt}:{vendor}")
    timers = [timer for timer in root.findall("clock/timer") if timer.get("name") == "tsc" and timer.get("frequency")]
    if not timers and any(_is_on(flag, "invtsc") for flag in cpu.findall("feature")):
        yield bound("invtsc")


def _is_on(flag: ET.Element, name: str) -> bool:
    return flag.get("name") == name and flag.get("policy", "require") in ("require", "force")


def _pinning(root: ET.Element, _meta: Meta | None, _here: Surroundings) -> Iterator[str]:
    pins = [root.find("vcpu"), *(root.findall(f"cputune/{tag}") for tag in ("vcpupin", "emulatorpin", "iothreadpin"))]
    cpus: set[int] = set()
    for pin in pins:
        for element in pin if isinstance(pin, list) else [pin]:
            cpus |= numbers(element.get("cpuset", "")) if element is not None else frozenset()
    if cpus:
        yield from number_texts("cpus", cpus)
    cells: set[int] = set()
    for element in (*root.findall("numatune/memory"), *root.findall("numatune/memnode")):
        if element.get("mode", "strict") in ("strict", "restrictive"):
            cells |= numbers(element.get("nodeset", ""))
    if cells:
        yield from number_texts("numa", cells)


def _hugepages(root: ET.Element, _meta: Meta | None, here: Surroundings) -> Iterator[str]:
    """Return the hugepages: of each size, the memory of the guest's NUMA cells that it is for, in whole pages."""
    holder = root.find("memoryBacking/hugepages")
    if holder is None:
        return
    cells = {int(cell.get("id", at)): _cell_bytes(cell) for at, cell in enumerate(root.findall("cpu/numa/cell"))}
    whole = memory_bytes(root.find("memory"))
    left = cells if sum(cells.values()) > 0 else {0: whole}
    left[min(left)] += max(0, whole - sum(left.values()))  # of memory devices: where they are does not matter here
    amounts: dict[int, int] = {}
    pages = sorted(holder.findall("page"), key=lambda page: not page.get("nodeset"))  # that for all others comes last
    for page in pages or [ET.Element("page")]:
        size = int(page.get("size", "0")) * UNITS_BYTES.get(page.get("unit", "KiB"), 1 << 10) or here.page_kib << 10
        wanted = numbers(page.get("nodeset", "")) if page.get("nodeset") else frozenset(left)
        for cell in wanted & left.keys():
            amounts[size] = amounts.get(size, 0) + -(-left.pop(cell) // size) * size
    for size, amount in amounts.items():
        yield page_need(max(1, size >> 10), -(-amount >> 20))


def _cell_bytes(cell: ET.Element) -> int:
    return int(cell.get("memory", "0")) * UNITS_BYTES.get(cell.get("unit", "KiB"), 1 << 10)


def _firmware(root: ET.Element, _meta: Meta | None, here: Surroundings) -> Iterator[str]:
    loader = root.findtext("os/loader")
    if loader:
        yield feature("firmware", loader)
    nvram = nvram_of(root) or Nvram()
    if nvram.network is not None:
        yield from _network_source(nvram.network)
    if nvram.device:
        yield feature("media", nvram.device)
    if nvram.file.startswith("/") and not nvram.file.startswith(f"{NVRAM_FOLDER}/"):
        yield feature("nvram", nvram.file.rpartition("/")[0])
    for tag in HOST_FILES:
        if file := root.findtext(f"os/{tag}"):
            yield _file(file, here)
    for table in root.findall("os/acpi/table"):
        if table.text:
            yield _file(table.text, here)
    for holder in (*root.findall("devices/*/rom[@file]"), *root.findall("sysinfo/entry[@file]")):
        yield _file(holder.get("file", ""), here)


def _file(path: str, here: Surroundings) -> str:
    """Return the need of a file that is only read: its folder where all nodes share it, else the file."""
    folder = path.rpartition("/")[0]
    return feature("media", path) if here.is_local(path) and not is_shared(folder, here) else feature("shared", folder)


def is_shared(folder: str, here: Surroundings) -> bool:
    """Return whether this node lists a folder as one that others share, with a pool or without."""
    listed = tuple(text for text in here.has if text.startswith("shared="))
    return bool(listed) and not lacks(listed, (feature("shared", folder),))


# --- disks ------------------------------------------------------------------------------------------------------------


def _disks(root: ET.Element, meta: Meta | None, here: Surroundings) -> Iterator[str]:
    if meta is not None and meta.pool:
        yield from _pool(meta.pool, here)
    for disk in written_disks(root):
        yield from _written(disk, meta, here)
    for disk in root.findall("devices/disk"):
        yield from _any_disk(disk, here)


def _written(disk: ET.Element, meta: Meta | None, here: Surroundings) -> Iterator[str]:
    source = disk.find("source")
    path = "" if source is None else source.get("file") or source.get("dev") or ""
    folder, _, name = path.rpartition("/")
    own = meta is not None and bool(meta.volume) and meta.volume == name
    if not folder or disk.get("device") == "lun":
        return
    if here.is_local(path):
        if not own:
            yield feature("storage", folder)
    elif not own:
        yield feature("shared", folder)


def _any_disk(disk: ET.Element, here: Surroundings) -> Iterator[str]:
    kind, device, target = disk.get("type", ""), disk.get("device", "disk"), disk.find("target")
    if disk.find("mirror") is not None:
        yield bound("block-job", "" if target is None else f"on {target.get('dev', '')}")
    for each in disk.iter("source"):
        yield from _network_source(each)
        yield from (_secret(secret) for secret in each.findall("encryption/secret"))
    for secret in (*disk.findall("auth/secret"), *disk.findall("encryption/secret")):
        yield _secret(secret)
    source = disk.find("source")
    if source is None:
        return
    if source.get("pool"):
        yield from _pool(source.get("pool", ""), here)
    path = source.get("file") or source.get("dev") or source.get("dir") or ""
    if device == "lun":
        yield bound("scsi-lun", path)
    elif device in ("cdrom", "floppy") and source.get("dev"):
        yield bound("host-cdrom", path)
    elif _is_medium(disk) and path and source.get("startupPolicy") not in LEAVES:
        yield _file(path, here)
    devices = {"nvme": "nvme-disk", "vhostuser": "vhost-user-disk", "vhostvdpa": "vdpa"}
    if kind in devices:
        yield bound(devices[kind], path or source.get("path") or _address(source.find("address")))


def _pool(name: str, here: Surroundings) -> Iterator[str]:
    """Yield the needs of a volume in a pool: a pool of that name on another node may be of another cluster."""
    yield feature("pool", name)
    yield from (feature("disk", source) for source in here.pool_sources.get(name, ()))


def _is_medium(disk: ET.Element) -> bool:
    return disk.get("device") in ("cdrom", "floppy") or disk.find("readonly") is not None


def _network_source(source: ET.Element) -> Iterator[str]:
    """Return the need of a disk that its host reaches over the network."""
    protocol, name = source.get("protocol", ""), source.get("name", "")
    if not protocol:
        return
    yield feature("disk", source_of(protocol, name.partition("/")[0], source.findall("host")))
    for secret in source.findall("auth/secret"):
        yield _secret(secret)


def _secret(secret: ET.Element) -> str:
    return feature("secret", secret.get("uuid") or f"usage:{secret.get('usage', '')}")


# --- networks ---------------------------------------------------------------------------------------------------------


def _interfaces(root: ET.Element, _meta: Meta | None, _here: Surroundings) -> Iterator[str]:
    for interface in root.findall("devices/interface"):
        source = interface.find("source")
        kind = interface.get("type", "")
        for each in interface.findall("filterref"):
            yield feature("nwfilter", each.get("filter", ""))
        if kind == "hostdev":
            yield from _sr_iov(interface, source)
        elif kind == "vhostuser":
            yield bound("vhost-user-interface", "" if source is None else source.get("path", ""))
        elif kind == "vdpa":
            yield bound("vdpa", "" if source is None else source.get("dev", ""))
        elif kind == "ethernet":
            target = interface.find("target")
            if target is not None and target.get("managed") == "no":
                yield bound("tap-device", target.get("dev", ""))
        elif source is not None:
            yield from _connected(interface, source)


def _connected(interface: ET.Element, source: ET.Element) -> Iterator[str]:
    """Return what an interface is connected to. Libvirt shows the bridge of a network, too: another node's may have
    another one."""
    port = interface.find("virtualport")
    if source.get("network"):
        yield feature("network", source.get("network", ""))
    elif source.get("bridge"):
        is_ovs = port is not None and port.get("type") == "openvswitch"
        yield feature("ovs" if is_ovs else "bridge", source.get("bridge", ""))
    elif source.get("dev") and interface.get("type") == "direct":
        yield feature("direct", source.get("dev", ""))


def _sr_iov(interface: ET.Element, source: ET.Element | None) -> Iterator[str]:
    """Return the need of a network device that is passed through. With transient teaming, libvirt unplugs it before a
    migration and plugs in what has the same address on the target."""
    address = "" if source is None else _address(source.find("address"))
    teaming = interface.find("teaming")
    if teaming is None or teaming.get("type") != "transient":
        yield bound("sr-iov", address)
    elif source is not None and source.get("network"):
        yield feature("network", source.get("network", ""))
    else:
        yield feature("vf", address)


# --- other devices ----------------------------------------------------------------------------------------------------


def _host_devices(root: ET.Element, _meta: Meta | None, _here: Surroundings) -> Iterator[str]:
    for device in root.findall("devices/hostdev"):
        source = device.find("source")
        source = ET.Element("source") if source is None else source
        kind, teaming = device.get("type", ""), device.find("teaming")
        address = _address(source.find("address"))
        if device.get("mode") == "capabilities":
            yield bound("capabilities-device", next((one.text or "" for one in source), ""))
        elif kind == "pci" and teaming is not None and teaming.get("type") == "transient":
            yield feature("vf", address)
        elif kind == "pci":
            yield bound("pci-device", address)
        elif kind == "usb":
            yield bound("usb-device", _usb(source) or address)
        elif kind == "mdev":
            yield bound("mdev", "" if (where := source.find("address")) is None else where.get("uuid", ""))
        elif kind == "scsi_host":
            yield bound("scsi-host", source.get("wwpn", ""))
        else:
            adapter = source.find("adapter")
            yield bound("scsi-device", source.get("name", "") if adapter is None else adapter.get("name", ""))


def _usb(source: ET.Element) -> str:
    vendor, product = source.find("vendor"), source.find("product")
    if vendor is None or product is None:
        return ""
    return f"{vendor.get('id', '').removeprefix('0x')}:{product.get('id', '').removeprefix('0x')}"


def _address(address: ET.Element | None) -> str:
    """Return an address as lspci writes it ("0000:3b:00.0"), or that on a USB bus; "" for none."""
    if address is None:
        return ""
    if address.get("bus") and address.get("slot"):
        parts = [_hex(address, key) for key in ("domain", "bus", "slot", "function")]
        return "{:04x}:{:02x}:{:02x}.{:x}".format(*parts)
    return "-".join(filter(None, (address.get("bus"), address.get("device"))))


def _hex(address: ET.Element, key: str) -> int:
    try:
        return int(address.get(key, "0"), 0)
    except ValueError:
        return 0


def _devices(root: ET.Element, _meta: Meta | None, _here: Surroundings) -> Iterator[str]:
    for device in root.findall("devices/filesystem"):
        driver, source = device.find("driver"), device.find("source")
        virtiofs = driver is not None and driver.get("type") == "virtiofs"
        folder = "" if source is None else source.get("dir") or source.get("socket") or ""
        yield bound("filesystem-virtiofs" if virtiofs else "filesystem-9p", folder)
    for device in root.findall("devices/tpm"):
        backend = device.find("backend")
        kind = "passthrough" if backend is None else backend.get("type", "passthrough")
        if kind == "passthrough":
            path = None if backend is None else backend.find("device")
            yield bound("tpm-passthrough", "" if path is None else path.get("path", ""))
        else:
            yield feature("tpm", kind)
        for secret in device.findall("backend/encryption"):
            yield feature("secret", secret.get("secret", ""))
    for device in root.findall("devices/shmem"):
        yield bound("shared-memory", device.get("name", ""))
    for device in root.findall("devices/memory"):
        if device.get("model") in SHARED_MEMORY_MODELS:
            yield bound(SHARED_MEMORY_MODELS[device.get("model", "")], device.findtext("source/path", ""))
    for device in root.findall("devices/input"):
        source = device.find("source")
        if device.get("type") in ("passthrough", "evdev") and source is not None:
            yield bound("input-device", source.get("evdev") or source.get("dev") or "")
    for tag in ("serial", "parallel", "console", "channel"):
        for device in root.findall(f"devices/{tag}"):
            source = device.find("source")
            if device.get("type") in HOST_PORTS:
                yield bound("host-character-device", "" if source is None else source.get("path", ""))
    if any(device.get("mode") in ("host", "host-certificates") for device in root.findall("devices/smartcard")):
        yield bound("smartcard")
    security = root.find("launchSecurity")
    if security is not None:
        yield bound("launch-security", security.get("type", ""))


def _displays(root: ET.Element, _meta: Meta | None, _here: Surroundings) -> Iterator[str]:
    if any(one.get("accel3d") == "yes" for one in root.findall("devices/video/model/acceleration")):
        yield bound("3d-acceleration")
    for display in root.findall("devices/graphics"):
        listens = [one.get("address", "") for one in display.findall("listen") if one.get("type") == "address"]
        for address in {display.get("listen", ""), *listens}:
            if _is_of_host(address):
                yield bound("listen-address", address)


def _is_of_host(text: str) -> bool:
    """Return whether this is an address of one host alone."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return not (address.is_unspecified or address.is_loopback)


_READERS = (
    _machine,
    _cpu,
    _pinning,
    _hugepages,
    _firmware,
    _disks,
    _interfaces,
    _host_devices,
    _devices,
    _displays,
)
