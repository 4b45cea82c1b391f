"""Domains of many shapes on real libvirtd and QEMU: what we say can be migrated is migrated, and what we say cannot has
a sentence that says why; beside it is printed what libvirt itself says of that. The drivers run outside the hosts: of
bridges, which an agent sees on its own host, nothing is known here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from shared.values.actions import ActionKind, Outcome
from shared.values.migration import lacks, sentence
from shared.values.vms import VmSpec
from tests.lab.errors import LabError
from tests.lab.guest_sectors import burner, turns_per_cpu_s
from tests.lab.hosts import Lab, lab_hosts
from tests.lab.test_adopted import ENDLESS, IMAGES, SPEC, UNIT_S, Nodes

pytestmark = [pytest.mark.full, pytest.mark.alone]

VM, MEMORY_MIB = "shape", 64
DISK = f"{IMAGES}/{VM}.img"
BRIDGE, NETWORK = "br9", "net9"  # of h1 and h2, not of h3
MADE_MIN, MIGRATED_MIN = 35, 80  # shapes that this libvirt and QEMU must know; migrations of them
# Refused by us alone: files that no pool lists, and what a migration leaves behind or breaks.
ALONE = {"cdrom on shared storage", "9p", "host's character device", "nvdimm"}
TARGETS = ("h2", "h3")
DOMAIN = """
<domain type="qemu">
  <name>{vm}</name>
  <memory unit="MiB">{memory_mib}</memory>
  {head}
  <vcpu{vcpu}>1</vcpu>
  <os><type arch="x86_64" machine="{machine}">hvm</type>{boot}</os>
  <features><acpi/></features>
  {cpu}
  <devices>
    <disk type="file" device="disk">
      <driver name="qemu" type="raw" {driver}/><source file="{disk}"/><target {target}/>{disk_more}
    </disk>
    {devices}
    <memballoon model="none"/>
  </devices>
</domain>
"""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a domain has beside a disk."""

    name: str
    devices: str = ""
    head: str = ""
    cpu: str = ""
    vcpu: str = ""
    machine: str = "pc"
    boot: str = '<boot dev="hd"/>'
    driver: str = 'cache="none"'
    target: str = 'dev="hda" bus="ide"'
    disk_more: str = ""

    @property
    def xml(self) -> str:
        """Its definition."""
        return DOMAIN.format(
            vm=VM,
            memory_mib=MEMORY_MIB,
            disk=DISK,
            head=self.head,
            vcpu=self.vcpu,
            machine=self.machine,
            boot=self.boot,
            cpu=self.cpu,
            driver=self.driver,
            target=self.target,
            disk_more=self.disk_more,
            devices=self.devices,
        )


def _cdrom(source: str) -> str:
    return (
        f'<disk type="file" device="cdrom"><driver name="qemu" type="raw"/>{source}'
        '<target dev="hdc" bus="ide"/><readonly/></disk>'
    )


def _interface(kind: str, source: str, more: str = "") -> str:
    return f'<interface type="{kind}">{source}<model type="virtio"/>{more}</interface>'


