"""Talks to HAProxy: to the worker that serves, through its runtime API, and to the master above it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from shared.base.clock import SystemClock
from shared.base.errors import TransientError

CALLS_MAX = 8  # HAProxy takes ten connections to its runtime API at a time
LINE_BYTES_MAX = 1 << 20
READ_BYTES = 1 << 16
LOOK_S = 0.02  # between two looks at how far a reload is
_CLOCK = SystemClock()


class Runtime:
    """One of HAProxy's sockets. A call is one connection and, up to a mebibyte of commands, one round trip."""

    def __init__(self, path: str, limit_s: float) -> None:
        self.path, self._limit_s = path, limit_s
        self._calls = threading.BoundedSemaphore(CALLS_MAX)

    def ask(self, commands: Sequence[str]) -> str:
        """Carry out commands in order and return HAProxy's output. Raises TransientError when it cannot be reached or
        does not answer within `limit_s`."""
        try:
            with self._calls:
                return "".join(self._call(line) for line in _lines(commands))
        except OSError as error:
            raise TransientError(f"HAProxy does not answer on {self.path}: {error.strerror or error}") from error

    def _call(self, line: bytes) -> str:
        until_s = _CLOCK.monotonic_s() + self._limit_s
        printed = bytearray()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(self._limit_s)
            connection.connect(self.path)
            connection.sendall(line)
            connection.shutdown(socket.SHUT_WR)
            while some := connection.recv(READ_BYTES):
                printed += some
                if (left_s := until_s - _CLOCK.monotonic_s()) <= 0.0:
                    raise TimeoutError("timed out")
                connection.settimeout(left_s)
        return printed.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Processes:
    """What the master says of itself: how often it was asked to reload, how often it has failed to since it last
    could, its worker's process (0: there is none) and those that only finish what they have begun."""

    reloads: int
    failed: int
    worker: int
    leaving: tuple[int, ...]


class Master:
    """HAProxy's master process."""

    def __init__(self, path: str, limit_s: float, reload_limit_s: float) -> None:
        self._runtime, self._reload_limit_s = Runtime(path, limit_s), reload_limit_s

    def processes(self) -> Processes:
        """Raises TransientError when the master cannot be reached, or answers something else."""
        return parse_processes(self._runtime.ask(["show proc"]))

    def ask(self, process: int, command: str) -> str:
        """Return the output of one of its workers."""
        return self._runtime.ask([f"@!{process} {command}"])

    def reload(self, serves: Callable[[int], bool]) -> bool:
        """Reload the configuration, and wait until `serves(process)` is true for the new worker; return false when
        HAProxy rejects it and continues as before. Raises TransientError when the result is unknown in time."""
        before = self.processes()
        self._runtime.ask(["reload"])
        until_s = _CLOCK.monotonic_s() + self._reload_limit_s
        while _CLOCK.monotonic_s() < until_s:
            _CLOCK.sleep(LOOK_S)
            try:
                now = self.processes()
                if now.reloads > before.reloads and now.failed:
                    return False
                if now.reloads > before.reloads and now.worker != before.worker and serves(now.worker):
                    return True
            except TransientError:
                continue  # it begins anew at this moment
        raise TransientError(f"HAProxy has not reloaded within {self._reload_limit_s:g} s")


def parse_processes(printed: str) -> Processes:
    """Parse the answer to `show proc`. Raises TransientError when it is not one."""
    part, reloads, failed = "", -1, 0
    found: dict[str, list[int]] = {"# workers": [], "# old workers": []}
    for line in printed.splitlines():
        words = line.split()
        if line.startswith("#"):
            part = line.strip()
        elif len(words) >= 5 and words[1] == "master" and words[2].isdigit() and words[4].rstrip("]").isdigit():
            reloads, failed = int(words[2]), int(words[4].rstrip("]"))
        elif len(words) >= 2 and words[1] == "worker" and words[0].isdigit():
            found.setdefault(part, []).append(int(words[0]))
    if reloads < 0:
        raise TransientError(f"HAProxy's master answers {printed[:200]!r}")
    worker = next(iter(found["# workers"]), 0)
    return Processes(reloads, failed, worker, tuple(found["# old workers"]))


def _lines(commands: Sequence[str]) -> Iterator[bytes]:
    """Commands in lines, as many in each as HAProxy is given at a time."""
    line: list[str] = []
    length = 0
    for command in commands:
        if line and length + len(command) + 1 > LINE_BYTES_MAX:
            yield (";".join(line) + "\n").encode()
            line, length = [], 0
        line.append(command)
        length += len(command) + 1
    if line:
        yield (";".join(line) + "\n").encode()
