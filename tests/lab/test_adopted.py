"""VMs made with virsh on hosts with local disks: adopted, moved, saved, shut down and let go, on real QEMU.

A marker is written to each disk before each step, from inside QEMU where the VM runs, and is found after it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agents.hypervisors.libvirt.binding import real
from agents.hypervisors.libvirt.build import from_module
from agents.hypervisors.libvirt.driver import LibvirtHypervisor
from shared.agent_config import (
    AgentConfig,
    CloneMode,
    HypervisorChoice,
    LibvirtKeys,
    LibvirtMigration,
    LibvirtTemplate,
    NodeFacts,
)
from shared.effects import GuestChanged, Operated
from shared.errors import TransientError
from shared.model import Action, ActionKind, GuestChange, Outcome, VmSpec, VmState, VmStatus
from tests.conformance.real_time import RealTime
from tests.lab.guests import burner, turns_per_cpu_s
from tests.lab.hosts import Host, HostSpec, Lab, lab_hosts

pytestmark = [pytest.mark.full, pytest.mark.alone]

SPEC = HostSpec(cores=1, core_mhz=1_000.0, core_frac=1.0, memory_mib=1_000)
PET, IMAGES = "pet", "/var/lib/libvirt/images"
DISKS = (f"{IMAGES}/pet.img", f"{IMAGES}/pet.data")
ENDLESS, UNIT_S = 1_000_000, 0.05
DATA_BYTES = 4 << 20
DOMAIN = """
<domain type="qemu">
  <name>{vm}</name>
  <memory unit="MiB">96</memory>
  <vcpu cpuset="0">1</vcpu>
  <os><type arch="x86_64" machine="pc">hvm</type><boot dev="hd"/></os>
  <features><acpi/></features>
  <devices>
    <disk type="file" device="disk">
      <driver name="qemu" type="{kind}" cache="none"/><source file="{volume}"/><target dev="hda" bus="ide"/>
    </disk>
    {more}
    <controller type="usb" model="none"/>
    <video><model type="none"/></video>
    <memballoon model="none"/>
  </devices>
</domain>
"""
DATA = f"""<disk type="file" device="disk">
  <driver name="qemu" type="raw" cache="none"/><source file="{DISKS[1]}"/><target dev="hdb" bus="ide"/>
</disk>"""


class Nodes(RealTime):
    """The hosts of a lab with an agent's driver each."""

    limit_s, pause_s = 60.0, 0.02

    def __init__(self, lab: Lab, clone: str) -> None:
        super().__init__()
        self.lab, self.clone = lab, clone
        self.drivers = {host.name: self.driver(host) for host in lab.hosts}
        self.answers: dict[str, Operated] = {}
        self.told: list[tuple[str, GuestChanged]] = []
        self.ids = 0
        self.hear()

    def host(self, name: str) -> Host:
        return next(host for host in self.lab.hosts if host.name == name)

    def driver(self, host: Host) -> LibvirtHypervisor:
        """As an agent makes it."""
        file = self.lab.shared / "own.xml"
        file.write_text(DOMAIN.format(vm="{vm}", kind="raw", volume="{volume}", more=""))
        keys = LibvirtKeys(
            pool="images",
            partition=host.partition,
            cores=SPEC.cores,
            core_mhz=SPEC.core_mhz,
            core_frac=SPEC.core_frac,
            memory_mib=SPEC.memory_mib,
            stop_limit_s=5.0,
            templates={"own": LibvirtTemplate(str(file), "burner.img", clone=CloneMode(self.clone))},
            migration=LibvirtMigration(
                peer=f"qemu+unix:///system?socket={self.lab.folder}/{{host}}/run/libvirt/libvirt-sock", tls=False
            ),
        )
        config = AgentConfig(
            node=NodeFacts(name=host.name), hypervisor=HypervisorChoice("libvirt", host.uri), libvirt=keys
        )
        return from_module(config, lambda: None, real())

    def hear(self) -> None:
        for name, driver in self.drivers.items():
            with suppress(TransientError):
                driver.vms(0.0)
            for event in driver.poll(0.0):
                if isinstance(event, GuestChanged):
                    self.told.append((name, event))
                else:
                    self.answers[event.call_id] = event

    def do(self, kind: ActionKind, node: str, vm: str = PET, **fields: Any) -> Operated:
        self.ids += 1
        call = f"a{self.ids}"
        self.drivers[node].begin(Action(call, kind, node, vm, 1, "boot", 1e12, **fields), 0.0)

        def answered() -> bool:
            self.hear()
            return call in self.answers

        self.until(answered)
        return self.answers[call]

    def must(self, kind: ActionKind, node: str, vm: str = PET, **fields: Any) -> Operated:
        answer = self.do(kind, node, vm, **fields)
        assert answer.outcome is Outcome.OK, answer
        return answer

    def status(self, node: str, vm: str = PET) -> VmStatus | None:
        self.hear()
        return next((one for one in self.drivers[node].vms(0.0) if one.vm == vm), None)

    def restart_agent(self, node: str) -> None:
        """As when it was killed: nothing of what it knew is left."""
        self.drivers[node].close()
        self.drivers[node] = self.driver(self.host(node))
        self.hear()

    def write(self, node: str, mark: int, vm: str = PET, disks: tuple[str, ...] = ("hda", "hdb")) -> None:
        """As the guest does: through its own QEMU."""
        for disk in disks:
            bus = {"hda": "ide0-0-0", "hdb": "ide0-0-1"}[disk]
            command = f'qemu-io -d {bus} "write -P {mark:#x} 1M 64k"'
            said = self.host(node).virsh("qemu-monitor-command", vm, "--hmp", command)
            assert "wrote" in said or not said, said

    def reads(self, node: str, mark: int, path: str) -> bool:
        """Whether the marker is in a file, which may be in use."""
        kind = "qcow2" if self.clone == "overlay" and "pet" not in path else "raw"
        words = ["qemu-io", "-r", "-U", "-f", kind, "-c", f"read -P {mark:#x} 1M 64k", path]
        said = self.host(node).run(words, check=False)
        assert said.returncode == 0 or "Pattern" in said.stdout, said
        return "Pattern verification failed" not in said.stdout

    def has(self, node: str, path: str) -> bool:
        return self.host(node).run(["test", "-e", path], check=False).returncode == 0

    def executing(self, vm: str = PET) -> list[str]:
        return [host.name for host in self.lab.hosts if host.virsh("domstate", vm, check=False) == "running"]

    def close(self) -> None:
        for driver in self.drivers.values():
            driver.close()
        for host in self.lab.hosts:
            for name in host.virsh("list", "--all", "--name").split():
                host.virsh("destroy", name, check=False)
                host.virsh("undefine", name, "--managed-save", check=False)


