"""An agent that is killed at any call of an operation: the next agent finds one VM, whole, once; its guest's end is
told as its end, and then it is removed.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agents.hypervisors.libvirt import domain_xml
from agents.hypervisors.libvirt.saved_images import image_name
from shared.base.clock import SystemClock
from shared.base.errors import TransientError
from shared.ports.effects import GuestChanged
from shared.values.actions import Action, ActionKind, GuestChange, Outcome
from shared.values.vms import LIVE_STATES, VmSpec, VmState, VmStatus
from sim_backend.fake_libvirt.codes import Err
from sim_backend.fake_libvirt.faults import Fault
from tests.conformance.fake_libvirt_rig import Fakes, fakes

VM = "job#0"
LIMIT_S = 20.0
REACHED_S = 5.0  # an operation may go another way, and never gets there
AT = (
    "lookupByName",
    "createXML",
    "defineXML",
    "createWithFlags",
    "setMetadata",
    "setSchedulerParametersFlags",
    "suspend",
    "resume",
    "save",
    "saveImageGetXMLDesc",
    "restoreFlags",
    "storagePoolLookupByName",
    "upload",
    "delete",
    "migrateToURI3",
    "shutdownFlags",
    "destroyFlags",
    "undefineFlags",
)
SPEC = VmSpec(VM, 1, 1, memory_mib=96, vcpus=1, cpu_mhz=100.0, template="guest")


@dataclass(slots=True)
class Nth(Fault):
    """The call after so many others of its name."""

    skip: int = 0

    def fits(self, call: str, host: str, subject: str) -> bool:
        if not Fault.fits(self, call, host, subject):
            return False
        self.skip -= 1
        return self.skip < 0


class Place:
    """Hosts, and what a controller would do there."""

    def __init__(self, made: Fakes) -> None:
        self.made, self.cluster = made, made.cluster
        self.clock = SystemClock()
        self.heard: list[GuestChanged] = []
        self.answers: dict[str, Outcome] = {}
        self.ids = 0

    def begin(self, kind: ActionKind, node: str, expects: int = 0, generation: int = 0, **fields: Any) -> str:
        self.ids += 1
        order = Action(
            f"a{self.ids}",
            kind,
            node,
            vm=VM,
            term=1,
            boot_id="boot",
            expires_at_s=1e12,
            expects=expects,
            generation=generation,
            **fields,
        )
        self.made.drivers[node].begin(order, 0.0)
        return order.id

    def do(self, kind: ActionKind, node: str, expects: int = 0, generation: int = 0, **fields: Any) -> None:
        call = self.begin(kind, node, expects, generation, **fields)
        self.until(lambda: call in self.answers)
        assert self.answers[call] is Outcome.OK, (kind, self.answers[call])

    def until(self, ready: Callable[[], bool]) -> bool:
        limit_s = self.clock.monotonic_s() + LIMIT_S
        while self.clock.monotonic_s() < limit_s:
            self.hear()
            if ready():
                return True
            if self.cluster.waiting:
                self.cluster.advance(0.5)
            self.clock.sleep(0.0005)
        return False

    def reached(self, fault: Fault) -> bool:
        """Nobody reads meanwhile: the fault is for the operation."""
        limit_s = self.clock.monotonic_s() + REACHED_S
        while fault.times > 0 and self.clock.monotonic_s() < limit_s:
            if self.cluster.waiting:
                self.cluster.advance(0.5)
            self.clock.sleep(0.0005)
        self.clock.sleep(0.002)
        return fault.times <= 0

    def hear(self) -> None:
        """What drivers tell, as far as they can be asked."""
        for driver in self.made.drivers.values():
            with suppress(TransientError):
                driver.vms(0.0)
            for event in driver.poll(0.0):
                if isinstance(event, GuestChanged):
                    self.heard.append(event)
                else:
                    self.answers[event.call_id] = event.outcome

    def seen(self) -> dict[str, VmStatus]:
        """The VM by node."""
        self.hear()
        every = [(name, one) for name, driver in self.made.drivers.items() for one in driver.vms(0.0)]
        return {name: one for name, one in every if one.vm == VM}

    def whole(self) -> list[int]:
        """The guests that live, with their disks."""
        with self.cluster.lock:
            domains = [(host, dom) for host in self.cluster.hosts.values() for dom in host.live()]
            for host, dom in domains:
                assert all(host.files.get(path) is not None for path in dom.definition.disks)
            return [dom.guest.token for _, dom in domains if dom.guest]

    def left(self) -> list[str]:
        """What there still is of VMs."""
        found = []
        with self.cluster.lock:
            for name, host in self.cluster.hosts.items():
                found += [f"{name}: domain {dom.name}" for dom in host.domains.values()]
                for folder in host.files.folders:
                    found += [f"{name}: {path}" for path in host.files.within(folder) if "job" in path]
        return found


@dataclass(frozen=True, slots=True)
class Case:
    """Up to `before` all goes well; then comes the operation, on `node`. `leaves`: what of files a death may leave."""

    name: str
    before: Callable[[Place], None]
    begin: Callable[[Place], str]
    node: str
    leaves: str = ""


def nothing(place: Place) -> None:
    assert place.seen() == {}


def started(place: Place) -> None:
    place.do(ActionKind.START, "h1", 0, 1, spec=SPEC)


def suspended(place: Place) -> None:
    started(place)
    place.do(ActionKind.SUSPEND, "h1", 1, 1)


def start(place: Place) -> str:
    return place.begin(ActionKind.START, "h1", 0, 1, spec=SPEC)


def suspend(place: Place) -> str:
    return place.begin(ActionKind.SUSPEND, "h1", 1, 1)


def resume(place: Place) -> str:
    return place.begin(ActionKind.RESUME, "h1", 1, 2, spec=SPEC)


def resume_from(place: Place) -> str:
    return place.begin(ActionKind.RESUME, "h2", 1, 2, spec=SPEC, from_node="h1")


def migrate(place: Place) -> str:
    return place.begin(ActionKind.MIGRATE, "h1", 1, 1, to_node="h2")


CASES = (
    Case("start", nothing, start, "h1", leaves=".g1"),
    Case("suspend", started, suspend, "h1", leaves=".saved"),
    Case("resume", suspended, resume, "h1"),
    Case("resume-from", suspended, resume_from, "h2", leaves="job#0.g1"),
    Case("migrate", started, migrate, "h1", leaves=".g1"),
)
At = tuple[str, str, int]


def calls_of(case: Case, shared: bool, folder: Path) -> list[At]:
    """Which calls the operation makes: host, name, and how many of that name before."""
    with fakes(folder, shared=shared) as made:
        place = Place(made)
        case.before(place)
        place.clock.sleep(0.01)
        begun = len(made.cluster.calls)
        call = case.begin(place)
        assert place.until(lambda: call in place.answers)
        assert place.answers[call] is Outcome.OK
        place.clock.sleep(0.01)
        counted: Counter[tuple[str, str]] = Counter()
        found: list[At] = []
        for host, name, _ in made.cluster.calls[begun:]:
            if name in AT:
                found.append((host, name, counted[host, name]))
                counted[host, name] += 1
        return found


def killed(case: Case, shared: bool, at: At, folder: Path) -> None:
    """The agent dies in that call; libvirt goes on, and so does another agent."""
    with fakes(folder, shared=shared) as made:
        place = Place(made)
        case.before(place)
        place.clock.sleep(0.01)
        host, name, number = at
        fault = Nth(name, "hang", host=host, skip=number)
        made.cluster.fail(fault)
        case.begin(place)
        if not place.reached(fault):
            return  # it went another way this time
        made.drivers[case.node].close()
        made.cluster.script.clear()
        made.cluster.release()
        made.cluster.advance(5.0)
        made.drivers[case.node] = made.driver(case.node)
        for _ in range(4):
            place.clock.sleep(0.005)
            made.cluster.advance(1.0)
            place.hear()
        finish(place, case)


def finish(place: Place, case: Case) -> None:
    """What a controller does with what it sees, to the end of the guest."""
    at_rest = lambda: not any(one.busy or one.state is VmState.INCOMING for one in place.seen().values())  # noqa: E731
    assert place.until(at_rest)
    seen = place.seen()
    live = [name for name, one in seen.items() if one.state in LIVE_STATES]
    images = [name for name, one in seen.items() if one.state is VmState.SUSPENDED]
    assert len(live) <= 1
    assert set(seen) == {*live, *images}
    if not seen:
        assert case.before is nothing
        assert not [what for what in place.left() if "domain" in what]
        return
    where = (live or images)[0]
    for other in images if live else ():
        place.do(ActionKind.DISCARD_IMAGE, other, seen[other].generation)
    generation = seen[where].generation
    if not live:
        assert len(images) == 1
        place.do(ActionKind.RESUME, where, generation, 9, spec=SPEC)
        generation = 9
    elif seen[where].state is VmState.PAUSED:
        place.do(ActionKind.UNPAUSE, where, generation, generation)
    assert place.whole() == [1]
    assert place.cluster.doubles == []
    end(place, case, where, generation)


def end(place: Place, case: Case, where: str, generation: int) -> None:
    """The guest shuts itself down: that is told, and it is removed."""
    place.heard.clear()
    assert place.made.drift(where).guest_ends(VM)
    assert place.until(lambda: bool(place.heard))
    assert [(one.change, one.status.generation) for one in place.heard] == [(GuestChange.ENDED, generation)]
    place.made.drivers[where].forget(VM, 0.0)

    def gone() -> bool:
        left = place.left()
        return not [what for what in left if not case.leaves or case.leaves not in what or "domain" in what]

    assert place.until(gone), place.left()


FEW = (
    ("suspend", True, ("h1", "save", 0)),
    ("suspend", True, ("h1", "setMetadata", 0)),
    ("resume", True, ("h1", "setMetadata", 0)),
    ("resume", False, ("h1", "delete", 0)),
    ("resume-from", True, ("h2", "saveImageGetXMLDesc", 0)),
    ("resume-from", True, ("h2", "restoreFlags", 0)),
    ("resume-from", False, ("h2", "setMetadata", 0)),
    ("migrate", True, ("h1", "migrateToURI3", 0)),
)


@pytest.mark.parametrize(("name", "shared", "at"), FEW, ids=lambda each: str(each))
def test_an_agent_that_is_killed_loses_nothing(name: str, shared: bool, at: At, tmp_path: Path) -> None:
    killed(next(case for case in CASES if case.name == name), shared, at, tmp_path)


def test_a_save_that_libvirtd_begins_when_its_agent_is_dead(tmp_path: Path) -> None:
    """It waited behind a QEMU that stood still, and the next agent has taken the VM for one that runs on. Once it is
    saved, it is suspended: that is nobody's doing, and its work is not lost."""
    case = next(case for case in CASES if case.name == "suspend")
    with fakes(tmp_path, shared=True) as made:
        place = Place(made)
        case.before(place)
        assert place.until(lambda: [one.state for one in place.seen().values()] == [VmState.RUNNING])
        place.heard.clear()
        path = f"/saved/{image_name(VM, place.seen()[case.node].generation)}"
        domain = made.drift(case.node).connection().lookupByName(VM)
        saving = threading.Thread(target=domain.save, args=(path,))
        saving.start()
        assert place.until(lambda: [one.state for one in place.seen().values()] == [VmState.SUSPENDED])
        saving.join()
        assert place.heard == []
        finish(place, case)


