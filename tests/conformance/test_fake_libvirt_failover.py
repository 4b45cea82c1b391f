"""Adopted VMs that may be restarted on another host: who starts them with their host, and the start elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from agents.hypervisors.libvirt import domain_xml, local_disks
from agents.hypervisors.libvirt.metadata import Meta
from shared.ports.effects import Operated
from shared.values.actions import ActionKind, Outcome
from shared.values.vms import LIVE_STATES, OFF_STATES, VmSpec, VmState, VmStatus
from sim_backend.fake_libvirt.codes import Err
from sim_backend.fake_libvirt.definition import Definition
from sim_backend.fake_libvirt.faults import Fault
from sim_backend.fake_libvirt.hardware import NVRAM_FOLDER
from tests.conformance.fake_libvirt_rig import fakes
from tests.conformance.test_fake_libvirt_adopted import PET, Hosts, wait_for
from tests.conformance.test_fake_libvirt_killed import Nth
from tests.extent import first

DISK, NVRAM, LOCAL = "/shared/volumes/pet.qcow2", "/shared/volumes/pet.fd", "/pool/pet.qcow2"
OWNERS = b"made by its owner"
XML = f"""<domain type="qemu">
  <name>{PET}</name>
  <uuid>c7a5fdbd-edaf-9455-926a-d65c16db1809</uuid>
  <metadata><note xmlns="https://owner.example/1">keep me</note></metadata>
  <memory unit="KiB">409600</memory>
  <vcpu>1</vcpu>
  <cputune><shares>2048</shares></cputune>
  <os><type arch="x86_64" machine="pc">hvm</type><nvram>{NVRAM}</nvram></os>
  <devices>
    <disk type="file" device="disk"><source file="{DISK}"/><target dev="vda"/></disk>
    <graphics type="vnc" port="-1"/>
  </devices>
</domain>
"""
PIECE = 100


class Scene(Hosts):
    """Hosts with a VM of somebody's on h1 whose disk and firmware variables every host sees."""

    xml = XML
    reached = 0  # calls at which an agent was killed

    def own_vm(self, autostart: bool = True, runs: bool = True) -> str:
        hosts = self.made.cluster.hosts
        for host in hosts.values():
            host.hardware = replace(host.hardware, nvram_folders=(NVRAM_FOLDER, "/shared/volumes"))
        for path in (DISK, NVRAM, LOCAL):
            hosts["h1"].files.put(path, OWNERS)
        drift = self.made.drift("h1")
        drift.define(self.xml)
        domain = drift.connection().lookupByName(PET)
        domain.setAutostart(int(autostart))
        if runs:
            domain.create()
        self.hear()
        return self.definition("h1")

    def spec(self, **fields: Any) -> VmSpec:
        return replace(VmSpec(PET, 1, 1, memory_mib=400, vcpus=1, cpu_mhz=700.0), **fields)

    def take(self, failover: bool = True, expects: int = 0, node: str = "h1") -> Operated:
        """Adopt it, or adopt it again with other terms."""
        return self.do(ActionKind.ADOPT, node, expects=expects, generation=1, spec=self.spec(failover=failover))

    def kept(self, host: str) -> Meta:
        """The metadata in the definition on a host."""
        return domain_xml.facts_of(self.definition(host)).meta or Meta(managed=False)

    def flags(self, host: str) -> tuple[bool, bool, bool]:
        """What is reported as autostart and failover, and libvirt's own flag."""
        status = self.seen(host)
        return status.autostart, status.failover, self.autostarts(host)

    def seen(self, host: str, vm: str = PET) -> VmStatus:
        status = self.status(host, vm)
        assert status is not None
        return status

    def count(self, *calls: str) -> int:
        return sum(call in calls for _, call, _ in self.made.cluster.calls)

    def another_agent(self, host: str) -> None:
        """The agent is killed, with what it was waiting for; another one is started."""
        self.made.drivers[host].close()
        self.made.cluster.script.clear()
        self.made.cluster.release()
        self.made.cluster.advance(5.0)
        self.made.drivers[host] = self.made.driver(host)
        self.settle()

    def killed_in(self, fault: Fault, kind: ActionKind, host: str, **fields: Any) -> None:
        self.made.cluster.fail(fault)
        self.begin(kind, host, **fields)
        wait_for(self, fault)
        self.reached += fault.times <= 0
        self.another_agent(host)

    def lose(self, host: str) -> None:
        """Its power is cut, and proven to be off."""
        self.made.drift(host).power_off()
        self.made.drivers[host].close()

    def regain(self, host: str) -> None:
        self.made.drift(host).power_on()
        self.made.drivers[host] = self.made.driver(host)
        self.settle()

    def begin_elsewhere(self, text: str, host: str = "h2", **fields: Any) -> str:
        pieces = tuple(text[at : at + PIECE] for at in range(0, len(text), PIECE))
        spec = self.spec(generation=2, attempt=2, failover=True, autostart=True, definition=pieces)
        return self.begin(ActionKind.START, host, generation=2, disks=1, spec=replace(spec, **fields))

    def start_elsewhere(self, text: str, host: str = "h2", **fields: Any) -> Operated:
        call = self.begin_elsewhere(text, host, **fields)
        self.until(lambda: call in self.answers)
        return self.answers[call]

    def is_whole(self) -> bool:
        files = self.made.cluster.hosts["h2"].files
        return all(bytes(files.get(path) or b"") == OWNERS for path in (DISK, NVRAM))

    def live_once(self) -> bool:
        return self.made.cluster.doubles == [] and len(self.executing()) == 1


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with fakes(tmp_path, count=3, durations_s={}) as made:
        yield Scene(made)


