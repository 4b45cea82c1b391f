"""The health monitor of a node: which instances it checks, when each is probed, and how the answers are judged
(phoenixcloud.txt section 4.3 (6)). Its state is in memory only: a restarted agent receives the list of instances again.

An instance is probed while the last reading shows its VM of that generation running without an operation in progress. A
late answer, or one that belongs to another generation or probe, is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from zlib import crc32

from shared.ports.effects import Effect, Probed, ProbeInstance, StartTimer
from shared.protocol.messages import Watch
from shared.values.health import NO_ADDRESS, Health, Probe, Target
from shared.values.vms import VmState, VmStatus

TIMER = "probe"
PROBES_MAX = 8  # under way at a time
PERIOD_MIN_S = 0.1
DETAIL_CHARS_MAX = 200


@dataclass(slots=True, eq=False)
class Verdict:
    """Whether an instance is healthy, by its probe's `fall`, `rise` and `grace_s`: it is until it has failed often
    enough. `begun_s`: when it was first seen running; `since_s`: since when it is what it is."""

    probe: Probe
    begun_s: float
    since_s: float
    healthy: bool = True
    detail: str = ""
    probes: int = 0
    against: int = 0  # answers in a row that say that it is not what it is
    graced: bool = True

    def take(self, ok: bool, detail: str, now_s: float) -> None:
        """Count an answer. One that is good and says why all the same found nothing out."""
        self.probes += 1
        if ok and detail:
            self.detail = detail
            return
        self.graced = self.graced and not ok and now_s < self.begun_s + self.probe.grace_s
        self.detail = detail if not ok or self.healthy else self.detail
        if ok is self.healthy or self.graced:
            self.against = 0
            return
        self.against += 1
        if self.against >= (self.probe.rise if ok else self.probe.fall):
            self.healthy, self.since_s, self.against = ok, now_s, 0
            self.detail = detail

    def pause(self) -> None:
        """Reset the streak, since the instance does not run for a while: answers before and after are not in a row."""
        self.against = 0


@dataclass(slots=True, eq=False)
class _Watched:
    """A target. `due_s`: when it is probed next; `address`: of its VM while it runs here (None: it does not)."""

    target: Target
    verdict: Verdict | None = None  # None: it has not been seen running
    due_s: float = math.inf
    address: str | None = None

    def take(self, answer: Probed, now_s: float) -> None:
        """Count an answer, unless it is of another life."""
        if self.verdict is not None and answer.generation == self.target.generation:
            self.verdict.take(answer.ok, answer.detail[:DETAIL_CHARS_MAX], now_s)

    def run(self, address: str, now_s: float) -> None:
        """Start probing, since its VM runs here and answers at this address ("": unknown)."""
        if self.verdict is None:
            self.verdict = Verdict(self.target.probe, now_s, now_s)
        if self.due_s == math.inf:
            self.due_s = now_s + _phase_frac(self.target.vm) * _period_s(self.target)
        self.address = address

    def rest(self) -> None:
        """Stop probing, since its VM does not run here or its state is unknown."""
        if self.verdict is not None:
            self.verdict.pause()
        self.address, self.due_s = None, math.inf


@dataclass(slots=True, eq=False)
class Watching:
    """The part of an agent that checks the health of instances. `address`: where VMs without an address of their own
    answer ("": unknown). `busy`: whether an action on a VM is in progress."""

    address: str
    busy: Callable[[str], bool]
    _term: int = 0
    _number: int = 0
    _watched: dict[str, _Watched] = field(default_factory=dict)
    _asked: dict[str, Target] = field(default_factory=dict)  # probes under way
    _domains: dict[str, VmStatus] = field(default_factory=dict)
    _timer_s: float = math.inf

    def number(self, term: int) -> int:
        """Return the number of the `Watch` of that term that is in use (0: none)."""
        return self._number if term == self._term else 0

    def follow(self, watch: Watch, now_s: float, effects: list[Effect]) -> None:
        """Watch these from now on, unless that is older than what is followed. What is known of a target that stays
        the same is kept."""
        if (watch.term, watch.number) <= (self._term, self._number):
            return
        self._term, self._number = watch.term, watch.number
        before, self._watched = self._watched, {}
        for target in watch.targets:
            known = before.get(target.vm)
            same = known is not None and known.target == target
            self._watched[target.vm] = known if same and known is not None else _Watched(target)
        self._look(now_s, effects)

    def seen(self, domains: Mapping[str, VmStatus], fresh: Container[str], now_s: float, effects: list[Effect]) -> None:
        """Take in a reading; for the VMs in `fresh`, something newer is known."""
        self._domains = {vm: status for vm, status in domains.items() if vm not in fresh}
        self._look(now_s, effects)

    def unsure(self, vm: str) -> None:
        """Note that something has happened to a VM: the next reading shows whether it runs."""
        self._domains.pop(vm, None)
        watched = self._watched.get(vm)
        if watched is not None:
            watched.rest()

    def due(self, now_s: float, effects: list[Effect]) -> None:
        """Probe what is due, those that have waited longest first."""
        self._timer_s = math.inf
        ready = [watched for vm, watched in self._watched.items() if watched.address and vm not in self._asked]
        for watched in sorted(ready, key=lambda each: each.due_s):
            if watched.due_s > now_s or len(self._asked) >= PROBES_MAX:
                break
            target, period_s = watched.target, _period_s(watched.target)
            watched.due_s += (math.floor((now_s - watched.due_s) / period_s) + 1.0) * period_s
            if not self.busy(target.vm):
                self._asked[target.vm] = target
                effects.append(ProbeInstance(target, watched.address or ""))
        self._arm(now_s, effects)

    def probed(self, answer: Probed, now_s: float) -> list[Effect]:
        """Handle the end of a probe."""
        effects: list[Effect] = []
        asked = self._asked.pop(answer.vm, None)
        watched = self._watched.get(answer.vm)
        if watched is not None and watched.target is asked and watched.address and not self.busy(answer.vm):
            watched.take(answer, now_s)
        self._arm(now_s, effects)
        return effects

    def rows(self) -> tuple[Health, ...]:
        """Return the known health of every instance that runs here."""
        if not self._watched:
            return ()
        return tuple(_row(watched) for watched in self._watched.values() if watched.address is not None)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _look(self, now_s: float, effects: list[Effect]) -> None:
        if not self._watched:
            return
        for vm, watched in self._watched.items():
            status = self._domains.get(vm)
            if status is not None and _runs(status, watched.target):
                watched.run(status.address or self.address, now_s)
            else:
                watched.rest()
        self._arm(now_s, effects)

    def _arm(self, now_s: float, effects: list[Effect]) -> None:
        """Have the timer fire when the next one is due that may be probed then."""
        if len(self._asked) >= PROBES_MAX:
            return
        due_s = min(
            (each.due_s for vm, each in self._watched.items() if each.address and vm not in self._asked),
            default=math.inf,
        )
        due_s = max(due_s, now_s)
        if due_s < self._timer_s:
            self._timer_s = due_s
            effects.append(StartTimer(TIMER, due_s))


def _runs(status: VmStatus, target: Target) -> bool:
    """Return whether a VM runs in the generation to be probed and is not migrating."""
    return status.state is VmState.RUNNING and status.generation == target.generation and not status.busy


def _row(watched: _Watched) -> Health:
    target, verdict = watched.target, watched.verdict
    if verdict is None:
        return Health(target.vm, target.generation)
    detail = verdict.detail if watched.address else NO_ADDRESS
    return Health(target.vm, target.generation, verdict.healthy, verdict.since_s, detail, verdict.probes)


def _period_s(target: Target) -> float:
    return max(PERIOD_MIN_S, target.probe.period_s)


def _phase_frac(vm: str) -> float:
    """Return the point in its period at which an instance is first probed (0..1): the same at every start, and spread
    over instances."""
    return crc32(vm.encode()) / 2.0**32
