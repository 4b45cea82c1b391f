"""Deadline windows as configured: what the core is told, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemons.config.controller import ControllerConfig
from daemons.service.settings_from_config import settings_of
from daemons.service.window_settings import windows_of
from daemons.values.settings import Removal, WindowSettings
from shared.base.errors import InvalidInput
from shared.config.toml import load, parse
from tests.support.paths import ROOT

WINDOW = """
[windows.night]
submit_from = "18:00"
submit_until = "02:00"
deadline = "06:00"
timezone = "Europe/Berlin"
"""


def windows(text: str) -> tuple[WindowSettings, ...]:
    """The windows of a configuration file."""
    return windows_of(parse(text, ControllerConfig).windows)


def problems(text: str) -> dict[str, str]:
    """What is refused: problems by key."""
    with pytest.raises(InvalidInput) as caught:
        windows(text)
    return {problem.where: f"{problem.what}, expected {problem.expected}" for problem in caught.value.problems}


def test_a_window_becomes_settings() -> None:
    """Given a window from evening until morning, then its queue has its name and its times count from midnight on."""
    (window,) = windows(WINDOW + 'days = ["mon", "fri"]\nremoval = "wait"\n')

    assert (window.name, window.queue, window.removal) == ("night", "night", Removal.WAIT)
    periods = window.periods
    assert (periods.submit_from_s, periods.submit_until_s, periods.deadline_s) == (64_800, 93_600, 108_000)
    assert periods.days == (0, 4)


def test_settings_of_a_file_have_its_windows() -> None:
    """Given a whole configuration, then the core is told of its windows."""
    settings = settings_of(parse(WINDOW, ControllerConfig))

    assert [window.name for window in settings.windows] == ["night"]


@pytest.mark.parametrize(
    ("change", "key", "expected"),
    [
        ('deadline = "06:00"|deadline = "19:00"', "windows.night.deadline", "before it opens again"),
        ("Europe/Berlin|Europe/Atlantis", "windows.night.timezone", "a time zone such as"),
        ("timezone =|nodes_min = 5\nnodes_max = 4\ntimezone =", "windows.night.nodes_min", "at most nodes_max = 4"),
        ('timezone =|analyser = "oracle"\ntimezone =', "windows.night.analyser", "batch-deadline"),
        ("timezone =|days = []\ntimezone =", "windows.night.days", "at least one day"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_key(change: str, key: str, expected: str) -> None:
    """Given an overlap, an unknown zone, bounds the wrong way round or no day, then the key is named."""
    old, new = change.split("|")

    found = problems(WINDOW.replace(old, new))

    assert list(found) == [key]
    assert expected in found[key]


def test_two_windows_cannot_share_a_queue() -> None:
    """Given a second window for the same queue, then that key is refused."""
    second = WINDOW.replace("windows.night", "windows.day") + 'queue = "night"\n'

    assert list(problems(WINDOW + second)) == ["windows.day.queue"]


@pytest.mark.parametrize("confidence", ["1.0", "0.2"])
def test_a_certain_promise_is_refused(confidence: str) -> None:
    """Given a confidence of 1, which nothing can keep, or one that is none, then the key is named."""
    with pytest.raises(InvalidInput, match="confidence"):
        windows(WINDOW + f"confidence = {confidence}\n")


def test_the_example_of_the_documentation_works(tmp_path: Path) -> None:
    """Given the example of the documentation, then it can be loaded."""
    page = (ROOT / "docs/how-to/deadlines.md").read_text("utf-8")
    path = tmp_path / "controller.toml"
    path.write_text(page.split("```toml\n")[1].split("```")[0], "utf-8")

    (window,) = windows_of(load(path, ControllerConfig).windows)

    assert (window.nodes_max, window.penalty, window.arrivals_per_day) == (40, 2.0, 300.0)
