"""The systemd files: how exposed each unit is, and that documents and rules speak of the same ones."""

from __future__ import annotations

import re
import shutil
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from agents.drivers import systemd
from shared.config.agent import SetupKeys
from tests.architecture.sources import ROOT
from tests.integration.debian import need_programs

UNITS = sorted((ROOT / "systemd").glob("*.service"))
SECURITY = (ROOT / "docs/explanation/security-model.md").read_text("utf-8")
OVERALL = re.compile(r"Overall exposure level for \S+: ([0-9.]+)")
EXPOSURE_MAX = 4.0
# Those that others reach over the network.
EXPOSURE_MAX_OF = {"trimtab-controller.service": 2.0, "trimtab-portal.service": 2.0}
# Who runs as whom, with which state: no two daemons share either.
USERS = {
    "trimtab-agent.service": ("trimtab", "trimtab"),
    "trimtab-controller.service": ("trimtab-controller", "trimtab-controller"),
    "trimtab-store.service": ("trimtab-controller", "trimtab-controller"),
    "trimtab-portal.service": ("trimtab-portal", "trimtab-portal"),
    "trimtab-job@.service": ("trimtab-job", "trimtab-job/%i"),
    "trimtab-helper@.service": ("", ""),
    "trimtab-lease.service": ("", ""),
}
SECRETS = ("/etc/credstore", "/etc/credstore.encrypted")


@pytest.fixture
def analyze() -> str:
    """systemd-analyze."""
    need_programs(["systemd-analyze"], ["systemd"])
    return shutil.which("systemd-analyze") or ""


def exposure(analyze: str, unit: Path) -> float:
    """How exposed a unit is, from 0 to 10."""
    command = [analyze, "security", "--no-pager", "--offline=true", str(unit)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60.0).stdout
    found = OVERALL.search(said)
    assert found is not None, said
    return float(found[1])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_no_unit_is_more_exposed_than_is_documented(analyze: str, unit: Path) -> None:
    """docs/explanation/security-model.md has the figure of each; none is above 4, controller and portal not above 2."""
    row = re.search(rf"^\| `{re.escape(unit.name)}` \| ([0-9.]+) \|", SECURITY, re.MULTILINE)

    assert row is not None, f"docs/explanation/security-model.md has no row of {unit.name}"
    assert exposure(analyze, unit) <= float(row[1]) <= EXPOSURE_MAX_OF.get(unit.name, EXPOSURE_MAX)


def values(unit: Path, key: str) -> list[str]:
    """All that a unit says for a key, word by word, without the sign that a path may be missing."""
    lines: list[str] = re.findall(rf"^{key}=(.*)$", unit.read_text("utf-8"), re.MULTILINE)
    return [word.removeprefix("-") for line in lines for word in line.split()]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_each_daemon_has_a_user_and_a_state_of_its_own(unit: Path) -> None:
    """The helper alone is root's; the store's upgrade is the controller's work."""
    user, state = USERS[unit.name]

    assert values(unit, "User") == values(unit, "Group") == [user] * bool(user)
    assert values(unit, "StateDirectory") == [state] * bool(state)
    made = [file.read_text("utf-8") for file in (ROOT / "systemd").glob("*.sysusers")]
    assert sum(text.count(f"\nu {user} ") for text in made) == bool(user)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_no_unit_sees_passwords_or_states_of_others(unit: Path) -> None:
    """tests/integration/test_separation.py looks, in each sandbox, on a machine that has booted."""
    own = USERS[unit.name][0]
    states = {f"/var/lib/{state}" for user, state in USERS.values() if user not in ("", own) and "/" not in state}
    if unit.name == "trimtab-job@.service":
        states.remove("/var/lib/trimtab")  # files of environments are there, for its programs

    assert {*SECRETS, *states} <= set(values(unit, "InaccessiblePaths"))


@pytest.mark.parametrize("name", ["agent", "controller", "portal"])
def test_a_daemon_outlives_a_process_of_its_own_that_was_too_large(name: str) -> None:
    """Memory is bounded, and systemd does not end the whole unit because the kernel has ended one process of it."""
    unit = ROOT / f"systemd/trimtab-{name}.service"

    assert len(values(unit, "MemoryMax")) == 1
    assert values(unit, "OOMPolicy") == ["continue"]


def test_exposure_is_measured(analyze: str, tmp_path: Path) -> None:
    """Given a unit without any restriction, when measured, then it is far above."""
    unit = tmp_path / "open.service"
    unit.write_text("[Service]\nExecStart=/bin/true\n")

    assert exposure(analyze, unit) > 2 * EXPOSURE_MAX


def test_every_file_for_systemd_is_documented() -> None:
    """docs/reference/files.md says where each goes."""
    text = (ROOT / "docs/reference/files.md").read_text("utf-8")

    assert [file.name for file in sorted((ROOT / "systemd").glob("*.*")) if file.name not in text] == []


def test_the_rules_are_those_that_errors_name() -> None:
    """A denial names files that are there, and their user."""
    rules = (ROOT / "systemd" / systemd.RULES_FILE).read_text("utf-8")

    assert systemd.ACTION in rules
    assert 'subject.user != "trimtab"' in rules
    assert (ROOT / "systemd" / systemd.DBUS_FILE).exists()


def test_only_the_documented_patterns_are_allowed() -> None:
    """docs/reference/permissions.md has what the rules let the agent control: no unit of Trimtab or of the system."""
    rules = (ROOT / "systemd" / systemd.RULES_FILE).read_text("utf-8")
    patterns = re.findall(r'"([^"]*\*[^"]*\.service)"', rules)

    assert patterns
    page = (ROOT / "docs/reference/permissions.md").read_text("utf-8")
    assert [pattern for pattern in patterns if f"`{pattern}`" not in page] == []
    for unit in ("trimtab-agent.service", "trimtab-helper@1.service", "ssh.service", "systemd-logind.service"):
        assert not any(fnmatchcase(unit, pattern) for pattern in patterns)


def test_the_socket_is_where_the_agent_looks_for_it() -> None:
    socket = (ROOT / "systemd/trimtab-helper.socket").read_text("utf-8")

    assert f"ListenStream={SetupKeys().helper}\n" in socket
    assert "SocketMode=0660\n" in socket
    assert "SocketGroup=trimtab\n" in socket


@pytest.mark.parametrize("name", ["agent", "controller", "portal"])
def test_a_reload_checks_the_file_first(name: str) -> None:
    """So `systemctl reload` fails where the file is wrong, and the daemon is not told."""
    text = (ROOT / f"systemd/trimtab-{name}.service").read_text("utf-8")
    check, told = re.findall(r"^ExecReload=(.+)$", text, re.MULTILINE)
    (start,) = re.findall(r"^ExecStart=(.+)$", text, re.MULTILINE)
    program, _, options = start.partition(" ")
    assert (check, told) == (f"{program} --check {options}", "/bin/kill -HUP $MAINPID")


def test_polkit_finds_the_agents_user_in_the_group_of_libvirt(tmp_path: Path) -> None:
    """Debian's rule asks the user database; a group that a unit adds does not count there."""
    need_programs(["systemd-sysusers"], ["systemd"])
    (tmp_path / "etc").mkdir()
    rules = ROOT / "systemd/trimtab-agent.sysusers"
    subprocess.run(["systemd-sysusers", f"--root={tmp_path}", str(rules)], check=True, timeout=60.0)

    groups = (tmp_path / "etc/group").read_text("utf-8").splitlines()
    (members,) = [line.split(":")[3] for line in groups if line.startswith("libvirt:")]
    assert members == "trimtab"
