"""`python -m tests.lab --hosts 3`: a lab in which jobs and a web application run under APC, to watch
(docs/how-to/lab.md); with `--scene ha`, hosts whose power is cut, with VMs that run elsewhere within a minute or two;
with `adopt`, VMs made with virsh that are adopted, drained and released; with `moves`, migrations and their forecasts;
with `all`, one after the other.

Exit status: 0 when everything that was to hold did, 1 when not, 2 when there can be no lab here, 130 after Ctrl-C.
LAB_JSON in the environment names a file that the table is written to.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

import pytest

from tests.lab import scenario
from tests.lab.errors import LabError
from tests.lab.needs import need_lab
from tests.lab.played import IMPOSSIBLE, INTERRUPTED, Played, Row, brief, play_tests
from tests.lab.verdicts import Finding

JOBS, ALL = "jobs", "all"
SCENES = {"ha": "test_failover.py", "adopt": "test_adopt_scene.py", "moves": "test_moves.py"}
CUTS = "10"  # of the power of a host, with a fence device and without
TABLE = "LAB_JSON"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Play what is asked for; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description="a cluster at work in a lab")
    parser.add_argument("--hosts", type=int, default=scenario.HOSTS_MIN, help="3 to 8; 3 if not given")
    parser.add_argument("--limit", type=float, default=scenario.LIMIT_S, help="s: for any one thing to come about")
    parser.add_argument("--scene", choices=(JOBS, *SCENES, ALL), default=JOBS, help=f"{JOBS} if not given")
    given = parser.parse_args()
    if not scenario.HOSTS_MIN <= given.hosts <= scenario.HOSTS_MAX:
        parser.error(f"--hosts: {given.hosts}: expected {scenario.HOSTS_MIN} to {scenario.HOSTS_MAX} hosts")
    file = Path(os.environ[TABLE]) if os.environ.get(TABLE) else None
    if file is not None and (file.is_dir() or not file.parent.is_dir()):
        parser.error(f"{TABLE}: {file}: expected a file in a folder that is there")
    os.environ.setdefault("CUTS", CUTS)
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    try:
        played = _play_all((JOBS, *SCENES) if given.scene == ALL else (given.scene,), given.hosts, given.limit)
    except KeyboardInterrupt:
        print("interrupted; everything has been taken away", file=sys.stderr, flush=True)
        return INTERRUPTED
    if file is not None:
        played.write(file, given.scene)
    if played.rows:
        _tell(f"\n{played.table()}")
    if played.status == IMPOSSIBLE:
        print(f"no lab can be made here: {played.lacking}", file=sys.stderr, flush=True)
    return played.status


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Once: what ends the lab is not to be interrupted."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _play_all(scenes: tuple[str, ...], hosts: int, limit_s: float) -> Played:
    """One scene after the other, none where there can be no lab."""
    played = Played()
    try:
        need_lab()
    except (pytest.skip.Exception, pytest.fail.Exception) as error:
        return Played(lacking=str(error))
    for scene in scenes:
        if scene == JOBS:
            played.add(_play_jobs(hosts, limit_s))
        else:
            played.add(play_tests(scene, Path(__file__).with_name(SCENES[scene])))
    return played


def _play_jobs(hosts: int, limit_s: float) -> Played:
    _tell(f"making {hosts} hosts with libvirtd, a RabbitMQ with TLS, accounts, agents and a controller")
    findings: list[Finding] = []
    try:
        with ExitStack() as stack:
            try:
                made = stack.enter_context(scenario.scene(hosts, _tell, limit_s))
            except (pytest.skip.Exception, pytest.fail.Exception, LabError) as error:
                return Played(lacking=str(error))
            findings = made.findings
            made.say("the cluster is at work")
            made.play()
            operations = ", ".join(f"{count} {kind}" for kind, count in sorted(scenario.operations(made).items()))
        made.say(f"everything has been taken away; operations on guests: {operations}")
    except (AssertionError, LabError, RuntimeError) as error:
        print(error, file=sys.stderr, flush=True)
        findings.append(Finding("the scene comes to its end", brief(str(error)), False))
    return Played([Row(JOBS, one.what, one.found, one.holds) for one in findings])


def _tell(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
