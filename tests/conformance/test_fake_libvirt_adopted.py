"""VMs that were there before Trimtab: their definitions are kept, and no stale disk is ever used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from shared.base.clock import SystemClock
from shared.base.errors import TransientError
from shared.ports.effects import GuestChanged, Operated
from shared.values.actions import Action, ActionKind, GuestChange, Outcome
from shared.values.vms import LIVE_STATES, VmSpec, VmState, VmStatus
from sim_backend.fake_libvirt.faults import Fault
from tests.conformance.fake_libvirt_rig import Fakes, fakes
from tests.conformance.test_fake_libvirt_killed import Nth
from tests.extent import first

PET, DISK, CONFIG = "pet", "/pool/pet.qcow2", "/pool/pet.data"
XML = f"""<domain type="qemu">
  <name>{PET}</name>
  <uuid>c7a5fdbd-edaf-9455-926a-d65c16db1809</uuid>
  <memory unit="KiB">98304</memory>
  <vcpu>1</vcpu>
  <cputune><shares>2048</shares></cputune>
  <os><type arch="x86_64" machine="pc">hvm</type><nvram>/var/lib/libvirt/qemu/nvram/pet.fd</nvram></os>
  <devices>
    <disk type="file" device="disk"><source file="{DISK}"/><target dev="vda"/></disk>
    <disk type="file" device="disk"><source file="{CONFIG}"/><target dev="vdb"/></disk>
  </devices>
</domain>
"""
OWN = VmSpec("job#0", 1, 1, memory_mib=96, vcpus=1, cpu_mhz=100.0, template="guest")
LIMIT_S = 20.0


class Hosts:
    """Hosts with agents' drivers, and an operator at each."""

    def __init__(self, made: Fakes) -> None:
        self.made, self.clock = made, SystemClock()
        self.answers: dict[str, Operated] = {}
        self.told: list[GuestChanged] = []
        self.ids = 0
        self.hear()  # a first reading tells no changes

    def own_vm(self, autostart: bool = False) -> str:
        """One that somebody made on h1, running; its definition."""
        drift, files = self.made.drift("h1"), self.made.cluster.hosts["h1"].files
        for path in (DISK, CONFIG):
            files.put(path, b"made by its owner")
        drift.define(XML)
        domain = drift.connection().lookupByName(PET)
        domain.setAutostart(int(autostart))
        domain.create()
        self.hear()
        return self.definition("h1")

    def adopt(self) -> Operated:
        spec = VmSpec(PET, 1, 1, memory_mib=96, vcpus=1, cpu_mhz=700.0)
        answer = self.do(ActionKind.ADOPT, "h1", generation=1, spec=spec)
        assert answer.outcome is Outcome.OK
        return answer

    def definition(self, host: str) -> str:
        return self.made.drift(host).connection().lookupByName(PET).XMLDesc(2)

    def autostarts(self, host: str) -> bool:
        return bool(self.made.drift(host).connection().lookupByName(PET).autostart())

    def is_defined(self, host: str) -> bool:
        return PET in [one.name for one in self.made.cluster.hosts[host].domains.values()]

    def write(self, host: str, mark: bytes, path: str = DISK) -> None:
        """As the guest, or somebody with qemu-io, does."""
        data = self.made.cluster.hosts[host].files.get(path)
        assert data is not None
        data[: len(mark)] = mark

    def reads(self, host: str, mark: bytes, path: str = DISK) -> bool:
        data = self.made.cluster.hosts[host].files.get(path)
        return data is not None and bytes(data[: len(mark)]) == mark

    def begin(self, kind: ActionKind, node: str, vm: str = PET, **fields: Any) -> str:
        self.ids += 1
        action = Action(f"a{self.ids}", kind, node, vm=vm, term=1, boot_id="boot", expires_at_s=1e12, **fields)
        self.made.drivers[node].begin(action, 0.0)
        return action.id

    def do(self, kind: ActionKind, node: str, vm: str = PET, **fields: Any) -> Operated:
        call = self.begin(kind, node, vm, **fields)
        self.until(lambda: call in self.answers)
        return self.answers[call]

    def until(self, ready: Callable[[], bool]) -> None:
        limit_s = self.clock.monotonic_s() + LIMIT_S
        while not ready():
            assert self.clock.monotonic_s() < limit_s
            self.hear()
            if self.made.cluster.waiting:
                self.made.cluster.advance(0.5)
            self.clock.sleep(0.0005)

    def hear(self) -> None:
        for driver in self.made.drivers.values():
            with suppress(TransientError):
                driver.vms(0.0)
            for event in driver.poll(0.0):
                if isinstance(event, GuestChanged):
                    self.told.append(event)
                else:
                    self.answers[event.call_id] = event

    def settle(self) -> None:
        """What drivers do by themselves is done."""
        for _ in range(6):
            self.clock.sleep(0.005)
            self.made.cluster.events.settle()
            if self.made.cluster.waiting:
                self.made.cluster.advance(1.0)
            self.hear()

    def status(self, host: str, vm: str = PET) -> VmStatus | None:
        self.hear()
        return next((one for one in self.made.drivers[host].vms(0.0) if one.vm == vm), None)

    def executing(self) -> list[str]:
        hosts = self.made.cluster.hosts.values()
        return [host.name for host in hosts for dom in host.live() if dom.name == PET and dom.running]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with fakes(tmp_path, count=3, durations_s={}, shared=False) as made:
        yield Hosts(made)


