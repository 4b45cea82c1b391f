"""A service processor with IPMI for tests: OpenIPMI's `ipmi_sim`, which speaks IPMI 2.0 over UDP (lanplus).

A program of ours is its chassis: the power of the machine is in a file.

It does not list its cipher suites. `ipmitool` waits ten seconds for that unless it is told one; the simulator knows
number 3.
"""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shared.base.clock import SystemClock
from tests.ports import free_port

CIPHER = "3"
LOOPBACK = "127.0.0.1"
START_S = 20.0
PING, PING_WAIT_S = bytes.fromhex("0600ff06000011be80000000"), 0.2  # RMCP presence ping: is anybody there?
CLOCK = SystemClock()

# How it is reached, and who may do what.
_LAN = """name "bmc"
set_working_mc 0x20
  startlan 1
    addr {address} {port}
    priv_limit admin
    allowed_auths_callback none md2 md5 straight
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control "{chassis}"
  user 1 true "" "" user 10 none md2 md5 straight
  user 2 true "{username}" "{password}" operator 10 none md2 md5 straight
"""
_COMMANDS = """mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
mc_enable 0x20
"""
_CHASSIS = """#!/bin/sh
cd '{folder}' || exit 1
while [ $# -gt 0 ]; do
  case $1 in
    get) echo "$2:$(cat power)"; shift 2 ;;
    set) [ "$2" = power ] && [ ! -e ignores ] && echo "$3" >power; shift 3 ;;
    *) exit 1 ;;
  esac
done
"""


@dataclass(frozen=True, slots=True)
class Bmc:
    """The device. Its folder has the power, `1` or `0`."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def is_on(self) -> bool:
        """Whether the machine has power."""
        return (self.folder / "power").read_text().strip() == "1"

    def ignore(self) -> None:
        """From now on, take every command to switch and do nothing."""
        (self.folder / "ignores").touch()

    def hang(self) -> None:
        """From now on, answer nothing."""
        self.process.send_signal(signal.SIGSTOP)


@contextmanager
def ipmi_simulator(folder: Path, username: str, password: str) -> Iterator[Bmc]:
    """A device on a free port of 127.0.0.1, whose machine is on; the account may switch the power (`operator`). No
    spaces and quotation marks in the password."""
    (folder / "state").mkdir(parents=True)
    port = free_port()
    chassis = folder / "chassis"
    chassis.write_text(_CHASSIS.format(folder=folder))
    chassis.chmod(0o755)
    (folder / "power").write_text("1")
    lan = _LAN.format(address=LOOPBACK, port=port, chassis=chassis, username=username, password=password)
    (folder / "lan.conf").write_text(lan)
    (folder / "commands").write_text(_COMMANDS)
    ends_with_us = ("setpriv", "--pdeathsig", "KILL", "--")
    command = (*ends_with_us, "ipmi_sim", "-n", "-c", "lan.conf", "-f", "commands", "-s", "state")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        until_s = CLOCK.monotonic_s() + START_S
        while not _is_there(port):
            runs = process.poll() is None and CLOCK.monotonic_s() < until_s
            assert runs, f"ipmi_sim does not answer: {(folder / 'log').read_text(errors='replace')}"
        yield Bmc(folder, port, process)
    finally:
        process.kill()
        process.wait(5.0)


def _is_there(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.settimeout(PING_WAIT_S)
        asked.connect((LOOPBACK, port))
        try:
            asked.send(PING)
            return bool(asked.recv(64))
        except ConnectionRefusedError:
            CLOCK.sleep(PING_WAIT_S)
            return False
        except TimeoutError:
            return False
