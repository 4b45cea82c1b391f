"""How an agent puts its own host to sleep for real, and by which addresses the host may be woken."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from agents.collectors.network import ADDRESSES_MAX, mac_addresses
from agents.power.host import ASK_LIMIT_S, COMMANDS, SLEEP_LIMIT_S, OtherHost, OwnHost, ask_system
from agents.service.main import is_here, shape_of
from shared.base.clock import ManualClock, suspended_s
from shared.config.agent import AgentConfig, AgentTimeouts, NodeFacts, NodeType
from shared.ports.effects import SleepEnded
from shared.values.migration_terms import MigrationBounds
from shared.values.nodes import Node, SleepMode
from sim_backend.fakes.hypervisor import FakeHypervisor


class Machine:
    """A machine that sleeps `after_s` seconds after it was asked to, once."""

    def __init__(self, after_s: float = float("inf"), why: str = "") -> None:
        self.clock = ManualClock(1_000.0)
        self.after_s, self.why = after_s, why
        self.asked: list[tuple[tuple[str, ...], float]] = []
        self.host = OwnHost(self._ask, self._suspended_s, self.clock)

    def _ask(self, command: Sequence[str], limit_s: float) -> str:
        self.asked.append((tuple(command), limit_s))
        return self.why

    def _suspended_s(self) -> float:
        """It had slept for 77 s before, and sleeps for an hour now."""
        return 77.0 + (3_600.0 if self.asked and self.clock.monotonic_s() >= 1_000.0 + self.after_s else 0.0)


@pytest.mark.parametrize(("mode", "verb"), [(SleepMode.SUSPEND, "suspend"), (SleepMode.OFF, "poweroff")])
def test_the_system_is_asked_once_and_the_answer_comes_after_the_sleep(mode: SleepMode, verb: str) -> None:
    machine = Machine(after_s=2.0)

    assert machine.host.sleep(mode) == SleepEnded(True)

    assert machine.asked == [(COMMANDS[mode], ASK_LIMIT_S)]
    assert COMMANDS[mode][-1] == verb
    assert 1_002.0 <= machine.clock.monotonic_s() < 1_003.0


def test_a_system_that_refuses_is_the_answer() -> None:
    machine = Machine(why="Access denied")

    assert machine.host.sleep(SleepMode.SUSPEND) == SleepEnded(False, "Access denied")
    assert machine.clock.monotonic_s() == 1_000.0


def test_a_system_that_agrees_and_stays_awake_is_given_up() -> None:
    machine = Machine()

    ended = machine.host.sleep(SleepMode.SUSPEND)

    assert not ended.ok
    assert "still awake" in ended.detail
    assert SLEEP_LIMIT_S <= machine.clock.monotonic_s() - 1_000.0 < SLEEP_LIMIT_S + 1.0


def test_an_earlier_sleep_does_not_count() -> None:
    assert not Machine(after_s=float("inf")).host.sleep(SleepMode.OFF).ok


def test_a_host_elsewhere_is_never_put_to_sleep_from_here() -> None:
    assert not OtherHost().sleep(SleepMode.OFF).ok
    here = object()  # a driver that knows nothing of boots: its host is the one that this process runs on
    assert is_here(here, "qemu:///system")
    assert is_here(here, "qemu+unix:///system?socket=/run/x")
    assert not is_here(here, "qemu+ssh://root@other/system")
    assert not is_here(FakeHypervisor(), "")


def test_commands_are_run_with_a_limit_and_their_words_kept() -> None:
    run = [sys.executable, "-c"]
    assert ask_system([*run, "print('fine')"], 30.0) == ""
    assert ask_system([*run, "import sys; print('no'); print('really', file=sys.stderr); sys.exit(1)"], 30.0) in (
        "exit status 1: no\nreally",
        "exit status 1: really\nno",
    )
    assert ask_system([*run, "import sys; sys.exit(4)"], 30.0) == "exit status 4"
    assert "killed after 0.5 s" in ask_system([*run, "import time; time.sleep(600)"], 0.5)
    assert "cannot be run" in ask_system(["/nowhere/systemctl"], 1.0)


def test_time_spent_suspended_is_told() -> None:
    assert suspended_s() >= -0.01


# --- addresses ------------------------------------------------------------------------------------------------------


def card(root: Path, name: str, address: str, *, real: bool = True, wakes: str = "", bonded: str = "") -> None:
    """A network interface as the kernel shows it."""
    folder = root / name
    (folder / "device" / "power").mkdir(parents=True) if real else folder.mkdir()
    (folder / "address").write_text(address + "\n")
    if wakes:
        (folder / "device" / "power" / "wakeup").write_text(wakes + "\n")
    if bonded:
        (folder / "bonding_slave").mkdir()
        (folder / "bonding_slave" / "perm_hwaddr").write_text(bonded + "\n")


def test_addresses_are_those_of_cards_those_that_wake_the_host_first(tmp_path: Path) -> None:
    card(tmp_path, "eth0", "02:00:00:00:00:01", wakes="disabled")
    card(tmp_path, "eth1", "02:00:00:00:00:02", wakes="enabled")
    card(tmp_path, "eth2", "02:00:00:00:00:0A")
    card(tmp_path, "lo", "00:00:00:00:00:00", real=False)
    card(tmp_path, "virbr0", "52:54:00:00:00:01", real=False)
    card(tmp_path, "ib0", "80:00:02:08:fe:80:00:00:00:00:00:00:e4:1d:2d:03:00:e7:1b:a1")
    card(tmp_path, "odd0", "ff:ff:ff:ff:ff:ff")
    card(tmp_path, "wrong0", "00:00:00:00:00:00")

    assert mac_addresses(str(tmp_path)) == ("02:00:00:00:00:02", "02:00:00:00:00:01", "02:00:00:00:00:0a")


def test_a_card_in_a_bond_is_woken_by_its_own_address(tmp_path: Path) -> None:
    card(tmp_path, "eth0", "02:00:00:00:00:09", bonded="02:00:00:00:00:01")
    card(tmp_path, "eth1", "02:00:00:00:00:09", bonded="02:00:00:00:00:02")

    assert mac_addresses(str(tmp_path)) == ("02:00:00:00:00:01", "02:00:00:00:00:02")


def test_addresses_are_bounded_and_may_be_missing(tmp_path: Path) -> None:
    assert mac_addresses(str(tmp_path / "none")) == ()
    for number in range(ADDRESSES_MAX + 5):
        card(tmp_path, f"eth{number:02}", f"02:00:00:00:00:{number:02x}")
    (tmp_path / "eth00" / "address").unlink()

    assert len(mac_addresses(str(tmp_path))) == ADDRESSES_MAX


def test_type_and_addresses_are_in_the_inventory() -> None:
    config = AgentConfig(node=NodeFacts(name="n1", type="big"), node_types={"big": NodeType()})
    found = Node("host", 4, 2_000.0, memory_mib=8_000, node_type="", mac_addresses=("02:00:00:00:00:07",))

    own = shape_of(config, "n1", ("02:00:00:00:00:01",))(found)
    assert (own.node_type, own.mac_addresses) == ("big", ("02:00:00:00:00:01",))

    mac = ("02:00:00:00:00:09",)
    other = shape_of(AgentConfig(), "n1")(Node("host", 4, 2_000.0, memory_mib=8_000, node_type="t", mac_addresses=mac))
    assert (other.node_type, other.mac_addresses) == ("t", mac)


@pytest.mark.parametrize(("own_s", "driver_s", "reported_s"), [(600.0, 300.0, 300.0), (60.0, 300.0, 60.0)])
def test_the_agent_s_own_time_limit_bounds_migrations_too(own_s: float, driver_s: float, reported_s: float) -> None:
    config = AgentConfig(timeouts=AgentTimeouts(own_s))
    found = Node("host", 4, 2_000.0, memory_mib=8_000, migration_bounds=MigrationBounds(driver_s, 500, 70))
    assert shape_of(config, "n1")(found).migration_bounds == MigrationBounds(reported_s, 500, 70)
