"""Operations side by side, faults of libvirt, hosts that fail and other people's hands, on three hosts, at random.

Whatever happens: no VM ever executes twice, none is lost, each operation is answered once, and what a node reports in
the end is what is there.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from threading import Thread

import pytest

from shared.base.clock import SystemClock
from shared.base.errors import TrimtabError
from shared.ports.effects import GuestChanged, Operated
from shared.values.actions import Action, ActionKind, GuestChange, Outcome
from shared.values.vms import LIVE_STATES, VmSpec, VmState, VmStatus
from sim_backend.fake_libvirt.codes import LAST_ERROR, Err, libvirtError
from sim_backend.fake_libvirt.events import Delivery
from sim_backend.fake_libvirt.faults import Fault, How
from tests.conformance.fake_libvirt_rig import Fakes, fakes

SEEDS = range(4)
MORE_SEEDS = range(4, 120)
STEPS = 40
TURNS_MAX = 30_000  # of a millisecond at least: libvirt is asked for seconds where a VM went whose answer was lost
VMS = ("a#0", "b#0", "c#0", "d#0")
WAYS: tuple[How, ...] = ("raise", "hang", "break", "lose-answer", "die", "die-after")
DELIVERIES: tuple[Delivery, ...] = ("plain", "plain", "lost", "late", "twice")
ENDS = frozenset({GuestChange.ENDED, GuestChange.VANISHED, GuestChange.STOPPED})
CALLS = ("createWithFlags", "save", "restoreFlags", "migrateToURI3", "setMetadata", "suspend", "undefineFlags", "")
LIVING = (ActionKind.STOP, ActionKind.PAUSE, ActionKind.UNPAUSE, ActionKind.SUSPEND, ActionKind.MIGRATE)


class Storm:
    """One seed. `alive`: what nobody has ended, as far as is known."""

    def __init__(self, made: Fakes, seed: int) -> None:
        self.made, self.cluster = made, made.cluster
        self.random = random.Random(seed)
        self.clock = SystemClock()
        self.alive: set[str] = set()
        self.under: dict[str, Action] = {}
        self.answers: Counter[str] = Counter()
        self.said: list[str] = []
        self.moves: list[Thread] = []
        self.ids = 0

    def step(self) -> None:
        """Something happens."""
        does = self.random.choices(
            (self.act, self.break_, self.meddle, self.fail_host, self.pass_time), weights=(10, 4, 3, 1, 8)
        )[0]
        does()
        self.clock.sleep(0.001)
        self.collect()

    def act(self) -> None:
        """As a controller orders it: on a VM that nothing is in progress on, where it is."""
        vm = self.random.choice(VMS)
        if vm in self.under:
            if self.random.random() < 0.2:
                self.made.drivers[self.under[vm].node].abort(vm, 0.0)
            return
        seen = self.seen(vm)
        if seen is None:
            if not self.truth(vm) and not self.down():
                self.begin(self.action(ActionKind.START, vm, self.random.choice(self.made.names)))
            return
        node, status = seen
        if status.state is VmState.SUSPENDED:
            kind = self.random.choice((ActionKind.RESUME, ActionKind.RESUME, ActionKind.DISCARD_IMAGE))
        else:
            kind = self.random.choice(LIVING) if status.state in LIVE_STATES else ActionKind.STOP
        self.begin(self.action(kind, vm, node, status))

    def begin(self, action: Action) -> None:
        """Order it."""
        self.said.append(f"{action.id} {action.kind.value} {action.vm} on {action.node} {action.to_node}")
        if action.kind in (ActionKind.STOP, ActionKind.DISCARD_IMAGE):
            self.alive.discard(action.vm)
        self.under[action.vm] = action
        self.made.drivers[action.node].begin(action, 0.0)

    def action(self, kind: ActionKind, vm: str, node: str, status: VmStatus | None = None) -> Action:
        """With what it needs."""
        self.ids += 1
        expects = 0 if status is None else status.generation
        generation = self.ids if kind in (ActionKind.START, ActionKind.RESUME) else expects
        spec = VmSpec(vm, 1, 1, memory_mib=96, vcpus=1, cpu_mhz=100.0, template="guest")
        to = self.random.choice([name for name in self.made.names if name != node])
        to = to if kind is ActionKind.MIGRATE else ""
        return Action(
            f"a{self.ids}",
            kind,
            node,
            vm=vm,
            term=1,
            boot_id="boot",
            expires_at_s=1e12,
            expects=expects,
            generation=generation,
            spec=spec,
            to_node=to,
        )

    def break_(self) -> None:
        """A call is to fail, or events go astray."""
        if self.random.random() < 0.3:
            self.cluster.events.delivery = self.random.choice(DELIVERIES)
            return
        code = self.random.choice((Err.OPERATION_FAILED, self.random.randrange(LAST_ERROR + 1)))
        host = self.random.choice((*self.made.names, ""))
        call, way = self.random.choice(CALLS), self.random.choice(WAYS)
        if call or way != "hang":  # reading the node must not hang: whoever reads is who would let it go on
            self.cluster.fail(Fault(call, way, code, host=host))

    def meddle(self) -> None:
        """Somebody at virsh, or the guest itself."""
        vm, name = self.random.choice(VMS), self.random.choice(self.made.names)
        drift = self.made.drift(name)
        if drift.domain(vm) is None or not self.cluster.hosts[name].serving:
            return
        what = self.random.choice(("destroy", "guest_ends", "crash", "suspend", "resume", "migrate"))
        self.said.append(f"somebody: {what} {vm} on {name}")
        if what in ("destroy", "guest_ends", "crash"):
            self.alive.discard(vm)
        if what == "migrate":
            to = self.random.choice([other for other in self.made.names if other != name])
            self.moves.append(Thread(target=lambda: self.tried(lambda: drift.migrate(vm, to)), daemon=True))
            self.moves[-1].start()
        elif what in ("guest_ends", "crash"):
            getattr(drift, what)(vm)
        else:
            self.moves.append(Thread(target=lambda: self.tried(lambda: getattr(drift, what)(vm)), daemon=True))
            self.moves[-1].start()

    def tried(self, do: object) -> None:
        """What virsh may refuse."""
        assert callable(do)
        try:
            do()
        except libvirtError:
            return

    def fail_host(self) -> None:
        """A libvirtd, a network or the power."""
        name = self.random.choice(self.made.names)
        drift = self.made.drift(name)
        what = self.random.choice(("libvirtd", "network", "power"))
        self.said.append(f"{what} of {name}")
        if what == "libvirtd":
            drift.libvirtd_dies()
        elif what == "network":
            self.cluster.cut(name)
        else:
            with self.cluster.lock:
                self.alive -= {dom.name for dom in self.cluster.hosts[name].live()}
                drift.power_off()

    def pass_time(self) -> None:
        """And now and then somebody repairs what is broken."""
        self.cluster.advance(self.random.random())
        if self.random.random() < 0.3:
            self.repair()

    def repair(self) -> None:
        """Hosts and networks."""
        for name in self.made.names:
            self.cluster.mend(name)
            host, drift = self.cluster.hosts[name], self.made.drift(name)
            if not host.powered:
                drift.power_on()
            elif not host.serving:
                drift.libvirtd_starts()

    def calm(self) -> None:
        """Nothing fails any more, and what is in progress comes to its end."""
        self.cluster.events.delivery = "plain"
        self.cluster.events.deliver_late()
        for turn in range(TURNS_MAX):
            self.cluster.script.clear()
            self.repair()
            self.collect()
            if self.cluster.waiting:
                self.cluster.advance(0.25)
            if turn % 50 == 49:
                self.cluster.release(Err.OPERATION_TIMEOUT)
            if not self.under and not any(move.is_alive() for move in self.moves):
                return
            self.clock.sleep(0.001)
        raise AssertionError((self.under, self.said))

    def collect(self) -> None:
        """What drivers tell."""
        for name, driver in self.made.drivers.items():
            for event in driver.poll(0.0):
                if isinstance(event, GuestChanged):
                    self.said.append(f"{name}: {event.status.vm} {event.change.value} {event.detail}")
                    if event.change in ENDS:
                        self.alive.discard(event.status.vm)
                else:
                    self.answered(event)

    def answered(self, event: Operated) -> None:
        """Once each."""
        self.said.append(f"{event.call_id} {event.outcome.value} {event.detail}")
        self.answers[event.call_id] += 1
        vm = next(vm for vm, action in self.under.items() if action.id == event.call_id)
        action = self.under.pop(vm)
        if event.outcome is Outcome.OK and action.kind in (ActionKind.START, ActionKind.RESUME) and self.truth(vm):
            self.alive.add(vm)

    def seen(self, vm: str) -> tuple[str, VmStatus] | None:
        """Where the drivers have it, and as what."""
        for name, driver in self.made.drivers.items():
            try:
                for status in driver.vms(0.0):
                    if status.vm == vm and status.state is not VmState.INCOMING:
                        return name, status
            except TrimtabError:
                continue
        return None

    def truth(self, vm: str) -> list[str]:
        """Where it is, as domain or as image."""
        with self.cluster.lock:
            return [name for name, host in self.cluster.hosts.items() if host.named(vm) is not None]

    def down(self) -> bool:
        """Whether a host cannot be asked."""
        return any(not (host.serving and host.powered) for host in self.cluster.hosts.values())

    def check(self) -> None:
        """In the end."""
        said = self.said[-60:]
        assert self.cluster.doubles == [], said
        assert self.cluster.misuses == []
        assert self.cluster.events.failures == []
        assert set(self.answers.values()) <= {1}, said
        for vm in self.alive:
            assert self.truth(vm), (vm, said)
        for name in self.made.names:
            self.check_node(name)

    def check_node(self, name: str) -> None:
        """What it reports is there, once all was told."""
        driver = self.made.drivers[name]
        reported: set[str] = set()
        live: set[str] = {"?"}
        for _ in range(TURNS_MAX):
            try:
                self.collect()
                reported = {status.vm for status in driver.vms(0.0) if status.state in LIVE_STATES}
            except TrimtabError:
                reported = set()
            with self.cluster.lock:
                live = {dom.name for dom in self.cluster.hosts[name].live()}
            if reported == live:
                return
            self.clock.sleep(0.002)
        raise AssertionError((name, reported, live, self.said[-60:]))


def storm(folder: Path, seed: int) -> None:
    """One seed."""
    with fakes(folder, 3) as made:
        here = Storm(made, seed)
        for _ in range(STEPS):
            here.step()
        here.calm()
        here.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_runs_twice_and_nothing_is_lost(seed: int, tmp_path: Path) -> None:
    storm(tmp_path, seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_nothing_ever_runs_twice_and_nothing_is_lost(seed: int, tmp_path: Path) -> None:
    storm(tmp_path, seed)