def test_a_save_that_ends_while_its_vm_is_put_in_order(tmp_path: Path) -> None:
    """What the next agent does to a VM that it found running waits for the save, too. The VM is suspended then: it was
    said to have crashed, and its image was not used."""
    case = next(case for case in CASES if case.name == "suspend")
    with fakes(tmp_path, shared=True) as made:
        place = Place(made)
        case.before(place)
        assert place.until(lambda: [one.state for one in place.seen().values()] == [VmState.RUNNING])
        driver = made.drivers[case.node]
        over = driver._small[VM] = threading.Event()

        def end() -> None:
            with driver._lock:
                del driver._small[VM]
            over.set()

        path = f"/saved/{image_name(VM, place.seen()[case.node].generation)}"
        domain = made.drift(case.node).connection().lookupByName(VM)
        saving, ending = threading.Thread(target=domain.save, args=(path,)), threading.Timer(0.5, end)
        saving.start()
        ending.start()
        assert place.until(lambda: [one.state for one in place.seen().values()] == [VmState.SUSPENDED])
        for thread in (saving, ending):
            thread.join()
        assert place.heard == []
        finish(place, case)


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
def test_a_restore_that_libvirtd_ends_when_its_agent_is_dead(shared: bool, tmp_path: Path) -> None:
    """The next agent has looked at the node meanwhile. What then lives is the VM as it was resumed, to its end."""
    case = next(case for case in CASES if case.name == "resume")
    with fakes(tmp_path, shared=shared) as made:
        place = Place(made)
        case.before(place)
        place.clock.sleep(0.01)
        fault = Nth("restoreFlags", "hang", host=case.node)
        made.cluster.fail(fault)
        case.begin(place)
        assert place.reached(fault)
        made.drivers[case.node].close()
        made.cluster.script.clear()
        made.drivers[case.node] = made.driver(case.node)
        assert place.until(lambda: bool(place.seen()))
        made.cluster.release()
        assert place.until(lambda: [one.state for one in place.seen().values()] == [VmState.PAUSED])

        def agreed() -> bool:
            """Its definition says so, too: the agent sees to that beside what it is asked."""
            domain = made.drift(case.node).domain(VM)
            if domain is None or domain.config is None:
                return False
            kept = domain_xml.facts_of(domain.config.text()).meta
            return kept is not None and kept.generation == place.seen()[case.node].generation

        assert place.until(agreed)
        finish(place, case)