@pytest.fixture(scope="module")
def lab(lab_tools: None) -> Iterator[Lab]:  # noqa: ARG001  looks for what is needed
    with lab_hosts(3, SPEC) as made:
        turns = round(turns_per_cpu_s() * UNIT_S)
        image = burner(ENDLESS, made.shared, unit_turns=turns)
        for host in made.hosts:
            host.make_pools()
            host.run(["mkdir", "-p", IMAGES])
            host.virsh(f"pool-define-as images dir --target {IMAGES}; pool-start images; pool-autostart images")
            host.run(
                ["sh", "-c", f"cp {image} {IMAGES}/burner.img && truncate --size {DATA_BYTES} {IMAGES}/burner.img"]
            )
            host.virsh("pool-refresh", "images")
        yield made


@pytest.fixture(params=["copy", "overlay"])
def nodes(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Nodes]:
    for host in lab.hosts:
        host.run(["sh", "-c", f"rm -f {IMAGES}/pet.* {IMAGES}/job*"])
        host.virsh("pool-refresh", "images")
    made = Nodes(lab, request.param)
    try:
        yield made
    finally:
        made.close()


def made_with_virsh(nodes: Nodes, folder: Path) -> str:
    """A VM on h1 with two disks and autostart, running; its definition."""
    host = nodes.host("h1")
    host.run(["sh", "-c", f"cp {IMAGES}/burner.img {DISKS[0]} && truncate --size {DATA_BYTES} {DISKS[1]}"])
    file = folder / "pet.xml"
    file.write_text(DOMAIN.format(vm=PET, kind="raw", volume=DISKS[0], more=DATA))
    shutil.copy(file, nodes.lab.shared / "pet.xml")
    host.virsh("define", str(nodes.lab.shared / "pet.xml"))
    host.virsh("autostart", PET)
    host.virsh("pool-refresh", "images")
    host.virsh("start", PET)
    return host.virsh("dumpxml", "--inactive", PET)


