"""What the command of the lab counts with, without a lab: rows of tests, exit statuses, the file with the table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.__main__ import ALL, JOBS, SCENES
from tests.lab.hosts import ROOT
from tests.lab.played import DONE, IMPOSSIBLE, WRONG, Played, Row, brief

LIMIT_S = 60.0
HOLDS, FAILS = (
    Row("ha", "a host is fenced", "as it should", True),
    Row("ha", "a host is leased", "121 s > 120 s", False),
)
TESTS = """
import pytest
from tests.lab.errors import LabError

@pytest.fixture
def unmade():
    raise LabError("no namespaces")

@pytest.fixture
def untidy():
    yield
    raise LabError("something is left")

def test_it_holds(record_property):
    record_property("runs elsewhere after", "31, 33 s")

def test_it_does_not_hold():
    took_s = 61
    assert took_s <= 60, "too late"

def test_it_leaves_something(untidy):
    pass
"""
LACKING = """
@pytest.mark.parametrize("what", ["a.b"])
def test_it_cannot_be(unmade, what):
    pass

def test_it_is_skipped():
    pytest.skip("no libvirtd")
"""
PLAY = """
import sys
from pathlib import Path
from tests.lab.played import play_tests
played = play_tests("ha", Path(sys.argv[1]), ("-p", "no:rerunfailures"))
played.write(Path(sys.argv[2]), "ha")
sys.exit(played.status)
"""


def lab(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`python -m tests.lab` where nothing of what a lab needs is found."""
    command = [sys.executable, "-m", "tests.lab", *words]
    own = {**os.environ, "PATH": "/nonexistent", **variables}
    return subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, timeout=LIMIT_S, check=False)


@pytest.mark.parametrize("scene", [JOBS, *SCENES, ALL])
def test_where_no_lab_can_be_had_every_scene_says_why(scene: str, tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    done = lab("--scene", scene, LAB_JSON=str(file))
    assert (done.returncode, done.stdout) == (IMPOSSIBLE, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("no lab can be made here: ")
    written = json.loads(file.read_text())
    assert (written["scene"], written["status"], written["rows"]) == (scene, IMPOSSIBLE, [])
    assert line.endswith(written["lacking"])


def test_on_ci_too_it_is_no_lab_and_not_a_wrong_one() -> None:
    assert lab("--scene", "ha", CI="true").returncode == IMPOSSIBLE


@pytest.mark.parametrize(
    ("words", "variables", "said"),
    [
        (("--scene", "other"), {}, "invalid choice: 'other'"),
        (("--hosts", "2"), {}, "--hosts: 2: expected 3 to 8 hosts"),
        (("--scene", "ha"), {"LAB_JSON": "/nonexistent/table.json"}, "expected a file in a folder that is there"),
    ],
)
def test_what_is_asked_wrongly_is_said(words: tuple[str, ...], variables: dict[str, str], said: str) -> None:
    done = lab(*words, **variables)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_a_test_is_a_row_and_what_it_records_was_found(tmp_path: Path) -> None:
    tests, file = tmp_path / "test_scene.py", tmp_path / "table.json"
    tests.write_text(TESTS)
    command = [sys.executable, "-c", PLAY, str(tests), str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == WRONG, done.stdout + done.stderr
    written = json.loads(file.read_text())
    assert [(row["what"], row["holds"]) for row in written["rows"]] == [
        ("it holds", True),
        ("it does not hold", False),
        ("it leaves something", True),
        ("it leaves something (teardown)", False),
    ]
    found = [row["found"] for row in written["rows"]]
    assert (found[0], found[1]) == ("runs elsewhere after 31, 33 s", "AssertionError: too late")
    assert "something is left" in found[3]


@pytest.mark.parametrize(
    ("text", "status", "lacking"),
    [
        (TESTS + LACKING, WRONG, "no namespaces"),
        (TESTS.partition("def test_it_does_not")[0] + LACKING, IMPOSSIBLE, "no namespaces"),
        ("import pytest\npytest.skip('no QEMU', allow_module_level=True)", IMPOSSIBLE, "no QEMU"),
        ("import nothing_of_the_kind", WRONG, ""),
        ("", WRONG, ""),
    ],
)
def test_what_is_lacking_is_no_row(text: str, status: int, lacking: str, tmp_path: Path) -> None:
    tests, file = tmp_path / "test_scene.py", tmp_path / "table.json"
    tests.write_text(text)
    command = [sys.executable, "-c", PLAY, str(tests), str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    written = json.loads(file.read_text())
    assert (done.returncode, lacking in written["lacking"]) == (status, True), written
    assert not any("cannot be" in row["what"] or "skipped" in row["what"] for row in written["rows"])


def test_the_last_line_of_the_table_says_what_does_not_hold() -> None:
    played = Played([HOLDS])
    assert (played.status, played.table()) == (DONE, "ok  ha  a host is fenced  as it should")
    played.add(Played([FAILS], "no libvirtd"))
    assert played.status == WRONG
    assert played.table().splitlines() == [
        "ok     ha  a host is fenced  as it should",
        "WRONG  ha  a host is leased  121 s > 120 s",
        "WRONG: ha: a host is leased: 121 s > 120 s",
    ]
    assert (Played([HOLDS], "no libvirtd").status, Played().table()) == (IMPOSSIBLE, "")


def test_what_was_found_is_one_short_line() -> None:
    assert brief("\n  assert 3 == 4\n  more") == "assert 3 == 4"
    assert brief("") == ""
    assert len(brief("x" * 1_000)) == 303