@pytest.mark.full
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_agent_that_is_killed_anywhere_loses_nothing(case: Case, shared: bool, tmp_path: Path) -> None:
    for number, at in enumerate(calls_of(case, shared, tmp_path)):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            killed(case, shared, at, folder)
        except AssertionError as problem:
            raise AssertionError(at) from problem


def test_an_image_that_cannot_be_looked_at_is_kept(tmp_path: Path) -> None:
    with fakes(tmp_path) as made:
        place = Place(made)
        suspended(place)
        made.cluster.fail(Fault("saveImageGetXMLDesc", "raise", Err.SYSTEM_ERROR, times=3))
        made.drift("h1").libvirtd_dies()
        made.drift("h1").libvirtd_starts()
        made.drivers["h1"].close()
        made.drivers["h1"] = made.driver("h1")
        assert place.until(lambda: made.cluster.script.pending() < 3)
        made.cluster.script.clear()
        place.clock.sleep(0.01)
        assert place.seen()["h1"].state is VmState.SUSPENDED
        place.do(ActionKind.RESUME, "h1", 1, 2, spec=SPEC)
        assert place.whole() == [1]


def test_a_save_that_cannot_be_judged_is_not_taken_back(tmp_path: Path) -> None:
    with fakes(tmp_path) as made:
        place = Place(made)
        started(place)
        made.cluster.fail(Fault("save", "lose-answer"))
        made.cluster.fail(Fault("saveImageGetXMLDesc", "raise", Err.SYSTEM_ERROR, times=3))
        order = place.begin(ActionKind.SUSPEND, "h1", 1, 1)
        assert place.until(lambda: order in place.answers)
        made.cluster.script.clear()
        place.clock.sleep(0.01)
        assert place.seen()["h1"].state is VmState.SUSPENDED
        place.do(ActionKind.RESUME, "h1", 1, 2, spec=SPEC)
        assert place.whole() == [1]
