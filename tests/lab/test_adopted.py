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
from shared.base.errors import TransientError
from shared.config.agent import (
    AgentConfig,
    CloneMode,
    HypervisorChoice,
    LibvirtKeys,
    LibvirtMigration,
    LibvirtTemplate,
    NodeFacts,
)
from shared.ports.effects import GuestChanged, Operated
from shared.values.actions import Action, ActionKind, GuestChange, Outcome
from shared.values.vms import LIVE_STATES, VmSpec, VmState, VmStatus
from tests.conformance.mortal import Point
from tests.conformance.real_time import RealTime
from tests.lab import mortal_agent
from tests.lab.guest_sectors import burner, turns_per_cpu_s
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
        return from_module(self.config(host), lambda: None, real())

    def config(self, host: Host) -> AgentConfig:
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
        choice = HypervisorChoice("libvirt", host.uri)
        return AgentConfig(node=NodeFacts(name=host.name), hypervisor=choice, libvirt=keys)

    def hear(self) -> None:
        for name, driver in self.drivers.items():
            with suppress(TransientError):
                driver.vms(0.0)
            for event in driver.poll(0.0):
                if isinstance(event, GuestChanged):
                    self.told.append((name, event))
                else:
                    self.answers[event.call_id] = event

    def order(self, kind: ActionKind, node: str, vm: str, **fields: Any) -> Action:
        self.ids += 1
        return Action(f"a{self.ids}", kind, node, vm=vm, term=1, boot_id="boot", expires_at_s=1e12, **fields)

    def do(self, kind: ActionKind, node: str, vm: str = PET, **fields: Any) -> Operated:
        action = self.order(kind, node, vm, **fields)
        self.drivers[node].begin(action, 0.0)

        def answered() -> bool:
            self.hear()
            return action.id in self.answers

        self.until(answered)
        return self.answers[action.id]

    def die(self, point: Point, kind: ActionKind, node: str, vm: str = PET, **fields: Any) -> None:
        """Have the agent of a node die by SIGKILL at a point of an operation; another one begins at once."""
        self.drivers[node].close()
        action = self.order(kind, node, vm, **fields)
        answer = mortal_agent.run(self.config(self.host(node)), action, point)
        assert answer == "", (point, answer)
        self.drivers[node] = self.driver(self.host(node))
        self.hear()

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
            for what in (f"write -P {mark:#x} 1M 64k", "flush"):  # an overlay's tables are read from the file
                said = self.host(node).virsh("qemu-monitor-command", vm, "--hmp", f'qemu-io -d {bus} "{what}"')
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


def made_with_virsh(nodes: Nodes, folder: Path, data: str = DISKS[1]) -> str:
    """A VM on h1 with two disks and autostart, running; its definition."""
    host = nodes.host("h1")
    host.run(["sh", "-c", f"cp {IMAGES}/burner.img {DISKS[0]} && truncate --size {DATA_BYTES} {data}"])
    file = folder / "pet.xml"
    file.write_text(DOMAIN.format(vm=PET, kind="raw", volume=DISKS[0], more=DATA.replace(DISKS[1], data)))
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
    adopted = nodes.must(
        ActionKind.ADOPT, "h1", generation=1, spec=VmSpec(PET, 1, 1, memory_mib=96, vcpus=1, cpu_mhz=500.0)
    )
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


