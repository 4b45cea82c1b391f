"""Files that commands write: the whole file or the one before, and words for what cannot be written."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from daemons.cli.main import main
from shared.base.errors import InvalidInput
from shared.base.write_file import check_writable, make_folder, write_file
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"
LONG = "x" * 300


@contextmanager
def no_more_than(size: int) -> Iterator[None]:
    """As on a disk that is almost full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def told(refused: pytest.ExceptionInfo[InvalidInput]) -> tuple[str, str]:
    (problem,) = refused.value.problems
    return problem.where, problem.what


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """It keeps its mode, a link to it stays one, nothing is left beside it."""
    file, link = tmp_path / "a", tmp_path / "b"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)

    write_file("--x", link, "new \u2713")
    write_file("--x", tmp_path / "secret", b"s", mode=0o600)

    assert file.read_text("utf-8") == "new \u2713"
    assert link.is_symlink()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "secret"]


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    """No cut file, and none that blocks the next try."""
    file = tmp_path / "a"
    file.write_text("old")
    with no_more_than(10), pytest.raises(InvalidInput) as refused:
        write_file("--x", file, "longer than that")
    assert told(refused) == ("--x", f"{file}: File too large")
    with no_more_than(10), pytest.raises(InvalidInput):
        write_file("--x", tmp_path / "n", "longer than that", new=True)

    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_new_file_takes_nothings_place(tmp_path: Path) -> None:
    """Neither that of a file nor of a link to nowhere."""
    file, link = tmp_path / "a", tmp_path / "b"
    file.write_text("old")
    link.symlink_to(tmp_path / "nowhere")
    for taken in (file, link):
        with pytest.raises(InvalidInput) as before:
            check_writable("FILE", taken, new=True)
        with pytest.raises(InvalidInput) as refused:
            write_file("FILE", taken, "x", new=True)
        assert told(before) == told(refused) == ("FILE", f"{taken} is there already")
    write_file("FILE", tmp_path / "c", "x", new=True)

    assert file.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("/proc/x", "No such file or directory"),
        (f"/tmp/{LONG}", "File name too long"),
        ("/tmp/a\0b", "embedded null byte"),
        ("/nowhere/at/all", "No such file or directory"),
        ("/dev/null/x", "Not a directory"),
        ("/tmp", "Is a directory"),
    ],
)
def test_what_cannot_be_written_is_told_before_and_after(path: str, what: str) -> None:
    """In the same words."""
    with pytest.raises(InvalidInput) as before:
        check_writable("--x", Path(path))
    with pytest.raises(InvalidInput) as refused:
        write_file("--x", Path(path), "x")
    assert told(before) == told(refused) == ("--x", f"{path}: {what}")


def test_what_is_no_file_is_written_to() -> None:
    """A terminal, a pipe, a device: nothing can be renamed there."""
    check_writable("--x", Path("/dev/null"))
    write_file("--x", Path("/dev/null"), "x")
    with pytest.raises(InvalidInput, match="/dev/full: No space left on device"):
        write_file("--x", Path("/dev/full"), "x")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_pipe_is_written_to_and_one_that_nobody_reads_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InvalidInput) as caught:
        write_file("--to", pipe, b"words")
    assert "No such device" in str(caught.value)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_file("--to", pipe, b"words")
    assert os.read(reading, 100) == b"words"
    os.close(reading)


def test_a_folder_is_made_and_tried(tmp_path: Path) -> None:
    """Before the work that is to be kept in it."""
    make_folder("--x", tmp_path / "a" / "b")
    assert os.listdir(tmp_path / "a" / "b") == []
    with no_more_than(10), pytest.raises(InvalidInput, match=r"--x: .*File too large"):
        make_folder("--x", tmp_path)
    with pytest.raises(InvalidInput, match=r"--x: /proc: No such file or directory"):
        make_folder("--x", Path("/proc"))


@pytest.mark.parametrize(
    "words",
    [
        ("sim", "reproduce", "dfactor", "--experiment", "figures", "--plots", "/proc"),
        ("sim", "run", "--nodes", "2", "--jobs", "1", "--output-folder", "/proc"),
        ("broker", "tls", "--host", "b.example", "--folder", "/proc"),
        ("env", "advise", "--demand", f"{EXAMPLES}/coordinate-demand.csv", "--write", f"/tmp/{LONG}"),
        ("store", "backup", f"/tmp/{LONG}", "--url", "sqlite:///s.db"),
        ("snapshot", "save", f"/tmp/{LONG}"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_commands_say_it(words: tuple[str, ...]) -> None:
    """Exit status 2, the option or the file, and why; at once."""
    outcome = CliRunner().invoke(main, list(words))

    assert outcome.exit_code == 2, outcome.output
    assert isinstance(outcome.exception, SystemExit)
    assert (
        "No such file" in outcome.stderr or "File name too long" in outcome.stderr or "not permitted" in outcome.stderr
    )


def test_a_run_that_finds_no_room_says_so_first(tmp_path: Path) -> None:
    """Nothing is computed, nothing left behind."""
    words = ["sim", "run", "--nodes", "2", "--jobs", "1", "--output-folder", str(tmp_path / "run")]
    with no_more_than(1_000):
        outcome = CliRunner().invoke(main, words)

    assert outcome.exit_code == 2
    assert "--output-folder" in outcome.stderr
    assert os.listdir(tmp_path / "run") == []


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "words",
    [
        ("sim", "dilation", EXAMPLES / "dilation.json", "--output", "text"),
        ("sim", "dilation", EXAMPLES / "dilation.json", "--output", "json"),
        ("status", "--help"),
        ("--version",),
    ],
)
def test_full_standard_output(words: tuple[str | Path, ...], unbuffered: str) -> None:
    """Exit status 2 and one line of words, in text, in JSON, and of what click prints itself."""
    program = Path(sys.executable).with_name("trimtab")
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}

    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [program, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False, env=environment
        )

    assert done.returncode == 2
    assert done.stderr == (
        "error: standard output: No space left on device (expected somewhere that can be written to)\n"
    )
