"""The clocks move forward only; logs are machine-readable and stay off standard output."""

from __future__ import annotations

import io
import json
import logging
import sys
import time
from collections.abc import Iterator

import pytest
import structlog

from shared.base.clock import ManualClock, SystemClock, perf_s
from shared.base.errors import InvalidValue
from shared.ports.core import Clock
from shared.runtime import logs


def test_system_clock_never_decreases_and_is_about_now() -> None:
    clock: Clock = SystemClock()
    moments = [clock.now_s() for _ in range(1000)]
    assert moments == sorted(moments)
    assert 1.7e9 < moments[0] < 1e11


def test_system_clock_stands_still_when_the_machine_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([100.0, 90.0, 99.0, 101.0])
    clock = SystemClock()
    monkeypatch.setattr(time, "time", lambda: next(readings))
    assert [clock.now_s() for _ in range(4)] == [100.0, 100.0, 100.0, 101.0]


def test_sleeping_takes_as_long_as_asked() -> None:
    clock = SystemClock()
    began_s, began_perf_s = clock.monotonic_s(), perf_s()
    clock.sleep(0.02)
    clock.sleep(0)
    clock.sleep(-1)
    assert 0.019 < clock.monotonic_s() - began_s < 5
    assert 0.019 < perf_s() - began_perf_s < 5


def test_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(10.0)
    assert clock.now_s() == clock.now_s() == 10.0
    assert clock.advance(2.5) == 12.5
    clock.sleep(0.5)
    clock.sleep(-3.0)
    assert clock.now_s() == clock.monotonic_s() == 13.0


@pytest.mark.parametrize("by_s", [-1.0, float("nan"), float("inf")])
def test_manual_clock_does_not_go_back(by_s: float) -> None:
    clock = ManualClock(10.0)
    with pytest.raises(InvalidValue, match="by_s"):
        clock.advance(by_s)
    assert clock.now_s() == 10.0


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def _lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_events_carry_time_component_and_their_keys() -> None:
    stream = io.StringIO()
    logs.configure("info", json=True, stream=stream, now_s=lambda: 1.5)
    log = logs.get_logger("agent")
    log.info("begun", vm="job#0")
    log.info("after")
    assert _lines(stream) == [
        {
            "timestamp": "1970-01-01T00:00:01.500Z",
            "level": "info",
            "component": "agent",
            "event": "begun",
            "vm": "job#0",
        },
        {"timestamp": "1970-01-01T00:00:01.500Z", "level": "info", "component": "agent", "event": "after"},
    ]


def test_a_logger_made_before_the_set_up_obeys_it() -> None:
    log = logs.get_logger("early")
    stream = io.StringIO()
    logs.configure("warning", stream=stream)
    log.info("quiet")
    log.warning("loud")
    assert [line["event"] for line in _lines(stream)] == ["loud"]


def test_libraries_are_heard_in_the_same_form_once() -> None:
    stream = io.StringIO()
    logs.configure("info", stream=io.StringIO())
    logs.configure("info", stream=stream)
    logging.getLogger("some.library").info("chatter")
    logging.getLogger("some.library").warning("lost %d", 2)
    (line,) = _lines(stream)
    assert (line["component"], line["event"], line["level"]) == ("some.library", "lost 2", "warning")


@pytest.mark.parametrize("as_json", [True, False])
def test_tracebacks_are_logged_without_local_variables(as_json: bool) -> None:
    stream = io.StringIO()
    logs.configure("info", json=as_json, stream=stream)
    password = "hunter2"
    try:
        raise KeyError(len(password))
    except KeyError:
        logs.get_logger("x").exception("failed")
    assert "KeyError: 7" in stream.getvalue()
    assert "hunter2" not in stream.getvalue().replace('password = "hunter2"', "")


def test_an_event_cannot_forge_another_line() -> None:
    stream = io.StringIO()
    logs.configure("info", stream=stream)
    logs.get_logger("x").info("one", detail='\n{"event": "two"}')
    assert [line["event"] for line in _lines(stream)] == ["one"]


def test_console_lines_go_to_standard_error_only(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("debug", json=False)
    logs.get_logger("x").debug("seen", vm="job#0")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "seen" in printed.err
    assert "vm=job#0" in printed.err


def test_standard_output_and_unknown_levels_are_refused() -> None:
    for stream in (sys.stdout, sys.__stdout__):
        with pytest.raises(InvalidValue, match="stream"):
            logs.configure(stream=stream)
    with pytest.raises(InvalidValue, match="debug, info"):
        logs.configure("loud")
