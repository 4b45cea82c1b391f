"""The power drivers' own: packets, addresses, programs with their output and time limit."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from daemons.config.controller import PowerExec, PowerKeys
from daemons.drivers.power import make_driver
from daemons.drivers.power.exec import ExecPower, commands
from daemons.drivers.power.wake_on_lan import SENT_TIMES, WakeOnLan, magic_packet
from shared.base.clock import SystemClock
from shared.base.errors import InvalidInput, TransientError
from shared.runtime.subprocesses import OUTPUT_BYTES_MAX
from shared.values.nodes import PowerOperation
from shared.values.texts import is_mac

WAKE, FENCE = PowerOperation.WAKE, PowerOperation.FENCE
CARD = "02:aB:00:00:00:01"


# --- which driver ---------------------------------------------------------------------------------------------------


def test_a_driver_that_is_not_registered_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidInput, match=r"power\.driver: .*'ipmi'.*exec, none, wake-on-lan"):
        make_driver(PowerKeys(driver="ipmi"))


# --- wake-on-LAN ----------------------------------------------------------------------------------------------------


def test_every_card_of_the_node_gets_its_packets() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as caught:
        caught.bind(("127.0.0.1", 0))
        caught.settimeout(5.0)
        driver = WakeOnLan(PowerKeys(broadcast=f"127.0.0.1:{caught.getsockname()[1]}"))

        answer = driver.operate(WAKE, "n1", (CARD, "nonsense", "02-00-00-00-00-02"))

        packets = [caught.recv(1_000) for _ in range(2 * SENT_TIMES)]
    assert packets == [magic_packet(CARD)] * SENT_TIMES + [magic_packet("020000000002")] * SENT_TIMES
    assert answer.ok


def test_a_magic_packet_is_six_times_ff_and_sixteen_times_the_address() -> None:
    packet = magic_packet(CARD)

    assert len(packet) == 102
    assert packet == bytes.fromhex("ffffffffffff" + 16 * "02ab00000001")


def test_what_is_the_address_of_one_card() -> None:
    good = (CARD, "02-AB-00-00-00-01", "02ab00000001")
    bad = (
        "",
        "02:ab:00:00:00",
        "02:ab:00:00:00:01:02",
        "02:ab-00:00:00:01",
        "0g:00:00:00:00:01",
        "ff:ff:ff:ff:ff:ff",  # everyone
        "01:00:5e:00:00:01",  # a group
        "00:00:00:00:00:00",
        " 02:ab:00:00:00:01",
        "02:ab:00:00:00:01\n",
    )
    assert [is_mac(text) for text in good] == [True] * len(good)
    assert [text for text in bad if is_mac(text)] == []


@pytest.mark.parametrize("macs", [(), ("ff:ff:ff:ff:ff:ff",)])
def test_a_node_without_a_usable_address_cannot_be_woken(macs: tuple[str, ...]) -> None:
    answer = WakeOnLan(PowerKeys()).operate(WAKE, "n1", macs)

    assert not answer.ok
    assert "no hardware address of n1 is known" in answer.detail
    assert all(mac in answer.detail for mac in macs)


@pytest.mark.parametrize("broadcast", ["300.1.1.1", "10.0.0.255:0", "10.0.0.255:70000", "::1::2", "10.0.0"])
def test_a_broadcast_address_that_is_none_is_refused_at_the_start(broadcast: str) -> None:
    with pytest.raises(InvalidInput, match=r"power\.broadcast"):
        WakeOnLan(PowerKeys(broadcast=broadcast))


@pytest.mark.parametrize("broadcast", ["10.0.0.255", "10.0.0.255:7", "ff02::1"])
def test_addresses_with_and_without_a_port(broadcast: str) -> None:
    assert WakeOnLan(PowerKeys(broadcast=broadcast)).does == {WAKE}


def test_a_network_that_does_not_take_packets_is_trouble_that_passes() -> None:
    driver = WakeOnLan(PowerKeys(broadcast="2001:db8::1"))  # documentation: no route leads there
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("2001:db8::1", 9))
        except OSError:
            reachable = False
        else:
            reachable = True
    if reachable:
        assert driver.operate(WAKE, "n1", (CARD,)).ok
        return
    with pytest.raises(TransientError, match="2001:db8::1"):
        driver.operate(WAKE, "n1", (CARD,))


# --- exec -----------------------------------------------------------------------------------------------------------


def power(*wake: str, limit_s: float = 30.0) -> ExecPower:
    """A driver whose program for waking this is."""
    return ExecPower(PowerKeys(driver="exec", exec=PowerExec(wake=wake, limit_s=limit_s)))


def python(code: str) -> tuple[str, ...]:
    """A program of these lines."""
    return (sys.executable, "-c", code)


def test_it_does_what_it_has_commands_for() -> None:
    assert commands(PowerExec(wake=("w",), delink=("d", "x"))) == {
        WAKE: ("w",),
        PowerOperation.DELINK: ("d", "x"),
    }
    with pytest.raises(InvalidInput, match=r"power\.exec: has no command"):
        ExecPower(PowerKeys(driver="exec"))


def test_names_and_addresses_are_arguments_and_nothing_else() -> None:
    driver = power("/bin/echo", "{node}", "x{mac}y", "$HOME; rm {other} `id`")

    answer = driver.operate(WAKE, "n1", (CARD, "02:00:00:00:00:02"))

    assert answer.ok
    assert answer.detail == f"n1 x{CARD}y $HOME; rm {{other}} `id`"


def test_an_address_that_is_needed_and_not_known_is_a_failure() -> None:
    assert not power("/bin/echo", "{mac}").operate(WAKE, "n1", ()).ok
    assert power("/bin/echo", "{node}").operate(WAKE, "n1", ()).ok


def test_what_it_prints_on_both_streams_is_kept() -> None:
    answer = power("/bin/sh", "-c", "echo out; echo err >&2; exit 3").operate(WAKE, "n1", ())

    assert not answer.ok
    assert answer.detail == "exit status 3: out\nerr"


def test_only_the_end_of_much_output_is_kept() -> None:
    answer = power(*python("print('x' * 200_000 + 'é' * 3_000 + 'end')")).operate(WAKE, "n1", ())

    assert answer.ok
    assert answer.detail.endswith("ééend")
    assert OUTPUT_BYTES_MAX - 2 <= len(answer.detail.encode()) <= OUTPUT_BYTES_MAX


def test_fencing_is_proof_only_with_status_0() -> None:
    for status, ok in ((0, True), (1, False), (255, False)):
        driver = ExecPower(PowerKeys(exec=PowerExec(fence=("/bin/sh", "-c", f"exit {status}"))))
        assert driver.operate(FENCE, "n1", ()).ok is ok
    killed = ExecPower(PowerKeys(exec=PowerExec(fence=("/bin/sh", "-c", "kill -TERM $$"))))
    assert killed.operate(FENCE, "n1", ()).detail == "ended by signal 15"


def test_at_the_time_limit_the_whole_group_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 600 & echo $! > {pids}; echo begun; sleep 600; echo never"

    begun_s = SystemClock().monotonic_s()
    answer = power("/bin/sh", "-c", script, limit_s=1.0).operate(WAKE, "n1", ())

    assert SystemClock().monotonic_s() - begun_s < 20.0
    assert answer.detail == "killed after 1 s: begun"
    assert not answer.ok
    assert _is_gone(int(pids.read_text()))


def test_a_program_that_closes_its_output_and_stays_is_killed_too() -> None:
    answer = power(*python("import os, time\nos.close(1)\nos.close(2)\ntime.sleep(600)"), limit_s=1.5)
    assert answer.operate(WAKE, "n1", ()).detail == "killed after 1.5 s"


def test_what_it_leaves_in_the_background_is_not_waited_for(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    begun_s = SystemClock().monotonic_s()

    answer = power("/bin/sh", "-c", f"sleep 600 & echo $! > {pids}; echo done").operate(WAKE, "n1", ())

    assert (answer.ok, answer.detail) == (True, "done")
    assert SystemClock().monotonic_s() - begun_s < 20.0
    os.kill(int(pids.read_text()), 9)


def test_a_program_that_reads_gets_nothing() -> None:
    assert power("/bin/cat", limit_s=20.0).operate(WAKE, "n1", ()).ok


def test_a_program_that_is_not_there_is_trouble_that_passes(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for path in (tmp_path / "none", plain):
        with pytest.raises(TransientError, match="cannot be run"):
            power(str(path)).operate(WAKE, "n1", ())


def _is_gone(pid: int) -> bool:
    """Whether a process that was killed has ended, after a moment."""
    clock = SystemClock()
    until_s = clock.monotonic_s() + 10.0
    while not _has_ended(pid):
        if clock.monotonic_s() > until_s:
            return False
        clock.sleep(0.02)
    return True


def _has_ended(pid: int) -> bool:
    """An orphan may wait for someone to take note."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"
