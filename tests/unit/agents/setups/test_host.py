"""How an agent sets its own host up for real: with configured programs and no others, within a limit, one at a time."""

from __future__ import annotations

import fcntl
import os
import sys
import threading
from pathlib import Path

import pytest

from agents.collectors.system import os_of
from agents.service.main import shape_of
from agents.setups.host import OtherSetups, OwnSetups
from shared.base.clock import SystemClock
from shared.base.errors import InvalidInput
from shared.config import toml
from shared.config.agent import AgentConfig, SetupCommand, SetupKeys
from shared.ports.effects import HostSetUp
from shared.values.host_setup import Setup, SetupPolicy
from shared.values.nodes import Node, SetupStep

WIPE = Setup(SetupPolicy.WIPE, limit_s=30.0)
RUN = (sys.executable, "-c")


def prepare(limit_s: float = 30.0) -> Setup:
    """A setup with the command `prepare`."""
    return Setup(SetupPolicy.EXEC, "prepare", limit_s)


def setups(tmp_path: Path, *wipe: str, prepare: str = "", limit_s: float = 600.0) -> OwnSetups:
    """Node n1 with Python texts for its programs."""
    commands = {"prepare": SetupCommand((*RUN, prepare, "{environment}", "{node}-{step}"), limit_s)} if prepare else {}
    keys = SetupKeys(tuple((*RUN, text) for text in wipe), 600.0, commands)
    return OwnSetups("n1", keys, tmp_path / "lock")


def carry_out(own: OwnSetups, setup: Setup, step: SetupStep = SetupStep.ACQUIRE) -> HostSetUp:
    """For environment `batch`."""
    return own.set_up("u1", "batch", step, setup)


def test_a_command_gets_the_words_and_what_it_prints_is_kept(tmp_path: Path) -> None:
    text = "import os, sys; print(sys.argv[1:], os.environ['TRIMTAB_STEP'], os.environ['TRIMTAB_ENVIRONMENT'])"

    done = carry_out(setups(tmp_path, prepare=text), prepare())

    assert done == HostSetUp("u1", True, "['batch', 'n1-acquire'] acquire batch")


def test_a_command_sees_nothing_else_of_the_agents_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/x")
    own = setups(tmp_path, prepare="import os; print('NOTIFY_SOCKET' in os.environ, os.environ['TRIMTAB_NODE'])")

    assert carry_out(own, prepare()).output == "False n1"


def test_a_wipe_is_all_its_programs_in_order_until_one_fails(tmp_path: Path) -> None:
    assert carry_out(setups(tmp_path, "print(1)", "print(2)"), WIPE) == HostSetUp("u1", True, "1\n2")

    failed = carry_out(setups(tmp_path, "import sys; sys.exit('busy')", f"open({str(tmp_path / 'x')!r}, 'w')"), WIPE)

    assert not failed.ok
    assert "exit status 1: busy" in failed.output
    assert not (tmp_path / "x").exists()


def test_what_is_not_configured_is_refused_and_nothing_is_run(tmp_path: Path) -> None:
    bare = setups(tmp_path)

    assert carry_out(bare, WIPE) == HostSetUp("u1", False, "no wipe command is configured")
    assert carry_out(bare, prepare()).output == "no setup command 'prepare' is configured; there are: none"
    assert carry_out(bare, Setup()) == HostSetUp("u1", True)
    other = carry_out(setups(tmp_path, prepare="0"), Setup(SetupPolicy.EXEC, "rm"))
    assert other.output.endswith("there are: prepare")


def test_a_program_that_is_not_there_is_an_answer(tmp_path: Path) -> None:
    own = OwnSetups("n1", SetupKeys((("/nowhere/wipe",),)), tmp_path / "lock")

    assert "cannot be run" in carry_out(own, WIPE).output