SHAPES = (
    Shape("plain"),
    Shape("q35", machine="q35", target='dev="sda" bus="sata"'),
    Shape("machine version", machine="pc-i440fx-6.2"),
    Shape("virtio disk", target='dev="vda" bus="virtio"'),
    Shape("scsi disk", '<controller type="scsi" model="virtio-scsi"/>', target='dev="sda" bus="scsi"'),
    Shape("usb disk", target='dev="sda" bus="usb"'),
    Shape("writeback disk", driver='cache="writeback"'),
    Shape("default cache", driver=""),
    Shape("native io", driver='cache="none" io="native"'),
    Shape("discard", driver='cache="none" discard="unmap"'),
    Shape("disk with serial", disk_more="<serial>ABC123</serial>"),
    Shape("disk with limits", disk_more="<iotune><total_iops_sec>500</total_iops_sec></iotune>"),
    Shape("read-only disk", disk_more="<readonly/>", target='dev="vda" bus="virtio"'),
    Shape("empty cdrom", _cdrom("")),
    Shape("cdrom with a file of one host", _cdrom(f'<source file="{IMAGES}/own.iso"/>')),
    Shape("cdrom with a file of all hosts", _cdrom(f'<source file="{IMAGES}/every.iso"/>')),
    Shape("cdrom on shared storage", _cdrom('<source file="{shared}/shared.iso"/>')),
    Shape("floppy", '<disk type="file" device="floppy"><target dev="fda" bus="fdc"/></disk>'),
    Shape("bridge", _interface("bridge", '<source bridge="br0"/>')),
    Shape("network of two hosts", _interface("network", f'<source network="{NETWORK}"/>')),
    Shape("user network", _interface("user", "")),
    Shape("e1000", '<interface type="bridge"><source bridge="br0"/><model type="e1000"/></interface>'),
    Shape(
        "network with limits",
        _interface("bridge", '<source bridge="br0"/>', '<bandwidth><inbound average="1000"/></bandwidth>'),
    ),
    Shape("network link down", _interface("bridge", '<source bridge="br0"/>', '<link state="down"/>')),
    Shape("cpu qemu64", cpu='<cpu mode="custom" match="exact"><model>qemu64</model></cpu>'),
    Shape("cpu Nehalem", cpu='<cpu mode="custom" match="exact" check="none"><model>Nehalem</model></cpu>'),
    Shape("cpu maximum", cpu='<cpu mode="maximum"/>'),
    Shape("cpu host-model", cpu='<cpu mode="host-model"/>'),
    Shape("cpu host-passthrough", cpu='<cpu mode="host-passthrough"/>'),
    Shape("cpu feature", cpu='<cpu mode="custom"><model>qemu64</model><feature policy="require" name="sse4.1"/></cpu>'),
    Shape("cpu invtsc", cpu='<cpu mode="custom"><model>qemu64</model><feature policy="require" name="invtsc"/></cpu>'),
    Shape("cpu topology", cpu='<cpu mode="maximum"><topology sockets="1" cores="1" threads="1"/></cpu>'),
    Shape(
        "numa of the guest",
        cpu=f'<cpu mode="maximum"><numa><cell id="0" cpus="0" memory="{MEMORY_MIB}" unit="MiB"/></numa></cpu>',
    ),
    Shape("pinned", vcpu=' cpuset="0"'),
    Shape("pinned to both", vcpu=' cpuset="0-1"'),
    Shape("cputune", head='<cputune><vcpupin vcpu="0" cpuset="1"/><emulatorpin cpuset="0-1"/></cputune>'),
    Shape("numatune", head='<numatune><memory mode="strict" nodeset="0"/></numatune>'),
    Shape("memfd", head='<memoryBacking><source type="memfd"/><access mode="shared"/></memoryBacking>'),
    Shape("no shared pages", head="<memoryBacking><nosharepages/></memoryBacking>"),
    Shape(
        "memory hotplug",
        head='<maxMemory slots="2" unit="MiB">128</maxMemory>',
        cpu=f'<cpu mode="maximum"><numa><cell id="0" cpus="0" memory="{MEMORY_MIB}" unit="MiB"/></numa></cpu>',
    ),
    Shape("9p", '<filesystem type="mount" accessmode="mapped"><source dir="/tmp"/><target dir="t"/></filesystem>'),
    Shape("shmem", '<shmem name="s"><model type="ivshmem-plain"/><size unit="M">1</size></shmem>'),
    Shape("rng", '<rng model="virtio"><backend model="random">/dev/urandom</backend></rng>'),
    Shape("pty", '<serial type="pty"><target port="0"/></serial>'),
    Shape("serial file", '<serial type="file"><source path="/tmp/shape.log"/><target port="0"/></serial>'),
    Shape("host's character device", '<serial type="dev"><source path="/dev/null"/><target port="0"/></serial>'),
    Shape("guest agent", '<channel type="unix"><target type="virtio" name="org.qemu.guest_agent.0"/></channel>'),
    Shape("vnc", '<graphics type="vnc" port="-1" autoport="yes"/><video><model type="vga"/></video>'),
    Shape(
        "vnc on every address",
        '<graphics type="vnc" autoport="yes"><listen type="address" address="0.0.0.0"/></graphics>',
    ),
    Shape(
        "vnc on the host's address",
        '<graphics type="vnc" autoport="yes"><listen type="address" address="{address}"/></graphics>',
    ),
    Shape("virtio video", '<video><model type="virtio"/></video>'),
    Shape("usb", '<controller type="usb" model="qemu-xhci"/><input type="tablet" bus="usb"/>'),
    Shape("watchdog", '<watchdog model="i6300esb" action="reset"/>'),
    Shape("sound", '<sound model="ich6"/>'),
    Shape("panic", '<panic model="isa"/>'),
    Shape("vsock", '<vsock model="virtio"><cid auto="yes"/></vsock>'),
    Shape("input of the host", '<input type="evdev"><source dev="/dev/input/event0"/></input>'),
    Shape("tpm emulator", '<tpm model="tpm-tis"><backend type="emulator" version="2.0"/></tpm>'),
    Shape(
        "nvdimm",
        head='<maxMemory slots="2" unit="MiB">256</maxMemory>',
        cpu=f'<cpu mode="maximum"><numa><cell id="0" cpus="0" memory="{MEMORY_MIB}" unit="MiB"/></numa></cpu>',
        devices='<memory model="nvdimm"><source><path>/tmp/nvdimm</path></source>'
        '<target><size unit="MiB">32</size><node>0</node></target></memory>',
    ),
    Shape("smbios", head='<sysinfo type="smbios"><system><entry name="serial">1</entry></system></sysinfo>'),
    Shape("clock", head='<clock offset="utc"><timer name="rtc" tickpolicy="catchup"/></clock>'),
)