@pytest.mark.parametrize("nodes", ["copy"], indirect=True)
def test_one_that_is_shut_off_is_adopted_started_and_shut_down(nodes: Nodes, tmp_path: Path) -> None:
    before = made_with_virsh(nodes, tmp_path)
    host = nodes.host("h1")
    host.virsh("destroy", PET)
    host.run(["qemu-io", "-f", "raw", "-c", "write -P 0x21 1M 64k", DISKS[1]])
    spec = VmSpec(PET, 1, 1, memory_mib=96, vcpus=1, cpu_mhz=500.0)
    adopted = nodes.must(ActionKind.ADOPT, "h1", generation=1, spec=spec)
    assert adopted.status is not None
    assert (adopted.status.adopted, adopted.status.state) == (True, VmState.CRASHED)  # somebody has destroyed it
    assert nodes.executing() == []

    second = VmSpec(PET, 2, 1, memory_mib=96, vcpus=1, cpu_mhz=500.0)
    nodes.must(ActionKind.START, "h1", expects=1, generation=2, spec=second)
    assert nodes.executing() == ["h1"]
    assert nodes.reads("h1", 0x21, DISKS[1])
    again = nodes.do(ActionKind.START, "h1", expects=1, generation=2, spec=second)
    assert again.outcome is Outcome.OK

    nodes.must(ActionKind.STOP, "h1", expects=2)
    assert nodes.executing() == []
    assert PET in host.virsh("list", "--all", "--name").split()
    nodes.restart_agent("h1")
    nodes.must(ActionKind.RELEASE, "h1", expects=2)
    assert host.virsh("dumpxml", "--inactive", PET) == before
    assert "enable" in autostart_of(nodes, "h1")


@pytest.mark.parametrize("nodes", ["copy"], indirect=True)
def test_a_transient_one_is_said_to_be_so(nodes: Nodes, tmp_path: Path) -> None:
    made_with_virsh(nodes, tmp_path)
    host = nodes.host("h1")
    host.virsh("undefine", PET)  # it runs on, and nothing defines it
    nodes.restart_agent("h1")
    nodes.until(lambda: (status := nodes.status("h1")) is not None and status.transient)


def autostart_of(nodes: Nodes, node: str) -> str:
    said = nodes.host(node).virsh("dominfo", PET)
    return next(line for line in said.splitlines() if line.startswith("Autostart"))


@pytest.mark.parametrize("nodes", ["copy"], indirect=True)
def test_what_lies_at_the_target_is_not_overwritten(nodes: Nodes, tmp_path: Path) -> None:
    made_with_virsh(nodes, tmp_path)
    nodes.must(ActionKind.ADOPT, "h1", generation=1, spec=VmSpec(PET, 1, 1, memory_mib=96, vcpus=1, cpu_mhz=500.0))
    nodes.host("h2").run(["sh", "-c", f"echo mine > {DISKS[1]}"])
    answer = nodes.do(ActionKind.MIGRATE, "h1", expects=1, generation=1, to_node="h2")
    assert (answer.outcome, DISKS[1] in answer.detail) == (Outcome.UNFIT, True)
    assert nodes.host("h2").run(["cat", DISKS[1]]).stdout == "mine\n"
    assert nodes.executing() == ["h1"]


def test_a_vm_of_ours_runs_with_its_newest_disk(nodes: Nodes) -> None:
    """Overlay and copied disk: moved both ways, saved, resumed on the third host, with agents that begin anew."""
    vm, disk = "job#0", f"{IMAGES}/job#0.g1"
    spec = VmSpec(vm, 1, 1, memory_mib=96, vcpus=1, cpu_mhz=500.0, template="own")
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


def put(nodes: Nodes, node: str, mark: int, path: str) -> None:
    """As somebody does beside the VM."""
    nodes.host(node).run(["qemu-io", "-f", "raw", "-c", f"write -P {mark:#x} 1M 64k", path])


