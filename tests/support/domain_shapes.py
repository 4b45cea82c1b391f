"""Domains as operators define them: fragments of XML, each with the kind of need that it brings, and what is made of
them. Written after libvirt's documentation of its format and after definitions of virt-manager, virt-install, Proxmox
and OpenStack."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

SECRET = "5a3b3c8e-1c1f-4a4e-9d3e-2f1b6a7c8d9e"
OVMF = "/usr/share/OVMF/OVMF_CODE.fd"
VF = "<address type='pci' domain='0x0000' bus='0x3b' slot='0x02' function='0x1'/>"
CARD = "<address domain='0x0000' bus='0x3b' slot='0x00' function='0x0'/>"


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a domain. `kind`: of the need that it brings ("": none); `what`: of a `bound` need, what keeps it.
    `at`: where it belongs: "devices", "os" or "domain". `apart`: fragments with the same word exclude each other."""

    name: str
    xml: str
    kind: str = ""
    what: str = ""
    at: str = "devices"
    apart: str = ""


def _bound(name: str, xml: str, what: str, at: str = "devices", apart: str = "") -> Fragment:
    return Fragment(name, xml, "bound", what, at, apart)


FRAGMENTS: tuple[Fragment, ...] = (
    # networks
    Fragment("net-default", "<interface type='network'><source network='default'/></interface>", "network"),
    Fragment("net-vlan", "<interface type='network'><source network='prod' portgroup='v10'/></interface>", "network"),
    Fragment(
        "net-shown-bridge",
        "<interface type='bridge'><source network='default' bridge='virbr0'/></interface>",
        "network",
    ),
    Fragment("bridge", "<interface type='bridge'><source bridge='br0'/><model type='virtio'/></interface>", "bridge"),
    Fragment("bridge-dmz", "<interface type='bridge'><source bridge='br-dmz'/></interface>", "bridge"),
    Fragment(
        "ovs",
        "<interface type='bridge'><source bridge='br-int'/><virtualport type='openvswitch'/></interface>",
        "ovs",
    ),
    Fragment("macvtap", "<interface type='direct'><source dev='eth1' mode='bridge'/></interface>", "direct"),
    Fragment("user-net", "<interface type='user'/>"),
    Fragment(
        "filter",
        "<interface type='bridge'><source bridge='br0'/><filterref filter='clean-traffic'/></interface>",
        "nwfilter",
    ),
    Fragment(
        "vf-teaming",
        f"<interface type='hostdev' managed='yes'><source>{VF}</source><teaming type='transient' persistent='ua-net'/>"
        "</interface>",
        "vf",
    ),
    _bound("sr-iov", f"<interface type='hostdev' managed='yes'><source>{VF}</source></interface>", "sr-iov"),
    _bound(
        "vhostuser",
        "<interface type='vhostuser'><source type='unix' path='/run/v.sock'/></interface>",
        "vhost-user-interface",
    ),
    _bound("vdpa", "<interface type='vdpa'><source dev='/dev/vhost-vdpa-0'/></interface>", "vdpa"),
    _bound("tap", "<interface type='ethernet'><target dev='tap7' managed='no'/></interface>", "tap-device"),
    # host devices
    _bound(
        "pci", f"<hostdev mode='subsystem' type='pci' managed='yes'><source>{CARD}</source></hostdev>", "pci-device"
    ),
    _bound(
        "usb",
        "<hostdev mode='subsystem' type='usb'><source><vendor id='0x046d'/><product id='0x082d'/></source></hostdev>",
        "usb-device",
    ),
    _bound(
        "scsi",
        "<hostdev mode='subsystem' type='scsi'><source><adapter name='scsi_host0'/>"
        "<address bus='0' target='0' unit='0'/></source></hostdev>",
        "scsi-device",
    ),
    _bound(
        "vhost-scsi",
        "<hostdev mode='subsystem' type='scsi_host'><source protocol='vhost' wwpn='naa.50014'/></hostdev>",
        "scsi-host",
    ),
    _bound(
        "vgpu",
        "<hostdev mode='subsystem' type='mdev' model='vfio-pci'><source>"
        "<address uuid='c2177883-f1bb-47f0-914d-32a22e3a8804'/></source></hostdev>",
        "mdev",
    ),
    _bound(
        "capability",
        "<hostdev mode='capabilities' type='misc'><source><char>/dev/input/event3</char></source></hostdev>",
        "capabilities-device",
    ),
    _bound("smartcard", "<smartcard mode='host'/>", "smartcard", apart="smartcard"),
    _bound("evdev", "<input type='evdev'><source dev='/dev/input/event1'/></input>", "input-device"),
    _bound("serial-port", "<serial type='dev'><source path='/dev/ttyS0'/></serial>", "host-character-device"),
    Fragment("serial-pty", "<serial type='pty'/>"),
    _bound("9p", "<filesystem type='mount'><source dir='/srv'/><target dir='srv'/></filesystem>", "filesystem-9p"),
    _bound(
        "virtiofs",
        "<filesystem type='mount'><driver type='virtiofs'/><source dir='/srv'/><target dir='srv'/></filesystem>",
        "filesystem-virtiofs",
    ),
    _bound("ivshmem", "<shmem name='glass'><size unit='M'>32</size></shmem>", "shared-memory"),
    _bound(
        "nvdimm",
        "<memory model='nvdimm'><source><path>/dev/dax0.0</path></source><target><size unit='MiB'>64</size></target>"
        "</memory>",
        "nvdimm",
    ),
    _bound(
        "pmem",
        "<memory model='virtio-pmem'><source><path>/srv/pmem</path></source><target><size unit='MiB'>64</size></target>"
        "</memory>",
        "virtio-pmem",
    ),
    _bound("sgx", "<memory model='sgx-epc'><target><size unit='KiB'>16384</size></target></memory>", "sgx"),
    # TPM, displays
    Fragment("vtpm", "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>", "tpm", apart="tpm"),
    Fragment(
        "vtpm-secret",
        f"<tpm model='tpm-crb'><backend type='emulator' version='2.0'><encryption secret='{SECRET}'/></backend></tpm>",
        "tpm",
        apart="tpm",
    ),
    _bound(
        "tpm-host",
        "<tpm model='tpm-tis'><backend type='passthrough'><device path='/dev/tpm0'/></backend></tpm>",
        "tpm-passthrough",
        apart="tpm",
    ),
    Fragment(
        "vnc",
        "<graphics type='vnc' port='-1' listen='127.0.0.1'><listen type='address' address='127.0.0.1'/></graphics>",
    ),
    Fragment("spice-any", "<graphics type='spice'><listen type='address' address='0.0.0.0'/></graphics>"),
    _bound("vnc-address", "<graphics type='vnc' port='5901' listen='192.0.2.9'/>", "listen-address"),
    _bound(
        "virgl",
        "<video><model type='virtio'><acceleration accel3d='yes'/></model></video>",
        "3d-acceleration",
        apart="video",
    ),
    Fragment("qxl", "<video><model type='qxl'/></video>", apart="video"),
    # disks
    Fragment(
        "shared-disk",
        "<disk type='file' device='disk'><source file='/shared/volumes/a.qcow2'/><target dev='vda'/></disk>",
        "shared",
    ),
    Fragment(
        "local-disk",
        "<disk type='file' device='disk'><source file='/pool/own.qcow2'/><target dev='vdb'/></disk>",
        "storage",
    ),
    Fragment(
        "elsewhere",
        "<disk type='file' device='disk'><source file='/srv/vm/own.raw'/><target dev='vdc'/></disk>",
        "storage",
    ),
    Fragment(
        "lvm", "<disk type='block' device='disk'><source dev='/dev/vg0/web'/><target dev='vdd'/></disk>", "storage"
    ),
    Fragment(
        "rbd",
        "<disk type='network' device='disk'><source protocol='rbd' name='vms/a'/><target dev='vde'/></disk>",
        "disk",
    ),
    Fragment(
        "rbd-secret",
        "<disk type='network' device='disk'><auth username='libvirt'>"
        f"<secret type='ceph' uuid='{SECRET}'/></auth><source protocol='rbd' name='vms/b'/><target dev='vdf'/></disk>",
        "secret",
    ),
    Fragment(
        "nbd",
        "<disk type='network' device='disk'><source protocol='nbd' name='x'><host name='store1' port='10809'/></source>"
        "<target dev='vdg'/></disk>",
        "disk",
    ),
    Fragment(
        "iscsi",
        "<disk type='network' device='disk'><source protocol='iscsi' name='iqn.2013-07.com.example:a/1'>"
        "<host name='store1' port='3260'/></source><target dev='vdh'/></disk>",
        "disk",
    ),
    Fragment(
        "gluster",
        "<disk type='network' device='disk'><source protocol='gluster' name='gv0/a.img'><host name='g1'/></source>"
        "<target dev='vdi'/></disk>",
        "disk",
    ),
    Fragment(
        "volume", "<disk type='volume' device='disk'><source pool='fast' volume='a'/><target dev='vdj'/></disk>", "pool"
    ),
    Fragment(
        "luks",
        "<disk type='file' device='disk'><source file='/shared/volumes/luks'><encryption format='luks'>"
        f"<secret type='passphrase' uuid='{SECRET}'/></encryption></source><target dev='vdk'/></disk>",
        "secret",
    ),
    Fragment(
        "luks-usage",
        "<disk type='file' device='disk'><source file='/shared/volumes/luks2'/><encryption format='luks'>"
        "<secret type='passphrase' usage='/vm/luks2'/></encryption><target dev='vdl'/></disk>",
        "secret",
    ),
    Fragment(
        "iso",
        "<disk type='file' device='cdrom'><source file='/pool/debian.iso'/><target dev='sda'/><readonly/></disk>",
        "media",
    ),
    Fragment(
        "iso-shared",
        "<disk type='file' device='cdrom'><source file='/shared/volumes/tools.iso'/>"
        "<target dev='sdb'/><readonly/></disk>",
        "shared",
    ),
    Fragment(
        "iso-optional",
        "<disk type='file' device='cdrom'><source file='/srv/iso/x.iso' startupPolicy='optional'/>"
        "<target dev='sdc'/></disk>",
    ),
    Fragment("empty-drive", "<disk type='file' device='cdrom'><target dev='sdd'/><readonly/></disk>"),
    Fragment(
        "floppy",
        "<disk type='file' device='floppy'><source file='/pool/answers.img'/><target dev='fda'/></disk>",
        "media",
    ),
    _bound(
        "drive",
        "<disk type='block' device='cdrom'><source dev='/dev/sr0'/><target dev='sde'/><readonly/></disk>",
        "host-cdrom",
    ),
    _bound("lun", "<disk type='block' device='lun'><source dev='/dev/sdb'/><target dev='sdf'/></disk>", "scsi-lun"),
    _bound(
        "nvme",
        f"<disk type='nvme' device='disk'><source type='pci' namespace='1'>{CARD}</source><target dev='vdm'/></disk>",
        "nvme-disk",
    ),
    _bound(
        "vhost-user-blk",
        "<disk type='vhostuser' device='disk'><source type='unix' path='/run/blk.sock'/><target dev='vdn'/></disk>",
        "vhost-user-disk",
    ),
    _bound(
        "mirror",
        "<disk type='file' device='disk'><source file='/shared/volumes/m'/><mirror type='file' job='copy'/>"
        "<target dev='vdo'/></disk>",
        "block-job",
    ),
    # machine, CPU, memory
    Fragment("emulator", "<emulator>/usr/bin/qemu-system-x86_64</emulator>", "emulator", apart="emulator"),
    Fragment("emulator-own", "<emulator>/opt/qemu/bin/qemu-kvm</emulator>", "emulator", apart="emulator"),
    Fragment("passthrough", "<cpu mode='host-passthrough' check='none'/>", "cpu", at="domain", apart="cpu"),
    Fragment("host-model", "<cpu mode='host-model'/>", "cpu", at="domain", apart="cpu"),
    Fragment(
        "westmere",
        "<cpu mode='custom' match='exact'><model>Westmere</model></cpu>",
        "cpu-model",
        at="domain",
        apart="cpu",
    ),
    Fragment(
        "skylake",
        "<cpu mode='custom' match='exact' check='full'><model fallback='forbid'>Skylake-Server</model>"
        "<feature policy='require' name='aes'/><feature policy='disable' name='hle'/></cpu>",
        "cpu-model",
        at="domain",
        apart="cpu",
    ),
    Fragment(
        "vmx",
        "<cpu mode='custom' match='exact'><model>Nehalem</model><feature policy='require' name='vmx'/></cpu>",
        "cpu-flag",
        at="domain",
        apart="cpu",
    ),
    Fragment(
        "vendor",
        "<cpu mode='custom' match='exact'><model>Westmere</model><vendor>AMD</vendor></cpu>",
        "cpu-vendor",
        at="domain",
        apart="cpu",
    ),
    Fragment(
        "forbidden",
        "<cpu mode='custom' match='exact'><model>Nehalem</model><feature policy='forbid' name='svm'/></cpu>",
        "cpu-forbid",
        at="domain",
        apart="cpu",
    ),
    _bound(
        "invtsc",
        "<cpu mode='host-passthrough'><feature policy='require' name='invtsc'/></cpu>",
        "invtsc",
        at="domain",
        apart="cpu",
    ),
    Fragment(
        "guest-numa",
        "<cpu mode='custom'><model>qemu64</model><numa><cell id='0' cpus='0' memory='128' unit='MiB'/>"
        "<cell id='1' cpus='1' memory='128' unit='MiB'/></numa></cpu><memoryBacking><hugepages>"
        "<page size='2' unit='M' nodeset='0'/><page size='1' unit='G'/></hugepages></memoryBacking>",
        "hugepages",
        at="domain",
        apart="cpu memory",
    ),
    Fragment("pages", "<memoryBacking><hugepages/></memoryBacking>", "hugepages", at="domain", apart="memory"),
    Fragment(
        "pages-2m",
        "<memoryBacking><hugepages><page size='2048' unit='KiB'/></hugepages><locked/></memoryBacking>",
        "hugepages",
        at="domain",
        apart="memory",
    ),
    Fragment(
        "pages-1g",
        "<memoryBacking><hugepages><page size='1' unit='GiB'/></hugepages></memoryBacking>",
        "hugepages",
        at="domain",
        apart="memory",
    ),
    Fragment(
        "numa-strict", "<numatune><memory mode='strict' nodeset='1'/></numatune>", "numa", at="domain", apart="numa"
    ),
    Fragment(
        "numa-many", "<numatune><memory mode='strict' nodeset='0-3,^2'/></numatune>", "numa", at="domain", apart="numa"
    ),
    Fragment(
        "numa-preferred", "<numatune><memory mode='preferred' nodeset='7'/></numatune>", at="domain", apart="numa"
    ),
    Fragment(
        "pins",
        "<cputune><vcpupin vcpu='0' cpuset='4-7'/><emulatorpin cpuset='0-1'/></cputune>",
        "cpus",
        at="domain",
        apart="pins",
    ),
    Fragment("pins-far", "<cputune><vcpupin vcpu='0' cpuset='40'/></cputune>", "cpus", at="domain", apart="pins"),
    Fragment("kvm-clock", "<clock offset='utc'><timer name='kvmclock' present='yes'/></clock>", at="domain"),
    _bound(
        "sev", "<launchSecurity type='sev'><policy>0x0003</policy></launchSecurity>", "launch-security", at="domain"
    ),
    # firmware
    Fragment("uefi", f"<loader readonly='yes' type='pflash'>{OVMF}</loader>", "firmware", at="os", apart="loader"),
    Fragment("seabios", "<loader>/usr/share/seabios/bios.bin</loader>", "firmware", at="os", apart="loader"),
    Fragment("nvram", "<nvram>/var/lib/libvirt/qemu/nvram/x_VARS.fd</nvram>", "", at="os", apart="nvram"),
    Fragment("nvram-own", "<nvram>/shared/volumes/x_VARS.fd</nvram>", "nvram", at="os", apart="nvram"),
    Fragment("kernel", "<kernel>/boot/guest/vmlinuz</kernel>", "media", at="os"),
)

