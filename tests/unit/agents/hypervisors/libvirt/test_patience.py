"""One call that hangs does not keep the next ones; many that hang are an error, not a wait without end."""

from __future__ import annotations

from threading import Event

import pytest

from agents.hypervisors.libvirt.errors import Unavailable
from agents.hypervisors.libvirt.patience import Patience

LATE_S = 0.05


class Monitor:
    """Of a QEMU that hangs: it keeps as many calls as it is told to, the others go past it."""

    def __init__(self, keeps: int) -> None:
        self.keeps, self.calls, self.gone_on = keeps, 0, Event()

    def ask(self) -> int:
        self.calls += 1
        mine = self.calls
        if mine <= self.keeps:
            self.gone_on.wait()
        return mine


def test_the_call_after_one_that_hangs_is_answered_and_so_are_all_later_ones() -> None:
    monitor, patience = Monitor(keeps=1), Patience[int]("read", LATE_S, LATE_S)
    assert patience.ask(monitor.ask) == 2
    assert [patience.ask(monitor.ask) for _ in range(5)] == [3, 4, 5, 6, 7]
    monitor.gone_on.set()


def test_calls_that_hang_are_not_heaped_up() -> None:
    monitor, patience = Monitor(keeps=100), Patience[int]("read", LATE_S, LATE_S)
    for _ in range(5):
        with pytest.raises(Unavailable, match="3 calls without an answer"):
            patience.ask(monitor.ask)
    assert monitor.calls == 3


def test_once_they_are_answered_it_goes_on() -> None:
    monitor, patience = Monitor(keeps=3), Patience[int]("read", LATE_S, LATE_S)
    with pytest.raises(Unavailable):
        patience.ask(monitor.ask)
    monitor.gone_on.set()
    while True:
        try:
            assert patience.ask(monitor.ask) == 4
            break
        except Unavailable:  # the three have not yet come back
            continue


def test_what_a_call_raises_is_raised() -> None:
    def broken() -> int:
        raise ZeroDivisionError

    patience = Patience[int]("read", LATE_S, LATE_S)
    for _ in range(5):
        with pytest.raises(ZeroDivisionError):
            patience.ask(broken)
