"""No text of others orders a terminal about, whichever way a command prints it."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Group
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from daemons.cli import render
from daemons.cli.commands.events import events_line
from daemons.cli.output import CommandGroup, emit, messages, put, say, two_columns
from shared.base.errors import Infeasible, InvalidInput, InvalidValue, Problem
from shared.base.printable import lines, one_line
from shared.protocol.messages import Happened

EVIL = (
    "evil\x1b]0;title\x07\x1b[2J\x1b[1;1Hall is well\r\x08\x0b\x0c\x7f\x9b31m\x9d0;t\x9c\u202e\u2066\u200b\ufeff\u2028"
    "\ud800"
)
FORGED = EVIL + "\nforged line"
OUR_OWN = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\r?\x1b\[2K|\x1b\[1A")  # rich's colours and its moving line
ROW = {"name": "x", "detail": EVIL}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def command(act: Callable[[], object]) -> Callable[[], None]:
    """What is run as a command of `trimtab` is."""

    @click.group(cls=CommandGroup)
    def group() -> None:
        pass

    group.command("act")(act)

    def run() -> None:
        with pytest.raises(SystemExit):
            group.main(["act"])

    return run


def fail(error: Exception) -> Callable[[], None]:
    def act() -> None:
        raise error

    return command(act)


def table() -> Table:
    made = Table("a", EVIL, title=EVIL, caption=EVIL)
    made.add_row(EVIL, Text(EVIL), end_section=True)
    return made


def progress() -> None:
    with Progress(console=messages()) as shown:
        shown.add_task(EVIL, total=1)


PATHS: dict[str, Callable[[], object]] = {
    "a string": lambda: emit({}, lambda: EVIL),
    "a text": lambda: emit({}, lambda: Text(EVIL)),
    "a group": lambda: emit({}, lambda: Group(EVIL, Text(EVIL))),
    "a table": lambda: emit({}, table),
    "two columns": lambda: emit({}, lambda: two_columns(EVIL, {EVIL: EVIL, "b": 1.0})),
    "a listing": lambda: emit({}, lambda: render.listing(EVIL, [ROW], ("name", "detail"))),
    "no listing": lambda: emit({}, lambda: render.listing(EVIL, [], ())),
    "a record": lambda: emit({}, lambda: render.record(EVIL, {EVIL: EVIL, "rows": [ROW], "one": ROW})),
    "a file": lambda: put(EVIL),
    "an event": lambda: put(events_line(Happened(1.0, EVIL, EVIL, 1, EVIL))),
    "a message": lambda: say(EVIL),
    "a rich message": lambda: messages().print(EVIL),
    "progress": progress,
    "a problem": fail(InvalidInput(Problem(EVIL, EVIL, EVIL))),
    "a value": fail(InvalidValue(EVIL, 1, EVIL)),
    "a refusal": fail(Infeasible(EVIL)),
    "wrong usage": fail(click.BadParameter(EVIL, param_hint=EVIL)),
    "no such command": command(lambda: click.get_current_context().fail(EVIL)),
}


@pytest.mark.parametrize("path", PATHS)
def test_nothing_reaches_a_terminal_that_it_would_obey(path: str) -> None:
    """Everything is there, replaced visibly."""
    out, err = Terminal(), Terminal()
    with redirect_stdout(out), redirect_stderr(err):
        PATHS[path]()

    shown = OUR_OWN.sub("", out.getvalue() + err.getvalue())

    assert "evil" in shown
    assert [c for c in shown if not (c.isprintable() or c == "\n")] == []


@pytest.mark.parametrize("path", ["a listing", "a record", "an event"])
def test_no_value_adds_a_line(path: str) -> None:
    """A line end in an event or a cell is shown as one."""
    row = {"name": "x", "detail": FORGED}
    made: dict[str, Callable[[], object]] = {
        "a listing": lambda: emit({}, lambda: render.listing("t", [row], ("name", "detail"))),
        "a record": lambda: emit({}, lambda: render.record("t", row)),
        "an event": lambda: put(events_line(Happened(1.0, "x", "y", 1, FORGED))),
    }
    out = io.StringIO()
    with redirect_stdout(out):
        made[path]()

    assert r"\nforged line" in out.getvalue()


def test_further_lines_of_an_error_are_indented() -> None:
    """None of them can pass for another message."""
    err = io.StringIO()
    with redirect_stderr(err):
        fail(Infeasible("one\nerror: two"))()

    assert err.getvalue() == "error: one\n  error: two\n"


def test_a_file_that_is_kept_is_what_it_was() -> None:
    """What a command prints for another program is not changed."""
    out = io.StringIO()
    with redirect_stdout(out):
        put("a\u200bb\x0c\n")

    assert out.getvalue() == "a\u200bb\x0c\n"


@given(st.text())
def test_what_is_clean_stays(text: str) -> None:
    """And once cleaned nothing changes any more."""
    assert one_line(text).isprintable()
    assert one_line(one_line(text)) == one_line(text)
    assert lines(text).replace("\n", "").replace("\t", "").isprintable()
    assert not text.isprintable() or one_line(text) == lines(text) == text


def test_a_file_with_escape_sequences_on_a_real_terminal(tmp_path: Path) -> None:
    """`trimtab sim dilation`: a key of the file in an error."""
    file = tmp_path / "jobs.json"
    file.write_text(
        r'{"resources": ["cpu"], "jobs": [{"name": "a", "loading": [1], "neutral_s": 5, "x\u001b]0;t\u0007": 1}]}'
    )
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", 0) as screen:
        words = [str(Path(sys.executable).with_name("trimtab")), "sim", "dilation", str(file)]
        done = subprocess.run(words, stdin=theirs, stdout=theirs, stderr=theirs, timeout=60, check=False)
        os.close(theirs)
        shown = b""
        while not shown.endswith(b"\n") or b"error" not in shown:
            shown += screen.read(65536)

    assert done.returncode == 2
    assert b"\x1b" not in shown
    assert rb"x\x1b]0;t" in shown


def test_an_encoding_that_lacks_a_character(tmp_path: Path) -> None:
    """It is escaped; the command goes on."""
    file = tmp_path / "jobs.json"
    file.write_text('{"resources": ["cpu"], "jobs": [{"name": "j\u00f6b", "loading": [1], "neutral_s": 5}]}', "utf-8")
    words = [str(Path(sys.executable).with_name("trimtab")), "sim", "dilation", str(file)]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(words, env=environment, capture_output=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    assert rb"j\xf6b" in done.stdout