# --- who starts it with its host ------------------------------------------------------------------------------------


@pytest.mark.parametrize("autostart", [True, False])
def test_without_failover_the_flag_is_not_touched(scene: Scene, autostart: bool) -> None:
    before = scene.own_vm(autostart)
    touched = scene.count("setAutostart")
    assert scene.take(failover=False).outcome is Outcome.OK
    assert scene.flags("h1") == (autostart, False, autostart)
    assert (scene.kept("h1").failover, scene.kept("h1").autostart) == (False, False)
    assert scene.do(ActionKind.RELEASE, "h1", expects=1).outcome is Outcome.OK
    assert (scene.definition("h1"), scene.autostarts("h1")) == (before, autostart)
    assert scene.count("setAutostart") == touched


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("autostart", [True, False])
def test_with_failover_it_is_off_until_the_vm_is_released(scene: Scene, autostart: bool, runs: bool) -> None:
    before = scene.own_vm(autostart, runs)
    answer = scene.take()
    assert answer.outcome is Outcome.OK
    assert answer.status is not None
    assert (answer.status.autostart, answer.status.failover) == (autostart, True)
    assert scene.flags("h1") == (autostart, True, False)
    assert domain_xml.digest(answer.definition) == domain_xml.digest(before)
    assert scene.do(ActionKind.RELEASE, "h1", expects=1).outcome is Outcome.OK
    assert (scene.definition("h1"), scene.autostarts("h1")) == (before, autostart)


@pytest.mark.parametrize("autostart", [True, False])
def test_terms_change_while_it_is_ours(scene: Scene, autostart: bool) -> None:
    scene.own_vm(autostart)
    scene.take(failover=False)
    for failover, reported in ((True, (autostart, True, False)), (False, (autostart, False, autostart))) * 2:
        answer = scene.take(failover, expects=1)
        assert (answer.outcome, bool(answer.definition)) == (Outcome.OK, True)
        assert scene.flags("h1") == reported
        written = scene.count("setMetadata", "setAutostart")
        assert scene.take(failover, expects=1).outcome is Outcome.OK  # once more: it is done
        assert scene.count("setMetadata", "setAutostart") == written
    assert (scene.kept("h1").failover, scene.kept("h1").autostart) == (False, False)
    assert scene.do(ActionKind.ADOPT, "h1", generation=2, spec=scene.spec()).outcome is Outcome.ALREADY_THERE


def test_its_owner_may_switch_it_on_again(scene: Scene) -> None:
    scene.own_vm(autostart=False)
    scene.take()
    scene.made.drift("h1").connection().lookupByName(PET).setAutostart(1)
    scene.made.drivers["h1"]._look_for_jobs()
    assert scene.flags("h1") == (True, False, True)
    scene.another_agent("h1")
    assert scene.flags("h1") == (True, False, True)  # left alone
    assert scene.take(expects=1).outcome is Outcome.OK
    assert scene.flags("h1") == (True, True, False)
    assert scene.do(ActionKind.RELEASE, "h1", expects=1).outcome is Outcome.OK
    assert scene.autostarts("h1")


def test_another_agent_leaves_it_off(scene: Scene) -> None:
    scene.own_vm()
    scene.take()
    for _ in range(2):
        scene.another_agent("h1")
        assert scene.flags("h1") == (True, True, False)


def test_a_vm_of_ours_has_no_failover(scene: Scene) -> None:
    spec = VmSpec("job#0", 1, 1, memory_mib=96, vcpus=1, cpu_mhz=100.0, template="guest")
    scene.do(ActionKind.START, "h1", "job#0", generation=1, spec=spec)
    touched = scene.count("setAutostart", "setMetadata")
    answer = scene.do(ActionKind.ADOPT, "h1", "job#0", expects=1, generation=1, spec=replace(spec, failover=True))
    assert answer.outcome is Outcome.OK
    assert scene.count("setAutostart", "setMetadata") == touched
    assert not scene.seen("h1", "job#0").failover


@pytest.mark.parametrize("call", ["setAutostart", "setMetadata"])
def test_an_adoption_that_fails_is_undone(scene: Scene, call: str) -> None:
    before = scene.own_vm()
    scene.made.cluster.fail(Fault(call, "raise", Err.CONFIG_UNSUPPORTED, host="h1"))
    assert scene.take().outcome is Outcome.REFUSED
    assert (scene.definition("h1"), scene.autostarts("h1")) == (before, True)
    scene.take(failover=False)
    scene.made.cluster.fail(Fault(call, "raise", Err.CONFIG_UNSUPPORTED, host="h1"))
    assert scene.take(expects=1).outcome is Outcome.REFUSED
    assert scene.flags("h1") == (True, False, True)