# --- definitions -----------------------------------------------------------------------------------------------------


def test_adopting_changes_nothing_and_releasing_leaves_no_trace(hosts: Hosts) -> None:
    before = hosts.own_vm(autostart=True)
    answer = hosts.adopt()
    assert answer.status is not None
    assert (answer.status.adopted, answer.status.disks, len(answer.status.definition)) == (True, 1, 16)
    assert answer.definition.split() == before.split()
    hosts.do(ActionKind.SET_CPU, "h1", expects=1, cpu_mhz=300.0)
    live = hosts.made.drift("h1").connection().lookupByName(PET)
    assert "<shares>300</shares>" in live.XMLDesc(0)  # as it runs
    assert "<shares>2048</shares>" in live.XMLDesc(2)  # as it is defined
    assert hosts.do(ActionKind.RELEASE, "h1", expects=1).outcome is Outcome.OK
    assert hosts.definition("h1") == before
    assert "<shares>2048</shares>" in live.XMLDesc(0)
    assert hosts.autostarts("h1")


def test_a_digest_follows_what_the_owner_edits(hosts: Hosts) -> None:
    hosts.own_vm()
    first_digest = hosts.adopt().status
    assert first_digest is not None
    hosts.do(ActionKind.SET_CPU, "h1", expects=1, cpu_mhz=300.0)
    assert hosts.status("h1") is not None
    assert hosts.status("h1").definition == first_digest.definition  # type: ignore[union-attr]
    hosts.made.drift("h1").define(hosts.definition("h1").replace("pet.fd", "other.fd"))
    hosts.made.drivers["h1"].connected()  # whatever it remembers is read again
    assert hosts.status("h1").definition != first_digest.definition  # type: ignore[union-attr]
    again = hosts.do(
        ActionKind.ADOPT, "h1", expects=1, generation=1, spec=VmSpec(PET, 1, 1, memory_mib=96, vcpus=1, cpu_mhz=1.0)
    )
    assert (again.outcome, "other.fd" in again.definition) == (Outcome.OK, True)


def test_one_that_somebody_destroys_while_it_is_adopted_was_stopped(hosts: Hosts) -> None:
    hosts.own_vm(autostart=True)
    fault = Fault("setAutostart", "hang", host="h1")
    hosts.made.cluster.fail(fault)
    spec = VmSpec(PET, 1, 1, memory_mib=96, vcpus=1, cpu_mhz=700.0, failover=True)
    call = hosts.begin(ActionKind.ADOPT, "h1", generation=1, spec=spec)
    hosts.until(lambda: fault.times == 0)
    hosts.made.drift("h1").connection().lookupByName(PET).destroy()
    hosts.made.cluster.release()
    hosts.until(lambda: call in hosts.answers and bool(hosts.told))
    hosts.settle()
    assert hosts.answers[call].outcome is Outcome.OK
    assert [(one.change, one.status.adopted) for one in hosts.told] == [(GuestChange.STOPPED, True)]