@pytest.fixture(scope="module")
def nodes(lab_tools: None) -> Iterator[Nodes]:  # noqa: ARG001  looks for what is needed
    with lab_hosts(3, SPEC) as lab:
        furnish(lab)
        made = Nodes(lab, "copy")
        try:
            yield made
        finally:
            made.close()


def furnish(lab: Lab) -> None:
    """Give the hosts a pool of their own, files, and two of them a bridge and a network that the third lacks."""
    image = burner(ENDLESS, lab.shared, unit_turns=round(turns_per_cpu_s() * UNIT_S))
    (lab.shared / "shared.iso").write_bytes(bytes(1 << 16))
    network = lab.shared / "net9.xml"
    network.write_text(f'<network><name>{NETWORK}</name><forward mode="bridge"/><bridge name="{BRIDGE}"/></network>')
    for host in lab.hosts:
        host.make_pools()
        files = f"mkdir -p {IMAGES} && cp {image} {IMAGES}/burner.img && truncate -s 64k {IMAGES}/every.iso"
        host.run(["sh", "-c", f"{files} && truncate -s 32M /tmp/nvdimm"])
        host.virsh(f"pool-define-as images dir --target {IMAGES}; pool-start images; pool-autostart images")
        if host.name in ("h1", "h2"):
            host.run(["ip", "link", "add", BRIDGE, "type", "bridge"])
            host.run(["ip", "link", "set", BRIDGE, "up"])
            host.virsh(f"net-define {network}; net-start {NETWORK}")
    lab.hosts[0].run(["truncate", "-s", "64k", f"{IMAGES}/own.iso"])


def make(nodes: Nodes, shape: Shape) -> str:
    """Define and start it on h1; libvirt's words where it cannot be made here ("": it runs)."""
    host, file = nodes.host("h1"), nodes.lab.shared / f"{VM}.xml"
    file.write_text(shape.xml.replace("{shared}", str(nodes.lab.shared)).replace("{address}", host.address))
    host.run(["cp", f"{IMAGES}/burner.img", DISK])
    host.virsh("pool-refresh", "images")
    try:
        host.virsh("define", str(file))
        host.virsh("start", VM)
    except LabError as error:
        return str(error).strip().splitlines()[-1]
    return ""


def remove(nodes: Nodes) -> None:
    """Remove it and its disk from all hosts."""
    for host in nodes.lab.hosts:
        host.virsh("destroy", VM, check=False)
        host.virsh("undefine", VM, "--managed-save", check=False)
        host.run(["rm", "-f", DISK])
        host.virsh("pool-refresh", "images")
    nodes.until(lambda: all(nodes.status(host.name, VM) is None for host in nodes.lab.hosts))


def asked_of_libvirt(nodes: Nodes, to: str) -> str:
    """What libvirt says when virsh is to migrate it ("": it goes)."""
    flags = ("--live", "--p2p", "--persistent", "--undefinesource", "--copy-storage-all")
    uri = f"qemu+unix:///system?socket={nodes.host(to).socket}"
    done = nodes.host("h1").run(["virsh", "-q", "migrate", *flags, VM, uri], check=False)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def test_what_we_say_can_be_migrated_is(nodes: Nodes) -> None:
    count: Counter[str] = Counter()
    alone: set[str] = set()
    wrong: list[str] = []
    unmade: list[str] = []
    for shape in SHAPES:
        for target in TARGETS:
            words = make(nodes, shape)
            if words:
                unmade.append(f"{shape.name}: {words}")
                remove(nodes)
                break
            nodes.must(
                ActionKind.ADOPT,
                "h1",
                VM,
                generation=1,
                spec=VmSpec(VM, 1, 1, memory_mib=MEMORY_MIB, vcpus=1, cpu_mhz=500.0),
            )
            status = nodes.status("h1", VM)
            assert status is not None
            has = nodes.drivers[target].inventory().migration_has
            lacking = lacks(has, status.migration_needs)
            if lacking:
                why = "; ".join(sentence(need, target, has) for need in lacking)
                libvirt = asked_of_libvirt(nodes, target)
                count["refused by both" if libvirt else "refused by us alone"] += 1
                alone |= {shape.name} if not libvirt else set()
                print(f"{shape.name} to {target}: {why} | libvirt: {libvirt or 'it goes'}")
            else:
                answer = nodes.do(ActionKind.MIGRATE, "h1", VM, expects=1, generation=1, to_node=target)
                count["migrated"] += answer.outcome is Outcome.OK
                if answer.outcome is not Outcome.OK:
                    wrong.append(f"{shape.name} to {target}: {answer.outcome.value} {answer.detail}")
            remove(nodes)
    for words in unmade:
        print(f"not made here: {words}")
    print(dict(count))
    assert not wrong, "\n".join(wrong)
    assert alone <= ALONE
    assert count["migrated"] >= MIGRATED_MIN
    assert len(SHAPES) - len(unmade) >= MADE_MIN