@pytest.mark.parametrize("nodes", ["copy"], indirect=True)
def test_the_years_of_an_adopted_vm(nodes: Nodes, tmp_path: Path) -> None:
    before = made_with_virsh(nodes, tmp_path)
    nodes.write("h1", 0x11)
    adopted = nodes.must(ActionKind.ADOPT, "h1", generation=1, spec=VmSpec(PET, 1, 1, 96, 1, 500.0))
    assert adopted.status is not None
    assert (adopted.status.adopted, adopted.status.disks, "<name>pet</name>" in adopted.definition) == (True, 1, True)
    nodes.must(ActionKind.SET_CPU, "h1", expects=1, cpu_mhz=700.0)
    mark = 0x11
    for start, end in (("h1", "h2"), ("h2", "h3"), ("h3", "h1"), ("h1", "h2"), ("h2", "h1")):
        mark += 1
        nodes.write(start, mark)
        nodes.must(ActionKind.MIGRATE, start, expects=1, generation=1, to_node=end)
        nodes.until(lambda start=start: not nodes.has(start, DISKS[0]))  # type: ignore[misc]
        assert nodes.executing() == [end]
        for path in DISKS:
            assert nodes.reads(end, mark, path), (start, end, path)
            assert not nodes.has(start, path)
        assert PET not in nodes.host(start).virsh("list", "--all", "--name").split()
        nodes.until(lambda end=end: "enable" in autostart_of(nodes, end))  # type: ignore[misc]
    nodes.write("h1", 0x40)
    nodes.must(ActionKind.SUSPEND, "h1", expects=1)
    refused = nodes.do(ActionKind.RESUME, "h2", expects=1, generation=2, from_node="h1")
    assert refused.outcome is Outcome.UNFIT
    nodes.host("h1").run(["qemu-io", "-f", "raw", "-c", "write -P 0x99 1M 64k", DISKS[1]])
    stale = nodes.do(ActionKind.RESUME, "h1", expects=1, generation=2)
    assert (stale.outcome, DISKS[1] in stale.detail) == (Outcome.STALE_DISK, True)
    nodes.must(ActionKind.DISCARD_IMAGE, "h1", expects=1)  # its memory is of no more use; its definition stays
    nodes.host("h1").virsh("start", PET)
    nodes.until(lambda: (nodes.status("h1") or adopted.status).state is VmState.RUNNING)  # type: ignore[union-attr]
    nodes.host("h1").virsh("destroy", PET)
    nodes.until(lambda: any(event.change is GuestChange.STOPPED for _, event in nodes.told))
    nodes.drivers["h1"].forget(PET, 0.0)
    nodes.restart_agent("h1")
    nodes.host("h1").power_off()
    nodes.drivers["h1"].close()
    nodes.host("h1").power_on()
    nodes.drivers["h1"] = nodes.driver(nodes.host("h1"))
    nodes.until(lambda: nodes.executing() == ["h1"])  # it starts with its host
    nodes.until(lambda: nodes.status("h1") is not None)
    status = nodes.status("h1")
    assert status is not None
    assert (status.adopted, status.managed) == (True, True)
    assert nodes.reads("h1", 0x40, DISKS[0])
    assert nodes.reads("h1", 0x99, DISKS[1])
    nodes.must(ActionKind.RELEASE, "h1", expects=1)
    assert nodes.host("h1").virsh("dumpxml", "--inactive", PET) == before
    assert "enable" in autostart_of(nodes, "h1")


def autostart_of(nodes: Nodes, node: str) -> str:
    said = nodes.host(node).virsh("dominfo", PET)
    return next(line for line in said.splitlines() if line.startswith("Autostart"))


@pytest.mark.parametrize("nodes", ["copy"], indirect=True)
def test_what_lies_at_the_target_is_not_overwritten(nodes: Nodes, tmp_path: Path) -> None:
    made_with_virsh(nodes, tmp_path)
    nodes.must(ActionKind.ADOPT, "h1", generation=1, spec=VmSpec(PET, 1, 1, 96, 1, 500.0))
    nodes.host("h2").run(["sh", "-c", f"echo mine > {DISKS[1]}"])
    answer = nodes.do(ActionKind.MIGRATE, "h1", expects=1, generation=1, to_node="h2")
    assert (answer.outcome, DISKS[1] in answer.detail) == (Outcome.UNFIT, True)
    assert nodes.host("h2").run(["cat", DISKS[1]]).stdout == "mine\n"
    assert nodes.executing() == ["h1"]


def test_a_vm_of_ours_runs_with_its_newest_disk(nodes: Nodes) -> None:
    """Overlay and copied disk: moved both ways, saved, resumed on the third host, with agents that begin anew."""
    vm, disk = "job#0", f"{IMAGES}/job#0.g1"
    spec = VmSpec(vm, 1, 1, 96, 1, 500.0, template="own")
    nodes.must(ActionKind.START, "h1", vm, generation=1, spec=spec)
    for mark, (start, end) in enumerate((("h1", "h2"), ("h2", "h1"), ("h1", "h2")), 0x21):
        nodes.write(start, mark, vm, ("hda",))
        nodes.must(ActionKind.MIGRATE, start, vm, expects=1, generation=1, to_node=end)
        nodes.restart_agent(start)
        assert not nodes.has(start, disk)
        assert nodes.reads(end, mark, disk)
    nodes.write("h2", 0x30, vm, ("hda",))
    nodes.must(ActionKind.SUSPEND, "h2", vm, expects=1)
    nodes.restart_agent("h2")
    nodes.must(ActionKind.RESUME, "h3", vm, expects=1, generation=2, from_node="h2", spec=spec)
    assert nodes.reads("h3", 0x30, disk)
    nodes.must(ActionKind.DISCARD_IMAGE, "h2", vm, expects=1)
    assert not nodes.has("h2", disk)
    nodes.write("h3", 0x31, vm, ("hda",))
    nodes.must(ActionKind.SUSPEND, "h3", vm, expects=2)
    status = nodes.status("h3", vm)
    assert status is not None
    old = nodes.do(ActionKind.RESUME, "h3", vm, expects=2, generation=3, spec=spec, disks=status.disks + 1)
    assert old.outcome is Outcome.STALE_DISK
    nodes.must(ActionKind.RESUME, "h3", vm, expects=2, generation=3, spec=spec, disks=status.disks)
    assert nodes.reads("h3", 0x31, disk)
    assert nodes.executing(vm) == ["h3"]