def test_one_that_is_off_is_adopted_without_being_told_of_as_stopped(hosts: Hosts) -> None:
    hosts.own_vm()
    hosts.made.drift("h1").connection().lookupByName(PET).destroy()
    hosts.settle()
    hosts.adopt()
    hosts.settle()
    assert hosts.told == []


def test_a_guest_that_shuts_down_stays_defined_and_is_ours_when_its_owner_starts_it(hosts: Hosts) -> None:
    before = hosts.own_vm()
    hosts.adopt()
    hosts.made.drift("h1").connection().lookupByName(PET).shutdown()
    hosts.settle()
    assert [(one.change, one.status.adopted) for one in hosts.told] == [(GuestChange.ENDED, True)]
    hosts.made.drivers["h1"].forget(PET, 0.0)
    hosts.settle()
    status = hosts.status("h1")
    assert status is not None
    assert (status.state, status.managed, status.generation) == (VmState.ENDED, True, 1)
    hosts.made.drift("h1").start(PET)
    hosts.settle()
    assert [one.change for one in hosts.told] == [GuestChange.ENDED, GuestChange.STARTED]
    assert (hosts.told[-1].status.generation, hosts.told[-1].status.attempt) == (1, 1)
    hosts.made.drift("h1").destroy(PET)
    hosts.settle()
    assert hosts.do(ActionKind.RELEASE, "h1", expects=1).outcome is Outcome.OK
    assert hosts.definition("h1") == before


@pytest.mark.parametrize("kind", [ActionKind.STOP, ActionKind.SUSPEND])
def test_no_order_removes_a_definition(hosts: Hosts, kind: ActionKind) -> None:
    hosts.own_vm(autostart=True)
    hosts.adopt()
    assert hosts.do(kind, "h1", expects=1).outcome is Outcome.OK
    if kind is ActionKind.SUSPEND:
        assert hosts.do(ActionKind.DISCARD_IMAGE, "h1", expects=1).outcome is Outcome.OK
        assert not [path for path in hosts.made.cluster.hosts["h1"].files.within("/saved") if PET in path]
    assert (hosts.is_defined("h1"), hosts.autostarts("h1")) == (True, True)
    assert hosts.reads("h1", b"made by its owner")


def test_a_host_that_comes_back_has_the_definition(hosts: Hosts) -> None:
    hosts.own_vm()
    hosts.adopt()
    with hosts.made.cluster.lock:
        hosts.made.cluster.hosts["h1"].power_off()
    hosts.made.drivers["h1"].close()
    with hosts.made.cluster.lock:
        hosts.made.cluster.hosts["h1"].power_on()
    hosts.made.drivers["h1"] = hosts.made.driver("h1")
    hosts.settle()
    status = hosts.status("h1")
    assert status is not None
    assert (status.state, status.adopted) == (VmState.CRASHED, True)
    assert hosts.is_defined("h1")


# --- disks -----------------------------------------------------------------------------------------------------------


def migrate(hosts: Hosts, start: str, end: str, disks: int = 0) -> Operated:
    return hosts.do(ActionKind.MIGRATE, start, expects=1, generation=1, to_node=end, disks=disks)


def test_a_migration_takes_the_disks_along_and_leaves_none(hosts: Hosts) -> None:
    before = hosts.own_vm(autostart=True)
    hosts.adopt()
    for number, (start, end) in enumerate((("h1", "h2"), ("h2", "h3"), ("h3", "h1"), ("h1", "h3"), ("h3", "h1"))):
        mark = f"mark {number}".encode()
        for path in (DISK, CONFIG):
            hosts.write(start, mark, path)
        assert migrate(hosts, start, end).outcome is Outcome.OK
        hosts.settle()
        assert (hosts.executing(), hosts.is_defined(start)) == ([end], False)
        for path in (DISK, CONFIG):
            assert hosts.reads(end, mark, path)
            assert hosts.made.cluster.hosts[start].files.get(path) is None
        assert hosts.autostarts(end)
        status = hosts.status(end)
        assert status is not None
        assert status.disks == number + 2
    assert hosts.do(ActionKind.RELEASE, "h1", expects=1).outcome is Outcome.OK
    assert hosts.definition("h1") == before


