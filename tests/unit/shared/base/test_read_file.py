"""Files of users: regular ones alone, within bounds, and words for everything else; whichever command reads them."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from daemons.cli.main import main
from shared.base.errors import InvalidInput
from shared.base.read_file import LINE_BYTES_MAX, read_bytes, read_lines
from shared.base.read_json import JSON_PARTS_MAX, parse_json

PROGRAM = str(Path(sys.executable).with_name("trimtab"))
MEMORY_MAX_MIB = 500

Words = Callable[[Path], tuple[str, ...]]
COMMANDS: dict[str, Words] = {
    "job": lambda file: ("jobs", "submit", str(file), "--dry-run"),
    "web": lambda file: ("web", "submit", str(file), "--dry-run"),
    "agreement": lambda file: ("env", "create", str(file), "--dry-run"),
    "XML": lambda file: ("env", "create", str(file.with_suffix(".xml")), "--dry-run"),
    "load": lambda file: ("load", str(file), "--dry-run"),
    "operator": lambda file: ("status", "--config", str(file)),
    "saved request": lambda file: ("snapshot", "decide", str(file)),
    "backup": lambda file: ("store", "restore", str(file), "--url", f"sqlite:///{file.parent}/new.db"),
    "log": lambda file: ("sim", "replay", str(file), "--nodes", "1"),
    "place": lambda file: ("sim", "place", str(file)),
    "dilation": lambda file: ("sim", "dilation", str(file)),
    "assure": lambda file: ("sim", "assure", str(file)),
    "requests": lambda file: ("sim", "demand", str(file)),
    "provision": lambda file: ("sim", "provision", str(file)),
    "coordinate": lambda file: ("sim", "coordinate", str(file)),
    "advise": lambda file: ("env", "advise", "--demand", str(file)),
}


def refused(words: tuple[str, ...]) -> str:
    outcome = CliRunner().invoke(main, list(words))
    assert isinstance(outcome.exception, SystemExit), outcome.exception
    assert outcome.exit_code == 2, outcome.output
    return " ".join(outcome.stderr.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_no_regular_file(name: str, tmp_path: Path) -> None:
    """A pipe that nobody writes to, a device without end, a folder, a loop of links: at once, with the reason."""
    file = tmp_path / ("input.xml" if name == "XML" else "input.toml")
    os.mkfifo(file)
    assert "is not a regular file" in refused(COMMANDS[name](tmp_path / "input.toml"))
    file.unlink()
    file.symlink_to("/dev/zero")
    assert "is not a regular file" in refused(COMMANDS[name](tmp_path / "input.toml"))
    file.unlink()
    file.mkdir()
    assert "is a directory" in refused(COMMANDS[name](tmp_path / "input.toml"))
    file.rmdir()
    file.symlink_to(file)
    assert "Too many levels of symbolic links" in refused(COMMANDS[name](tmp_path / "input.toml"))


def packed(folder: Path, name: str, part: bytes, times: int, head: bytes = b"") -> Path:
    file = folder / name
    with gzip.open(file, "wb", compresslevel=1) as made:
        made.write(head)
        for _ in range(times):
            made.write(part)
    return file


def zeros(folder: Path) -> Path:
    """1 GiB that takes no room."""
    file = folder / "zeros"
    with file.open("wb") as made:
        made.truncate(1 << 30)
    return file


def plain(folder: Path, content: bytes) -> Path:
    file = folder / "plain"
    file.write_bytes(content)
    return file


TITLES = b"time,application,servers\n"
HEADER = gzip.compress(b'{"program":"0","term":1,"at_s":1}')
BOMBS: dict[str, tuple[str, Callable[[Path], Path], str]] = {
    "line ends": ("log", lambda at: packed(at, "l.swf.gz", b"\n" * (1 << 20), 256), "too many lines"),
    "a log of zeros": ("log", zeros, "zeros:1: too long a line"),
    "empty lines": ("assure", lambda at: packed(at, "l.csv.gz", b"\n" * (1 << 20), 64, TITLES), "too many lines"),
    "a demand of zeros": ("advise", zeros, "zeros:1: too long a line"),
    "columns": ("requests", lambda at: plain(at, b"," * (32 << 20)), "plain:1: too long a line"),
    "a snapshot of zeros": ("place", zeros, "too large"),
    "objects": ("dilation", lambda at: plain(at, b"[" + b"{}," * (7 << 20) + b"{}]"), "too many parts"),
    "depth": ("dilation", lambda at: plain(at, b"[" * 900_000), "nested too deeply"),
    "values": ("place", lambda at: plain(at, b"[" + b"1e9," * (5 << 20) + b"0]"), "an object"),
    "a saved request of zeros": ("saved request", zeros, "too large"),
    "an unpacked request": (
        "saved request",
        lambda at: plain(at, HEADER + gzip.compress(b'{"a":"' + b"x" * (80 << 20), 1)),
        "too large",
    ),
}


# Runs a command and prints the most memory that it had, in KiB. A child counts what its parent had when it was started,
# which a process that runs tests cannot say small numbers with.
MEASURED = """
import resource, subprocess, sys
status = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(status)
"""


@pytest.mark.parametrize("name", BOMBS)
def test_no_file_takes_the_memory(name: str, tmp_path: Path) -> None:
    """The command's own process: exit status 2 in words, within bounds."""
    command, made, what = BOMBS[name]
    words = [sys.executable, "-c", MEASURED, PROGRAM, *COMMANDS[command](made(tmp_path))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)

    assert done.returncode == 2, done.stderr
    assert what in done.stderr
    assert "Traceback" not in done.stderr
    assert int(done.stdout.splitlines()[-1]) < MEMORY_MAX_MIB * 1024