@pytest.mark.parametrize("kind", [ActionKind.ADOPT, ActionKind.RELEASE])
@pytest.mark.parametrize("call", ["setAutostart", "setMetadata"])
def test_an_end_of_failover_that_fails_is_undone(scene: Scene, kind: ActionKind, call: str) -> None:
    scene.own_vm()
    scene.take()
    scene.made.cluster.fail(Fault(call, "raise", Err.CONFIG_UNSUPPORTED, host="h1"))
    answer = scene.do(kind, "h1", expects=1, generation=1, spec=scene.spec())
    assert answer.outcome is Outcome.REFUSED
    assert scene.flags("h1") == (True, True, False)
    assert (scene.kept("h1").failover, scene.kept("h1").autostart) == (True, True)


@pytest.mark.parametrize("autostart", [True, False])
def test_an_agent_that_is_killed_before_the_flag_is_off(scene: Scene, autostart: bool) -> None:
    """Given metadata that say that it may fail over, and a flag that is on, then it does not count as one that may."""
    scene.own_vm(autostart)
    fault = Fault("setAutostart", "hang", host="h1")
    scene.killed_in(fault, ActionKind.ADOPT, "h1", generation=1, spec=scene.spec(failover=True))
    assert (scene.reached, scene.kept("h1").failover) == (1, True)
    assert scene.flags("h1") == (autostart, not autostart, autostart)
    assert scene.take(expects=1).outcome is Outcome.OK
    assert scene.flags("h1") == (autostart, True, False)
    assert scene.do(ActionKind.RELEASE, "h1", expects=1).outcome is Outcome.OK
    assert scene.autostarts("h1") is autostart


@pytest.mark.parametrize("kind", [ActionKind.ADOPT, ActionKind.RELEASE])
def test_an_agent_that_is_killed_after_the_flag_is_on(scene: Scene, kind: ActionKind) -> None:
    before = scene.own_vm()
    scene.take()
    scene.killed_in(Fault("setMetadata", "hang", host="h1"), kind, "h1", expects=1, generation=1, spec=scene.spec())
    assert (scene.reached, *scene.flags("h1")) == (1, True, False, True)
    answer = scene.do(kind, "h1", expects=1, generation=1, spec=scene.spec())
    assert (answer.outcome, scene.autostarts("h1")) == (Outcome.OK, True)
    if kind is ActionKind.RELEASE:
        assert scene.definition("h1") == before
    else:
        assert (scene.kept("h1").failover, scene.kept("h1").autostart) == (False, False)


# --- live migrations ------------------------------------------------------------------------------------------------


class Moving(Scene):
    """The same with a disk that lies on one host alone, and is copied."""

    xml = XML.replace(DISK, LOCAL)


