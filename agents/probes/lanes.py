"""Threads in which instances are probed: made as they are needed, a probe in each at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from agents.probes.probes import Monitor
from shared.ports.effects import Probed, ProbeInstance
from shared.runtime.lanes import Lane


class ProbeLanes:
    """Probes instances and passes each answer to `answer`, in the thread of the probe. The caller limits the number of
    probes in progress. `lane` makes a thread of that name."""

    def __init__(self, monitor: Monitor, lane: Callable[[str], Lane], answer: Callable[[Probed], None]) -> None:
        self._monitor, self._lane, self._answer = monitor, lane, answer
        self._free: deque[Lane] = deque()
        self._made = 0

    def begin(self, effect: ProbeInstance) -> None:
        """Probe an instance; never blocks."""
        try:
            lane = self._free.pop()
        except IndexError:
            self._made += 1
            lane = self._lane(f"probe-{self._made}")
        lane.do(partial(self._probe, lane, effect))

    def _probe(self, lane: Lane, effect: ProbeInstance) -> None:
        answer = self._monitor.probe(effect.target, effect.address)
        self._free.append(lane)
        self._answer(answer)
