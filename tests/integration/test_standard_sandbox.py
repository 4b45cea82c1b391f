"""On a machine that has booted: standard jobs run within the sandbox of the agent's unit, as its user."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.machine import Machine

# Runs in place of the agent, with its unit's user, groups and sandbox.
RUN = """
from agents.standard_jobs.running import OwnStandardJobs
from shared.config.agent import StandardJobKeys
from shared.ports.effects import RunStandard
from shared.values.load_vector import StandardJob, StandardRun

keys = StandardJobKeys(enabled=True, file_mib=16)
for job in StandardJob:
    done = OwnStandardJobs(keys).run(RunStandard("p1", StandardRun(job, 0.2, 2)))
    print(job, done.ok, [pace.units > 0 for pace in done.paces], done.detail)
"""
DROP_IN = "/etc/systemd/system/trimtab-agent.service.d/standard.conf"


@pytest.fixture
def in_place_of_the_agent(booted: Machine) -> Iterator[Machine]:
    booted.run(["groupadd", "-rf", "libvirt"])
    booted.put("/srv/standard.py", RUN)
    booted.unit(
        "trimtab-agent.service.d/standard.conf",
        "[Service]\nType=oneshot\nExecStart=\nExecStart=/opt/trimtab/bin/python /srv/standard.py\nRestart=no\n"
        "WatchdogSec=0\nStandardOutput=file:/run/standard\nStandardError=file:/run/standard\n",
    )
    yield booted
    booted.run(["rm", "-f", DROP_IN, "/srv/standard.py", "/run/standard"])
    booted.run(["systemctl", "daemon-reload"])


def test_standard_jobs_run_within_the_sandbox_and_leave_nothing(in_place_of_the_agent: Machine) -> None:
    machine = in_place_of_the_agent
    machine.run(["systemctl", "reset-failed"])  # starts that failed in other tests on the machine do not count
    started = machine.run(["systemctl", "restart", "trimtab-agent.service"], check=False)  # it may run for another test
    assert started.returncode == 0, machine.run(["systemctl", "status", "trimtab-agent.service"], check=False).stdout
    cpu, disk = machine.text("/run/standard").splitlines()
    assert cpu == "cpu True [True, True] "
    assert disk.startswith("io True [True, True] reads: ")
    folder = "/var/lib/trimtab/standard"
    assert machine.run(["stat", "-c", "%U %a", folder]).stdout == "trimtab 700\n"
    assert machine.run(["ls", folder]).stdout == ""
