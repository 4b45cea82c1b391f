"""The true course of a live migration: rounds of pre-copy, auto-converge and post-copy, as QEMU carries them out.

`Course` is moved on in steps of any length at any rate, so that migrations can share links that others come to and
leave. The guest writes to its working set at random. All sizes are MiB, rates MiB/s, times s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

SWITCH_S = 0.03  # the last state, and the start at the target
THROTTLE_FIRST, THROTTLE_STEP, THROTTLE_MAX = 0.2, 0.1, 0.99
PERIOD_S = 1.0  # of the look at whether to throttle
EVENTS_MAX = 10_000  # of one migration; then it never ends


@dataclass(frozen=True, slots=True)
class GuestMemory:
    """How a guest uses its memory: `resident_mib` is touched; of its `working_set_mib` it changes `dirty_mib_per_s`
    within one second."""

    resident_mib: float
    dirty_mib_per_s: float = 0.0
    working_set_mib: float = math.inf

    def changed_mib(self, seconds: float) -> float:
        """Return what it changes within some time of its own."""
        most = min(self.working_set_mib, self.resident_mib)
        if most <= 0.0 or seconds <= 0.0:
            return 0.0
        part = min(1.0, max(0.0, self.dirty_mib_per_s / most))
        return most * (1.0 - math.pow(1.0 - part, seconds))


class Phase(Enum):
    """What is being sent."""

    DISKS = "disks"
    ROUNDS = "rounds"
    LAST = "last"  # the guest stands still
    SWITCH = "switch"  # the guest stands still, post-copy begins
    POST_COPY = "post-copy"
    DONE = "done"


class Course:
    """One migration: what is left of its phase, and what was. `rounds`: passes over the memory begun."""

    def __init__(
        self, memory: GuestMemory, disk_mib: float = 0.0, downtime_s: float = 0.3, auto_converge: bool = False
    ) -> None:
        self._memory, self._limit_s, self._auto_converge = memory, downtime_s, auto_converge
        self.phase = Phase.DISKS
        self.left_mib = max(0.0, disk_mib)
        self.sent_mib = self.time_s = self.downtime_s = self.throttle_frac = 0.0
        self.dirty_mib_per_s = -1.0  # as the last round has shown
        self.rounds = 0
        self.switched = False  # to post-copy
        self._guest_s = self._round_s = self._round_mib = self._switch_s = 0.0
        self._period = [0.0, 0.0, 0.0]
        self._high = 0

    @property
    def is_done(self) -> bool:
        """Whether the guest runs at the target, with all of its memory."""
        return self.phase is Phase.DONE

    @property
    def stands_still(self) -> bool:
        """Whether the guest executes nowhere."""
        return self.phase in (Phase.LAST, Phase.SWITCH)

    def until_s(self, rate: float) -> float:
        """Return how long this phase or round still lasts at a rate."""
        if self.phase is Phase.DONE:
            return math.inf
        if self.phase is Phase.SWITCH:
            return self._switch_s
        extra_s = self._switch_s if self.phase is Phase.LAST else 0.0
        if self.left_mib <= 0.0:
            return extra_s
        return self.left_mib / rate + extra_s if rate > 0.0 else math.inf

    def advance(self, seconds: float, rate: float) -> None:
        """Let time pass, at most `until_s`."""
        if self.phase is Phase.DONE:
            return
        ends = seconds >= self.until_s(rate)  # else rounding would leave a little, again and again
        sent = self.left_mib if ends else min(self.left_mib, rate * seconds)
        if self.phase is Phase.SWITCH:
            sent, self._switch_s = 0.0, max(0.0, self._switch_s - seconds)
        elif self.phase is Phase.LAST and rate > 0.0:
            self._switch_s = max(0.0, self._switch_s - max(0.0, seconds - self.left_mib / rate))
        self.time_s += seconds
        self.sent_mib += sent
        self.left_mib -= sent
        if self.stands_still:
            self.downtime_s += seconds
        if self.phase is Phase.ROUNDS:
            self._guest_s += seconds * (1.0 - self.throttle_frac)
            self._round_s += seconds
            self._round_mib += sent
        if ends:
            self._next(rate)

    def switch(self) -> None:
        """Begin post-copy: the target fetches what is left of this round and what was changed since it began."""
        if self.phase is Phase.ROUNDS:
            again = 1.0 - self.left_mib / max(self.left_mib, self._memory.resident_mib)  # the rest is left anyway
            self.left_mib += self._memory.changed_mib(self._guest_s) * again
            self.phase, self._switch_s, self.switched = Phase.SWITCH, SWITCH_S, True

    def run(self, rate: float, post_copy_after_s: float = math.inf, most_s: float = math.inf) -> float:
        """Let it go on at one rate to its end, with post-copy after some time but not before the first round is over;
        return the time it took, `inf` if it does not end within `most_s`."""
        for _ in range(EVENTS_MAX):
            if self.is_done:
                return self.time_s
            if self.phase is Phase.ROUNDS and self.rounds > 1 and self.time_s >= post_copy_after_s:
                self.switch()
            step_s = self.until_s(rate)
            if self.phase is Phase.ROUNDS and self.rounds > 1 and post_copy_after_s > self.time_s:
                step_s = min(step_s, post_copy_after_s - self.time_s)
            if self.time_s + step_s > most_s:
                return math.inf
            self.advance(step_s, rate)
        return math.inf

    def _next(self, rate: float) -> None:
        if self.phase is Phase.DISKS:
            self.phase, self.rounds, self.left_mib = Phase.ROUNDS, 1, self._memory.resident_mib
            self._begin_round()
        elif self.phase is Phase.SWITCH:
            self.phase = Phase.POST_COPY
        elif self.phase is Phase.ROUNDS:
            self._end_round(rate)
        else:
            self.phase, self.left_mib = Phase.DONE, 0.0

    def _end_round(self, rate: float) -> None:
        changed = self._memory.changed_mib(self._guest_s)
        self.dirty_mib_per_s = changed / self._round_s if self._round_s > 0.0 else 0.0
        self._throttle(changed)
        self.left_mib = changed
        if changed <= rate * self._limit_s:
            self.phase, self._switch_s = Phase.LAST, SWITCH_S
            return
        self.rounds += 1
        self._begin_round()

    def _begin_round(self) -> None:
        self._guest_s = self._round_s = self._round_mib = 0.0

    def _throttle(self, changed: float) -> None:
        """Take CPU time from the guest, after every second period in which it changed more than half of what was
        sent."""
        if not self._auto_converge:
            return
        for at, value in enumerate((self._round_s, self._round_mib, changed)):
            self._period[at] += value
        seconds, sent, dirty = self._period
        if seconds < PERIOD_S:
            return
        self._period = [0.0, 0.0, 0.0]
        self._high += dirty > sent / 2.0
        if self._high == 2:
            more = self.throttle_frac + THROTTLE_STEP if self.throttle_frac else THROTTLE_FIRST
            self._high, self.throttle_frac = 0, min(THROTTLE_MAX, more)
