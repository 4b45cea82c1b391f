"""Runs programs of the fence-agents package by their common interface.

Options are lines `key=value` on standard input, never arguments: a password is in no list of processes. Exit status 0
is success and 1 failure; of `status`, 0 is on and 2 is off ("Fence Agent API" of the ClusterLabs project).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from shared.base.printable import one_line
from shared.runtime import subprocesses
from shared.runtime.subprocesses import Ended

FOLDER = "/usr/sbin"  # of the package; the PATH of a service or of a user may lack it
PASSED_ON = ("HOME", "TZ")
PRINTED_BYTES_MAX = 65_536  # the metadata of an agent are about 10 KiB
PRINTED_LENGTH_MAX = 400  # characters of its output that a failure repeats: it says all that is wrong with options
SUCCESS, FAILURE, IS_OFF = 0, 1, 2
# What the package puts before each message: by its own log, or by Python's before that is set up.
_LOGGED = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+: |[A-Z]+:root:)")
_ALWAYS_SAID = frozenset({"", "Please use '-h' for usage"})


class PowerState(StrEnum):
    """What a fence device says of a node's power."""

    ON = "on"
    OFF = "off"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Reading:
    """The power state of a node by one method; `detail`: what is wrong, for an error."""

    state: PowerState
    detail: str = ""


@dataclass(frozen=True, slots=True)
class FenceAgent:
    """A program of the fence-agents package; each run takes at most `limit_s` seconds."""

    program: str
    limit_s: float

    def run(self, action: str, options: Mapping[str, str], password: str = "") -> Ended:
        """Run one action. The password is replaced in what the program printed. Raises TransientError when the program
        cannot be started."""
        lines = {**options, **({"password": password} if password else {}), "action": action}
        variables = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        variables |= {"PATH": search_path(), "LC_ALL": "C", "PYTHONWARNINGS": "ignore"}
        reads = "".join(f"{key}={value}\n" for key, value in lines.items()).encode()
        ended = subprocesses.run(
            (self.program,), self.limit_s, variables, reads=reads, printed_bytes_max=PRINTED_BYTES_MAX
        )
        printed = ended.printed.replace(password, "***") if password else ended.printed
        return Ended(ended.ok, _described(ended, printed, self.limit_s), ended.status, printed)

    def read_power(self, options: Mapping[str, str], password: str = "") -> Reading:
        """Return whether a node is on or off. Raises TransientError when the program cannot be started."""
        ended = self.run("status", options, password)
        if ended.status == SUCCESS:
            return Reading(PowerState.ON)
        if ended.status == IS_OFF:
            return Reading(PowerState.OFF)
        return Reading(PowerState.ERROR, ended.detail)


def search_path() -> str:
    """Return the folders in which agents, and the programs that they call, are looked up."""
    return os.pathsep.join((os.environ.get("PATH", os.defpath), FOLDER))


def locate(agent: str) -> str:
    """Return the path of an agent's program ("": there is no such program that this process may execute)."""
    return shutil.which(agent, path=search_path()) or ""


def _described(ended: Ended, printed: str, limit_s: float) -> str:
    """Return how a run ended, with the end of what it printed on one line."""
    if ended.status is None:
        how = f"killed after {limit_s:g} s"
    elif ended.status < 0:
        how = f"ended by signal {-ended.status}"
    else:
        how = f"exit status {ended.status}"
    said = one_line(" ".join(_messages(printed)))
    return f"{how}: {said[-PRINTED_LENGTH_MAX:]}" if said else how


def _messages(printed: str) -> list[str]:
    """Return what an agent said, each message once: without the times of its log, which would push the reason out of
    the end that is repeated, and without what it says at each failure."""
    messages = (_LOGGED.sub("", " ".join(line.split())) for line in printed.splitlines())
    return [message for message in dict.fromkeys(messages) if message not in _ALWAYS_SAID]
