"""No stale disk is ever used, whichever call of an operation the agent dies in.

The guest's disks carry a marker that is new before each operation. The agent dies, libvirt goes on, another agent
begins, and the VM goes on like one of which a controller knows nothing but what is reported: resumed where its image is
and moved to the other nodes and back. Wherever it executes, its disks have the newest marker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from agents.core import recovery
from agents.hypervisors.libvirt import local_disks
from shared.base.clock import SystemClock
from shared.base.errors import TransientError
from shared.config.agent import CloneMode
from shared.ports.effects import GuestChanged, Operated
from shared.values.actions import Action, ActionKind, Outcome
from shared.values.vms import LIVE_STATES, VmSpec, VmState, VmStatus
from sim_backend.fake_libvirt.codes import Err, From, error
from sim_backend.fake_libvirt.connection import add_pool
from tests.conformance.fake_libvirt_rig import Fakes, fakes
from tests.conformance.mortal import MortalModule, Point, points_of
from tests.extent import later

VM = "vm"
LIMIT_S = 8.0
DURATIONS_S = {"save": 1.0, "restore": 1.0, "migrate": 1.0}
ADOPTED = """<domain type="qemu">
  <name>vm</name>
  <uuid>c7a5fdbd-edaf-9455-926a-d65c16db1809</uuid>
  <memory unit="KiB">98304</memory>
  <vcpu>1</vcpu>
  <cputune><shares>2048</shares></cputune>
  <os><type arch="x86_64" machine="pc">hvm</type></os>
  <devices>
    <disk type="file" device="disk"><source file="/pool/pet.qcow2"/><target dev="vda"/></disk>
    <disk type="file" device="disk"><source file="/pool/pet.data"/><target dev="vdb"/></disk>
  </devices>
</domain>
"""
OWN = VmSpec(VM, 1, 1, memory_mib=96, vcpus=1, cpu_mhz=100.0, template="guest")
GONE = error(Err.INTERNAL_ERROR, From.RPC, "client socket is closed")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of VM, and where its disks lie."""

    name: str
    disks: tuple[str, ...]
    clone: CloneMode = CloneMode.OVERLAY

    @property
    def adopted(self) -> bool:
        return self.name == "adopted"


KINDS = (
    Kind("adopted", ("/pool/pet.qcow2", "/pool/pet.data")),
    Kind("overlay", ("/pool/vm.g1",), CloneMode.OVERLAY),
    Kind("copy", ("/pool/vm.g1",), CloneMode.COPY),
)