def test_a_file_that_is_there_already_is_not_overwritten(hosts: Hosts) -> None:
    hosts.own_vm(autostart=True)
    hosts.adopt()
    hosts.made.cluster.hosts["h2"].files.put(CONFIG, b"somebody's")
    answer = migrate(hosts, "h1", "h2")
    assert (answer.outcome, answer.detail) == (
        Outcome.UNFIT,
        f"{CONFIG} is on h2 already: move it away, or remove it",
    )
    assert hosts.reads("h2", b"somebody's", CONFIG)
    assert (hosts.executing(), hosts.autostarts("h1")) == (["h1"], True)


def test_a_disk_in_no_pool_keeps_a_vm_where_it_is(hosts: Hosts) -> None:
    hosts.own_vm()
    hosts.adopt()
    pools = hosts.made.cluster.hosts["h2"].pools
    pools["default"].active = False
    assert migrate(hosts, "h1", "h2").detail == "h2 has no active storage pool for /pool"
    status = hosts.status("h1")
    assert status is not None
    assert "storage=/pool" in status.migration_needs
    assert "storage=/pool" in hosts.made.drivers["h3"].inventory().migration_has


def test_snapshots_keep_a_vm_where_it_is(hosts: Hosts) -> None:
    hosts.own_vm()
    next(iter(hosts.made.cluster.hosts["h1"].domains.values())).snapshots = 1
    status = hosts.adopt().status
    assert status is not None
    assert "snapshots=carried" in status.migration_needs
    assert "snapshots=none" in hosts.made.drivers["h2"].inventory().migration_has
    assert migrate(hosts, "h1", "h2").outcome is not Outcome.OK
    assert hosts.executing() == ["h1"]


def test_memory_is_resumed_with_its_own_disk_alone(hosts: Hosts) -> None:
    hosts.own_vm()
    hosts.adopt()
    assert hosts.do(ActionKind.SUSPEND, "h1", expects=1).outcome is Outcome.OK
    hosts.write("h1", b"\xab\xab", CONFIG)
    changed = hosts.do(ActionKind.RESUME, "h1", expects=1, generation=2)
    assert (changed.outcome, CONFIG in changed.detail) == (Outcome.STALE_DISK, True)
    assert (hosts.executing(), hosts.status("h1").state) == ([], VmState.SUSPENDED)  # type: ignore[union-attr]


def test_an_adopted_vm_is_resumed_on_its_own_node_alone(hosts: Hosts) -> None:
    """Given an older copy of its disk on another node, when it is to be resumed there, then it is refused."""
    hosts.own_vm()
    hosts.adopt()
    hosts.made.cluster.hosts["h2"].files.put(DISK, b"of another time")
    assert hosts.do(ActionKind.SUSPEND, "h1", expects=1).outcome is Outcome.OK
    answer = hosts.do(ActionKind.RESUME, "h2", expects=1, generation=2, from_node="h1")
    assert answer.outcome is Outcome.UNFIT
    assert hosts.do(ActionKind.RESUME, "h1", expects=1, generation=2).outcome is Outcome.OK
    assert hosts.executing() == ["h1"]


def test_an_older_generation_of_disks_is_refused(hosts: Hosts) -> None:
    hosts.own_vm()
    hosts.adopt()
    answer = migrate(hosts, "h1", "h2", disks=4)
    assert (answer.outcome, answer.detail) == (Outcome.STALE_DISK, "disk generation 1, expected 4")
    assert hosts.do(ActionKind.SUSPEND, "h1", expects=1).outcome is Outcome.OK
    assert hosts.do(ActionKind.RESUME, "h1", expects=1, generation=2, disks=2).outcome is Outcome.STALE_DISK
    assert hosts.do(ActionKind.RESUME, "h1", expects=1, generation=2, disks=1).outcome is Outcome.OK


