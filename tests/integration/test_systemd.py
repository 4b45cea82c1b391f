"""On a machine that has booted: what the agent's user may ask systemd for, and what it may not."""

from __future__ import annotations

import pytest

from tests.integration.machine import ROOT, Machine

USER = "trimtab"
SLEEPER = "[Service]\nExecStart=sleep 1000\n"
ASK = """
import sys

from agents.drivers.systemd import SystemdBus
from shared.base.errors import TrimtabError

bus = SystemdBus()
try:
    print(eval(sys.argv[1], {"bus": bus}))
except TrimtabError as error:
    print(type(error).__name__, error)
"""


def ask(machine: Machine, call: str, user: str | None = USER) -> str:
    """What a call to systemd's bus gives, or how it fails, for the agent's user."""
    return machine.python(ASK, user, call).strip()


def test_every_unit_is_understood(booted: Machine) -> None:
    """No key that this systemd does not know, nothing that a unit needs and that is not there."""
    names = sorted(
        path.name for path in (ROOT / "systemd").glob("trimtab*.*") if path.suffix in (".service", ".socket")
    )

    said = booted.run(["systemd-analyze", "verify", "--man=no", *(name.replace("@.", "@x.") for name in names)])

    ours = [line for line in (said.stdout + said.stderr).splitlines() if "trimtab" in line]
    assert ours == []


@pytest.fixture(scope="module")
def units(booted: Machine) -> Machine:
    """With units inside and outside the patterns of the rules."""
    for name in ("trimtab-service-shop.service", "trimtab-job@j1.service", "other.service"):
        booted.put(f"/etc/systemd/system/{name}", SLEEPER)
    booted.run(["systemctl", "daemon-reload"])
    return booted


def test_the_agents_user_leads_units_of_the_patterns(units: Machine) -> None:
    job = "trimtab-job@j1.service"
    assert ask(units, "bus.start('trimtab-service-shop.service', 10)") == "None"
    assert units.state("trimtab-service-shop.service") == "active"
    assert ask(units, "bus.stop('trimtab-service-shop.service', 10)") == "None"
    assert units.state("trimtab-service-shop.service") == "inactive"

    assert ask(units, f"bus.start('{job}', 10)") == "None"
    assert ask(units, f"bus.freeze('{job}')") == "None"
    assert ask(units, f"bus.properties('{job}', ['FreezerState'])") == "{'FreezerState': 'frozen'}"
    assert ask(units, f"bus.thaw('{job}')") == "None"
    assert ask(units, f"bus.set_properties('{job}', {{'CPUWeight': 300}})") == "None"
    assert ask(units, f"bus.properties('{job}', ['CPUWeight'])") == "{'CPUWeight': 300}"
    assert ask(units, f"bus.kill('{job}', 9)") == "None"
    assert ask(units, f"bus.reset_failed('{job}')") == "None"


@pytest.mark.parametrize(
    "call",
    [
        "bus.start('other.service', 10)",
        "bus.start('trimtab-service-shop.service.d/x.service')",
        "bus.start('ssh.service')",
        "bus.start('rescue.target')",
        "bus.kill('trimtab-service-shop.service', 9)",
        "bus.set_properties('trimtab-service-shop.service', {'CPUWeight': 300})",
    ],
)
def test_the_agents_user_leads_no_others(units: Machine, call: str) -> None:
    units.run(["systemctl", "start", "trimtab-service-shop.service"])

    refused = ask(units, call)

    assert refused.startswith(("NotAllowed", "Refused")), refused
    assert "no polkit rule" in refused or "not valid" in refused
    assert units.state("other.service") == "inactive"
    assert units.state("trimtab-service-shop.service") == "active"


def test_the_agents_user_makes_no_units_of_its_own(units: Machine) -> None:
    """Who may start a transient unit is root: polkit is told neither its name nor what it runs."""
    call = ["busctl", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1"]
    call += ["org.freedesktop.systemd1.Manager", "StartTransientUnit", "ssa(sv)a(sa(sv))"]
    call += ["trimtab-job@own.service", "replace", "0", "0"]

    assert "Access denied" in units.run(call, USER, check=False).stderr
    assert "Access denied" not in units.run(call, check=False).stderr
