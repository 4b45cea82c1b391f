"""`trimtab sim assure`: what it prints and with which exit status."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from daemons.cli.main import main
from tests.support.assurance_cases import NORMAL_GAMMA, RHO, THETAS, csv_text
from tests.support.paths import ROOT

EXAMPLE = ROOT / "examples" / "assure-demand.csv"


def run(*arguments: object) -> Any:
    """What the command printed and how it ended."""
    return CliRunner().invoke(main, ["sim", "assure", *map(str, arguments)])


def assured(*arguments: object) -> Any:
    """The JSON of a run."""
    outcome = run(*arguments, "--output", "json")
    assert outcome.exit_code == 0, outcome.output
    return json.loads(outcome.stdout)


def written(folder: Path, text: str) -> Path:
    """A file of that text."""
    path = folder / "demand.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_small_trace(tmp_path: Path) -> None:
    """Every key, by the normal form with the measured correlation."""
    found = assured(written(tmp_path, csv_text()), "--slot", 28_800, "--method", "normal")

    assert (found["applications"], found["slot_peak"], found["method"]) == (6, 29, "normal")
    assert found["static_peak"] == 3 + 4 + 5 + 5 + 6 + 6
    assert [row["slot"] for row in found["slots"]] == [0, 1, 2]
    assert [row["mean"] for row in found["slots"]] == pytest.approx([18.6, 18.1, 16.4])
    assert [row["sd"] ** 2 for row in found["slots"]] == pytest.approx([6.04, 2.69, 9.24])
    assert [row["rho"] for row in found["slots"]] == pytest.approx(list(RHO), abs=1e-8)
    for theta, wanted in zip(map(str, THETAS), NORMAL_GAMMA, strict=True):
        assert tuple(row["gamma"][theta] for row in found["slots"]) == wanted
        assert found["gamma"][theta] == max(wanted)
    assert found["wall_s"] >= 0.0
    assert any("10 observations" in note for note in found["notes"])


def test_every_method(tmp_path: Path) -> None:
    """The worst case needs most; the automatic choice says what it took."""
    path = written(tmp_path, csv_text())
    found = {
        method: assured(path, "--slot", 28_800, "--method", method)
        for method in ("auto", "convolution", "worst-case", "mixture")
    }

    assert [row["gamma"]["0.99"] for row in found["convolution"]["slots"]] == [21, 21, 19]
    assert [row["gamma"]["0.99"] for row in found["worst-case"]["slots"]] == [25, 27, 24]
    assert {row["method"] for row in found["auto"]["slots"]} == {"convolution"}
    assert [row["mean"] for row in found["worst-case"]["slots"]] == [row["mean"] for row in found["auto"]["slots"]]


def test_migration_overhead(tmp_path: Path) -> None:
    """The static peak is that from before it; the rest is not."""
    path = written(tmp_path, csv_text())
    plain, moved = assured(path, "--slot", 28_800), assured(path, "--slot", 28_800, "--migration-overhead")

    assert moved["static_peak"] == plain["static_peak"] == 29
    assert all(after["mean"] > before["mean"] for before, after in zip(plain["slots"], moved["slots"], strict=True))
    assert moved["gamma"]["0.99"] > plain["gamma"]["0.99"]


def test_utilisation_becomes_servers(tmp_path: Path) -> None:
    """In whole numbers; samples of a slot count by their largest; keys of theta as they are written."""
    rows = ["time,application,cpus,utilisation_percent"]
    rows += [
        f"{day * 86_400 + at},a,4,{percent}" for day in range(2) for at, percent in ((0, 15), (300, 30), (3_600, 0))
    ]
    rows += ["7200,a,4,150", "10800,a,0,0"]
    found = assured(written(tmp_path, "\n".join(rows)), "--target-utilisation", 0.3, "--theta", "0.90, .999")

    assert [row["mean"] for row in found["slots"]] == [4.0, 1.0, 20.0, 1.0]
    assert found["gamma"] == {"0.90": 18, ".999": 20}
    assert "1 samples are above 100 % of their CPUs and count as they are" in found["notes"]
    assert any("20 of 24 slots have no observation" in note for note in found["notes"])


def test_local_times(tmp_path: Path) -> None:
    """ISO times as they are written, or in a zone; the hour that comes twice is one slot."""
    rows = ["time,application,servers", "2026-10-25T02:30:00+02:00,a,2", "2026-10-25T02:30:00+01:00,a,5"]
    path = written(tmp_path, "\n".join(rows))

    for options in ((), ("--timezone", "Europe/Berlin")):
        slots = assured(path, "--calendar", "hour-of-week", *options)["slots"]
        assert [(row["slot"], row["mean"], row["observations"]) for row in slots] == [(6 * 24 + 2, 5.0, 1)]
    apart = assured(path, "--timezone", "UTC")["slots"]
    assert [(row["slot"], row["mean"]) for row in apart] == [(0, 2.0), (1, 5.0)]


def test_seconds_begin_on_a_monday(tmp_path: Path) -> None:
    """Where that matters, and it is said."""
    path = written(tmp_path, "time,application,servers\n90000,a,1\n")
    found = assured(path, "--calendar", "hour-of-week")
    assert found["slots"][0]["slot"] == 25
    assert "day 0 is taken as a Monday" in found["notes"]
    assert assured(path, "--calendar", "workdays")["slots"][0]["slot"] == 1


def test_gaps_are_told(tmp_path: Path) -> None:
    """With what is assumed."""
    lines = csv_text().splitlines()
    found = assured(written(tmp_path, "\n".join(lines[:5] + lines[8:])), "--slot", 28_800)
    assert any(note.startswith("gaps: 3 of 180 demands are missing") for note in found["notes"])
    never = "time,application,servers\n0,a,2\n0,b,1\n3600,a,1\n"
    found = assured(written(tmp_path, never))
    assert any("1 slots of applications have no observation: their peak" in note for note in found["notes"])
    assert {row["method"] for row in found["slots"]} == {"convolution"}


def test_a_rejected_normal_form_is_marked(tmp_path: Path) -> None:
    """It is obeyed."""
    rows = [f"{day * 86_400},{name},{9 if day % 20 == 0 else 1}" for day in range(60) for name in "abcde"]
    path = written(tmp_path, "time,application,servers\n" + "\n".join(rows))
    found = assured(path, "--method", "normal")

    assert found["slots"][0]["method"] == "normal"
    assert found["slots"][0]["normal_rejected"] is True
    assert any("used as asked, though normality is rejected in 1 slots" in note for note in found["notes"])
    assert "normal (rejected)" in run(path, "--method", "normal").stdout
    assert assured(path)["slots"][0]["method"] == "mixture"


def test_resources_and_the_binding_one() -> None:
    """Of the example: memory binds where servers have little of it."""
    found = assured(EXAMPLE, "--slot", 7_200, "--server", "memory_gib=6")
    plain = assured(EXAMPLE, "--slot", 7_200)

    assert set(found["resources"]) == {"memory_gib"}
    assert set(found["binding"].values()) == {"memory_gib"}
    assert set(assured(EXAMPLE, "--slot", 7_200, "--server", "memory_gib=64")["binding"].values()) == {"servers"}
    assert plain["binding"] is None
    assert found["gamma"] == plain["gamma"]
    text = run(EXAMPLE, "--slot", 7_200, "--server", "memory_gib=6").stdout
    assert "memory_gib needs the most servers" in text


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", ":1", "columns time, application"),
        ("time,application,servers\n", "", "no row"),
        ("time,application\n0,a\n", ":1", "servers or cpus and utilisation_percent"),
        ("time,application,servers,cpus,utilisation_percent\n0,a,1,1,1\n", ":1", "expected a CSV"),
        ("time,application,servers,Memory GiB\n0,a,1,1\n", ":1", "small letters"),
        ("time,application,servers\n0,a,1\n0,a\n", ":3", "2 columns"),
        ("time,application,servers\n0,a,-1\n", ":2", "servers is '-1' (expected a whole number from 0"),
        ("time,application,servers\n0,a,1.5\n", ":2", "a whole number"),
        ("time,application,servers\n0,a,nan\n", ":2", "servers is 'nan'"),
        ("time,application,servers\n0,a,inf\n", ":2", "servers is 'inf'"),
        ("time,application,servers\n0,a,1e99\n", ":2", "to 100000"),
        ("time,application,servers\n0,a,1_0\n", ":2", "servers is '1_0'"),
        ("time,application,servers\n1_0,a,1\n", ":2", "the time is '1_0'"),
        ("time,application,servers\n0,a,100000\n1e11,a,1\n", "", "27777778 slots"),
        ("time,application,cpus,utilisation_percent\n0,a,50000,500\n", "", "demands from 0 to 100000"),
        ("time,application,servers\n0,a,x\n", ":2", "servers is 'x'"),
        ("time,application,servers\nnan,a,1\n", ":2", "the time is 'nan'"),
        ("time,application,servers\n0,a,1\n2026-01-01,a,1\n", ":3", "as in the rows before"),
        ("time,application,servers\n2026-01-01,a,1\n0,a,1\n", ":3", "ISO 8601 in every row"),
        ("time,application,servers\n2026-01-01,a,1\n2026-01-02T00:00Z,a,1\n", ":3", "an offset in every time"),
        ("time,application,servers\n0,,1\n", ":2", "a name of 1 to 128"),
        ("time,application,servers\n0,a,1\n0,b,1\n0,a,1\n", ":4", "a second value of a for the time in line 2"),
        ("time,application,cpus,utilisation_percent\n0,a,-4,50\n", ":2", "cpus is '-4'"),
        ("time,application,cpus,utilisation_percent\n0,a,4,-1\n", ":2", "utilisation_percent is '-1'"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, where: str, what: str) -> None:
    """The place and what would be right."""
    path = written(tmp_path, text)
    outcome = run(path, "--output", "json")

    assert outcome.exit_code == 2, outcome.output
    problems = [
        f"{each['where']}: {each['what']} (expected {each['expected']})"
        for each in json.loads(outcome.stdout)["error"]["problems"]
    ]
    assert any(f"{path}{where}: " in line and what in line for line in problems), problems


def test_what_is_no_trace_is_told_once(tmp_path: Path) -> None:
    """A file that is not there or no text, and rows that are all broken, with what is expected of a trace."""
    for content in (None, b"time,application,servers\n0,\xff,1\n", b"\x1f\x8b123", b"time,application,servers\n0,a\n"):
        path = tmp_path / "demand.csv"
        if content is not None:
            path.write_bytes(content)
        outcome = run(path, "--output", "json")
        assert outcome.exit_code == 2
        (problem,) = json.loads(outcome.stdout)["error"]["problems"]
        assert "application" in problem["expected"] or "as in the first line" in problem["expected"]


def test_marks_and_line_ends_of_other_systems(tmp_path: Path) -> None:
    """A byte order mark, lines that end as elsewhere, blank ones, and one of spaces."""
    path = written(tmp_path, "\ufefftime,application,servers\r\n\r\n0,a,1\r\n   \r\n3600,a,2\r\n")
    assert assured(path)["gamma"]["0.999"] == 2


def test_many_problems_at_once(tmp_path: Path) -> None:
    """Each with its line, at most 20."""
    text = "time,application,servers\n" + "\n".join(f"{at},a,-1" for at in range(50))
    outcome = run(written(tmp_path, text), "--output", "json")
    assert len(json.loads(outcome.stdout)["error"]["problems"]) == 20
    assert run(tmp_path / "none.csv").exit_code == 2


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--theta", "1"), "1 is the class guaranteed"),
        (("--theta", "0.9,0"), "above 0 and below 1"),
        (("--theta", "0.9,x"), "is not a number"),
        (("--theta", "nan"), "above 0 and below 1"),
        (("--slot", "7000"), "a whole number of slots"),
        (("--slot", "nan"), "a number from 1 to 86400"),
        (("--target-utilisation", "0"), "target-utilisation"),
        (("--timezone", "Nowhere/At_All"), "time zone"),
        (("--server", "memory_gib"), "such as memory_gib=64"),
        (("--server", "memory_gib=0"), "above 0"),
        (("--server", "disk=1"), "no resource disk"),
        (("--server", "servers=1"), "no resource servers"),
        (("--calendar", "hour-of-week", "--slot", "60"), "at most 2016"),
    ],
)
def test_bad_options(options: tuple[str, ...], what: str) -> None:
    """Exit status 2, and what would be right."""
    outcome = run(EXAMPLE, *options)
    assert outcome.exit_code == 2
    assert what in " ".join(outcome.stderr.split())


def test_a_packed_file_and_the_table(tmp_path: Path) -> None:
    """The same figures; a table for people."""
    path = tmp_path / "demand.csv.gz"
    path.write_bytes(gzip.compress(csv_text().encode()))
    outcome = run(path, "--slot", 28_800)

    assert outcome.exit_code == 0
    assert "servers: sum of slot peaks 29, each application's own peak 29" in outcome.stdout
    assert "6 applications" in outcome.stdout
