"""A command that computes for long says so, also into a log."""

from __future__ import annotations

import threading
import time

import pytest

from daemons.cli.waiting import saying_what_goes_on

LIMIT_S = 30.0


def lines(capfd: pytest.CaptureFixture[str], so_far: list[str], count: int) -> list[str]:
    """What has been said on standard error, once it is so many lines."""
    until_s = time.monotonic() + LIMIT_S
    while len(so_far) < count:
        assert time.monotonic() < until_s
        time.sleep(0.01)
        so_far += capfd.readouterr().err.splitlines()
    return so_far


def test_what_takes_long_is_said_again_and_again(capfd: pytest.CaptureFixture[str]) -> None:
    """With what goes on at that moment."""
    with saying_what_goes_on("reading", first_s=0.01, every_s=0.01) as tell:
        first = lines(capfd, [], 2)
        tell("static")
        later = lines(capfd, [], 3)

    assert first[0] == "reading: 0 s so far"
    assert later[-1].startswith("static: ")


def test_nothing_is_said_of_what_is_quick(capfd: pytest.CaptureFixture[str]) -> None:
    """And whoever would say it is gone afterwards, however the work ended."""
    before = threading.active_count()
    meanwhile = []

    def fail() -> None:
        with saying_what_goes_on("reading"):
            meanwhile.append(threading.active_count())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert meanwhile == [before + 1]
    assert threading.active_count() == before
    assert capfd.readouterr() == ("", "")
