"""A usual report, which comes from every node all the time, goes through the spine alone."""

from __future__ import annotations

from pathlib import Path

from tests.walks import walks


def test_a_report_goes_through_no_domain() -> None:
    found = walks()

    assert {Path(path).name for path in found["report"].files} == {
        "controller.py",
        "screening.py",
        "reports.py",
        "unit_of_work.py",
    }
    assert all(walk.changes >= len(walk.files) - 1 for walk in found.values())