@pytest.mark.parametrize("nodes", ["copy"], indirect=True)
def test_an_old_copy_on_another_node_is_never_resumed(nodes: Nodes, tmp_path: Path) -> None:
    """Given a VM that somebody moved to h3 with virsh, which left its disks on h2, and that an operator suspended."""
    made_with_virsh(nodes, tmp_path)
    nodes.must(ActionKind.ADOPT, "h1", generation=1, spec=VmSpec(PET, 1, 1, memory_mib=96, vcpus=1, cpu_mhz=500.0))
    nodes.must(ActionKind.MIGRATE, "h1", expects=1, generation=1, to_node="h2")
    nodes.write("h2", 0x50)
    flags = ("--live", "--p2p", "--persistent", "--undefinesource", "--copy-storage-all")
    nodes.host("h2").virsh("migrate", *flags, PET, nodes.host("h3").uri)
    nodes.until(lambda: nodes.status("h3") is not None)
    assert nodes.reads("h2", 0x50, DISKS[0])  # the old copy
    nodes.write("h3", 0x51)
    nodes.must(ActionKind.SUSPEND, "h3", expects=1)
    for other in ("h1", "h2"):
        refused = nodes.do(ActionKind.RESUME, other, expects=1, generation=2, from_node="h3")
        assert (refused.outcome, refused.detail) == (
            Outcome.UNFIT,
            "it was adopted, and is resumed on h3 alone, where its disks are",
        )
    put(nodes, "h3", 0xAB, DISKS[0])
    stale = nodes.do(ActionKind.RESUME, "h3", expects=1, generation=2)
    assert (stale.outcome, stale.detail) == (
        Outcome.STALE_DISK,
        f"{DISKS[0]} was changed or replaced after the memory was saved",
    )
    assert nodes.executing() == []
    nodes.must(ActionKind.DISCARD_IMAGE, "h3", expects=1)
    nodes.host("h3").virsh("start", PET)
    nodes.until(lambda: nodes.executing() == ["h3"])
    assert nodes.reads("h3", 0xAB, DISKS[0])
    assert nodes.reads("h3", 0x51, DISKS[1])
    nodes.until(lambda: [one.state for one in (nodes.status("h3"),) if one is not None] == [VmState.RUNNING])
    nodes.write("h3", 0x52)
    nodes.must(ActionKind.SUSPEND, "h3", expects=1)
    nodes.must(ActionKind.RESUME, "h3", expects=1, generation=2)
    assert nodes.executing() == ["h3"]
    assert nodes.reads("h3", 0x52, DISKS[0])
    kept = nodes.do(ActionKind.MIGRATE, "h3", expects=2, generation=2, to_node="h2")
    assert (kept.outcome, kept.detail) == (
        Outcome.UNFIT,
        f"{DISKS[0]} is on h2 already: move it away, or remove it",
    )
    assert nodes.reads("h2", 0x50, DISKS[0])


@pytest.mark.parametrize("nodes", ["copy"], indirect=True)
def test_a_disk_in_no_pool_keeps_a_vm_on_its_node(nodes: Nodes, tmp_path: Path) -> None:
    folder = "/var/lib/libvirt/elsewhere"
    data = f"{folder}/pet.data"
    for host in nodes.lab.hosts:
        host.run(["mkdir", "-p", folder])
    made_with_virsh(nodes, tmp_path, data)
    nodes.must(ActionKind.ADOPT, "h1", generation=1, spec=VmSpec(PET, 1, 1, memory_mib=96, vcpus=1, cpu_mhz=500.0))
    moved = nodes.do(ActionKind.MIGRATE, "h1", expects=1, generation=1, to_node="h2")
    assert (moved.outcome, moved.detail) == (Outcome.UNFIT, f"h2 has no active storage pool for {folder}")
    nodes.host("h2").virsh(f"pool-define-as elsewhere dir --target {folder}; pool-start elsewhere")
    moved = nodes.do(ActionKind.MIGRATE, "h1", expects=1, generation=1, to_node="h2")
    assert (moved.outcome, moved.detail) == (Outcome.UNFIT, f"{data} is in no storage pool of h1")
    nodes.write("h1", 0x61)
    nodes.must(ActionKind.SUSPEND, "h1", expects=1)
    refused = nodes.do(ActionKind.RESUME, "h2", expects=1, generation=2, from_node="h1")
    assert refused.outcome is Outcome.UNFIT
    nodes.must(ActionKind.RESUME, "h1", expects=1, generation=2)
    assert nodes.executing() == ["h1"]
    for path in (DISKS[0], data):
        assert nodes.reads("h1", 0x61, path)
    nodes.host("h2").virsh("pool-destroy elsewhere; pool-undefine elsewhere")