class Nodes:
    """Three hosts with an agent each, and one VM."""

    def __init__(self, made: Fakes, kind: Kind) -> None:
        self.made, self.cluster, self.kind = made, made.cluster, kind
        self.clock = SystemClock()
        self.answers: dict[str, Operated] = {}
        self.ids, self.mark = 0, 0
        self.before = ""
        self.hear()

    # --- what a controller does -------------------------------------------------------------------------------------

    def order(self, kind: ActionKind, node: str, **fields: Any) -> Action:
        self.ids += 1
        return Action(f"a{self.ids}", kind, node, vm=VM, term=1, boot_id="boot", expires_at_s=1e12, **fields)

    def do(self, kind: ActionKind, node: str, **fields: Any) -> Operated:
        action = self.order(kind, node, **fields)
        self.made.drivers[node].begin(action, 0.0)
        self.until(lambda: action.id in self.answers)
        return self.answers[action.id]

    def must(self, kind: ActionKind, node: str, **fields: Any) -> None:
        answer = self.do(kind, node, **fields)
        assert answer.outcome is Outcome.OK, (kind, node, answer)

    def until(self, ready: Callable[[], bool]) -> None:
        limit_s = self.clock.monotonic_s() + LIMIT_S
        while not ready():
            assert self.clock.monotonic_s() < limit_s
            self.hear()
            if self.cluster.waiting:
                self.cluster.advance(0.5)
            self.clock.sleep(0.0005)

    def hear(self) -> None:
        for driver in self.made.drivers.values():
            with suppress(TransientError):
                driver.vms(0.0)
            for event in driver.poll(0.0):
                if not isinstance(event, GuestChanged):
                    self.answers[event.call_id] = event

    def settle(self) -> None:
        """What drivers do by themselves is done."""
        for _ in range(4):
            self.clock.sleep(0.005)
            self.cluster.events.settle()
            self.cluster.advance(1.0)
            self.hear()

    def seen(self) -> dict[str, VmStatus]:
        """The VM by node, as it is reported."""
        self.hear()
        every = [(name, one) for name, driver in self.made.drivers.items() for one in driver.vms(0.0)]
        return {name: one for name, one in every if one.vm == VM}

    # --- disks ------------------------------------------------------------------------------------------------------

    def write(self, node: str) -> None:
        """As the guest does: something new."""
        self.mark += 1
        for path in self.kind.disks:
            data = self.cluster.hosts[node].files.get(path)
            assert data is not None
            data[:4] = self.mark.to_bytes(4, "big")

    def check_disks(self, node: str) -> None:
        for path in self.kind.disks:
            data = self.cluster.hosts[node].files.get(path)
            assert data is not None, path
            assert int.from_bytes(data[:4], "big") == self.mark, (node, path)

    def executing(self) -> list[str]:
        return [host.name for host in self.cluster.hosts.values() for dom in host.live() if dom.running]

    def copies(self, but: str) -> list[str]:
        """What other nodes have of its disks."""
        others = [host for name, host in self.cluster.hosts.items() if name != but]
        return [f"{host.name}: {path}" for host in others for path in self.kind.disks if host.files.get(path)]

    # --- its life ---------------------------------------------------------------------------------------------------

    def make(self) -> None:
        """On h1: running, ours."""
        if not self.kind.adopted:
            self.must(ActionKind.START, "h1", generation=1, spec=OWN)
            return
        for path in self.kind.disks:
            self.cluster.hosts["h1"].files.put(path, b"made by its owner")
        self.made.drift("h1").define(ADOPTED)
        domain = self.made.drift("h1").connection().lookupByName(VM)
        domain.setAutostart(1)
        domain.create()
        self.before = domain.XMLDesc(2)
        self.hear()
        self.must(ActionKind.ADOPT, "h1", generation=1, spec=VmSpec(VM, 1, 1, memory_mib=96, vcpus=1, cpu_mhz=700.0))

    def migrate(self, start: str, end: str) -> None:
        status = self.seen()[start]
        generation = status.generation
        self.must(ActionKind.MIGRATE, start, expects=generation, generation=generation, to_node=end, disks=status.disks)

    def kill(self, action: Action, point: Point | None, again: bool = True) -> tuple[list[str], bool]:
        """Have the agent of its node carry out an order, and die at a point; what it called, and whether it died. Then
        another agent begins, if `again`."""
        node = action.node
        self.made.drivers[node].close()
        reached, released = threading.Event(), threading.Event()

        def die() -> None:
            reached.set()
            released.wait()

        module = MortalModule(self.cluster.module(node), point, die, reached.set)
        dying = self.made.drivers[node] = self.made.driver(node, module)
        dying.vms(0.0)
        module.trace.clear()
        dying.begin(action, 0.0)
        self._until_dead(action, dying, point, reached)
        module.dead = GONE if point is not None else None
        dying.close()
        released.set()
        del self.made.drivers[node]
        self.settle()  # libvirt ends what the dead agent has begun
        if again:
            self.made.drivers[node] = self.made.driver(node)
        return module.trace, reached.is_set()

    def _until_dead(self, action: Action, dying: Any, point: Point | None, reached: threading.Event) -> None:
        limit_s = self.clock.monotonic_s() + LIMIT_S
        answered = False
        while not (reached.is_set() or answered):
            assert self.clock.monotonic_s() < limit_s
            answered = any(isinstance(event, Operated) and event.call_id == action.id for event in dying.poll(0.0))
            if self.cluster.waiting:
                self.cluster.advance(0.25)
            self.clock.sleep(0.0005)
        if point is None or point.when != "during":
            return
        while not self.cluster.waiting and self.clock.monotonic_s() < limit_s:
            self.clock.sleep(0.0005)


@dataclass(frozen=True, slots=True)
class Case:
    """What has happened before, and the order in which the agent dies."""

    name: str
    before: Callable[[Nodes], None]
    order: Callable[[Nodes], Action]


def running(nodes: Nodes) -> None:
    nodes.make()
    nodes.write("h1")


def moved(nodes: Nodes) -> None:
    running(nodes)
    nodes.migrate("h1", "h2")
    nodes.settle()
    nodes.write("h2")


def saved(nodes: Nodes) -> None:
    moved(nodes)
    nodes.must(ActionKind.SUSPEND, "h2", expects=1)


def resumed(nodes: Nodes) -> None:
    """Of ours: on h3, with an image on h2 still."""
    saved(nodes)
    nodes.must(ActionKind.RESUME, "h3", expects=1, generation=2, from_node="h2", spec=OWN)
    nodes.write("h3")


def migrate(start: str, end: str) -> Callable[[Nodes], Action]:
    return lambda nodes: nodes.order(ActionKind.MIGRATE, start, expects=1, generation=1, to_node=end)


