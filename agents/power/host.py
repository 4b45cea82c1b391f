"""Suspends this host or switches it off, through systemd-logind: no privilege but what its polkit rule gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from shared.base import clock
from shared.base.errors import TransientError
from shared.ports.effects import SleepEnded
from shared.runtime import subprocesses
from shared.values.nodes import SleepMode

COMMANDS = {
    mode: ("systemctl", "--no-ask-password", "--no-wall", verb)
    for mode, verb in ((SleepMode.SUSPEND, "suspend"), (SleepMode.OFF, "poweroff"))
}
ASK_LIMIT_S = 30.0
SLEEP_LIMIT_S = 60.0  # as long as the host is awake: it counts no time in which it is suspended
LOOK_S = 0.25
SUSPENDED_MIN_S = 0.5  # the two clocks that tell are not read at one instant

Ask = Callable[[Sequence[str], float], str]


class SteadyClock(Protocol):
    """Time that nobody sets, and a way to let it pass."""

    def monotonic_s(self) -> float:
        """Return the seconds since some fixed moment, without the time in which the host was suspended."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block this thread for so long."""
        ...


class OwnHost:
    """This machine. `ask(command, limit_s)` runs a command and returns why it failed ("": it did not)."""

    def __init__(
        self,
        ask: Ask | None = None,
        suspended_s: Callable[[], float] = clock.suspended_s,
        steady: SteadyClock | None = None,
    ) -> None:
        self._ask = ask or ask_system
        self._suspended_s = suspended_s
        self._clock: SteadyClock = steady or clock.SystemClock()

    def sleep(self, mode: SleepMode) -> SleepEnded:
        """Go to sleep; returns when the host is awake again, or when it has not gone to sleep in time."""
        before_s = self._suspended_s()
        why = self._ask(COMMANDS[mode], ASK_LIMIT_S)
        if why:
            return SleepEnded(False, why)
        until_s = self._clock.monotonic_s() + SLEEP_LIMIT_S
        while self._clock.monotonic_s() < until_s:
            if self._suspended_s() - before_s >= SUSPENDED_MIN_S:
                return SleepEnded(True)
            self._clock.sleep(LOOK_S)
        return SleepEnded(False, f"the host is still awake {SLEEP_LIMIT_S:g} s after it was asked to {mode.value}")


class OtherHost:
    """A machine that is not this one: this process cannot put it to sleep."""

    def sleep(self, mode: SleepMode) -> SleepEnded:
        """Refuse."""
        return SleepEnded(False, f"the hypervisor's host is not this machine: it cannot {mode.value} it")


def ask_system(command: Sequence[str], limit_s: float) -> str:
    """Run a command without input; returns why it failed, with the end of what it printed."""
    try:
        ended = subprocesses.run(command, limit_s)
    except TransientError as error:
        return f"{error}"
    return "" if ended.ok else ended.detail
