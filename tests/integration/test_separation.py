"""On a machine that has booted: what each unit sees of the others' passwords, configurations and states."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.integration.machine import ROOT, Machine

CONFIGS = tuple(f"/etc/trimtab/{name}.toml" for name in ("agent", "controller", "helper"))
PORTAL = "/etc/trimtab-portal/portal.toml"
STATES = tuple(f"/var/lib/trimtab{name}/seen" for name in ("", "-controller", "-portal", "-job"))
CACHE, JOBS = "/var/cache/trimtab-helper/seen", "/run/trimtab/jobs/seen"
SECRETS = ("/etc/credstore/seen", "/etc/credstore.encrypted/seen", "/run/credentials/seen.service/seen")
ALL = (*CONFIGS, PORTAL, *STATES, CACHE, JOBS, *SECRETS)
AGENT, CONTROLLER, HELPER = CONFIGS
STATE, CONTROLLER_STATE, PORTAL_STATE, JOB_STATE = STATES
SEEN = {
    "trimtab-agent": {AGENT, STATE, JOB_STATE, JOBS},
    "trimtab-controller": {CONTROLLER, CONTROLLER_STATE},
    "trimtab-store": {CONTROLLER, CONTROLLER_STATE},
    "trimtab-portal": {PORTAL, PORTAL_STATE},
    "trimtab-helper@": {HELPER, CACHE},
    "trimtab-job@": {STATE, JOB_STATE, JOBS},
}
# What of a unit is not its sandbox, or would change the machine.
NOT_SANDBOX = re.compile(
    r"(?m)^(?:Type|Exec\w+|Restart\w*|Watchdog\w+|Standard\w+|Runtime\w+|NotifyAccess|RemainAfterExit|User|Group"
    r"|SupplementaryGroups|CapabilityBoundingSet|\w+Directory|\w+DirectoryMode|LoadCredential|Slice|Condition\w+|After|Wants)=.*\n"
)


@pytest.fixture(scope="module")
def filled(booted: Machine) -> Iterator[Machine]:
    """With a file at each place, whatever their modes: who looks is root with all capabilities."""
    before = booted.run(["sh", "-c", 'for f; do [ ! -e "$f" ] || echo "$f"; done', "sh", *ALL]).stdout.split()
    for path in ALL:
        if path not in before:
            booted.put(path, "# seen\n")
    yield booted
    booted.run(["rm", "-f", *(path for path in ALL if path not in before)])


@pytest.mark.parametrize("unit", SEEN)
def test_a_unit_sees_its_own_and_nothing_of_the_others(filled: Machine, unit: str) -> None:
    """Given root's program in the sandbox of a unit, when it looks, then it finds that unit's files alone."""
    text = (ROOT / f"systemd/{unit}.service").read_text("utf-8")
    sandbox = NOT_SANDBOX.sub("", text.split("[Install]")[0]).replace("%i", "x")
    looking = "for f in $FILES; do if grep -qs . $f; then echo seen:$f; fi; done; echo looked"
    files = f"Environment='FILES={' '.join(ALL)}'"
    name = f"looking-{unit.rstrip('@')}.service"
    found = f"/run/{name}.txt"  # not the journal, which may lose whose words they are when a program ends at once
    program = f"StandardOutput=file:{found}\nExecStart=/bin/sh -c '{looking}'\n"
    filled.unit(name, f"{sandbox}\nType=oneshot\n{files}\n{program}")
    filled.run(["systemctl", "daemon-reload"])

    filled.run(["systemctl", "start", name])

    said = filled.run(["cat", found]).stdout.split()
    assert "looked" in said
    assert {word.removeprefix("seen:") for word in said if word.startswith("seen:")} == SEEN[unit]


def test_each_state_belongs_to_a_user_of_its_own(booted: Machine) -> None:
    """Nobody but its user reads what a daemon keeps; others at most go through."""
    states = {"/var/lib/trimtab": "trimtab 711", "/var/lib/trimtab-controller": "trimtab-controller 711"}
    states["/var/lib/trimtab-portal"] = "trimtab-portal 700"

    said = booted.run(["stat", "-c", "%U %a", *states]).stdout.splitlines()

    assert said == list(states.values())