def spec_of(nodes: Nodes) -> VmSpec | None:
    return None if nodes.kind.adopted else OWN


CASES = (
    Case("migrate", running, migrate("h1", "h2")),
    Case("migrate-back", moved, migrate("h2", "h1")),
    Case("suspend", moved, lambda nodes: nodes.order(ActionKind.SUSPEND, "h2", expects=1)),
    Case(
        "resume",
        saved,
        lambda nodes: nodes.order(ActionKind.RESUME, "h2", expects=1, generation=2, spec=spec_of(nodes)),
    ),
    Case("discard", saved, lambda nodes: nodes.order(ActionKind.DISCARD_IMAGE, "h2", expects=1)),
    Case(
        "resume-from",
        saved,
        lambda nodes: nodes.order(
            ActionKind.RESUME, "h3", expects=1, generation=2, from_node="h2", spec=spec_of(nodes)
        ),
    ),
    Case("discard-old", resumed, lambda nodes: nodes.order(ActionKind.DISCARD_IMAGE, "h2", expects=1)),
)
OWN_ONLY = frozenset({"resume-from", "discard-old"})


def died(case: Case, kind: Kind, point: Point, folder: Path, changed: bool = False) -> None:
    """The agent dies at the point. With `changed`, somebody writes to a disk of a VM that is then suspended."""
    with fakes(folder, 3, DURATIONS_S, shared=False, clone=kind.clone) as made:
        nodes = Nodes(made, kind)
        case.before(nodes)
        nodes.settle()
        action = case.order(nodes)
        _, reached = nodes.kill(action, point)
        assert reached
        nodes.until(lambda: not any(one.busy or one.state is VmState.INCOMING for one in nodes.seen().values()))
        nodes.settle()
        assert nodes.cluster.doubles == []
        judge(nodes, action)
        go_on(nodes, case, changed)


def judge(nodes: Nodes, action: Action) -> None:
    """What the next agent says of the order is so."""
    here = nodes.seen().get(action.node)
    image = here if here is not None and here.state is VmState.SUSPENDED else None
    domain = here if image is None else None
    if recovery.judge(action, domain, image, same_boot=True)[0] is not Outcome.OK:
        return
    if action.kind is ActionKind.MIGRATE:
        assert nodes.executing() == [action.to_node]
    elif action.kind is ActionKind.RESUME:
        assert domain is not None
        assert domain.state in LIVE_STATES
    elif action.kind is ActionKind.SUSPEND:
        assert nodes.executing() == []


def go_on(nodes: Nodes, case: Case, changed: bool) -> None:
    """As a controller has it go on: to life, to the other nodes and back."""
    seen = nodes.seen()
    live = [name for name, one in seen.items() if one.state in LIVE_STATES]
    images = [name for name, one in seen.items() if one.state is VmState.SUSPENDED]
    assert len(live) <= 1
    if live:
        for name in images:
            nodes.must(ActionKind.DISCARD_IMAGE, name, expects=seen[name].generation)
        (where,) = live
    elif images and case.name == "discard":
        nodes.must(ActionKind.DISCARD_IMAGE, images[0], expects=seen[images[0]].generation)
        over(nodes, nodes.seen())
        return
    elif images:
        (where,) = images
        resume(nodes, where, seen[where], changed)
        if changed:
            return
    else:
        assert case.name == "discard"
        over(nodes, seen)
        return
    status = nodes.seen()[where]
    if status.state is VmState.PAUSED:
        nodes.must(ActionKind.UNPAUSE, where, expects=status.generation)
    nodes.settle()
    assert nodes.executing() == [where]
    nodes.check_disks(where)
    others = [name for name in ("h1", "h2", "h3") if name != where]
    for start, end in zip((where, *others, where), (*others, where, others[0]), strict=True):
        nodes.write(start)
        nodes.migrate(start, end)
        nodes.settle()
        assert nodes.executing() == [end]
        nodes.check_disks(end)
        assert nodes.copies(but=end) == []
    let_go(nodes, others[0])


def resume(nodes: Nodes, where: str, status: VmStatus, changed: bool) -> None:
    """On its node; elsewhere one that was adopted is refused."""
    fields = {"expects": status.generation, "generation": 9, "spec": spec_of(nodes), "disks": status.disks}
    if nodes.kind.adopted:
        other = "h1" if where != "h1" else "h3"
        for path in nodes.kind.disks:
            nodes.cluster.hosts[other].files.put(path, b"of another time")
        answer = nodes.do(ActionKind.RESUME, other, from_node=where, **fields)
        assert (answer.outcome, answer.detail) == (
            Outcome.UNFIT,
            f"it was adopted, and is resumed on {where} alone, where its disks are",
        )
        for path in nodes.kind.disks:
            nodes.cluster.hosts[other].files.remove(path)
    if changed:
        nodes.write(where)
        answer = nodes.do(ActionKind.RESUME, where, **fields)
        path = nodes.kind.disks[0]
        assert (answer.outcome, answer.detail) == (
            Outcome.STALE_DISK,
            f"{path} was changed or replaced after the memory was saved",
        )
        assert nodes.executing() == []
        return
    nodes.must(ActionKind.RESUME, where, **fields)


