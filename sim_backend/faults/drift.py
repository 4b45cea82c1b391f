"""Drift in fault runs: external changes to managed VMs, drawn from a seed. Checks that each is noticed, that none is
reported without cause, and that Trimtab and the other party do not keep undoing each other's changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from random import Random

from daemons.values.records.cluster import JobRecord
from shared.ports import effects as fx
from shared.protocol.messages import Happened
from shared.protocol.operator_messages import ConfirmGone
from shared.values.jobs import INSTANCE_SEPARATOR, instance_name, workload_of
from shared.values.vms import LIVE_STATES
from sim_backend.fakes.drift import Drift
from sim_backend.faults.invariants.guests import GuestChecks
from sim_backend.loop.closed_loop import ClosedLoop

SHARE, TURN = 5, 3  # of so many seeds one has them
FROM_S, UNTIL_S = 400.0, 4_200.0
COUNT_MIN, COUNT_MAX = 3, 8
START_AFTER_S = (5.0, 120.0)
CONFIRM_EVERY_S = 600.0  # by then a VM that is anywhere has been seen there
PRIORITY = 5
TOLD_MAX = 3  # changes that the controllers may tell for one that was made, a change of leaders in between
BLAMING = "-externally"


class DriftKind(StrEnum):
    """Kind of external change to a managed VM."""

    MOVED = "vm-moved-by-hand"
    STOPPED = "vm-stopped-by-hand"
    RESTARTED = "vm-restarted-by-hand"
    PAUSED = "vm-paused-by-hand"
    REWEIGHTED = "vm-reweighted-by-hand"


@dataclass(frozen=True, slots=True)
class Touch:
    """One of them at `at_s`; `number` chooses the VM and the node, `span_s` until a stopped one is started again."""

    kind: DriftKind
    at_s: float
    number: int
    span_s: float


def draw_drift(seed: int) -> tuple[Touch, ...]:
    """Draw the external changes in the run of a seed, in order; none for most seeds."""
    if seed % SHARE != TURN:
        return ()
    rng = Random(f"hands of {seed}")
    count = rng.randint(COUNT_MIN, COUNT_MAX)
    first = list(DriftKind)[seed // SHARE % len(DriftKind)]
    kinds = [first, *rng.choices(list(DriftKind), k=count - 1)]
    drawn = (
        Touch(one, rng.uniform(FROM_S, UNTIL_S), rng.randrange(1000), rng.uniform(*START_AFTER_S)) for one in kinds
    )
    return tuple(sorted(drawn, key=lambda touch: touch.at_s))


class DriftChecks:
    """Invariants for the external changes that controllers report. `touched`: true number of external changes to the
    VMs of a workload; `started`: how often its owner has started an adopted VM."""

    def __init__(self, report: Callable[[str, str], None]) -> None:
        self._report = report
        self.touched: Counter[str] = Counter()
        self.started: Counter[str] = Counter()
        self._told: Counter[str] = Counter()

    def on_effect(self, effect: fx.Effect) -> None:
        """Check an effect that a controller is about to carry out."""
        event = effect.message if type(effect) is fx.Publish else None
        if type(event) is not Happened or not event.what.endswith(BLAMING):
            return
        workload = event.subject.rpartition(INSTANCE_SEPARATOR)[0]
        touched = self.touched[workload]
        if not workload:  # an adopted VM
            workload = event.subject
            touched = self.started[workload] if event.what == f"started{BLAMING}" else 0
        self._told[workload] += 1
        if not touched:
            self._report("blamed-others", f"{event.what} {event.subject}: nobody else has touched it")
        elif self._told[workload] > TOLD_MAX * touched:
            self._report("tug-of-war", f"{event.what} {event.subject}: reported {self._told[workload]} times")


class DriftFaults:
    """Carries them out on a loop; `done` counts them."""

    def __init__(
        self, loop: ClosedLoop, guests: GuestChecks, checks: DriftChecks, done: Counter[str], touches: Iterable[Touch]
    ) -> None:
        self._loop, self._guests, self._checks, self._done = loop, guests, checks, done
        self._confirmed = 0
        self.drift = Drift(loop.cluster)
        for touch in touches:
            loop.engine.at(touch.at_s, PRIORITY, partial(self._touch, touch))

    def repair(self) -> None:
        """Let an operator confirm, from some time after now on, that those VMs are gone which an external mover took to
        a host that died: nobody else can know."""
        engine = self._loop.engine
        engine.at(engine.now_s + CONFIRM_EVERY_S, PRIORITY, self._confirm_gone)

    def _confirm_gone(self) -> None:
        hypervisors = self._loop.cluster.hypervisors.values()
        for record in self._loop.store.records():
            for number, instance in enumerate(record.instances if isinstance(record, JobRecord) else ()):
                if not instance.left:
                    continue
                name = record.job.name
                vm = record.adopted or (name if record.job.app else instance_name(name, number))
                if not any(vm in each.domains or vm in each.images for each in hypervisors):
                    self._confirmed += 1
                    self._loop.operator.send(ConfirmGone(f"gone-{vm}-{self._confirmed}", vm))
        self.repair()

    def _touch(self, touch: Touch) -> None:
        now_s = self._loop.engine.now_s
        self._loop.cluster.catch_up(now_s)
        places = sorted(
            (vm, name)
            for name, hypervisor in self._loop.cluster.hypervisors.items()
            for vm, domain in hypervisor.domains.items()
            if domain.state in LIVE_STATES and not domain.busy and INSTANCE_SEPARATOR in vm
        )
        if not places:
            return
        vm, node = places[touch.number % len(places)]
        self._guests.touch()
        if self._do(touch, vm, node, now_s):
            self._checks.touched[workload_of(vm)[0]] += 1 + (touch.kind is DriftKind.RESTARTED)
            self._done[touch.kind.value] += 1

    def _do(self, touch: Touch, vm: str, node: str, now_s: float) -> bool:
        if touch.kind is DriftKind.MOVED:
            targets = sorted(name for name in self._loop.cluster.hypervisors if self._may_go(vm, node, name))
            return bool(targets) and self.drift.move(vm, node, targets[touch.number % len(targets)], now_s)
        if touch.kind is DriftKind.PAUSED:
            return self.drift.pause(vm, node, now_s)
        if touch.kind is DriftKind.REWEIGHTED:
            domain = self._loop.cluster.hypervisor(node).domains[vm]
            return self.drift.reweigh(vm, node, domain.cpu_mhz / 2.0, now_s)
        self._guests.excuse_loss(node, vm)
        done = self.drift.stop(vm, node, now_s)
        if done and touch.kind is DriftKind.RESTARTED:
            self._loop.engine.at(now_s + touch.span_s, PRIORITY, partial(self._start, vm))
        return done

    def _start(self, vm: str) -> None:
        """Start a VM again that was stopped externally, on the same host, if it has not been started elsewhere
        since."""
        home = self.drift.stopped[vm][0] if vm in self.drift.stopped else ""
        workload = workload_of(vm)[0]
        if home and not any(workload_of(one)[0] == workload for one in self._ours(home)):
            self._guests.touch()
            self.drift.start(vm, self._loop.engine.now_s)

    def _ours(self, node: str) -> list[str]:
        return [vm for vm in self._loop.cluster.hypervisor(node).domains if INSTANCE_SEPARATOR in vm]

    def _may_go(self, vm: str, source: str, target: str) -> bool:
        """Return whether a careful operator would move the VM there: the target is up and has the labels, and no other
        VM of the workload is on it or on its way there."""
        cluster, workload = self._loop.cluster, workload_of(vm)[0]
        site = cluster.hypervisor(target)
        job = self._loop.jobs.get(workload)
        if target == source or not site.up or job is None or not set(job.required_labels) <= set(site.node.labels):
            return False
        others = {instance_name(workload, index) for index in range(job.instances)}
        return others.isdisjoint(site.domains)
