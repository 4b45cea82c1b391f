"""`trimtab forecast` against a real controller, over the in-process bus in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.operator_harness import Rig
from tests.support.window_harness import HOUR_S, night

JOB = """
name = "render"
queue = "night"
[[stages]]
work_mcycles = 100_000
max_mhz = 1_000
memory_mib = 1_000
"""


@pytest.fixture
def rig() -> Rig:
    made = Rig(windows=(night(),))
    made.run(30.0)
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return path


def test_a_forecast_for_people_and_for_programs(rig: Rig, file: Path) -> None:
    """Given a window with a job, then JSON has the numbers of the view and the text its times by the local clock."""
    rig.asked("jobs", "submit", file)

    data = rig.asked("forecast", "night")
    text = rig.trimtab("forecast").output

    (window,) = data["windows"]
    assert (window["jobs"], window["open"], window["confidence"]) == (1, True, 0.9999)
    assert window["arrivals"]["counted"] == 1
    assert "1970-01-01 12:00 +0000" in text
    assert "window night" in text


def test_no_windows_are_said_to_be_none(rig: Rig) -> None:
    """Given a name that no window begins with, then none is shown."""
    assert rig.asked("forecast", "day")["windows"] == []
    assert "windows: none" in rig.trimtab("forecast", "day").output


@pytest.mark.full
def test_a_closed_queue_refuses_a_job_file(rig: Rig, file: Path) -> None:
    """Given a job file after the submission period, then the command fails and says when the queue opens."""
    rig.run(7 * HOUR_S)

    error = rig.refused("jobs", "submit", file)

    assert error["code"] == "queue-closed"
    assert "opens at 1970-01-02 00:00 +0000" in error["message"]