def over(nodes: Nodes, seen: dict[str, VmStatus]) -> None:
    """Its image was discarded: nothing is left of one of ours, and all of one that was adopted but its memory."""
    assert [path for path in nodes.cluster.hosts["h2"].files.within("/saved") if path.endswith(".saved")] == []
    if not nodes.kind.adopted:
        assert seen == {}
        return
    nodes.check_disks("h2")
    nodes.made.drift("h2").start(VM)
    nodes.settle()
    assert nodes.executing() == ["h2"]
    nodes.check_disks("h2")
    let_go(nodes, "h2")


def let_go(nodes: Nodes, where: str) -> None:
    """The owner has the definition again that there was."""
    if nodes.kind.adopted:
        domain = nodes.made.drift(where).connection().lookupByName(VM)
        assert domain.autostart() == 1
        nodes.must(ActionKind.RELEASE, where, expects=nodes.seen()[where].generation)
        assert domain.XMLDesc(2) == nodes.before


def points(case: Case, kind: Kind, folder: Path) -> list[Point]:
    """Where an agent can die in it."""
    with fakes(folder, 3, DURATIONS_S, shared=False, clone=kind.clone) as made:
        nodes = Nodes(made, kind)
        case.before(nodes)
        nodes.settle()
        trace, _ = nodes.kill(case.order(nodes), None)
        return points_of(trace)


EVERY = [(kind, case) for kind in KINDS for case in CASES if not (kind.adopted and case.name in OWN_ONLY)]


@pytest.mark.parametrize(("kind", "case"), [later(each) for each in EVERY], ids=lambda one: one.name)
def test_an_agent_that_dies_anywhere_leaves_no_stale_disk(kind: Kind, case: Case, tmp_path: Path) -> None:
    for number, point in enumerate(points(case, kind, tmp_path)):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            died(case, kind, point, folder)
        except AssertionError as problem:
            raise AssertionError(point) from problem


SAVED = (Point("save", 0, "after"), Point("save", 0, "during"), Point("setMetadata", 0, "after"))
SAVES = [(kind, point) for kind in KINDS for point in SAVED]


@pytest.mark.parametrize(("kind", "point"), SAVES, ids=lambda one: getattr(one, "name", str(one)))
def test_memory_that_nobody_noted_the_disks_of_is_not_resumed_with_changed_ones(
    kind: Kind, point: Point, tmp_path: Path
) -> None:
    """Given an agent that died before it noted how the disks were, when one of them is written to, then the memory is
    not resumed."""
    case = next(case for case in CASES if case.name == "suspend")
    died(case, kind, point, tmp_path, changed=True)


def test_a_copy_that_a_dead_agent_left_gives_way_to_its_own_vm(tmp_path: Path) -> None:
    """Given a source whose agent has died before it removed the copies, when the VM comes back, then they do not keep
    it away, and are not used."""
    kind = KINDS[0]
    with fakes(tmp_path, 3, DURATIONS_S, shared=False) as made:
        nodes = Nodes(made, kind)
        running(nodes)
        made.drivers["h1"].vms(0.0)
        _, reached = nodes.kill(migrate("h1", "h2")(nodes), Point("delete", 0, "before"), again=False)
        assert reached
        assert nodes.copies(but="h2") == ["h1: /pool/pet.qcow2", "h1: /pool/pet.data"]
        nodes.write("h2")
        nodes.must(ActionKind.MIGRATE, "h2", expects=1, generation=1, to_node="h1")
        made.drivers["h1"] = made.driver("h1")
        nodes.settle()
        assert nodes.executing() == ["h1"]
        nodes.check_disks("h1")
        assert nodes.copies(but="h1") == []


