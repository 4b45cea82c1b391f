"""The port of what runs programs: systemd, or cgroups of this process's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from agents.hypervisors.process.record import Usage


@dataclass(frozen=True, slots=True)
class Cpu:
    """weight: in proportion to those of others, in MHz. cores: at most so many CPUs' time at once."""

    weight_mhz: float
    cores: float


@dataclass(frozen=True, slots=True)
class Launch:
    """A program to be run. memory_mib: at most so much (0: no limit). paused: it is not to execute yet."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
    cpu: Cpu
    memory_mib: int
    paused: bool


@dataclass(frozen=True, slots=True)
class Exit:
    """How a program ended: `status` of exit(3), -N where signal N ended it, None where nobody saw it end."""

    status: int | None

    @property
    def detail(self) -> str:
        """The same in words."""
        if self.status is None:
            return "nobody saw how it ended"
        return f"exit status {self.status}" if self.status >= 0 else f"ended by signal {-self.status}"


class Runner(Protocol):
    """Runs programs by name, each with all that it starts. Everything survives the process that asks for it.

    Calls on different names may be made by several threads at once. All raise TransientError when it did not work, and
    what they were to change is then as it was, as far as can be.
    """

    def names(self) -> frozenset[str]:
        """Return the programs that were started and not removed, running or ended."""
        ...

    def output(self, name: str) -> str:
        """Return the folder that a program may write to; its output is kept there, in the file `output`."""
        ...

    def start(self, name: str, wanted: Launch) -> None:
        """Start a program; what it prints is added to its output."""
        ...

    def ended(self, name: str) -> Exit | None:
        """Return how the program ended; None while it exists."""
        ...

    def terminate(self, name: str) -> None:
        """Ask all its processes to end."""
        ...

    def freeze(self, name: str, frozen: bool) -> None:
        """Let none of its processes execute, or let all; the same again changes nothing."""
        ...

    def set_cpu(self, name: str, cpu: Cpu) -> None:
        """Change its share of the CPU."""
        ...

    def usage(self, name: str) -> Usage:
        """Return the program's usage; zero if it does not exist."""
        ...

    def remove(self, name: str) -> None:
        """End all its processes at once and forget it; fine when there is none. Its output stays."""
        ...

    def wait(self, timeout_s: float) -> frozenset[str]:
        """Block until programs may have ended, and return which, or until the time is over."""
        ...

    def wake(self) -> None:
        """Let `wait` return; from any thread."""
        ...