def test_bounds_of_lines(tmp_path: Path) -> None:
    """Each with what would be right."""
    file = plain(tmp_path, b"\xef\xbb\xbfa\nb\r\nc")
    assert [*read_lines(file, "a text", 100)] == ["a\n", "b\r\n", "c"]
    with pytest.raises(InvalidInput, match=r"too many lines \(expected at most 2\)"):
        [*read_lines(file, "a text", 100, lines_max=2)]
    with pytest.raises(InvalidInput, match=r"too large \(expected at most 5 bytes unpacked\)"):
        [*read_lines(file, "a text", 5)]
    long = plain(tmp_path, b"a\n" + b"x" * (LINE_BYTES_MAX + 1))
    with pytest.raises(InvalidInput, match=r"plain:2: too long a line"):
        [*read_lines(long, "a text", 1 << 30)]
    with pytest.raises(InvalidInput, match=r"plain:2: not UTF-8 \(expected a text\)"):
        [*read_lines(plain(tmp_path, b"a\n\xff\n"), "a text", 100)]


def test_what_goes_wrong_while_it_is_read(tmp_path: Path) -> None:
    """A packed file that is cut off, or broken inside; a path that is none."""
    whole = gzip.compress(os.urandom(100_000))
    with pytest.raises(InvalidInput, match="broken gzip data"):
        [*read_lines(plain(tmp_path, whole[:50_000]), "a text", 1 << 20, encoding="latin-1")]
    with pytest.raises(InvalidInput, match="broken gzip data"):
        [*read_lines(plain(tmp_path, whole[:200] + b"x" + whole[201:]), "a text", 1 << 20, encoding="latin-1")]
    with pytest.raises(InvalidInput, match="embedded null byte"):
        read_bytes(Path("a\0b"), "a text", 10)
    with pytest.raises(InvalidInput, match="too large"):
        read_bytes(plain(tmp_path, b"x" * 11), "a text", 10)


@pytest.mark.parametrize(
    "content", [b"[1" + b"0" * 5_000 + b"]", b"[" * 100_000, b"{", b"\xff", b"[]" * JSON_PARTS_MAX + b"["]
)
def test_json_that_is_none(content: bytes) -> None:
    """One problem that names the file."""
    with pytest.raises(InvalidInput) as found:
        parse_json(content, "f")
    (problem,) = found.value.problems
    assert problem.where.startswith("f")
