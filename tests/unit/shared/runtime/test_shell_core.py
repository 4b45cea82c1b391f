"""The shell around a scripted core: the order of inputs and timers, signals, the supervisor, the back-off."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shared.base.clock import ManualClock, SystemClock
from shared.base.errors import BusUnavailable, ContractViolation
from shared.ports import effects as fx
from shared.ports.bus import Bus
from shared.protocol.messages import Probe
from shared.runtime import logs
from shared.runtime.connection_thread import Connected, ConnectionSpec, Disconnected, backoff_s
from shared.runtime.lanes import Lane
from shared.runtime.shell import Shell
from shared.runtime.systemd_notify import Notifier
from shared.runtime.timers import Timers
from shared.values.nodes import PowerOperation
from tests.extent import first
from tests.support.paths import ROOT
from tests.support.shell_harness import LockedBroker, Running, wait_for

Reaction = Callable[[fx.Input, float], list[fx.Effect]]


class ScriptedCore:
    """Notes its inputs and reacts as told."""

    def __init__(self, first: list[fx.Effect], react: Reaction) -> None:
        self.inputs: list[fx.Input] = []
        self._first, self._react = first, react

    def start(self, now_s: float) -> list[fx.Effect]:
        del now_s
        return self._first

    def handle(self, event: fx.Input, now_s: float) -> list[fx.Effect]:
        self.inputs.append(event)
        return self._react(event, now_s)


def lone_link() -> ConnectionSpec:
    """A broker that nobody else uses."""
    return ConnectionSpec(lambda: LockedBroker(SystemClock()).connect("agent.n1"), lambda _bus: None)


def scripted(first: list[fx.Effect], react: Reaction, clock: ManualClock | None = None) -> tuple[Shell, ScriptedCore]:
    logs.configure("error")
    core = ScriptedCore(first, react)
    return Shell("test", core, lone_link(), seed=1, clock=clock), core


def stop_at(name: str) -> Reaction:
    return lambda event, _now_s: [fx.Exit("enough")] if event == fx.TimerFired(name) else []


def test_what_has_come_in_goes_before_timers_that_are_due() -> None:
    """Given three timers that are due and two inputs, when the shell runs, then the inputs come first and the timers
    in the order of their moments, those of one moment in the order of their setting."""
    first: list[fx.Effect] = [
        fx.StartTimer("late", 100.0),
        fx.StartTimer("second", 50.0),
        fx.StartTimer("third", 50.0),
        fx.StartTimer("never", 10.0),
        fx.StartTimer("moved", 20.0),
        fx.StartTimer("moved", 60.0),
        fx.StopTimer("never"),
    ]
    shell, core = scripted(first, stop_at("late"), ManualClock(100.0))
    shell.post(fx.PowerDone("n1", PowerOperation.FENCE, True))
    shell.post(fx.PowerDone("n2", PowerOperation.FENCE, True))

    status = shell.run()

    fired = [event.name for event in core.inputs if isinstance(event, fx.TimerFired)]
    assert [event.node for event in core.inputs[:2] if isinstance(event, fx.PowerDone)] == ["n1", "n2"]
    assert fired == ["second", "third", "moved", "late"]
    assert status == 75


def test_after_an_exit_nothing_more_is_carried_out() -> None:
    shell, core = scripted([fx.Exit("enough"), fx.StartTimer("x", 0.0)], lambda *_: [])

    assert shell.run() == 75
    assert core.inputs == []


def test_a_broker_that_is_away_for_a_day_is_told_of_now_and_then() -> None:
    """Given 5,000 attempts in vain, a connection, and one more, then the first ones and the last are in the log."""
    shell, _ = scripted([], lambda *_: [])
    logs.configure("warning", stream=(log := io.StringIO()))
    shell.reload()
    for _ in range(5_000):
        shell.post(Disconnected("refused", 30.0))
    shell.post(Connected(LockedBroker(SystemClock()).connect("agent.n1")))
    shell.post(Disconnected("reset", 0.5))
    shell.stop()

    assert shell.run() == 0
    reasons = [line["reason"] for line in map(json.loads, log.getvalue().splitlines()) if "reason" in line]
    assert 10 <= reasons.count("refused") <= 25
    assert reasons.count("reset") == 1


def test_an_effect_of_another_kind_of_core_is_a_defect() -> None:
    shell, _ = scripted([fx.Observe()], lambda *_: [])

    with pytest.raises(ContractViolation, match="Observe"):
        shell.run()


def test_setting_the_clock_back_does_not_stop_the_timers() -> None:
    """Given a wall clock that stands still, when a timer is set for later, then it fires all the same."""

    class Stuck:
        def __init__(self) -> None:
            self.monotonic = ManualClock(7.0)

        def now_s(self) -> float:
            return 1000.0

        def monotonic_s(self) -> float:
            return self.monotonic.advance(0.01)

    logs.configure("error")
    core = ScriptedCore([fx.StartTimer("report", 1000.1)], stop_at("report"))

    assert Shell("test", core, lone_link(), seed=1, clock=Stuck()).run() == 75


def test_a_core_without_a_broker_begins_and_hears_when_there_is_one() -> None:
    attempts = []

    def connect() -> Bus:
        attempts.append(1)
        if len(attempts) < 2:
            raise BusUnavailable("not yet")
        return LockedBroker(SystemClock()).connect("controller.a")

    logs.configure("error")
    core = ScriptedCore(
        [fx.Publish("trimtab.requests", "controller", Probe("a", 1))],
        lambda event, _now_s: [fx.Exit("enough")] if isinstance(event, fx.Reconnected) else [],
    )

    assert Shell("test", core, ConnectionSpec(connect, lambda _bus: None), seed=1).run() == 75
    assert core.inputs == [fx.Reconnected()]


def test_a_message_that_cannot_be_sent_costs_only_itself() -> None:
    bad = Probe("a", 1 << 70)
    shell, core = scripted(
        [fx.Publish("trimtab.requests", "controller", bad, 1), fx.StartTimer("x", 0.0)], stop_at("x")
    )

    assert shell.run() == 75
    assert core.inputs == [fx.TimerFired("x")]


def test_the_back_off_grows_to_half_a_minute_and_differs() -> None:
    rng = random.Random(1)
    waits = [[backoff_s(attempt, rng) for _ in range(200)] for attempt in range(10)]

    assert all(0.5 <= wait <= 30.0 for row in waits for wait in row)
    assert [round(max(row)) for row in waits[:7]] == [1, 2, 4, 8, 16, 30, 30]
    assert len(set(waits[0])) == 200


def test_timers_forget_what_was_stopped_or_set_anew() -> None:
    timers = Timers()
    timers.start("a", 1.0)
    timers.start("b", 2.0)
    timers.start("a", 3.0)
    timers.stop("b")
    timers.stop("unknown")

    assert timers.next_due_s() == 3.0
    assert timers.take(2.9) is None
    assert timers.take(3.0) == "a"
    assert timers.next_due_s() is None


def test_a_lane_keeps_the_order_and_tells_of_its_death() -> None:
    done: list[int] = []
    failed: list[BaseException] = []
    lane = Lane("test", failed.append)
    for number in range(100):
        lane.do(lambda number=number: done.append(number))  # type: ignore[misc]
    lane.do(lambda: done[1000])  # type: ignore[arg-type]
    lane.do(lambda: done.append(-1))

    assert lane.close(5.0)
    assert done == list(range(100))
    assert isinstance(failed[0], IndexError)


def test_a_lane_looks_by_itself_when_it_is_due() -> None:
    looks: list[int] = []
    lane = Lane("test", lambda _error: None, lambda: 0.001 if len(looks) < 3 else None, lambda: looks.append(1))

    wait_for(lambda: len(looks) == 3)

    assert lane.close(5.0)
    assert len(looks) == 3


# --- the supervisor --------------------------------------------------------------------------------------------


def test_the_supervisor_hears_of_begin_life_and_end(tmp_path: Path) -> None:
    """Given a socket and a watchdog period, when a shell lives through it, then it has said that it is ready, that it
    lives, several times, and that it ends."""
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.bind(str(tmp_path / "notify"))
    heard.settimeout(5.0)
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "20000", "WATCHDOG_PID": "7"}, 7)
    logs.configure("error")
    shell = Shell("test", ScriptedCore([], lambda *_: []), lone_link(), seed=1, notifier=notifier)
    running = Running(shell)

    lines = [heard.recv(200).decode() for _ in range(6)]
    assert running.stop() == 0
    heard.settimeout(0.2)
    while lines[-1] != "STOPPING=1":
        lines.append(heard.recv(200).decode())
    heard.close()

    assert lines[0] == "READY=1"
    assert "STATUS=connected" in lines
    assert lines.count("WATCHDOG=1") >= 3


@pytest.mark.parametrize(
    ("environment", "period_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "3000000"}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_period_is_half_of_what_is_watched(environment: dict[str, str], period_s: float | None) -> None:
    assert Notifier(environment, 7).watchdog_s == period_s


def test_without_a_supervisor_notifications_go_nowhere(tmp_path: Path) -> None:
    for address in ("", "relative", str(tmp_path / "nobody"), "@nobody-is-there"):
        notifier = Notifier({"NOTIFY_SOCKET": address}, 7)
        notifier.ready()
        notifier.status("fine")
        notifier.watchdog()
        notifier.stopping()


PROCESS = """
from shared.runtime import logs
from shared.runtime.shell import Shell
from tests.unit.shared.runtime.test_shell_core import ScriptedCore, lone_link
logs.configure("info")
shell = Shell("test", ScriptedCore([], lambda *_: []), lone_link(), seed=1)
shell.on_reload = lambda: print("reloaded", flush=True)
shell.heed_signals()
print("begun", flush=True)
raise SystemExit(shell.run())
"""


@pytest.mark.full
@pytest.mark.parametrize("number", first([signal.SIGTERM, signal.SIGINT]))
def test_signals_stop_and_reload_a_process(number: signal.Signals) -> None:
    root = ROOT
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"

    process.send_signal(signal.SIGHUP)
    assert process.stdout.readline() == "reloaded\n"
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)

    assert process.returncode == 0
    assert '"reason": "asked to stop"' in errors