def test_a_vm_of_ours_takes_its_own_disk_along_and_no_other(hosts: Hosts) -> None:
    def do(kind: ActionKind, node: str, **fields: Any) -> Operated:
        answer = hosts.do(kind, node, "job#0", **fields)
        assert answer.outcome is Outcome.OK, answer
        return answer

    path = "/pool/job#0.g1"
    do(ActionKind.START, "h1", generation=1, spec=OWN)
    hosts.write("h1", b"one", path)
    do(ActionKind.MIGRATE, "h1", expects=1, generation=1, to_node="h2")
    hosts.settle()
    assert hosts.made.cluster.hosts["h1"].files.get(path) is None
    hosts.write("h2", b"two", path)
    do(ActionKind.SUSPEND, "h2", expects=1)
    hosts.made.cluster.hosts["h3"].files.put(path, b"of another time")
    do(ActionKind.RESUME, "h3", expects=1, generation=2, from_node="h2", spec=OWN)
    assert hosts.reads("h3", b"two", path)
    status = hosts.status("h3", "job#0")
    assert status is not None
    assert status.disks == 3
    do(ActionKind.SUSPEND, "h3", expects=2)
    hosts.write("h3", b"not the guest's", path)
    stale = hosts.do(ActionKind.RESUME, "h3", "job#0", expects=2, generation=3, spec=OWN)
    assert stale.outcome is Outcome.STALE_DISK
    stale = hosts.do(ActionKind.RESUME, "h1", "job#0", expects=2, generation=3, from_node="h3", spec=OWN)
    assert stale.outcome is Outcome.STALE_DISK


# --- an agent that is killed -----------------------------------------------------------------------------------------

STEPS = (
    "lookupByName",
    "setMetadata",
    "setAutostart",
    "migrateToURI3",
    "storageVolLookupByPath",
    "delete",
    "undefineFlags",
    "setSchedulerParametersFlags",
    "XMLDesc",
)


@pytest.mark.parametrize(
    ("call", "skip"),
    first([(call, skip) for call in ("delete", "migrateToURI3", *STEPS) for skip in range(4)], quick=8),
)
def test_no_stale_disk_is_left_by_an_agent_that_was_killed(tmp_path: Path, call: str, skip: int) -> None:
    """At each call of a migration: the VM runs once, on the disk that it wrote to last, and no other copy is left."""
    with fakes(tmp_path, count=3, durations_s={"migrate": 1.0}, shared=False) as made:
        hosts = Hosts(made)
        hosts.own_vm(autostart=True)
        hosts.adopt()
        hosts.write("h1", b"before")
        fault = Nth(call, "hang", host="h1", skip=skip)
        made.cluster.fail(fault)
        hosts.begin(ActionKind.MIGRATE, "h1", expects=1, generation=1, to_node="h2")
        wait_for(hosts, fault)
        made.drivers["h1"].close()
        made.cluster.script.clear()
        made.cluster.release()
        made.cluster.advance(5.0)
        made.drivers["h1"] = made.driver("h1")
        hosts.settle()
        hosts.until(lambda: len(hosts.executing()) == 1)
        (where,) = hosts.executing()
        other = "h2" if where == "h1" else "h1"
        hosts.settle()
        assert hosts.reads(where, b"before")
        assert made.cluster.hosts[other].files.get(DISK) is None
        assert (hosts.is_defined(where), hosts.is_defined(other)) == (True, False)
        status = hosts.status(where)
        assert status is not None
        assert (status.state in LIVE_STATES, status.adopted) == (True, True)
        assert hosts.autostarts(where)


def wait_for(hosts: Hosts, fault: Fault) -> None:
    """Until the agent is in that call, or the operation has gone another way."""
    limit_s = hosts.clock.monotonic_s() + 1.0
    while fault.times > 0 and hosts.clock.monotonic_s() < limit_s:
        if hosts.made.cluster.waiting:
            hosts.made.cluster.advance(0.5)
        hosts.clock.sleep(0.0005)
    hosts.clock.sleep(0.002)


# --- started and shut down ------------------------------------------------------------------------------------------


def shut_off(hosts: Hosts) -> str:
    """One that somebody made on h1 and shut down; its definition."""
    before = hosts.own_vm(autostart=True)
    hosts.made.drift("h1").connection().lookupByName(PET).destroy()
    hosts.hear()
    return before


def start(hosts: Hosts, expects: int, generation: int) -> Operated:
    spec = VmSpec(PET, generation, 1, memory_mib=96, vcpus=1, cpu_mhz=700.0)
    return hosts.do(ActionKind.START, "h1", expects=expects, generation=generation, spec=spec)