@pytest.mark.parametrize(("agreed_s", "own_s"), [(0.5, 600.0), (600.0, 0.5)])
def test_the_smaller_limit_ends_a_program_with_all_that_it_started(
    tmp_path: Path, agreed_s: float, own_s: float
) -> None:
    child = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(__import__('os').getpid())); import time; time.sleep(600)"
    text = f"import subprocess, sys; print('busy', flush=True); subprocess.run([sys.executable, '-c', {child!r}])"

    done = carry_out(setups(tmp_path, prepare=text, limit_s=own_s), prepare(agreed_s))

    assert not done.ok
    assert "killed after" in done.output
    if (tmp_path / "pid").exists():
        pid = int((tmp_path / "pid").read_text() or "0")
        until_s = SystemClock().monotonic_s() + 10.0
        while pid and Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
            assert SystemClock().monotonic_s() < until_s


def test_what_an_earlier_process_began_is_waited_for(tmp_path: Path) -> None:
    own = setups(tmp_path, "print('wiped')")
    fd = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)

    late = carry_out(own, Setup(SetupPolicy.WIPE, limit_s=0.3))
    assert late == HostSetUp("u1", False, "an earlier setup of this host goes on")
    threading.Timer(0.4, os.close, (fd,)).start()
    assert carry_out(own, WIPE).output == "wiped"


def test_what_a_setup_left_running_keeps_the_next_one_out(tmp_path: Path) -> None:
    left = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1.2)'], "
    left += "stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False)"
    own = setups(tmp_path, left)
    assert carry_out(own, WIPE).ok

    assert "goes on" in carry_out(own, Setup(SetupPolicy.WIPE, limit_s=0.3)).output


def test_a_lock_that_cannot_be_made_is_an_answer(tmp_path: Path) -> None:
    own = OwnSetups("n1", SetupKeys((("true",),)), tmp_path / "none" / "lock")

    assert not carry_out(own, WIPE).ok


def test_a_machine_elsewhere_is_never_set_up_from_here() -> None:
    other = OtherSetups()

    assert other.set_up("u1", "batch", SetupStep.RELEASE, Setup()).ok
    assert "not this machine" in other.set_up("u1", "batch", SetupStep.RELEASE, WIPE).output


# --- configuration --------------------------------------------------------------------------------------------------


def test_programs_come_from_the_agents_file(tmp_path: Path) -> None:
    text = """
    [setup]
    wipe = [["find", "/srv", "-delete"], ["sync"]]
    [setup.commands.prepare]
    run = ["systemctl", "start", "x@{environment}"]
    limit_s = 60
    """
    keys = toml.parse(text, AgentConfig).setup

    assert keys.wipe == (("find", "/srv", "-delete"), ("sync",))
    assert keys.commands["prepare"] == SetupCommand(("systemctl", "start", "x@{environment}"), 60.0)
    with pytest.raises(InvalidInput, match=r"setup\.wipe\[0\]: is empty.*\n?.*setup\.commands\.p\.run: is empty"):
        OwnSetups("n1", SetupKeys(((),), commands={"p": SetupCommand(())}), tmp_path / "lock")


# --- the operating system -------------------------------------------------------------------------------------------


def test_the_system_is_told_by_its_own_file_or_not_at_all() -> None:
    def missing() -> dict[str, str]:
        raise OSError("no os-release")

    assert os_of(lambda: {"ID": "debian", "VERSION_ID": "12", "NAME": "Debian"}) == ("debian", "12")
    assert os_of(lambda: {"ID": "arch"}) == ("arch", "")
    assert os_of(missing) == ("", "")


def test_the_system_is_in_the_inventory() -> None:
    found = Node("host", 4, 2_000.0, memory_mib=8_000, os_type="alpine", os_version="3")

    own = shape_of(AgentConfig(), "n1", (), ("debian", "12"))(found)
    assert (own.os_type, own.os_version) == ("debian", "12")
    own = shape_of(AgentConfig(), "n1", (), ("arch", ""))(found)
    assert (own.os_type, own.os_version) == ("arch", "")
    other = shape_of(AgentConfig(), "n1")(found)
    assert (other.os_type, other.os_version) == ("alpine", "3")
