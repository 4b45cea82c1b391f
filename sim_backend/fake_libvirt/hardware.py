"""What a host of the stand-in has beside cores, memory and pools, and how libvirt's capabilities tell of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

EMULATOR = "/usr/bin/qemu-system-x86_64"
NVRAM_FOLDER = "/var/lib/libvirt/qemu/nvram"
MODELS = ("qemu64", "Nehalem", "Westmere", "SandyBridge")
FLAGS = ("sse4.2", "aes", "hypervisor")
MACHINES = ("pc-i440fx-7.2", "pc-q35-7.2")
ALIASES = {"pc": "pc-i440fx-7.2"}


@dataclass(frozen=True, slots=True)
class Cell:
    """A NUMA cell: its number, its CPUs, its memory in MiB, and MiB in hugepages by the size of a page in KiB."""

    number: int
    cpus: tuple[int, ...]
    memory_mib: int
    pages_mib: Mapping[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Hardware:
    """What a host has. `cells`: none, as libvirt tells it of machines without NUMA that it cannot look into. `models`,
    `flags`: CPU models and features that guests can have, by hypervisor. `vendor`: of the CPU.
    `reached`: network disks, as "rbd:vms@mon1,mon2" or "nbd:store1:10809"; `mounts`: folders of other machines;
    `devices`: of the network, and others by their path; `functions`: addresses of SR-IOV virtual functions. `secrets`:
    usages by UUID.
    """

    virts: tuple[str, ...] = ("qemu",)
    machines: tuple[str, ...] = MACHINES
    emulators: tuple[str, ...] = (EMULATOR,)
    models: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"qemu": MODELS, "kvm": MODELS})
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"qemu": FLAGS, "kvm": FLAGS})
    vendor: str = "AMD"
    firmware: tuple[str, ...] = ()
    tpms: tuple[str, ...] = ()
    cells: tuple[Cell, ...] = ()
    bridges: tuple[str, ...] = ()
    ovs: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("lo", "eth0")
    addresses: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)
    reached: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    nvram_folders: tuple[str, ...] = (NVRAM_FOLDER,)

    @property
    def pages_mib(self) -> int:
        """MiB reserved for hugepages of all sizes, in all cells."""
        return sum(sum(cell.pages_mib.values()) for cell in self.cells)

    def topology(self) -> str:
        """Return the part of the capabilities that tells of the cells."""
        if not self.cells:
            return ""
        cells = "".join(_cell(cell) for cell in self.cells)
        return f"<topology><cells num='{len(self.cells)}'>{cells}</cells></topology>"

    def guests(self) -> str:
        """Return the part of the capabilities that tells what can be run."""
        machines = "".join(f"<machine maxCpus='288'>{escape(one)}</machine>" for one in self.machines)
        aliases = [(alias, name) for alias, name in ALIASES.items() if name in self.machines]
        machines += "".join(f"<machine canonical={quoteattr(name)}>{alias}</machine>" for alias, name in aliases)
        emulators = "".join(f"<emulator>{escape(one)}</emulator>" for one in self.emulators)
        virts = "".join(f"<domain type={quoteattr(one)}/>" for one in self.virts)
        arch = f"<arch name='x86_64'><wordsize>64</wordsize>{emulators}{machines}{virts}</arch>"
        return f"<guest><os_type>hvm</os_type>{arch}</guest>"

    def domain_capabilities(self, virt: str) -> str:
        """Return what a hypervisor of the host can do."""
        usable = self.models.get(virt, ())
        models = "".join(f"<model usable='yes'>{escape(one)}</model>" for one in usable)
        models += "<model usable='no'>Denverton</model>"
        flags = "".join(f"<feature policy='require' name={quoteattr(one)}/>" for one in self.flags.get(virt, ()))
        model = usable[-1] if usable else "qemu64"
        chosen = f"<model fallback='forbid'>{escape(model)}</model><vendor>{escape(self.vendor)}</vendor>{flags}"
        host = f"<mode name='host-model' supported='yes'>{chosen}</mode>"
        custom = f"<mode name='custom' supported='yes'>{models}</mode>"
        backends = "<value>passthrough</value>" + _values(self.tpms)
        tpm = f"<tpm supported='yes'><enum name='backendModel'>{backends}</enum></tpm>"
        loader = f"<os supported='yes'><loader supported='yes'>{_values(self.firmware)}</loader></os>"
        head = f"<path>{EMULATOR}</path><domain>{escape(virt)}</domain><arch>x86_64</arch>"
        parts = f"{head}{loader}<cpu>{host}{custom}</cpu><devices>{tpm}</devices>"
        return f"<domainCapabilities>{parts}</domainCapabilities>"


def _cell(cell: Cell) -> str:
    whole_kib = cell.memory_mib << 10
    pages = {4: whole_kib - sum(mib << 10 for mib in cell.pages_mib.values())}
    pages |= {size_kib: mib << 10 for size_kib, mib in cell.pages_mib.items()}
    counts = "".join(f"<pages unit='KiB' size='{size}'>{kib // size}</pages>" for size, kib in pages.items())
    cpus = "".join(f"<cpu id='{cpu}' socket_id='0' core_id='{cpu}' siblings='{cpu}'/>" for cpu in cell.cpus)
    memory = f"<memory unit='KiB'>{whole_kib}</memory>"
    return f"<cell id='{cell.number}'>{memory}{counts}<cpus num='{len(cell.cpus)}'>{cpus}</cpus></cell>"


def _values(found: Iterable[str]) -> str:
    return "".join(f"<value>{escape(one)}</value>" for one in found)