def test_a_copy_that_a_dead_agent_left_goes_when_its_vm_has_moved_on(tmp_path: Path) -> None:
    """Given a source whose agent has died before it removed the copies, when the VM has moved on to a third node, then
    the next agent finds it there."""
    with fakes(tmp_path, 3, DURATIONS_S, shared=False) as made:
        nodes = Nodes(made, KINDS[0])
        running(nodes)
        nodes.kill(migrate("h1", "h2")(nodes), Point("delete", 0, "before"), again=False)
        nodes.migrate("h2", "h3")
        nodes.settle()
        assert nodes.copies(but="h3") == ["h1: /pool/pet.qcow2", "h1: /pool/pet.data"]
        made.drivers["h1"] = made.driver("h1")
        nodes.settle()
        assert nodes.copies(but="h3") == []
        assert made.drift("h1").domain(VM) is None
        assert nodes.executing() == ["h3"]


def test_a_host_that_comes_back_keeps_its_disks_while_the_other_one_waits_for_the_vm(tmp_path: Path) -> None:
    """Given a host that failed in the middle of a migration, when it is back before the target has noticed, then the
    disks are kept: nothing has come to life there."""
    with fakes(tmp_path, 3, DURATIONS_S, shared=False) as made:
        nodes = Nodes(made, KINDS[0])
        running(nodes)
        nodes.kill(migrate("h1", "h2")(nodes), Point("migrateToURI3", 0, "before"), again=False)
        left = made.drift("h1").connection().lookupByName(VM).XMLDesc(2)
        made.drift("h1").power_off()
        for path in nodes.kind.disks:
            nodes.cluster.hosts["h2"].files.put(path, b"half")
        made.drift("h2").define(left)
        coming = made.drift("h2").domain(VM)
        assert coming is not None
        assert coming.config is not None
        made.cluster.hosts["h2"].occupy(coming, coming.config, None)
        made.drift("h1").power_on()
        made.drivers["h1"] = made.driver("h1")
        nodes.settle()
        nodes.check_disks("h1")
        assert made.drift("h1").domain(VM) is not None


@pytest.mark.parametrize("by", ["its owner", "its host"])
def test_a_vm_that_was_started_anew_is_of_no_image_any_more(by: str, tmp_path: Path) -> None:
    """Given a suspended VM that its owner, or its host when it booted, has started from its definition, when it is cut
    off, then its old memory is not taken for its own."""
    with fakes(tmp_path, 3, DURATIONS_S, shared=False) as made:
        nodes = Nodes(made, KINDS[0])
        saved(nodes)
        if by == "its owner":
            made.drift("h2").start(VM)
        else:
            made.drivers["h2"].close()
            made.drift("h2").power_off()
            made.drift("h2").power_on()
            made.drivers["h2"] = made.driver("h2")
        nodes.settle()
        assert nodes.executing() == ["h2"]
        nodes.write("h2")
        made.drift("h2").destroy(VM)
        nodes.settle()
        assert nodes.seen()["h2"].state is VmState.CRASHED
        assert [path for path in made.cluster.hosts["h2"].files.within("/saved") if path.endswith(".saved")] == []


def test_a_discarded_image_is_not_taken_for_a_later_one(tmp_path: Path) -> None:
    """Given an agent that died while it discarded an image, when the owner later saves the VM by hand, then the old
    image is not taken for what was saved."""
    with fakes(tmp_path, 3, DURATIONS_S, shared=False) as made:
        nodes = Nodes(made, KINDS[0])
        saved(nodes)
        discard = next(case for case in CASES if case.name == "discard")
        _, reached = nodes.kill(discard.order(nodes), Point("setMetadata", 0, "after"))
        assert reached
        nodes.must(ActionKind.DISCARD_IMAGE, "h2", expects=1)
        nodes.settle()
        made.drift("h2").start(VM)
        nodes.settle()
        nodes.write("h2")
        domain = made.drift("h2").connection().lookupByName(VM)
        saving = threading.Thread(target=domain.save, args=("/saved/by-hand",))
        saving.start()
        nodes.settle()
        saving.join()
        nodes.settle()
        assert nodes.seen()["h2"].state is VmState.CRASHED


def test_a_shared_pool_without_a_folder_shares_no_folder(tmp_path: Path) -> None:
    """Given a pool of Ceph's among the shared ones, then a disk in a file is as local as it was; and so is one whose
    path only begins in a shared folder."""
    with fakes(tmp_path, durations_s={}) as made:
        add_pool(made.cluster.hosts["h1"], "ceph", "")
        site = made.drivers["h1"]._site
        made.drivers["h1"].inventory()
        site.keys = replace(site.keys, shared_pools=("ceph", "shared"))
        is_local = local_disks.is_local(site)
        assert is_local("/pool/a")
        assert not is_local("/shared/volumes/a")
        assert is_local("/shared/volumes/../../pool/a")
        site.keys = replace(site.keys, shared_pools=("ceph",))
        assert local_disks.is_local(site)("/shared/volumes/a")
