"""`python -m tests.lab --hosts 3`: a lab in which jobs and a web application run under APC, to watch
(docs/how-to/lab.md); with `--scene ha`, hosts whose power is cut, with VMs that run elsewhere within a minute or two;
with `adopt`, VMs made with virsh that are adopted, drained and released; with `moves`, migrations and their forecasts.

Exit status: 0 when everything that was to hold did, 1 when not, 2 when there can be no lab here, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from types import FrameType

import pytest

from tests.lab import scenario
from tests.lab.errors import LabError

JOBS = "jobs"
SCENES = {"ha": "test_failover.py", "adopt": "test_adopt_scene.py", "moves": "test_moves.py"}
CUTS = "10"  # of the power of a host, with a fence device and without
DONE, WRONG, IMPOSSIBLE, INTERRUPTED = 0, 1, 2, 130
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Play the scenario; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description="a cluster at work in a lab")
    parser.add_argument("--hosts", type=int, default=scenario.HOSTS_MIN, help="3 to 8; 3 if not given")
    parser.add_argument("--limit", type=float, default=scenario.LIMIT_S, help="s: for any one thing to come about")
    parser.add_argument("--scene", choices=(JOBS, *SCENES), default=JOBS, help=f"{JOBS} if not given")
    given = parser.parse_args()
    if given.scene != JOBS:
        return _show(SCENES[given.scene])
    if not scenario.HOSTS_MIN <= given.hosts <= scenario.HOSTS_MAX:
        parser.error(f"{scenario.HOSTS_MIN} to {scenario.HOSTS_MAX} hosts")
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    try:
        return _play(given.hosts, given.limit)
    except (pytest.skip.Exception, pytest.fail.Exception) as error:
        return _failed(IMPOSSIBLE, f"no lab can be made here: {error}")
    except (AssertionError, LabError, RuntimeError) as error:
        return _failed(WRONG, str(error))
    except KeyboardInterrupt:
        return _failed(INTERRUPTED, "interrupted; everything has been taken away")


def _show(tests: str) -> int:
    """Run the tests of a scene, those of failover with ten cuts each; what they print is shown."""
    os.environ.setdefault("CUTS", CUTS)
    status = pytest.main(["-q", "-s", "-p", "no:cacheprovider", str(Path(__file__).with_name(tests))])
    return DONE if status is pytest.ExitCode.OK else WRONG


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Once: what ends the lab is not to be interrupted."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _play(hosts: int, limit_s: float) -> int:
    _tell(f"making {hosts} hosts with libvirtd, a RabbitMQ with TLS, accounts, agents and a controller")
    with scenario.scene(hosts, _tell, limit_s) as made:
        made.say("the cluster is at work")
        made.play()
        operations = ", ".join(f"{count} {kind}" for kind, count in sorted(scenario.operations(made).items()))
    made.say("everything has been taken away")
    _tell(f"\n{scenario.table(made.findings)}\noperations on guests: {operations}")
    return DONE if all(one.holds for one in made.findings) else WRONG


def _tell(line: str) -> None:
    print(line, flush=True)


def _failed(status: int, why: str) -> int:
    print(why, file=sys.stderr, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