@pytest.fixture(params=[Scene, Moving], ids=["shared", "copied"])
def mover(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    with fakes(tmp_path, count=3, durations_s={"migrate": 1.0}) as made:
        yield request.param(made)


def move(scene: Scene, start: str, end: str) -> Operated:
    return scene.do(ActionKind.MIGRATE, start, expects=1, generation=1, to_node=end)


@pytest.mark.parametrize("autostart", [True, False])
def test_a_migration_keeps_it(mover: Scene, autostart: bool) -> None:
    before = mover.own_vm(autostart)
    mover.take()
    for start, end in (("h1", "h2"), ("h2", "h3"), ("h3", "h1")):
        assert move(mover, start, end).outcome is Outcome.OK
        mover.settle()
        assert (mover.executing(), mover.is_defined(start)) == ([end], False)
        assert mover.flags(end) == (autostart, True, False)
        mover.another_agent(end)
        assert mover.flags(end) == (autostart, True, False)
    assert mover.do(ActionKind.RELEASE, "h1", expects=1).outcome is Outcome.OK
    assert domain_xml.digest(mover.definition("h1")) == domain_xml.digest(before)
    assert mover.autostarts("h1") is autostart


def test_a_migration_that_fails_keeps_it(mover: Scene) -> None:
    mover.own_vm()
    mover.take()
    kept = mover.definition("h1")
    mover.made.cluster.fail(Fault("migrateToURI3", "break", Err.OPERATION_FAILED, host="h1"))
    assert move(mover, "h1", "h2").outcome is Outcome.FAILED
    mover.settle()
    assert (mover.executing(), mover.definition("h1")) == (["h1"], kept)
    assert mover.flags("h1") == (True, True, False)


def test_a_definition_that_is_handed_over_word_for_word_keeps_it(scene: Scene) -> None:
    """Given a target whose libvirt has left out a controller, then it gets the definition of the source, with both."""
    scene.xml = XML.replace("<graphics", '<controller type="usb" index="0" model="none"/><graphics')
    scene.own_vm(runs=False)
    scene.take()
    arrived = replace(scene.kept("h1"), node="h2")
    scene.made.drift("h2").define(domain_xml.relabelled(XML, arrived))
    site = scene.made.drivers["h1"]._site
    seen = site.see(PET)
    assert seen is not None
    with site.peer("h2") as there:
        local_disks.leave(site, seen, there)
    assert "<controller" in scene.definition("h2")
    assert (scene.kept("h2"), arrived.failover, arrived.autostart) == (arrived, True, True)


def test_a_flag_that_its_owner_has_switched_on_moves_with_it(mover: Scene) -> None:
    """As one whose agent was killed on the way to no failover: what is reported of it is the same over there."""
    mover.own_vm()
    mover.take()
    mover.made.drift("h1").connection().lookupByName(PET).setAutostart(1)
    mover.made.cluster.fail(Fault("migrateToURI3", "break", Err.OPERATION_FAILED, host="h1"))
    assert move(mover, "h1", "h2").outcome is Outcome.FAILED
    mover.settle()
    assert mover.flags("h1") == (True, False, True)
    assert move(mover, "h1", "h2").outcome is Outcome.OK
    mover.until(lambda: mover.autostarts("h2"))
    mover.settle()
    assert mover.flags("h2") == (True, False, True)
    assert mover.take(expects=1, node="h2").outcome is Outcome.OK
    assert mover.flags("h2") == (True, True, False)


STEPS = ("setMetadata", "migrateToURI3", "undefineFlags", "setSchedulerParametersFlags", "lookupByName", "XMLDesc")


@pytest.mark.parametrize("kind", [Scene, Moving], ids=["shared", "copied"])
@pytest.mark.parametrize(("call", "skip"), first([(call, skip) for skip in range(3) for call in STEPS], quick=4))
def test_an_agent_that_is_killed_in_a_migration_keeps_it(
    tmp_path: Path, kind: Callable[..., Scene], call: str, skip: int
) -> None:
    with fakes(tmp_path, count=3, durations_s={"migrate": 1.0}) as made:
        scene = kind(made)
        scene.own_vm()
        scene.take()
        fault = Nth(call, "hang", host="h1", skip=skip)
        scene.killed_in(fault, ActionKind.MIGRATE, "h1", expects=1, generation=1, to_node="h2")
        scene.until(scene.live_once)
        scene.settle()
        (where,) = scene.executing()
        assert not scene.is_defined("h2" if where == "h1" else "h1")
        assert scene.flags(where) == (True, True, False)


# --- what lies on one host alone ------------------------------------------------------------------------------------

QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
COMMAND = f'<q:commandline xmlns:q="{QEMU}"><q:arg value="-S"/></q:commandline></domain>'
SECRET_DISPLAY = ('port="-1"', 'port="-1" passwd="s3cret"')
UNFIT_AT_HOME = {
    "disk=/pool/pet.qcow2": (DISK, LOCAL),
    "nvram=/pool/pet.fd": (NVRAM, "/pool/pet.fd"),
    f"nvram={NVRAM_FOLDER}/pet.fd": (NVRAM, f"{NVRAM_FOLDER}/pet.fd"),
    "tpm=": ("<graphics", '<tpm model="tpm-crb"><backend type="emulator"/></tpm><graphics'),
    "password=": SECRET_DISPLAY,
    "definition=a log file of a serial device": (
        "<graphics",
        '<serial type="pty"><log file="/var/log/pet"/></serial><graphics',
    ),
    f"definition=an element of another namespace: {{{QEMU}}}commandline": ("</domain>", COMMAND),
}


def test_what_every_host_sees_is_no_host_file(scene: Scene) -> None:
    scene.own_vm()
    assert scene.seen("h1").host_files == ()
    scene.take()
    assert scene.seen("h1").host_files == ()


@pytest.mark.parametrize("text", UNFIT_AT_HOME)
def test_what_lies_on_its_host_alone_is_reported(scene: Scene, text: str) -> None:
    scene.xml = XML.replace(*UNFIT_AT_HOME[text])
    scene.own_vm(runs=False)
    answer = scene.take()
    assert answer.status is not None
    assert answer.status.host_files == (text,)
    assert scene.seen("h1").host_files == (text,)
    assert "s3cret" not in answer.definition
    assert scene.do(ActionKind.RELEASE, "h1", expects=1).outcome is Outcome.OK
    assert ("s3cret" in scene.made.drift("h1").connection().lookupByName(PET).XMLDesc(3)) is (text == "password=")


@pytest.mark.parametrize("key", ["snapshots", "checkpoints"])
def test_snapshots_and_checkpoints_that_come_and_go_are_reported(scene: Scene, key: str) -> None:
    scene.own_vm(runs=False)
    scene.take()
    for count, expected in ((1, (f"{key}=",)), (0, ())):
        (dom,) = scene.made.cluster.hosts["h1"].domains.values()
        setattr(dom, key, count)
        scene.made.drivers["h1"]._look_for_jobs()
        assert scene.seen("h1").host_files == expected


def test_an_overlay_that_somebody_makes_is_reported_with_the_next_look(scene: Scene) -> None:
    """Given an external snapshot, of which libvirt sends no event, then the VM does not seem to be on its old disk."""
    scene.own_vm()
    scene.take()
    before = scene.seen("h1")
    scene.made.drift("h1").snapshot_disk(PET, DISK, LOCAL)
    after = scene.seen("h1")
    assert (before.host_files, after.host_files) == ((), (f"disk={LOCAL}",))
    assert "" != after.definition != before.definition
    scene.made.drift("h1").snapshot_disk(PET, LOCAL, DISK, live=False)
    scene.made.drivers["h1"]._look_for_jobs()
    assert scene.seen("h1").definition == before.definition
    assert scene.seen("h1").host_files == (f"disk={LOCAL}",), "as it runs"


def test_a_disk_of_an_unmanaged_vm_is_nobodys_matter(scene: Scene) -> None:
    scene.xml = XML.replace(DISK, LOCAL)
    scene.own_vm()
    asked = scene.count("autostart")
    assert (scene.seen("h1").host_files, scene.seen("h1").autostart) == ((), False)
    assert scene.count("autostart") == asked


# --- the start on another host --------------------------------------------------------------------------------------


def lost(scene: Scene, runs: bool = True) -> str:
    """A VM that may fail over, whose host is off; the definition that was kept of it."""
    scene.own_vm(runs=runs)
    text = scene.take().definition
    scene.lose("h1")
    return text


def test_it_is_restarted_elsewhere_as_it_was(scene: Scene) -> None:
    before = scene.own_vm()
    text = scene.take().definition
    scene.lose("h1")
    answer = scene.start_elsewhere(text)
    assert answer.outcome is Outcome.OK, answer
    assert scene.executing() == ["h2"]
    status = scene.seen("h2")
    assert (status.state, status.generation, status.attempt) == (VmState.RUNNING, 2, 2)
    assert (status.adopted, status.disks, status.cpu_mhz) == (True, 1, 700.0)
    assert scene.flags("h2") == (True, True, False)
    meta = scene.kept("h2")
    assert (meta.begun, meta.node, meta.template, meta.volume) == (True, "h2", "", "")
    assert domain_xml.digest(scene.definition("h2")) == domain_xml.digest(before)
    live = scene.made.drift("h2").connection().lookupByName(PET)
    assert "<shares>2048</shares>" in live.XMLDesc(0)  # as it is defined: no decision has changed its CPU since
    assert scene.is_whole()
    assert scene.start_elsewhere(text).outcome is Outcome.OK  # once more: it is done
    assert scene.told == []


def test_a_host_that_returns_neither_starts_it_nor_keeps_its_definition(scene: Scene) -> None:
    before = scene.own_vm()
    text = scene.take().definition
    scene.lose("h1")
    assert scene.start_elsewhere(text).outcome is Outcome.OK
    scene.regain("h1")
    assert scene.executing() == ["h2"]
    assert scene.seen("h1").state in OFF_STATES
    assert scene.flags("h1") == (True, True, False)
    for _ in range(2):
        assert scene.do(ActionKind.UNDEFINE, "h1", expects=1).outcome is Outcome.OK
        assert (scene.is_defined("h1"), scene.status("h1")) == (False, None)
    assert scene.is_whole()
    answer = scene.do(ActionKind.MIGRATE, "h2", expects=2, generation=2, to_node="h1", disks=1)
    assert answer.outcome is Outcome.OK
    scene.settle()
    assert scene.executing() == ["h1"]
    assert scene.do(ActionKind.RELEASE, "h1", expects=2).outcome is Outcome.OK
    assert domain_xml.digest(scene.definition("h1")) == domain_xml.digest(before)
    assert scene.autostarts("h1")
    assert scene.made.cluster.doubles == []


def test_one_that_was_shut_off_is_started_too(scene: Scene) -> None:
    text = lost(scene, runs=False)
    assert scene.start_elsewhere(text, autostart=False).outcome is Outcome.OK
    assert scene.flags("h2") == (False, True, False)
    assert scene.do(ActionKind.STOP, "h2", expects=2).outcome is Outcome.OK
    assert (scene.seen("h2").state in OFF_STATES, scene.is_whole()) == (True, True)
    assert scene.flags("h2") == (False, True, False)
    spec = scene.spec(generation=3, attempt=3)
    assert scene.do(ActionKind.START, "h2", expects=2, generation=3, spec=spec).outcome is Outcome.OK
    assert scene.flags("h2") == (False, True, False)


@pytest.mark.parametrize("call", ["defineXML", "createWithFlags"])
def test_its_memory_is_held_from_the_begin(scene: Scene, call: str) -> None:
    """That of its definition, whatever else was said of it, before there is a domain and while it is started."""
    text = lost(scene, runs=False)
    scene.made.cluster.fail(fault := Fault(call, "hang", host="h2"))
    start = scene.begin_elsewhere(text, memory_mib=1)
    wait_for(scene, fault)
    row = scene.seen("h2")
    assert (row.state, row.busy, row.adopted, row.failover) == (VmState.INCOMING, "start", True, True)
    own = VmSpec("job#0", 1, 1, memory_mib=700, vcpus=1, cpu_mhz=100.0, template="guest")
    assert scene.do(ActionKind.START, "h2", "job#0", generation=1, spec=own).outcome is Outcome.NO_ROOM
    assert scene.do(ActionKind.UNDEFINE, "h2", expects=1).outcome is Outcome.BUSY
    scene.made.cluster.release()
    scene.until(lambda: start in scene.answers)
    assert scene.answers[start].outcome is Outcome.OK


HOSTDEV = '<hostdev mode="subsystem" type="usb"><source><vendor id="0x1"/><product id="0x2"/></source></hostdev>'
CASES: dict[str, tuple[str, str, Outcome, str]] = {
    "disk": (DISK, LOCAL, Outcome.UNFIT, f"its disk {LOCAL} lies on its host alone"),
    "nvram": (NVRAM, "/pool/pet.fd", Outcome.UNFIT, "its firmware variables /pool/pet.fd lie on its host alone"),
    "no-nvram": (NVRAM, "", Outcome.UNFIT, f"its firmware variables {NVRAM_FOLDER} lie on its host alone"),
    "tpm": (*UNFIT_AT_HOME["tpm="], Outcome.UNFIT, "the state of its TPM lies on its host alone"),
    "password": (*SECRET_DISPLAY, Outcome.UNFIT, "the password of its display is in the definition on its host alone"),
    "hostdev": ("<graphics", f"{HOSTDEV}<graphics", Outcome.UNFIT, "uses USB device 1:2"),
    "network": (
        "<graphics",
        '<interface type="network"><source network="prod"/></interface><graphics',
        Outcome.UNFIT,
        "network prod is not active on h2",
    ),
    "medium": (
        "<graphics",
        '<disk type="file" device="cdrom"><source file="/pool/x.iso"/><target dev="sda"/><readonly/></disk><graphics',
        Outcome.UNFIT,
        "file /pool/x.iso is not on h2",
    ),
    "volume": (
        f'<source file="{DISK}" />',
        '<source pool="default" volume="pet"/>',
        Outcome.UNFIT,
        "its disk default/pet lies on its host alone",
    ),
    "command": ("</domain>", COMMAND, Outcome.REFUSED, "its definition: it has an element of another namespace: "),
    "name": (f"<name>{PET}<", "<name>other<", Outcome.REFUSED, "its definition: it is of 'other'"),
    "root": ("domain", "network", Outcome.REFUSED, "its definition: it is of 'network', not of a domain"),
    "no-xml": ("</domain>", "", Outcome.REFUSED, "its definition: it is no XML"),
    "size": ("409600", "much", Outcome.REFUSED, "its definition: "),
    "room": ("409600", "4096000", Outcome.NO_ROOM, "4000 MiB wanted"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_definition_that_cannot_be_started_here_changes_nothing(scene: Scene, name: str) -> None:
    old, new, outcome, detail = CASES[name]
    text = lost(scene)
    assert old in text
    made = scene.count("defineXML")
    answer = scene.start_elsewhere(text.replace(old, new))
    assert (answer.outcome, answer.detail.startswith(detail)) == (outcome, True), answer
    assert (scene.count("defineXML"), scene.is_defined("h2"), scene.is_whole()) == (made, False, True)


def test_all_reasons_are_given_at_once(scene: Scene) -> None:
    text = lost(scene).replace(DISK, LOCAL).replace("<graphics", f"{HOSTDEV}<graphics")
    detail = scene.start_elsewhere(text).detail
    assert detail == f"its disk {LOCAL} lies on its host alone; uses USB device 1:2"


def test_more_cpu_than_its_vcpus_have_is_refused(scene: Scene) -> None:
    assert scene.start_elsewhere(lost(scene), cpu_mhz=1_001.0).outcome is Outcome.REFUSED
    assert not scene.is_defined("h2")


def test_a_name_that_is_taken_is_left_alone(scene: Scene) -> None:
    text = lost(scene)
    scene.made.drift("h2").define(text.replace("c7a5fdbd", "00000000"))
    before = scene.definition("h2")
    assert scene.start_elsewhere(text).outcome is Outcome.ALREADY_THERE
    assert scene.definition("h2") == before
    scene.regain("h1")
    assert scene.start_elsewhere(text, "h1").outcome is Outcome.ALREADY_THERE  # generation 1 is there
    assert scene.executing() == []


def test_what_a_migration_could_not_remove_gives_way(scene: Scene) -> None:
    """Given a source whose agent was killed before it had tidied up, when the target is lost, then the VM is restarted
    at the source."""
    scene.own_vm()
    text = scene.take().definition
    fault = Fault("undefineFlags", "hang", host="h1")
    scene.made.cluster.fail(fault)
    scene.begin(ActionKind.MIGRATE, "h1", expects=1, generation=1, to_node="h2")
    wait_for(scene, fault)
    assert fault.times == 0
    scene.made.drivers["h1"].close()
    scene.lose("h2")
    scene.another_agent("h1")
    assert (scene.is_defined("h1"), scene.status("h1")) == (True, None)
    assert scene.start_elsewhere(text, "h1").outcome is Outcome.OK
    assert (scene.executing(), scene.flags("h1")) == (["h1"], (True, True, False))
    assert scene.kept("h1").lent == ""


@pytest.mark.parametrize("call", ["defineXML", "createWithFlags"])
@pytest.mark.parametrize("how", ["raise", "break", "lose-answer", "die"])
def test_a_start_that_fails_leaves_nothing(scene: Scene, call: str, how: Any) -> None:
    text = lost(scene)
    scene.made.cluster.fail(Fault(call, how, Err.OPERATION_FAILED, host="h2"))
    call_id = scene.begin_elsewhere(text)
    if how == "die":
        scene.until(lambda: not scene.made.cluster.hosts["h2"].serving)
        scene.made.drift("h2").libvirtd_starts()
    scene.until(lambda: call_id in scene.answers)
    answer = scene.answers[call_id]
    started = (call, how) == ("createWithFlags", "lose-answer")  # it is found to have been done
    assert answer.outcome is (Outcome.OK if started else Outcome.FAILED), answer
    assert (scene.executing(), scene.is_defined("h2")) == ((["h2"], True) if started else ([], False))
    assert scene.is_whole()
    if started:
        assert scene.kept("h2").begun
    else:
        assert scene.start_elsewhere(text).outcome is Outcome.OK
    assert scene.live_once()


def test_a_start_that_is_aborted_leaves_nothing(scene: Scene) -> None:
    text = lost(scene)
    scene.made.cluster.fail(Fault("createWithFlags", "hang", host="h2"))
    call = scene.begin_elsewhere(text)
    scene.clock.sleep(0.02)
    scene.made.drivers["h2"].abort(PET, 0.0)
    scene.made.cluster.release(Err.OPERATION_TIMEOUT)
    scene.until(lambda: call in scene.answers)
    assert scene.answers[call].outcome is Outcome.TIMED_OUT
    assert (scene.is_defined("h2"), scene.is_whole()) == (False, True)


KILLED = ("defineXML", "createWithFlags", "setMetadata", "lookupByName")


@pytest.mark.parametrize(
    ("call", "skip"), first([*((call, 0) for call in KILLED), *(("lookupByName", skip) for skip in range(1, 4))], 7)
)
def test_an_agent_that_is_killed_leaves_the_vm_or_nothing(scene: Scene, call: str, skip: int) -> None:
    text = lost(scene)
    scene.made.cluster.fail(fault := Nth(call, "hang", host="h2", skip=skip))
    scene.begin_elsewhere(text)
    wait_for(scene, fault)
    assert fault.times <= 0  # it was killed in that call
    scene.another_agent("h2")
    scene.until(lambda: scene.is_defined("h2") is bool(scene.executing()))
    assert scene.is_whole()
    if scene.executing():
        scene.until(lambda: scene.kept("h2").begun)
        assert (scene.seen("h2").generation, scene.flags("h2")) == (2, (True, True, False))
    assert scene.start_elsewhere(text).outcome is Outcome.OK
    assert scene.live_once()


def test_what_has_not_begun_is_removed_with_no_disk(scene: Scene) -> None:
    """Given a definition that an agent has made and never started, when the next agent looks, then it is gone."""
    text = lost(scene)
    meta = Meta(generation=2, node="h2", begun=False, failover=True, autostart=True, disks=1)
    scene.made.drift("h2").define(domain_xml.relabelled(text, meta))
    scene.another_agent("h2")
    scene.until(lambda: not scene.is_defined("h2"))
    assert scene.is_whole()


# --- the definition on a host that returned -------------------------------------------------------------------------


def undefine(scene: Scene, expects: int = 1, vm: str = PET) -> Outcome:
    return scene.do(ActionKind.UNDEFINE, "h1", vm, expects=expects).outcome


def test_only_what_is_off_and_was_adopted_is_undefined(scene: Scene) -> None:
    scene.own_vm()
    assert undefine(scene) is Outcome.REFUSED  # it is not ours
    scene.take()
    assert undefine(scene) is Outcome.REFUSED  # it runs
    assert scene.do(ActionKind.SUSPEND, "h1", expects=1).outcome is Outcome.OK
    assert undefine(scene) is Outcome.REFUSED
    assert scene.do(ActionKind.RESUME, "h1", expects=1, generation=2).outcome is Outcome.OK
    scene.made.drift("h1").destroy(PET)
    scene.settle()
    assert undefine(scene) is Outcome.WRONG_GENERATION
    assert scene.is_defined("h1")
    assert undefine(scene, expects=2) is Outcome.OK
    assert (scene.is_defined("h1"), scene.is_whole()) == (False, True)
    assert undefine(scene, expects=2) is Outcome.OK


def test_a_vm_of_ours_is_not_undefined(scene: Scene) -> None:
    spec = VmSpec("job#0", 1, 1, memory_mib=96, vcpus=1, cpu_mhz=100.0, template="guest")
    scene.do(ActionKind.START, "h1", "job#0", generation=1, spec=spec)
    scene.made.drift("h1").destroy("job#0")
    scene.settle()
    assert undefine(scene, vm="job#0") is Outcome.REFUSED
    assert scene.seen("h1", "job#0").state in OFF_STATES


def test_one_that_its_owner_starts_meanwhile_is_kept(scene: Scene) -> None:
    scene.own_vm(runs=False)
    scene.take()
    fault = Fault("domainListGetStats", "hang", host="h1", subject="")
    scene.made.cluster.fail(fault)
    call = scene.begin(ActionKind.UNDEFINE, "h1", expects=1)
    wait_for(scene, fault)
    assert fault.times == 0
    scene.made.drift("h1").start(PET)
    scene.made.cluster.release()
    scene.until(lambda: call in scene.answers)
    assert scene.answers[call].outcome is Outcome.REFUSED
    assert (scene.is_defined("h1"), scene.seen("h1").state in LIVE_STATES) == (True, True)


def test_firmware_variables_of_this_host_alone_keep_it(scene: Scene) -> None:
    """Given a host that returns after a failover with what no other host has, then nothing of it is removed."""
    own = f"{NVRAM_FOLDER}/pet.fd"
    scene.xml = XML.replace(NVRAM, own)
    scene.own_vm(runs=False)
    files = scene.made.cluster.hosts["h1"].files
    files.put(own, OWNERS)
    scene.take()
    answer = scene.do(ActionKind.UNDEFINE, "h1", expects=1)
    assert (answer.outcome, answer.detail) == (Outcome.REFUSED, f"its firmware variables {own} lie on its host alone")
    assert scene.is_defined("h1")
    assert bytes(files.get(own) or b"") == OWNERS


def test_a_newer_definition_is_kept(scene: Scene) -> None:
    """Given a definition that its owner has edited since the controller kept it, then it is not removed for another."""
    scene.own_vm(runs=False)
    digest = domain_xml.digest(scene.take().definition)
    scene.made.drift("h1").define(scene.definition("h1").replace("409600", "204800"))
    answer = scene.do(ActionKind.UNDEFINE, "h1", expects=1, digest=digest)
    assert (answer.outcome, "its definition here is not the one" in answer.detail) == (Outcome.REFUSED, True)
    assert scene.is_defined("h1")
    assert scene.do(ActionKind.UNDEFINE, "h1", expects=1, digest=scene.seen("h1").definition).outcome is Outcome.OK
    assert (scene.is_defined("h1"), scene.is_whole()) == (False, True)


def test_one_that_its_owner_edits_meanwhile_is_kept(scene: Scene) -> None:
    scene.own_vm(runs=False)
    digest = domain_xml.digest(scene.take().definition)
    fault = Fault("domainListGetStats", "hang", host="h1", subject="")
    scene.made.cluster.fail(fault)
    call = scene.begin(ActionKind.UNDEFINE, "h1", expects=1, digest=digest)
    wait_for(scene, fault)
    assert fault.times == 0
    scene.made.drift("h1").define(scene.definition("h1").replace("409600", "204800"))
    scene.made.cluster.release()
    scene.until(lambda: call in scene.answers)
    assert scene.answers[call].outcome is Outcome.REFUSED
    assert scene.is_defined("h1")


@pytest.mark.parametrize("kind", [Scene, Moving], ids=["shared", "copied"])
def test_the_state_of_a_tpm_outlives_the_definition_that_a_move_leaves(
    tmp_path: Path, kind: Callable[..., Scene]
) -> None:
    """Its folder may be shared, and the VM uses it on the target; checkpoints do not keep the definition either."""
    with fakes(tmp_path, count=2, durations_s={"migrate": 1.0}) as made:
        scene = kind(made)
        scene.xml = scene.xml.replace(*UNFIT_AT_HOME["tpm="])
        for host in made.cluster.hosts.values():
            host.hardware = replace(host.hardware, tpms=("emulator",))
        scene.own_vm()
        scene.take()
        (dom,) = made.cluster.hosts["h1"].domains.values()
        made.cluster.hosts["h1"].files.put(dom.tpm_state, OWNERS)
        dom.checkpoints = 2
        assert move(scene, "h1", "h2").outcome is Outcome.OK
        scene.until(lambda: not scene.is_defined("h1"))
        assert scene.executing() == ["h2"]
        assert bytes(made.cluster.hosts["h1"].files.get(dom.tpm_state) or b"") == OWNERS


def test_an_undefine_whose_answer_is_lost_is_done(scene: Scene) -> None:
    scene.own_vm(runs=False)
    scene.take()
    scene.made.cluster.fail(Fault("undefineFlags", "lose-answer", host="h1"))
    assert undefine(scene) is Outcome.OK
    assert not scene.is_defined("h1")


def test_the_stand_in_keeps_passwords_from_who_does_not_ask() -> None:
    root = ET.fromstring(XML.replace(*SECRET_DISPLAY))
    one = Definition(PET, "", 1, 1, (), root)
    assert ("s3cret" in one.text(), "s3cret" in one.text(secrets=False)) == (True, False)
