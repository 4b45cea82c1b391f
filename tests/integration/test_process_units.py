"""On a machine that has booted: programs as units of systemd, asked for by the agent's unprivileged user."""

from __future__ import annotations

import subprocess

import pytest

from tests.integration.machine import HOME, Machine

USER = "trimtab"
MODULE = "from tests.integration import process_units as units; units."


@pytest.fixture
def node(booted: Machine) -> Machine:
    booted.run(["install", "-d", "-o", USER, "-m", "755", "/srv/tasks", "/srv/tasks/tasks"])
    return booted


@pytest.mark.full
def test_the_driver_keeps_its_contract_on_units(node: Machine) -> None:
    """The suite of the port, but for what measures the CPU: the controllers of it may be missing in a container."""
    said = node.run([f"{HOME}/bin/python", "-c", MODULE + "check_all()"], USER, limit_s=300.0).stdout.splitlines()
    assert [line for line in said if line.startswith("BROKEN")] == []
    assert len([line for line in said if line.startswith("kept")]) >= 25
    assert node.run(["systemctl", "list-units", "--plain", "--no-legend", "trimtab-job@*"]).stdout == ""


def found(node: Machine) -> list[str]:
    """What a driver that comes anew finds and is told, without what it logs."""
    return [line for line in node.python(MODULE + "find()", USER).splitlines() if "component=" not in line]


@pytest.mark.full
def test_an_agent_that_is_killed_finds_its_units_again(node: Machine) -> None:
    command = node.inside([f"{HOME}/bin/python", "-c", MODULE + "hold('burn', 'run#0')"], USER)
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert "Outcome.OK" in holder.stdout.readline()
    assert node.run(["systemctl", "show", "-P", "User", "trimtab-job@run:230.service"]).stdout == "trimtab-job\n"
    node.run(["pkill", "-KILL", "-u", USER, "-f", "units.hold"])
    holder.communicate()

    assert found(node) == ["run#0 running 3 2 True"]
    node.run(["systemctl", "kill", "-s", "KILL", "trimtab-job@run:230.service"])
    said = found(node)
    assert said[0] == "run#0 crashed 3 2 True"
    assert said[1].startswith("told GuestChanged(change=<GuestChange.VANISHED")
    assert found(node) == []


def test_a_program_is_held_by_its_sandbox(node: Machine) -> None:
    with subprocess.Popen(
        node.inside([f"{HOME}/bin/python", "-c", MODULE + "hold('fail', 'bad#1')"], USER),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert "Outcome.OK" in holder.stdout.readline()
        holder.communicate("")
    assert found(node)[0].startswith("bad#1 crashed 3 2 ")
    output = node.text("/var/lib/trimtab-job/bad:231/output").splitlines()
    assert output[:2] == ["no paper", "trimtab-job"]
    denied = {"Read-only file system", "Permission denied"}
    assert len(output) == 4
    assert {line.rpartition(": ")[2] for line in output[2:]} <= denied


def test_the_sandbox_is_tight(node: Machine) -> None:
    said = node.run(
        ["systemd-analyze", "security", "--offline=true", "/etc/systemd/system/trimtab-job@.service"], check=False
    )
    assert said.stdout, said.stderr
    exposure = float(said.stdout.strip().splitlines()[-1].split(": ")[1].split()[0])
    assert exposure <= 3.0
