"""Random operations with random faults of libvirt, one after the other: what did not succeed has changed nothing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from shared.base.clock import SystemClock
from shared.base.errors import TransientError
from shared.ports.agent import Hypervisor
from shared.ports.effects import Operated
from shared.values.actions import ActionKind, Outcome
from shared.values.vms import VmState, VmStatus
from sim_backend.conformance.hypervisor_bench import VM, Bench, settled
from sim_backend.fake_libvirt.codes import LAST_ERROR, Err
from sim_backend.fake_libvirt.faults import Fault, How
from tests.conformance.fake_libvirt_rig import Fakes, Harness, fakes

SEEDS = range(6)
MORE_SEEDS = range(6, 300)
STEPS = 25
TURNS_MAX = 10_000
WAYS: tuple[How, ...] = ("raise", "hang", "break", "lose-answer", "die", "die-after")
CALLS = (
    "createWithFlags",
    "defineXML",
    "createXML",
    "setMetadata",
    "lookupByName",
    "suspend",
    "resume",
    "save",
    "restoreFlags",
    "saveImageGetXMLDesc",
    "migrateToURI3",
    "undefineFlags",
    "destroyFlags",
    "shutdownFlags",
    "setSchedulerParametersFlags",
    "domainListGetStats",
    "storagePoolLookupByName",
    "delete",
)
POSSIBLE = {
    None: (ActionKind.START,),
    VmState.RUNNING: (
        ActionKind.STOP,
        ActionKind.PAUSE,
        ActionKind.SUSPEND,
        ActionKind.MIGRATE,
        ActionKind.SET_CPU,
        ActionKind.RELEASE,
    ),
    VmState.PAUSED: (ActionKind.UNPAUSE, ActionKind.SUSPEND, ActionKind.MIGRATE, ActionKind.SET_CPU),
    VmState.SUSPENDED: (ActionKind.RESUME, ActionKind.RESUME, ActionKind.DISCARD_IMAGE),
    VmState.ENDED: (ActionKind.STOP,),
    VmState.CRASHED: (ActionKind.STOP,),
}


class Play:
    """One seed's operations and faults, on the first host unless a migration succeeded."""

    def __init__(self, made: Fakes, seed: int) -> None:
        self.made, self.cluster = made, made.cluster
        self.random = random.Random(seed)
        self.bench = Bench(Harness(made))
        self.at = 0
        self.generation = 0
        self.said: list[str] = []
        self.answers: dict[str, Operated] = {}
        self.clock = SystemClock()

    def step(self) -> None:
        """One operation, perhaps with a fault."""
        here = self.node(self.at)
        before = self.find(self.at)
        if before is not None and not before.managed:
            self.bench.must(Outcome.OK, ActionKind.ADOPT, on=here, generation=self.next(), spec=self.bench.spec())
            return
        kind = self.random.choice(POSSIBLE[None if before is None else before.state])
        fields = self.fields(kind, before)
        fault = self.fault() if self.random.random() < 0.8 else None
        self.said.append(f"{kind.value} on {self.made.names[self.at]} {fault}")
        if fault is not None:
            self.cluster.fail(fault)
        call = self.bench.begin(kind, on=here, **fields)
        if self.random.random() < 0.3:
            self.cluster.advance(self.random.random())
        if (fault is not None and fault.how == "hang") or self.random.random() < 0.1:
            here.abort(VM, 0.0)
        answer = self.answered(call)
        self.said.append(f"  {answer.outcome.value} {answer.detail}")
        self.cluster.script.clear()
        self.check(kind, before, answer.outcome)

    def answered(self, call: str) -> Operated:
        """Time passes, dead libvirtds come back, and what hangs fails in the end."""
        for turn in range(TURNS_MAX):
            for name, driver in self.made.drivers.items():
                self.answers.update({event.call_id: event for event in driver.poll(0.0) if isinstance(event, Operated)})
                if not self.cluster.hosts[name].serving:
                    self.made.drift(name).libvirtd_starts()
            if call in self.answers:
                return self.answers[call]
            if self.cluster.waiting:
                self.cluster.advance(0.25)
            if turn % 100 == 99:
                self.cluster.release(Err.OPERATION_TIMEOUT)
            self.clock.sleep(0.001)
        raise AssertionError((call, self.said[-4:]))

    def find(self, number: int) -> VmStatus | None:
        """The VM on a host, once that can be read."""
        for _ in range(TURNS_MAX):
            try:
                self.node(number).poll(0.0)  # what has happened shows once it was told
                return self.bench.find(on=self.node(number))
            except TransientError:
                self.clock.sleep(0.001)
                if not self.cluster.hosts[self.made.names[number]].serving:
                    self.made.drift(self.made.names[number]).libvirtd_starts()
        raise AssertionError(self.said)

    def check(self, kind: ActionKind, before: VmStatus | None, outcome: Outcome) -> None:
        """The VM is as asked, or as it was."""
        now, other = self.find(self.at), self.find(1 - self.at)
        if outcome is Outcome.OK and kind is ActionKind.MIGRATE:
            assert now is None, self.said[-4:]
            assert settled(other) == settled(before), self.said[-4:]
            self.at = 1 - self.at
            return
        assert other is None, self.said[-4:]
        if outcome is Outcome.OK:
            self.check_done(kind, now)
        elif not (kind is ActionKind.STOP and now is not None and now.state is VmState.ENDED):
            assert settled(now) == settled(before), self.said[-4:]

    def check_done(self, kind: ActionKind, now: VmStatus | None) -> None:
        """What an operation is for."""
        wanted = {
            ActionKind.START: VmState.RUNNING,
            ActionKind.RESUME: VmState.RUNNING,
            ActionKind.UNPAUSE: VmState.RUNNING,
            ActionKind.PAUSE: VmState.PAUSED,
            ActionKind.SUSPEND: VmState.SUSPENDED,
        }
        if kind in (ActionKind.STOP, ActionKind.DISCARD_IMAGE):
            assert now is None, self.said[-4:]
        elif kind in wanted:
            assert now is not None, self.said[-4:]
            assert now.state is wanted[kind], self.said[-4:]

    def fields(self, kind: ActionKind, before: VmStatus | None) -> dict[str, Any]:
        """Of an action that may be done now."""
        expects = 0 if before is None else before.generation
        spec = self.bench.spec()
        plain: dict[str, Any] = {"expects": expects, "generation": expects}
        more: dict[ActionKind, dict[str, Any]] = {
            ActionKind.START: {"generation": self.next(), "spec": spec},
            ActionKind.RESUME: {"generation": self.next(), "spec": spec},
            ActionKind.MIGRATE: {"to_node": self.made.names[1 - self.at]},
            ActionKind.SET_CPU: {"cpu_mhz": self.random.choice((50.0, 125.0, 1_000.0))},
        }
        return {**plain, **more.get(kind, {})}

    def fault(self) -> Fault:
        """Any."""
        code = self.random.choice((Err.OPERATION_FAILED, Err.OPERATION_INVALID, self.random.randrange(LAST_ERROR + 1)))
        return Fault(
            self.random.choice(CALLS), self.random.choice(WAYS), code, host=self.random.choice((*self.made.names, ""))
        )

    def next(self) -> int:
        """A generation that never was."""
        self.generation += 1
        return self.generation

    def node(self, number: int) -> Hypervisor:
        """The driver of a host."""
        return (self.bench.node, self.bench.peer)[number]


def play(folder: Path, seed: int) -> None:
    """One seed."""
    with fakes(folder) as made:
        on = Play(made, seed)
        for _ in range(STEPS):
            on.step()
        assert made.cluster.doubles == [], on.said
        assert made.cluster.misuses == []
        assert made.cluster.events.failures == []


@pytest.mark.parametrize("seed", SEEDS)
def test_what_fails_changes_nothing(seed: int, tmp_path: Path) -> None:
    play(tmp_path, seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_what_fails_changes_nothing_ever(seed: int, tmp_path: Path) -> None:
    play(tmp_path, seed)
