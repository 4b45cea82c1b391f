"""Whoever asks something of a cluster under soak: each in a thread of its own that goes on until it is stopped."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from random import Random

from shared.protocol.messages import Reply
from shared.protocol.operator_messages import BUSY, Request
from tests.integration.harness import CLOCK, RESEND_S, Operator

AGAIN_S = 0.5  # while there is no broker an answer is missing at once
GIVEN_UP_S = 240.0  # longer than anything that is done to the cluster


class Times:
    """How long answers took, by what was asked. For all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: dict[str, list[float]] = defaultdict(list)

    def add(self, what: str, seconds: float) -> None:
        """Note an answer."""
        with self._lock:
            self._all[what].append(seconds)

    def of(self) -> dict[str, list[float]]:
        """All of them, sorted."""
        with self._lock:
            return {what: sorted(seconds) for what, seconds in sorted(self._all.items())}


class Asker(Operator):
    """An operator whose ids are nobody else's, and who notes how long answers take."""

    def __init__(self, url: str, name: str, times: Times) -> None:
        super().__init__(url)
        self.name, self.asked, self._times = name, 0, times

    def new_id(self) -> str:
        """An id for a request."""
        return f"{self.name}-{super().new_id()}"

    def answer(self, make: Callable[[str], Request], go_on: Callable[[], bool], what: str = "") -> Reply | None:
        """Ask, again and again with one id, until there is an answer; None when `go_on` is false before."""
        request, begun_s = make(self.new_id()), CLOCK.monotonic_s()
        while go_on():
            self.asked += 1
            reply = self.ask(request, RESEND_S)
            if reply is not None and reply.code != BUSY:
                self._times.add(what or request.KIND, CLOCK.monotonic_s() - begun_s)
                return reply
            CLOCK.sleep(AGAIN_S)
            if CLOCK.monotonic_s() - begun_s > GIVEN_UP_S:
                raise AssertionError(f"no answer to {request} within {GIVEN_UP_S:g} s")
        return None


class Worker(threading.Thread):
    """Does something again and again: `turn` returns how long it rests then. What it raises ends it, and is in `error`.

    `stopping` is set once it is to end.
    """

    def __init__(self, name: str, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.rng = Random(f"{name} {seed}")
        self.stopping = threading.Event()
        self.error: BaseException | None = None

    def turn(self) -> float:
        """Do it once."""
        raise TypeError(f"{self.name} does nothing")

    def close(self) -> None:
        """Let go of what it has."""

    def goes_on(self) -> bool:
        """Whether it has not been stopped."""
        return not self.stopping.is_set()

    def run(self) -> None:
        """Until it is stopped."""
        try:
            while not self.stopping.wait(self.turn()):
                pass
        except BaseException as error:  # noqa: BLE001  the soak raises it
            self.error = error
        finally:
            self.close()
