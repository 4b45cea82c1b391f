"""Timers of a machine whose clock is off: none fires before that clock shows its time."""

from __future__ import annotations

from random import Random
from typing import Any

from shared.ports.effects import Input, StartTimer, TimerFired
from shared.values.nodes import Node
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings


def test_no_timer_fires_before_its_clock_shows_the_time() -> None:
    """Given clocks ahead by times that floats cannot add exactly: else whoever sets a timer that is not yet due again
    does so for ever."""
    loop = ClosedLoop([Node("n0", 2, 1_000.0, memory_mib=1_000)], LoopSettings())
    loop.run_until(10.0)
    shell = loop.controllers["a"]
    rng = Random(1)
    due: dict[str, float] = {}
    early: list[str] = []

    def heard(of: Any, event: Input) -> None:
        if isinstance(event, TimerFired) and event.name in due and of.now_s() < due[event.name]:
            early.append(event.name)

    shell.on_input = heard
    for number in range(300):
        shell.clock_off_s += rng.uniform(0.0, 1.0)
        name, at_s = f"timer-{number}", shell.now_s() + rng.uniform(0.0, 5.0)
        due[name] = at_s
        shell._start_timer(StartTimer(name, at_s))
        loop.run_until(loop.engine.now_s + 6.0)
    assert early == []
