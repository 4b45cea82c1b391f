"""What people read of actions that failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group

from daemons.cli.render import failures


def _row(vm: str, at_s: float) -> dict[str, Any]:
    return {"vm": vm, "last_failure": {"at_s": at_s, "text": f"start on n1: refused {vm} is not to be had"}}


def _lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    console = Console(width=200)
    with console.capture() as said:
        console.print(Group(*failures(rows)))
    return said.get().splitlines()


def test_the_newest_failure_comes_first_and_others_are_counted() -> None:
    rows = [{"vm": "ok", "last_failure": None}, *(_row(f"j#{index}", 1.8e9 + index) for index in range(12))]
    lines = _lines(rows)
    assert lines[0] == "j#11 failed at 2027-01-15T08:00:11Z: start on n1: refused j#11 is not to be had"
    assert (len(lines), lines[-1]) == (11, "and 2 others")
    assert failures([{"vm": "ok", "last_failure": None}]) == []
