"""What libvirt refuses of a domain: to start it on a host that lacks something, and to migrate it at all. In libvirt's
words, and read from the XML without regard to anybody else's reading of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from xml.etree import ElementTree as ET

from sim_backend.fake_libvirt.codes import Err, From, fail
from sim_backend.fake_libvirt.definition import Definition
from sim_backend.fake_libvirt.files import Files
from sim_backend.fake_libvirt.hardware import ALIASES, EMULATOR, Hardware
from sim_backend.fake_libvirt.state import Dom, PoolState

KIB = {"B": 1 / 1024, "KiB": 1, "k": 1, "MiB": 1 << 10, "M": 1 << 10, "GiB": 1 << 20, "G": 1 << 20}
HOST_MODES = ("host-passthrough", "host-model", "maximum")
DEFAULT_PAGE_KIB = 2_048
EXITED = "process exited while connecting to monitor: "
PLENTY = "os_mem_prealloc: Insufficient free host memory pages available to allocate guest RAM"
NO_MEMORY = "cannot set up guest memory 'pc.ram': Cannot allocate memory"
ORDINARY = 0  # stands for the size of pages that are no hugepages
NONE = "No such file or directory"


# --- migrations -------------------------------------------------------------------------------------------------------


def check_source(dom: Dom, cpu_model: str, cpu_there: str) -> None:
    """Raise what libvirt refuses to migrate to any target, or to one with another model of CPU."""
    root = dom.definition.tree
    cpu = root.find("cpu")
    if cpu is not None and cpu.get("mode") in HOST_MODES and cpu_model != cpu_there:
        fail(Err.OPERATION_FAILED, From.QEMU, f"guest CPU doesn't match specification: it is that of {cpu_model}")
    if dom.jobs:
        fail(Err.OPERATION_INVALID, From.QEMU, f"another migration job or {dom.jobs[0]} is already running for domain")
    if dom.block_jobs:
        fail(Err.OPERATION_INVALID, From.QEMU, "domain has active block job")
    _check_host_devices(root)
    for kind, words in (
        ("filesystem", "migration with virtiofs device is not supported"),
        ("shmem", "migration with shmem device is not supported"),
        ("smartcard[@mode='host']", "cannot migrate a domain with a smartcard of its host"),
        ("video/model/acceleration[@accel3d='yes']", "virgl is not yet migratable"),
        ("memory[@model='nvdimm']", "nvdimm without a shared backend cannot be migrated"),
        ("memory[@model='virtio-pmem']", "migration with virtio-pmem device is not supported"),
        ("memory[@model='sgx-epc']", "migration with sgx-epc device is not supported"),
        ("tpm/backend[@type='passthrough']", "migration with TPM passthrough is not supported"),
        ("interface[@type='vdpa']", "vDPA devices cannot be migrated"),
        ("interface[@type='vhostuser']", "vhost-user interfaces cannot be migrated"),
        ("disk[@type='nvme']", "cannot migrate a domain with an NVMe disk"),
        ("disk[@type='vhostuser']", "migration with vhost-user disk is not supported"),
        ("disk[@type='vhostvdpa']", "vDPA devices cannot be migrated"),
        ("disk[@device='lun']", "migration with SCSI passthrough is not supported"),
        ("input[@type='passthrough']/source", "cannot migrate a domain with an input device of its host"),
        ("input[@type='evdev']/source", "cannot migrate a domain with an input device of its host"),
    ):
        if root.find(f"devices/{kind}") is not None:
            fail(Err.OPERATION_UNSUPPORTED, From.QEMU, words)
    if root.find("launchSecurity") is not None:
        fail(Err.OPERATION_UNSUPPORTED, From.QEMU, "migration is not supported with launch security")
    _check_invtsc(root)


def _check_host_devices(root: ET.Element) -> None:
    for device in root.findall("devices/hostdev"):
        teaming = device.find("teaming")
        if device.get("mode") == "capabilities":
            fail(Err.OPERATION_UNSUPPORTED, From.QEMU, "cannot migrate a domain with <hostdev mode='capabilities'>")
        if teaming is None or teaming.get("type") != "transient":
            words = f"cannot migrate a domain with <hostdev mode='subsystem' type='{device.get('type')}'>"
            fail(Err.OPERATION_UNSUPPORTED, From.QEMU, words)
    for device in root.findall("devices/interface[@type='hostdev']"):
        teaming = device.find("teaming")
        if teaming is None or teaming.get("type") != "transient":
            fail(Err.OPERATION_UNSUPPORTED, From.QEMU, "cannot migrate a domain with <interface type='hostdev'>")


def _check_invtsc(root: ET.Element) -> None:
    flags = [one for one in root.findall("cpu/feature") if one.get("name") == "invtsc"]
    wanted = any(one.get("policy", "require") in ("require", "force") for one in flags)
    if wanted and not any(one.get("frequency") for one in root.findall("clock/timer[@name='tsc']")):
        fail(Err.OPERATION_INVALID, From.QEMU, "domain has 'invtsc' CPU feature but no TSC frequency")


def check_pools(dom: Dom, here: Mapping[str, PoolState], there: Mapping[str, PoolState]) -> None:
    """Raise why a domain does not find a volume of it on the target: a pool of that name is in another cluster."""
    for source in dom.definition.tree.findall("devices/disk/source[@pool]"):
        name = source.get("pool", "")
        if name in here and name in there and set(here[name].hosts) != set(there[name].hosts):
            words = f"{EXITED}error reading header from {source.get('volume')}: {NONE}"
            fail(Err.INTERNAL_ERROR, From.QEMU, words)


# --- starts -----------------------------------------------------------------------------------------------------------


def check_start(
    definition: Definition,
    cores: int,
    hardware: Hardware,
    files: Files,
    pools: Sequence[PoolState],
    running: Sequence[Dom],
) -> None:
    """Raise why a host cannot start a domain, or take it in. `running`: the other domains that run there."""
    root = definition.tree
    _check_machine(root, hardware)
    _check_cpu(root, hardware)
    _check_places(root, cores, hardware)
    _check_firmware(root, hardware, files)
    _check_disks(root, hardware, files, pools)
    _check_interfaces(root, hardware)
    _check_own_devices(root, hardware)
    _check_pages(definition, hardware, running)
    _check_cell_memory(definition, hardware, running)


def _check_machine(root: ET.Element, hardware: Hardware) -> None:
    emulator = root.findtext("devices/emulator") or EMULATOR
    if emulator not in hardware.emulators:
        fail(Err.SYSTEM_ERROR, From.QEMU, f"Cannot check QEMU binary {emulator}: {NONE}")
    virt = root.get("type", "")
    if virt not in hardware.virts:
        fail(Err.CONFIG_UNSUPPORTED, From.QEMU, f"Emulator '{emulator}' does not support virt type '{virt}'")
    kind = root.find("os/type")
    arch = "" if kind is None else kind.get("arch", "")
    if arch not in ("", "x86_64"):
        fail(Err.CONFIG_UNSUPPORTED, From.QEMU, f"Emulator '{emulator}' does not support arch '{arch}'")
    machine = "" if kind is None else kind.get("machine", "")
    if machine and ALIASES.get(machine, machine) not in hardware.machines:
        words = f"Emulator '{emulator}' does not support machine type '{machine}'"
        fail(Err.CONFIG_UNSUPPORTED, From.QEMU, words)


def _check_cpu(root: ET.Element, hardware: Hardware) -> None:
    cpu, virt = root.find("cpu"), root.get("type", "")
    if cpu is None:
        return
    model = cpu.findtext("model") if cpu.get("mode", "custom") == "custom" else ""
    if model and cpu.get("match", "exact") != "minimum" and model not in hardware.models.get(virt, ()):
        words = f"Host CPU does not provide required features of {model}"
        fail(Err.CPU_INCOMPATIBLE, From.QEMU, words)
    for flag in cpu.findall("feature"):
        name = flag.get("name", "")
        if flag.get("policy", "require") == "require" and name not in hardware.flags.get(virt, ()):
            fail(Err.CPU_INCOMPATIBLE, From.QEMU, f"Host CPU does not provide required features: {name}")
    if cpu.get("check") == "none" or cpu.get("mode", "custom") in HOST_MODES:
        return
    vendor = cpu.findtext("vendor")
    if vendor and vendor != hardware.vendor:
        fail(Err.CPU_INCOMPATIBLE, From.QEMU, f"host CPU vendor does not match required CPU vendor {vendor}")
    for flag in cpu.findall("feature[@policy='forbid']"):
        if flag.get("name") in hardware.flags.get(virt, ()):
            fail(Err.CPU_INCOMPATIBLE, From.QEMU, f"Host CPU provides forbidden features: {flag.get('name')}")


def _check_places(root: ET.Element, cores: int, hardware: Hardware) -> None:
    """NUMA cells and CPUs that the domain names."""
    cells = {cell.number for cell in hardware.cells} or {0}
    cpus = {cpu for cell in hardware.cells for cpu in cell.cpus} or set(range(cores))
    memory = [*root.findall("numatune/memory"), *root.findall("numatune/memnode")]
    for element in memory:
        if element.get("mode", "strict") in ("strict", "restrictive"):
            for number in sorted(_listed(element.get("nodeset", "")) - cells):
                fail(Err.CONFIG_UNSUPPORTED, From.QEMU, f"NUMA node {number} is unavailable")
    pins = [*root.findall("vcpu"), *(pin for pin in root.iter() if pin.tag.endswith("pin"))]
    for pin in pins:
        if _listed(pin.get("cpuset", "")) - cpus:
            fail(Err.SYSTEM_ERROR, From.NONE, "cannot set CPU affinity on process 4711: Invalid argument")


def _check_firmware(root: ET.Element, hardware: Hardware, files: Files) -> None:
    loader = root.findtext("os/loader")
    if loader and loader not in hardware.firmware:
        fail(Err.INTERNAL_ERROR, From.QEMU, f"{EXITED}Could not open '{loader}': {NONE}")
    nvram = root.find("os/nvram")
    path = "" if nvram is None else (nvram.text or "").strip()
    if path and not any(path.startswith(f"{folder}/") for folder in hardware.nvram_folders):
        fail(Err.SYSTEM_ERROR, From.QEMU, f"Failed to create file '{path}': {NONE}")
    for tag in ("kernel", "initrd", "dtb"):
        name = root.findtext(f"os/{tag}")
        if name and files.get(name) is None:
            fail(Err.INTERNAL_ERROR, From.QEMU, f"{EXITED}could not load '{name}'")


def _check_disks(root: ET.Element, hardware: Hardware, files: Files, pools: Sequence[PoolState]) -> None:
    active = {pool.name for pool in pools if pool.active}
    for disk in root.findall("devices/disk"):
        source = disk.find("source")
        for each in disk.iter("source"):
            place = _place(each)
            if place and place not in hardware.reached:
                fail(Err.INTERNAL_ERROR, From.QEMU, f"{EXITED}error connecting: {place}")
        for secret in disk.iter("secret"):
            _check_secret(secret, hardware)
        if source is None:
            continue
        if source.get("pool") and source.get("pool") not in active:
            fail(Err.NO_STORAGE_POOL, From.STORAGE, f"no storage pool with matching name '{source.get('pool')}'")
        path = source.get("file")
        leaves = source.get("startupPolicy") in ("optional", "requisite")
        if path and disk.get("device") in ("cdrom", "floppy") and not leaves and files.get(path) is None:
            fail(Err.SYSTEM_ERROR, From.STORAGE, f"Cannot access storage file '{path}': {NONE}")
        if source.get("dev") and disk.get("device") == "cdrom" and source.get("dev") not in hardware.devices:
            fail(Err.SYSTEM_ERROR, From.STORAGE, f"Cannot access storage file '{source.get('dev')}': {NONE}")


def _place(source: ET.Element) -> str:
    """Return where a network disk is, as `Hardware.reached` names it."""
    protocol, name, hosts = source.get("protocol", ""), source.get("name", ""), source.findall("host")
    if not protocol:
        return ""
    if protocol in ("rbd", "gluster", "iscsi"):
        servers = ",".join(sorted(host.get("name", "") for host in hosts))
        return f"{protocol}:{name.split('/')[0]}" + (f"@{servers}" if servers else "")
    return f"{protocol}:{hosts[0].get('name', '')}:{hosts[0].get('port', '')}" if hosts else f"{protocol}:"


def _check_secret(secret: ET.Element, hardware: Hardware) -> None:
    uuid, usage = secret.get("uuid"), secret.get("usage")
    if uuid is not None and uuid not in hardware.secrets:
        fail(Err.NO_SECRET, From.NONE, f"no secret with matching uuid '{uuid}'")
    if uuid is None and usage not in hardware.secrets.values():
        fail(Err.NO_SECRET, From.NONE, f"no secret with matching usage '{usage}'")


def _check_interfaces(root: ET.Element, hardware: Hardware) -> None:
    for interface in root.findall("devices/interface"):
        source, port = interface.find("source"), interface.find("virtualport")
        for each in interface.findall("filterref"):
            if each.get("filter") not in hardware.filters:
                fail(Err.NO_NWFILTER, From.NONE, f"no nwfilter with matching name '{each.get('filter')}'")
        if source is None:
            continue
        network, bridge, device = source.get("network"), source.get("bridge"), source.get("dev")
        if network is not None and network not in hardware.networks:
            fail(Err.NO_NETWORK, From.NONE, f"no network with matching name '{network}'")
        if network is None and bridge is not None and port is not None and port.get("type") == "openvswitch":
            if bridge not in hardware.ovs:
                fail(Err.INTERNAL_ERROR, From.NONE, f"Unable to add port vnet0 to OVS bridge {bridge}")
        elif network is None and bridge is not None and bridge not in hardware.bridges:
            fail(Err.SYSTEM_ERROR, From.NONE, f"Cannot get interface MTU on '{bridge}': No such device")
        if interface.get("type") == "direct" and device not in hardware.devices:
            fail(Err.SYSTEM_ERROR, From.NONE, f"Unable to get index for interface {device}: No such device")
    for passed in (*root.findall("devices/interface"), *root.findall("devices/hostdev")):
        address = passed.find("source/address[@bus]")
        if passed.find("teaming[@type='transient']") is not None and address is not None:
            parts = [int(address.get(key, "0"), 0) for key in ("domain", "bus", "slot", "function")]
            name = "{:04x}:{:02x}:{:02x}.{:x}".format(*parts)
            if name not in hardware.functions:
                fail(Err.INTERNAL_ERROR, From.NONE, f"Device {name} not found: could not access its config")


def _check_own_devices(root: ET.Element, hardware: Hardware) -> None:
    """TPMs, addresses of displays, tap devices and ports of the host."""
    for device in root.findall("devices/tpm/backend"):
        if device.get("type") == "emulator" and "emulator" not in hardware.tpms:
            fail(Err.CONFIG_UNSUPPORTED, From.QEMU, "Unable to find 'swtpm' binary in $PATH")
        for encryption in device.findall("encryption"):
            _check_secret(ET.Element("secret", uuid=encryption.get("secret", "")), hardware)
    listens = [one.get("listen", "") for one in root.findall("devices/graphics")]
    listens += [one.get("address", "") for one in root.findall("devices/graphics/listen[@type='address']")]
    taps = [one.get("dev", "") for one in root.findall("devices/interface/target[@managed='no']")]
    ports = [one.get("path", "") for one in root.findall("devices/serial[@type='dev']/source")]
    for address in sorted({*listens} - {"", "0.0.0.0", "::", "127.0.0.1", "::1", *hardware.addresses}):
        fail(Err.INTERNAL_ERROR, From.QEMU, f"{EXITED}Failed to bind socket to {address}: Cannot assign address")
    for name in (*taps, *ports):
        if name not in hardware.devices:
            fail(Err.SYSTEM_ERROR, From.QEMU, f"unable to open {name}: No such device")


# --- hugepages --------------------------------------------------------------------------------------------------------


def pages_kib(definition: Definition) -> dict[int, int]:
    """Return the KiB that a domain needs in hugepages, by the size of a page in KiB."""
    holder = definition.tree.find("memoryBacking/hugepages")
    if holder is None:
        return {}
    cells = {int(cell.get("id", "0")): _kib(cell, "memory") for cell in definition.tree.findall("cpu/numa/cell")}
    cells = cells or {0: definition.memory_kib}
    pages = holder.findall("page") or [ET.Element("page", size=str(DEFAULT_PAGE_KIB))]
    found: dict[int, int] = {}
    for number, kib in cells.items():
        own = [page for page in pages if page.get("nodeset") and number in _listed(page.get("nodeset", ""))]
        for page in (own or [page for page in pages if not page.get("nodeset")])[:1]:
            size = _kib(page, "size")
            found[size] = found.get(size, 0) + -(-kib // size) * size
    return found


def _check_pages(definition: Definition, hardware: Hardware, running: Sequence[Dom]) -> None:
    """Raise unless there are pages for it once those of other domains are gone: theirs come from the first of their
    cells that has some."""
    wanted = pages_kib(definition)
    if not wanted:
        return
    left = {(c.number, size): mib << 10 for c in hardware.cells for size, mib in c.pages_mib.items()}
    for other in running:
        for size, kib in pages_kib(other.definition).items():
            _take(left, size, kib, _cells_of(other.definition))
    for size, kib in wanted.items():
        if all(key[1] != size for key in left):
            fail(Err.INTERNAL_ERROR, From.QEMU, f"Unable to find any usable hugetlbfs mount for {size} KiB")
        if _take(left, size, kib, _cells_of(definition)) > 0:
            fail(Err.INTERNAL_ERROR, From.QEMU, f"qemu unexpectedly closed the monitor: {PLENTY}")


def _check_cell_memory(definition: Definition, hardware: Hardware, running: Sequence[Dom]) -> None:
    """Raise unless the cells that a domain must be in have its ordinary memory once that of other such domains is gone;
    of those that may be anywhere none is counted."""
    wanted = _cells_of(definition)
    if not (wanted and hardware.cells):
        return
    left = {(c.number, ORDINARY): (c.memory_mib - sum(c.pages_mib.values())) << 10 for c in hardware.cells}
    for other in running:
        if cells := _cells_of(other.definition):
            _take(left, ORDINARY, _ordinary_kib(other.definition), cells)
    if _take(left, ORDINARY, _ordinary_kib(definition), wanted) > 0:
        fail(Err.INTERNAL_ERROR, From.QEMU, f"qemu unexpectedly closed the monitor: {NO_MEMORY}")


def _ordinary_kib(definition: Definition) -> int:
    return max(0, definition.memory_kib - sum(pages_kib(definition).values()))


def _take(left: dict[tuple[int, int], int], size: int, kib: int, cells: set[int]) -> int:
    """Take pages of a size from some cells (none: any); return what is missing, in KiB."""
    for key in sorted(left):
        if key[1] == size and (not cells or key[0] in cells):
            taken = min(kib, left[key])
            left[key] -= taken
            kib -= taken
    return kib


def _cells_of(definition: Definition) -> set[int]:
    memory = [*definition.tree.findall("numatune/memory"), *definition.tree.findall("numatune/memnode")]
    strict = [one for one in memory if one.get("mode", "strict") in ("strict", "restrictive")]
    return {number for one in strict for number in _listed(one.get("nodeset", ""))}


def _kib(element: ET.Element, key: str) -> int:
    return int(int(element.get(key, "0")) * KIB.get(element.get("unit", "KiB"), 1))


def _listed(text: str) -> set[int]:
    return {number for number in _numbers(text) if number >= 0} - {-1 - number for number in _numbers(text)}


def _numbers(text: str) -> Iterator[int]:
    """Yield the numbers of a list such as "0-3,^2": those that are left out as -1 minus themselves."""
    for piece in filter(None, text.split(",")):
        first, _, last = piece.lstrip("^").partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield -1 - number if piece.startswith("^") else number
