"""What `make lab` shows holds, and nothing is left of it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.base.clock import SystemClock
from tests.lab import scenario
from tests.lab.hosts import ROOT
from tests.lab.partitions import find_partitions
from tests.lab.scenario import scene

pytestmark = [pytest.mark.full, pytest.mark.alone, pytest.mark.usefixtures("lab_tools")]

WORK_S = 180.0  # until the cluster is at work
END_S = 120.0
FINDINGS = 6
LOOK_S = 0.1
AT_WORK = "the cluster is at work"
CLOCK = SystemClock()


def test_everything_that_the_lab_shows_holds(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled(), scene(scenario.HOSTS_MIN, print) as made:
        made.play()
        print(scenario.table(made.findings))
    assert [one for one in made.findings if not one.holds] == []
    assert len(made.findings) == FINDINGS


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder for all that a run makes; its name is short, since sockets are in it."""
    folder = Path(tempfile.mkdtemp(prefix="l-", dir="/tmp"))
    try:
        yield folder
        assert all(file.suffix == ".lock" for file in folder.iterdir()), list(folder.iterdir())
    finally:
        for file in folder.glob("*.lock"):
            file.unlink()
        folder.rmdir()


def begin(place: Path, *words: str) -> subprocess.Popen[str]:
    """`python -m tests.lab`, as far as its cluster is at work."""
    command = [sys.executable, "-m", "tests.lab", *words]
    output = subprocess.PIPE
    process = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "TMPDIR": str(place)}, stdout=output, stderr=output, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if AT_WORK in line:
            return process
    raise AssertionError(process.communicate()[1])


def left(place: Path, pid: int) -> list[str]:
    """Processes that work in the folder or had it told, cgroups of the run, mounts."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            said = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        if str(place).encode() in said:
            found.append(f"{folder.name}: {(folder / 'cmdline').read_bytes()!r}")
    groups = [str(group) for root in find_partitions().roots for group in root.glob(f"*-{pid}-*")]
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(place) in line]
    return [*found, *groups, *mounts]


def left_soon(place: Path, pid: int) -> list[str]:
    """What guards are still about to end is given its time."""
    until_s = CLOCK.monotonic_s() + END_S
    while (found := left(place, pid)) and CLOCK.monotonic_s() < until_s:
        CLOCK.sleep(LOOK_S)
    return found


def test_nothing_is_left_after_an_interrupt(place: Path) -> None:
    process = begin(place)
    assert len(left(place, process.pid)) > 10
    process.send_signal(signal.SIGINT)
    _, problems = process.communicate(timeout=END_S)
    assert (process.returncode, "interrupted" in problems) == (130, True), problems
    assert left_soon(place, process.pid) == []


def test_nothing_is_left_after_a_failure(place: Path) -> None:
    process = begin(place, "--limit", "1")
    said, problems = process.communicate(timeout=END_S)
    assert (process.returncode, "did not come about within" in problems) == (1, True), said + problems
    assert left_soon(place, process.pid) == []


def test_without_root_it_says_what_it_needs() -> None:
    command = ["unshare", "--user", sys.executable, "-m", "tests.lab"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=END_S, check=False)
    assert (done.returncode, "needs root" in done.stderr) == (2, True), done.stderr