def state(hosts: Hosts) -> VmState:
    (status,) = [one for one in hosts.made.drivers["h1"].vms(0.0) if one.vm == PET]
    return status.state


def test_one_that_is_shut_off_is_adopted_and_released_as_it_was(hosts: Hosts) -> None:
    before = shut_off(hosts)
    answer = hosts.adopt()
    assert answer.status is not None
    assert (answer.status.adopted, answer.status.state in (VmState.ENDED, VmState.CRASHED)) == (True, True)
    assert answer.definition
    assert hosts.definition("h1") != before
    assert hosts.do(ActionKind.RELEASE, "h1", expects=1).outcome is Outcome.OK
    assert (hosts.definition("h1"), hosts.autostarts("h1")) == (before, True)


def test_one_is_started_by_its_own_definition_and_shut_down_again(hosts: Hosts) -> None:
    before = shut_off(hosts)
    hosts.adopt()
    assert start(hosts, 1, 2).outcome is Outcome.OK
    assert state(hosts) is VmState.RUNNING
    assert start(hosts, 1, 2).outcome is Outcome.OK  # once more: it is done
    assert start(hosts, 1, 3).outcome is Outcome.WRONG_GENERATION
    assert start(hosts, 2, 3).outcome is Outcome.REFUSED  # it runs
    assert hosts.do(ActionKind.STOP, "h1", expects=2).outcome is Outcome.OK
    assert state(hosts) in (VmState.ENDED, VmState.CRASHED)
    assert hosts.is_defined("h1")
    assert hosts.do(ActionKind.RELEASE, "h1", expects=2).outcome is Outcome.OK
    assert hosts.definition("h1") == before


def test_one_that_is_not_there_is_not_started(hosts: Hosts) -> None:
    assert start(hosts, 1, 2).outcome is Outcome.NO_SUCH_VM


def test_its_owner_may_start_it_too(hosts: Hosts) -> None:
    shut_off(hosts)
    hosts.adopt()
    hosts.made.drift("h1").connection().lookupByName(PET).create()
    hosts.hear()
    assert start(hosts, 1, 2).outcome is Outcome.REFUSED
    assert state(hosts) is VmState.RUNNING


@pytest.mark.parametrize("then", ["run", "pause"])
def test_what_its_owner_starts_meanwhile_is_not_cut_off(hosts: Hosts, then: str) -> None:
    """Given a start that has noted its generation, when its owner starts the VM first, then that is as good, and where
    it is not, since the VM is paused, it is left as it is."""
    shut_off(hosts)
    hosts.adopt()
    hosts.made.cluster.fail(fault := Nth("lookupByName", "hang", host="h1", skip=1))
    spec = VmSpec(PET, 2, 1, memory_mib=96, vcpus=1, cpu_mhz=700.0)
    begun = hosts.begin(ActionKind.START, "h1", expects=1, generation=2, spec=spec)
    wait_for(hosts, fault)
    assert fault.times == 0
    assert 'generation="2"' in hosts.definition("h1")
    hosts.made.drift("h1").start(PET)
    if then == "pause":
        hosts.made.drift("h1").suspend(PET)
    hosts.made.cluster.release()
    hosts.until(lambda: begun in hosts.answers)
    status = hosts.status("h1")
    assert status is not None
    found = (hosts.answers[begun].outcome, status.state, status.generation)
    if then == "pause":
        assert found == (Outcome.FAILED, VmState.PAUSED, 1)
    else:
        assert found == (Outcome.OK, VmState.RUNNING, 2)


@pytest.mark.parametrize("call", ["setMetadata", "createWithFlags"])
def test_a_start_that_fails_leaves_it_off_and_as_it_was(hosts: Hosts, call: str) -> None:
    shut_off(hosts)
    hosts.adopt()
    adopted = hosts.definition("h1")
    hosts.made.cluster.script.add(Fault(call, "raise", host="h1"))
    assert start(hosts, 1, 2).outcome in (Outcome.REFUSED, Outcome.FAILED)
    assert state(hosts) in (VmState.ENDED, VmState.CRASHED)
    assert hosts.definition("h1") == adopted