# --- agents that die -------------------------------------------------------------------------------------------------

TRIES = 6
SAVED, MOVED = "save", "migrateToURI3"
DEATHS = (
    (ActionKind.MIGRATE, Point(MOVED, 0, "before")),
    (ActionKind.MIGRATE, Point(MOVED, 0, "during")),
    (ActionKind.MIGRATE, Point(MOVED, 0, "after")),
    (ActionKind.MIGRATE, Point("undefineFlags", 0, "before")),
    (ActionKind.SUSPEND, Point(SAVED, 0, "before")),
    (ActionKind.SUSPEND, Point(SAVED, 0, "during")),
    (ActionKind.SUSPEND, Point(SAVED, 0, "after")),
    (ActionKind.RESUME, Point("restoreFlags", 0, "before")),
    (ActionKind.RESUME, Point("restoreFlags", 0, "during")),
    (ActionKind.RESUME, Point("restoreFlags", 0, "after")),
    (ActionKind.RESUME, Point("delete", 0, "before")),
    (ActionKind.DISCARD_IMAGE, Point("delete", 0, "before")),
    (ActionKind.DISCARD_IMAGE, Point("delete", 0, "after")),
)


class Life:
    """A VM on the nodes, and what a controller knows of it: what is reported."""

    def __init__(self, nodes: Nodes, vm: str, disks: tuple[str, ...]) -> None:
        self.nodes, self.vm, self.disks = nodes, vm, disks
        self.mark = 0x20
        self.spec = VmSpec(vm, 1, 1, memory_mib=96, vcpus=1, cpu_mhz=500.0, template="" if vm == PET else "own")

    @property
    def adopted(self) -> bool:
        return self.vm == PET

    def seen(self) -> dict[str, VmStatus]:
        found = {host.name: self.nodes.status(host.name, self.vm) for host in self.nodes.lab.hosts}
        return {name: status for name, status in found.items() if status is not None}

    def where(self) -> tuple[str, VmStatus]:
        """Where it lives, else where its newest image is, once nothing is in progress."""

        def at_rest() -> bool:
            found = self.seen().values()
            return bool(found) and not any(one.busy or one.state is VmState.INCOMING for one in found)

        self.nodes.until(at_rest)
        ordered = sorted(self.seen().items(), key=lambda one: (one[1].state in LIVE_STATES, one[1].generation))
        return ordered[-1]

    def write(self) -> None:
        node, _ = self.where()
        self.mark += 1
        self.nodes.write(node, self.mark, self.vm, ("hda", "hdb")[: len(self.disks)])

    def check(self) -> str:
        """It executes on one node, with the disks that it wrote to last, of which no other has a copy; that node."""
        for _ in range(TRIES):  # libvirt may still be at what the dead agent has begun
            node, status = self.where()
            if status.state is VmState.SUSPENDED:
                self.resume(node, status)
            elif status.state is VmState.PAUSED:
                self.nodes.do(ActionKind.UNPAUSE, node, self.vm, expects=status.generation)
            for other, left in self.seen().items():
                if other != node and left.state is VmState.SUSPENDED:
                    self.nodes.do(ActionKind.DISCARD_IMAGE, other, self.vm, expects=left.generation)
            self.nodes.wait(0.5)
            found = self.seen()
            if [one.state for one in found.values()] == [VmState.RUNNING]:
                break
        node, status = self.where()
        assert status.state is VmState.RUNNING, status
        assert self.nodes.executing(self.vm) == [node]
        others = [host.name for host in self.nodes.lab.hosts if host.name != node]
        self.nodes.until(lambda: not any(self.nodes.has(other, path) for other in others for path in self.disks))
        for path in self.disks:
            assert self.nodes.reads(node, self.mark, path), (node, path)
            for other in others:
                assert not self.nodes.has(other, path), (other, path)
        return node

    def resume(self, node: str, status: VmStatus) -> None:
        """Where its image is; one of ours on another node."""
        fields: dict[str, Any] = {"expects": status.generation, "generation": status.generation + 1}
        fields |= {"disks": status.disks}
        to = node
        other = "h1" if node != "h1" else "h2"
        if self.adopted:
            refused = self.nodes.do(ActionKind.RESUME, other, self.vm, from_node=node, **fields)
            assert (refused.outcome, node in refused.detail) == (Outcome.UNFIT, True)
        else:
            fields |= {"spec": self.spec, "from_node": node}
            to = other
        self.nodes.must(ActionKind.RESUME, to, self.vm, **fields)

    def dies(self, kind: ActionKind, point: Point) -> None:
        """The agent dies in an operation on it."""
        node, status = self.where()
        fields: dict[str, Any] = {"expects": status.generation, "disks": status.disks}
        if kind is ActionKind.MIGRATE:
            to = {"h1": "h2", "h2": "h3", "h3": "h1"}[node]
            fields |= {"to_node": to, "generation": status.generation}
        elif kind is not ActionKind.SUSPEND:
            self.nodes.must(ActionKind.SUSPEND, node, self.vm, expects=status.generation, disks=status.disks)
        if kind is ActionKind.RESUME:
            fields |= {"generation": status.generation + 1}
            if not self.adopted:
                fields |= {"spec": self.spec, "from_node": node}
                node = "h1" if node != "h1" else "h2"
        self.nodes.die(point, kind, node, self.vm, **fields)

    def begin_anew(self) -> None:
        """After its image was discarded: one of ours as another life, one that was adopted from its definition."""
        node, status = self.where() if self.seen() else ("h1", None)
        if status is not None and status.state is VmState.SUSPENDED:
            self.nodes.must(ActionKind.DISCARD_IMAGE, node, self.vm, expects=status.generation)
        if self.adopted:
            self.nodes.host(node).virsh("start", self.vm)
            self.nodes.until(lambda: [one.state for one in self.seen().values()] == [VmState.RUNNING])
            return
        assert self.seen() == {}
        assert self.nodes.host(node).virsh("list", "--all", "--name") == ""
        self.nodes.must(ActionKind.START, node, self.vm, generation=1, spec=self.spec)


