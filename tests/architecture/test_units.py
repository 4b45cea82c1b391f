"""The systemd files: how exposed each unit is, and that documents and rules speak of the same ones."""

from __future__ import annotations

import os
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


def cycles(analyze: str, folder: Path, **more: str) -> list[str]:
    """What systemd says of cycles when a machine boots with all our units, with libvirt, its slice and a machine of it,
    and with `more` units."""
    texts = {unit.name: unit.read_text("utf-8") for unit in UNITS} | more
    texts["machine.slice"] = "[Unit]\nBefore=slices.target\n"  # as systemd has it
    texts["trimtab.slice"] = "[Unit]\nBefore=slices.target\n"  # with limits of an operator's
    texts["vm.service"] = "[Unit]\nAfter=libvirtd.service\n[Service]\nExecStart=x\nSlice=machine.slice\n"
    texts["libvirtd.service"] = texts["virtqemud.service"] = "[Service]\nExecStart=x\n"
    texts["libvirt-guests.service"] = "[Unit]\nAfter=libvirtd.service\n[Service]\nExecStart=x\n"
    wanted = [name.replace("@.", "@1.") for name in texts]
    wanted += ["basic.target", "sysinit.target", "slices.target", "remote-fs.target", "network-online.target"]
    texts["boot.target"] = f"[Unit]\nWants={' '.join(wanted)}\nAfter={' '.join(wanted)}\n"
    for name, text in texts.items():
        commands = re.sub(r"^(Exec\w+)=.*$", r"\1=/bin/true", text, flags=re.MULTILINE)
        (folder / name).write_text(commands)
    said = subprocess.run(
        [analyze, "--man=no", "verify", "boot.target"],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{folder}:"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60.0,
    )
    return [line for line in said.stderr.splitlines() if "cycle" in line]


def test_a_machine_that_boots_starts_all_units_in_an_order(analyze: str, tmp_path: Path) -> None:
    """A cycle would make systemd leave out one of the units at each boot, whichever."""
    assert cycles(analyze, tmp_path) == []


@pytest.mark.parametrize("slice_", ["machine.slice", "trimtab.slice"])
def test_a_service_that_is_to_start_before_a_slice_closes_a_cycle(analyze: str, tmp_path: Path, slice_: str) -> None:
    assert cycles(analyze, tmp_path, **{"early.service": f"[Unit]\nBefore={slice_}\n[Service]\nExecStart=x\n"})


def test_programs_and_daemons_stop_before_the_lease_is_released() -> None:
    assert "trimtab-lease.service" in values(ROOT / "systemd/trimtab-job@.service", "After")
    daemons = {"trimtab-agent.service", "libvirtd.service", "virtqemud.service", "libvirt-guests.service"}
    assert daemons <= set(values(ROOT / "systemd/trimtab-lease.service", "Before"))


class SleepingHost:
    """A host with the hook of systemd-sleep, and a systemctl that writes down what it is told."""

    def __init__(self, folder: Path, is_active: bool) -> None:
        self._folder = folder
        (folder / "run").mkdir()
        text = (ROOT / "systemd/debian/trimtab-agent/lease-sleep").read_text("utf-8")
        assert text.count("=/run/") == 1
        (folder / "hook").write_text(text.replace("=/run/", f"={folder}/run/"))
        (folder / "systemctl").write_text(
            f'#!/bin/sh\ncd {folder}\ncase "$*" in\n'
            "  *is-active*) test -e active ;;\n"
            "  *is-enabled*) true ;;\n"
            "  *) echo $* >> told ;;\nesac\n"
        )
        (folder / "systemctl").chmod(0o755)
        if is_active:
            (folder / "active").touch()

    def tell(self, when: str) -> list[str]:
        """Call the hook; return what it told systemctl."""
        path = f"{self._folder}:{os.environ['PATH']}"
        told = self._folder / "told"
        told.write_text("")
        command = ["sh", str(self._folder / "hook"), when, "suspend"]
        subprocess.run(command, env={"PATH": path}, check=True, timeout=60.0)
        return told.read_text().splitlines()


def test_a_lease_that_was_held_before_a_sleep_is_held_after_it(tmp_path: Path) -> None:
    host = SleepingHost(tmp_path, is_active=True)
    assert host.tell("pre") == ["stop trimtab-lease.service"]
    assert host.tell("post") == ["--no-block start trimtab-lease.service"]
    assert host.tell("post") == []


def test_a_lease_that_its_operator_has_stopped_stays_so_after_a_sleep(tmp_path: Path) -> None:
    """Also where the host has slept before, and has not woken in order."""
    host = SleepingHost(tmp_path, is_active=True)
    host.tell("pre")
    (tmp_path / "active").unlink()
    assert host.tell("pre") == []
    assert host.tell("post") == []


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
