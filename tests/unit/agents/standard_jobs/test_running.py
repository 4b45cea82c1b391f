"""The standard jobs as processes: their paces, their limits, and that nothing of them is left."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from agents.standard_jobs.programs import READ_BYTES, ReadFile, arithmetic, pace
from agents.standard_jobs.running import COMMAND, FREE_MIB_MIN, NoStandardJobs, OwnStandardJobs
from shared.base.clock import SystemClock
from shared.config.agent import StandardJobKeys
from shared.ports.effects import RunStandard, StandardRan
from shared.values.load_vector import StandardJob, StandardRun
from tests.support.shell_harness import wait_for

RUN_S = 0.2
LATE_S = 2.0  # a unit that was begun in time may end later on a busy machine


@pytest.fixture
def keys(tmp_path: Path) -> StandardJobKeys:
    return StandardJobKeys(True, str(tmp_path / "standard"), 16, 60.0, 3)


def ran(keys: StandardJobKeys, job: StandardJob, copies: int = 1, run_s: float = RUN_S) -> StandardRan:
    """What the real program says."""
    return OwnStandardJobs(keys).run(RunStandard("p1", StandardRun(job, run_s, copies)))


def test_the_cpu_job_computes_all_the_time(keys: StandardJobKeys) -> None:
    done = ran(keys, StandardJob.CPU, 2)
    assert (done.request, done.ok, done.detail) == ("p1", True, "")
    assert len(done.paces) == 2
    for each in done.paces:
        assert each.units >= 1.0
        assert 0.0 < each.elapsed_s < RUN_S + LATE_S
        assert 0.0 < each.cpu_s <= each.elapsed_s * 1.1


def test_the_disk_job_reads_a_file_that_is_gone_afterwards(keys: StandardJobKeys) -> None:
    done = ran(keys, StandardJob.IO)
    assert done.ok, done.detail
    assert done.detail in ("reads: direct", "reads: dropped from the page cache")
    (only,) = done.paces
    assert only.units >= 1.0
    assert 0.0 < only.elapsed_s < RUN_S + LATE_S
    assert list(Path(keys.folder).iterdir()) == []


def test_what_the_file_does_not_allow_is_refused(keys: StandardJobKeys, tmp_path: Path) -> None:
    assert ran(replace(keys, enabled=False), StandardJob.CPU).detail == "standard_jobs.enabled is not set on this node"
    assert ran(keys, StandardJob.CPU, run_s=61.0).detail == "61 s are more than standard_jobs.run_s_max = 60"
    assert ran(keys, StandardJob.CPU, 4).detail == "4 copies are more than standard_jobs.copies_max = 3"
    huge = ran(replace(keys, file_mib=1 << 40), StandardJob.IO)
    assert not huge.ok
    assert f"{(1 << 40) + FREE_MIB_MIN} are needed" in huge.detail
    (tmp_path / "file").write_text("")
    nowhere = ran(replace(keys, folder=str(tmp_path / "file" / "in")), StandardJob.IO)
    assert not nowhere.ok
    assert nowhere.detail.startswith("no folder for its file: ")
    assert not NoStandardJobs().run(RunStandard("p1", StandardRun(StandardJob.CPU, 1.0))).ok


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("import time; time.sleep(60)", "killed after 0.4 s"),
        ("print('no json')", "Expecting value"),
        ("print('[1]')", "[1]"),
        ("raise SystemExit('out of luck')", "out of luck"),
        ('print(\'{"paces": [[1, 2]], "reads": ""}\')', "[1, 2] of a copy"),
        ("print('{}')", "the program said {}"),
    ],
)
def test_a_program_that_hangs_or_talks_nonsense_is_an_answer(keys: StandardJobKeys, script: str, why: str) -> None:
    broken = OwnStandardJobs(keys, (sys.executable, "-S", "-c", script), RUN_S)
    done = broken.run(RunStandard("p1", StandardRun(StandardJob.CPU, RUN_S)))
    assert not done.ok
    assert why in done.detail


def test_a_program_that_is_not_there_is_an_answer(keys: StandardJobKeys) -> None:
    gone = OwnStandardJobs(keys, ("/no/such/program",))
    assert "No such file" in gone.run(RunStandard("p1", StandardRun(StandardJob.CPU, RUN_S))).detail


def test_all_of_it_ends_with_the_agent(keys: StandardJobKeys) -> None:
    """Given a process that runs two copies for a minute, when it is killed, then nothing is left of them."""
    script = (
        "from agents.standard_jobs.running import OwnStandardJobs\n"
        "from shared.config.agent import StandardJobKeys\n"
        "from shared.ports.effects import RunStandard\n"
        "from shared.values.load_vector import StandardJob, StandardRun\n"
        f"keys = StandardJobKeys(True, {keys.folder!r}, 16, 60.0, 3)\n"
        "OwnStandardJobs(keys).run(RunStandard('p1', StandardRun(StandardJob.IO, 60.0, 2)))\n"
    )
    agent = subprocess.Popen([sys.executable, "-c", script])
    try:
        family: list[psutil.Process] = []

        def all_run() -> bool:
            family[:] = psutil.Process(agent.pid).children(recursive=True)
            return len(family) == 3 and not list(Path(keys.folder).iterdir())

        wait_for(all_run)
    finally:
        agent.send_signal(signal.SIGKILL)
        agent.wait()
    wait_for(lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in family))
    assert list(Path(keys.folder).iterdir()) == []


def test_nobody_who_waits() -> None:
    """Given no one at the other end, then it says so at once and fails."""
    command = [*COMMAND, "cpu", "--run-s", "60"]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert ended.returncode == 1
    assert b"standard input was closed" in ended.stdout


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that knows no direct reads."""
    real = os.open

    def refuse(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)


@pytest.mark.usefixtures("refusing")
def test_where_direct_reads_are_refused_the_cache_is_dropped(tmp_path: Path) -> None:
    file = ReadFile(tmp_path / "file", 1)
    assert not file.direct
    assert list(file.fill()) == [1]
    file.reads(1)()
    file.close()


def test_a_file_that_is_cut_short_is_an_error(tmp_path: Path) -> None:
    file = ReadFile(tmp_path / "file", 1)
    assert list(file.fill()) == [1]
    os.truncate(tmp_path / "file", READ_BYTES // 2)
    read = file.reads(1)
    with pytest.raises(OSError, match="only a part"):
        read()
    file.close()


def test_a_pace_counts_whole_units_and_at_least_one() -> None:
    clock = SystemClock()
    done = pace(arithmetic, clock.monotonic_s(), 1e-9, clock)
    assert done.units == 1.0
    assert 0.0 < done.elapsed_s < LATE_S