MACHINES = ("pc", "pc-i440fx-7.2", "pc-q35-7.2", "pc-q35-8.1")
VIRTS = ("qemu", "qemu", "qemu", "kvm")


def domain(name: str, parts: Sequence[Fragment], virt: str = "qemu", machine: str = "pc", memory_mib: int = 256) -> str:
    """Return the XML of a domain of two vCPUs."""

    def of(place: str) -> str:
        return "".join(part.xml for part in parts if part.at == place)

    return (
        f"<domain type='{virt}'><name>{name}</name><memory unit='MiB'>{memory_mib}</memory><vcpu>2</vcpu>"
        f"<os><type arch='x86_64' machine='{machine}'>hvm</type>{of('os')}</os>{of('domain')}"
        f"<devices>{of('devices')}</devices></domain>"
    )


@dataclass(frozen=True, slots=True)
class Shape:
    """A domain, and the names of its fragments."""

    xml: str
    fragments: tuple[str, ...]
    memory_mib: int = 256


def shapes(count: int = 200, seed: int = 7) -> list[Shape]:
    """Return that many domains: one of each fragment alone, then mixtures of those that libvirt would migrate, and some
    of any."""
    rng = random.Random(seed)
    made = [Shape(domain(f"d{at}", [part]), (part.name,)) for at, part in enumerate(FRAGMENTS)]
    free = [part for part in FRAGMENTS if part.kind != "bound"]
    while len(made) < count:
        chosen: list[Fragment] = []
        taken: set[str] = set()
        for part in rng.sample(free if rng.random() < 0.9 else list(FRAGMENTS), rng.randint(2, 5)):
            words = set(part.apart.split())
            if not words & taken:
                chosen.append(part)
                taken |= words
        memory_mib = rng.choice((128, 256, 512, 1_024, 2_048))
        if any(part.name == "guest-numa" for part in chosen):
            memory_mib = 256
        xml = domain(f"d{len(made)}", chosen, rng.choice(VIRTS), rng.choice(MACHINES), memory_mib)
        made.append(Shape(xml, tuple(part.name for part in chosen), memory_mib))
    return made[:count]
