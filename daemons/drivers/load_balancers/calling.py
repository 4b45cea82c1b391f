"""Updates a load balancer and reads its measurements, off the core's thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from shared.base.errors import TransientError
from shared.ports.controller import LoadBalancer
from shared.ports.effects import Balance, Balanced, Effect, Measure, Scraped
from shared.runtime.lanes import Lane, SharedLanes
from shared.runtime.shell import Times

NO_BALANCER = "no balancer is configured"
LANES = 64
SLOW_S = 30.0  # told for so long, a balancer is in trouble


class _Line:
    """The requests to one application's balancer, with their lane. `asked` counts updates requested on the core's
    thread, `done` those carried out in the lane; `since_s`: when the first outstanding one was requested. `error`: why
    the last reading failed."""

    __slots__ = ("asked", "done", "error", "lane", "since_s")

    def __init__(self, lane: Lane) -> None:
        self.lane, self.asked, self.done, self.since_s, self.error = lane, 0, 0, 0.0, ""


class Caller:
    """Carries out `Balance` and `Measure` effects, in at most `LANES` lanes, so few wait for another application's.
    Those of one application always use the same lane. `post` takes the answers.

    A measurement never waits: while a balancer is being updated, `Measure` is answered at once, without a reading and
    with the last one's trouble, if any, or once the update takes longer than SLOW_S. The next reading includes the
    missed one.
    """

    def __init__(
        self,
        balancer: LoadBalancer | None,
        lane: Callable[[str], Lane],
        post: Callable[[Balanced | Scraped], None],
        clock: Times,
    ) -> None:
        self._balancer, self._post, self._clock = balancer, post, clock
        self._lanes = SharedLanes("balance", LANES, lane)
        self._lines: dict[str, _Line] = {}

    @property
    def carries(self) -> dict[type[Effect], Callable[[Any], None]]:
        """What carries out which effect."""
        return {Balance: self.tell, Measure: self.measure}

    def tell(self, effect: Balance) -> None:
        """Have the balancer updated."""
        if self._balancer is None:
            self._post(Balanced(effect.app, False, (), NO_BALANCER))
            return
        line = self._line(effect.app)
        if effect.serving is None and not effect.backends:
            del self._lines[effect.app]  # it is gone; if there is more to say of it, that comes later in the same lane
        if line.asked == line.done:
            line.since_s = self._clock.monotonic_s()
        line.asked += 1
        line.lane.do(partial(self._tell, self._balancer, line, effect))

    def measure(self, effect: Measure) -> None:
        """Have the balancer asked."""
        if self._balancer is None:
            self._post(Scraped(effect.app, self._clock.now_s(), error=NO_BALANCER))
            return
        line = self._line(effect.app)
        if line.asked == line.done:
            line.lane.do(partial(self._measure, self._balancer, line, effect.app))
            return
        busy_s = self._clock.monotonic_s() - line.since_s
        error = f"the balancer has not answered for {busy_s:.0f} s" if busy_s > SLOW_S else line.error
        self._post(Scraped(effect.app, self._clock.now_s(), error=error))

    def _line(self, app: str) -> _Line:
        line = self._lines.get(app)
        if line is None:
            line = self._lines[app] = _Line(self._lanes.of(app))
        return line

    def _tell(self, balancer: LoadBalancer, line: _Line, effect: Balance) -> None:
        try:
            answer = balancer.set_backends(effect)
        except TransientError as error:
            answer = Balanced(effect.app, False, (), str(error))
        line.done += 1
        self._post(answer)

    def _measure(self, balancer: LoadBalancer, line: _Line, app: str) -> None:
        try:
            sample, line.error = balancer.measure(app, self._clock.monotonic_s()), ""
        except TransientError as problem:
            sample, line.error = None, str(problem) or "no reason was given"
        self._post(Scraped(app, self._clock.now_s(), () if sample is None else (sample,), line.error))
