"""A command that computes for long says so, also into a log."""

from __future__ import annotations

import os
import pty
import threading
import time
from contextlib import redirect_stdout

import click
import pytest

from daemons.cli.output import output_option
from daemons.cli.waiting import saying_what_goes_on, wait_option

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


@click.command()
@output_option
@wait_option("it is done")
def sample(wait: bool) -> bool:
    """Stand in for a command that may wait."""
    return wait


def wanted(*words: str) -> bool:
    """Whether a command with these words waits."""
    return bool(sample.main(list(words), standalone_mode=False))


def test_a_command_waits_where_somebody_watches() -> None:
    """On a terminal, unless it is to print JSON; elsewhere only when it is asked to."""
    cases: list[tuple[str, ...]] = [(), ("-o", "json"), ("--wait", "-o", "json"), ("--no-wait",), ("--wait",)]
    elsewhere = [wanted(*words) for words in cases]
    master, slave = pty.openpty()
    with open(slave, "w", encoding="utf-8") as screen, redirect_stdout(screen):
        watched = [wanted(*words) for words in cases]
    os.close(master)

    assert elsewhere == [False, False, True, False, True]
    assert watched == [True, False, True, False, True]
