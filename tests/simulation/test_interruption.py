"""Ctrl-C, SIGTERM and SIGKILL of a command that computes on all processors: nothing goes on without it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PROGRAM = str(Path(sys.executable).with_name("trimtab"))
FAULTS = ("sim", "faults", "--seeds", "0-400", "--output", "json")
LONG_CALL = """
import click, hashlib
from daemons.cli.output import CommandGroup, output_option

@click.group(cls=CommandGroup)
def main(): pass

@main.command()
@output_option
def act():
    print("begun", file=__import__("sys").stderr, flush=True)
    hashlib.pbkdf2_hmac("sha256", b"x", b"y", 1_000_000_000)  # no bytecode runs meanwhile
main(["act", "--output", "json"])
"""
START_S = 60.0
END_S = 5.0  # a second on a machine that is not busy


def members(session: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] not in "ZX":
                found.append(int(folder.name))
    return found


def wait_for(holds: Callable[[], bool], limit_s: float) -> None:
    until_s = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.02)


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A command in a session of its own, all of which is gone afterwards. What a shell has put into the background, as
    perhaps these tests, ignores SIGINT, and so does what it starts."""
    words = ("env", "--default-signal=INT", *words)
    made = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield made
    finally:
        for pid in members(made.pid):
            os.kill(pid, signal.SIGKILL)
        made.communicate()


def computing(pid: int) -> bool:
    """Whether there are workers (beside the tracker of resources), and one of them has used a second of CPU."""
    used = []
    for member in members(pid):
        try:
            fields = Path(f"/proc/{member}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            continue
        if member != pid:
            used.append(int(fields[11]) / os.sysconf("SC_CLK_TCK"))
    return len(used) >= 2 and max(used) > 1.0


@pytest.mark.parametrize(
    ("number", "to_all", "status", "code"),
    [
        (signal.SIGINT, True, 130, "interrupted"),
        (signal.SIGINT, False, 130, "interrupted"),
        (signal.SIGTERM, False, 143, "terminated"),
        (signal.SIGKILL, False, -signal.SIGKILL, ""),
    ],
)
def test_workers_end_with_the_command(number: int, to_all: bool, status: int, code: str) -> None:
    """Whatever ends it; what it says is one line, and one JSON object."""
    if (os.cpu_count() or 1) < 2:
        pytest.skip("with one processor everything runs in one process")
    with running(PROGRAM, *FAULTS) as made:
        wait_for(lambda: computing(made.pid), START_S)

        (os.killpg if to_all else os.kill)(made.pid, number)
        begun_s = time.monotonic()
        out, err = made.communicate(timeout=END_S)
        wait_for(lambda: members(made.pid) == [], END_S)

        assert time.monotonic() - begun_s < END_S
        assert made.returncode == status
        assert "Warning" not in err
        if code:
            assert json.loads(out)["error"]["code"] == code
            assert err.endswith(f"error: {code}\n")
            assert "Traceback" not in err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_long_call_of_a_library_does_not_hold_it_up(number: int, status: int) -> None:
    """No bytecode runs that could raise anything: the process is ended all the same, with words."""
    with running(sys.executable, "-c", LONG_CALL) as made:
        assert made.stderr is not None
        assert made.stderr.readline() == "begun\n"
        time.sleep(0.2)

        made.send_signal(number)
        out, err = made.communicate(timeout=END_S)

        assert made.returncode == status, err
        assert json.loads(out)["error"]["code"] in ("interrupted", "terminated")


def test_a_replay_is_interrupted(tmp_path: Path) -> None:
    """In this process alone; in text standard output stays empty."""
    log = tmp_path / "long.swf"
    lines = [f"{number} 0 -1 {15_000 + number} 1 -1 -1 1 -1 -1 1 1 -1 -1 -1 -1 -1 -1" for number in range(1, 2_001)]
    log.write_text("\n".join(lines))
    with running(
        PROGRAM, "sim", "replay", str(log), "--nodes", "2", "--policy", "apc", "--engine", "closed-loop"
    ) as made:
        time.sleep(3.0)

        made.send_signal(signal.SIGINT)
        out, err = made.communicate(timeout=END_S)

        assert (made.returncode, out) == (130, "")
        assert err.endswith("error: interrupted\n")