def test_an_agent_that_dies_leaves_no_stale_disk(nodes: Nodes) -> None:
    """One of ours, with an overlay and with a copy."""
    spec = VmSpec("job#0", 1, 1, memory_mib=96, vcpus=1, cpu_mhz=500.0, template="own")
    nodes.must(ActionKind.START, "h1", "job#0", generation=1, spec=spec)
    die_everywhere(Life(nodes, "job#0", (f"{IMAGES}/job#0.g1",)))


@pytest.mark.parametrize("nodes", ["copy"], indirect=True)
def test_an_agent_that_dies_leaves_an_adopted_vm_as_it_was(nodes: Nodes, tmp_path: Path) -> None:
    before = made_with_virsh(nodes, tmp_path)
    nodes.must(ActionKind.ADOPT, "h1", generation=1, spec=VmSpec(PET, 1, 1, memory_mib=96, vcpus=1, cpu_mhz=500.0))
    life = Life(nodes, PET, DISKS)
    die_everywhere(life)
    node, status = life.where()
    assert "enable" in autostart_of(nodes, node)
    nodes.must(ActionKind.RELEASE, node, expects=status.generation)
    assert nodes.host(node).virsh("dumpxml", "--inactive", PET) == before


def die_everywhere(life: Life) -> None:
    for kind, point in DEATHS:
        life.write()
        life.dies(kind, point)
        if kind is ActionKind.DISCARD_IMAGE:
            life.begin_anew()
            life.write()
        life.check()
