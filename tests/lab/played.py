"""What was played of a lab's scenes: a row for each thing that was to hold, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.lab.errors import LabError

DONE, WRONG, IMPOSSIBLE, INTERRUPTED = 0, 1, 2, 130
FOUND_CHARACTERS_MAX = 300


@dataclass(frozen=True, slots=True)
class Row:
    """Something that was to hold in a scene, what was found in words, and whether it holds."""

    scene: str
    what: str
    found: str
    holds: bool


@dataclass(slots=True)
class Played:
    """The rows of the scenes that were played. `lacking`: why a lab, or a part of one, cannot be had here ("": it
    can)."""

    rows: list[Row] = field(default_factory=list)
    lacking: str = ""

    def add(self, other: Played) -> None:
        """Take over what was played of another scene; the first reason is kept."""
        self.rows += other.rows
        self.lacking = self.lacking or other.lacking

    @property
    def wrong(self) -> list[Row]:
        """Rows that do not hold."""
        return [row for row in self.rows if not row.holds]

    @property
    def status(self) -> int:
        """Return the exit status: 1 when a row does not hold, else 2 when something was lacking, else 0."""
        return WRONG if self.wrong else IMPOSSIBLE if self.lacking else DONE

    def table(self) -> str:
        """Return the rows as lines; where one does not hold, a last line says which."""
        widths = [max((len(text) for text in texts), default=0) for texts in zip(*map(_left, self.rows), strict=True)]
        lines = []
        for row in self.rows:
            left = "  ".join(text.ljust(width) for text, width in zip(_left(row), widths, strict=True))
            lines.append(f"{left}  {row.found}")
        if self.wrong:
            lines.append("WRONG: " + "; ".join(f"{row.scene}: {row.what}: {row.found}" for row in self.wrong))
        return "\n".join(lines)

    def write(self, file: Path, scene: str) -> None:
        """Write all of it as one JSON object. Raises OSError."""
        rows = [asdict(row) for row in self.rows]
        whole = {"scene": scene, "status": self.status, "lacking": self.lacking, "rows": rows}
        file.write_text(json.dumps(whole, indent=1) + "\n", "utf-8")


def _left(row: Row) -> tuple[str, str, str]:
    return "ok" if row.holds else "WRONG", row.scene, row.what


def words_of(test: str) -> str:
    """Return the name of a test as words."""
    return test.removeprefix("test_").replace("_", " ")


def brief(text: str) -> str:
    """Return the first line of a text, cut where it is long."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= FOUND_CHARACTERS_MAX else f"{line[:FOUND_CHARACTERS_MAX]}..."


class TestRows:
    """A plug-in of pytest that makes a row of each test. What a test records as a property is what was found. A test
    that is skipped, and a lab that cannot be made, is something lacking and no row."""

    __test__ = False  # pytest takes it for no test of ours

    def __init__(self, scene: str) -> None:
        self.scene, self.played, self.interrupted = scene, Played(), False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Make the row from a step of a test."""
        report = yield
        what = words_of(item.name)
        unmade = call.when == "setup" and call.excinfo is not None and isinstance(call.excinfo.value, LabError)
        if report.skipped or unmade:
            self._lacks(_reason(report))
        elif report.failed:
            self._row(what if call.when == "call" else f"{what} ({call.when})", _reason(report), False)
        elif call.when == "call":
            found = "; ".join(f"{name} {value}" for name, value in report.user_properties)
            self._row(what, found or f"as it should, in {report.duration:.0f} s", True)
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note tests that cannot be read, or that are skipped as a whole."""
        if report.failed:
            self._row(f"{report.nodeid} can be read", _reason(report), False)
        elif report.skipped:
            self._lacks(_reason(report))

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Note a Ctrl-C. An error in reading tests comes here too."""
        self.interrupted = self.interrupted or not isinstance(excinfo.value, pytest.Session.Interrupted)

    def _lacks(self, why: str) -> None:
        self.played.lacking = self.played.lacking or why

    def _row(self, what: str, found: str, holds: bool) -> None:
        self.played.rows.append(Row(self.scene, what, brief(found), holds))


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return in words why a test was skipped or has failed."""
    longrepr: Any = report.longrepr
    if isinstance(longrepr, tuple):
        return str(longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(longrepr, "reprcrash", None)
    return str(longrepr if crash is None else crash.message)


def play_tests(scene: str, file: Path, options: Sequence[str] = ()) -> Played:
    """Run the tests of a scene and show what they print. Raises KeyboardInterrupt after a Ctrl-C, with their fixtures
    ended."""
    rows = TestRows(scene)
    status = pytest.main(["-q", "-s", "-p", "no:cacheprovider", *options, str(file)], plugins=[rows])
    if rows.interrupted:
        raise KeyboardInterrupt
    if not rows.played.rows and not rows.played.lacking:
        rows.played.rows.append(Row(scene, "its tests run", f"pytest ended with status {int(status)}", False))
    return rows.played
