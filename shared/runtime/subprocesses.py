"""Runs an operator's own programs: without a shell, in a process group of their own that is killed at the time limit.
Blocks its thread meanwhile."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from shared.base.clock import SystemClock
from shared.base.errors import ContractViolation, TransientError

OUTPUT_BYTES_MAX = 4096
READ_BYTES = 65_536
LOOK_S = 0.1  # how often it is looked whether the program has ended while it prints nothing
LAST_WORDS_S = 0.2  # how long after its end its output is waited for: a child in the background may hold it open
_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended: `ok` with status 0 in time. `detail`: why not, and the end of what it printed (4 KiB).
    `status`: its exit status, negative for the signal that ended it, None if it was killed at the time limit.
    `printed`: the end of what it printed, of the length that was asked for."""

    ok: bool
    detail: str = ""
    status: int | None = None
    printed: str = ""


def run(
    arguments: Sequence[str],
    limit_s: float,
    variables: Mapping[str, str] | None = None,
    keeps_open: Sequence[int] = (),
    reads: bytes = b"",
    printed_bytes_max: int = OUTPUT_BYTES_MAX,
) -> Ended:
    """Run a program for at most `limit_s`. `variables`: its environment (None: that of this process). `keeps_open`:
    file descriptors that it inherits. `reads`: its input, which is kept in memory and on no disk: it may be a secret.
    `printed_bytes_max`: how much of the end of its output is returned. Raises TransientError when it cannot be
    started."""
    try:
        process = _started(arguments, variables, keeps_open, reads)
    except OSError as error:
        raise TransientError(f"{arguments[0]} cannot be run: {error.strerror or error}") from error
    with process:
        output = process.stdout
        if output is None:
            raise ContractViolation("a pipe was asked for")
        try:
            printed, in_time = _listen(process, output, limit_s, printed_bytes_max)
        finally:
            if process.poll() is None:
                _kill(process)
        status = process.wait()
    said = printed.decode(errors="replace").strip()
    if not in_time:
        return Ended(False, _detail(f"killed after {limit_s:g} s", said), None, said)
    return Ended(status == 0, _detail("" if status == 0 else _ending(status), said), status, said)


def _started(
    arguments: Sequence[str], variables: Mapping[str, str] | None, keeps_open: Sequence[int], reads: bytes
) -> subprocess.Popen[bytes]:
    """Start the program. Its input is a file: a program that reads nothing would block a pipe."""
    with open(os.memfd_create("input"), "w+b") if reads else open(os.devnull, "rb") as given:
        given.write(reads) if reads else None
        given.seek(0)
        return subprocess.Popen(
            arguments,
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=None if variables is None else dict(variables),
            pass_fds=tuple(keeps_open),
        )


def _listen(process: subprocess.Popen[bytes], output: IO[bytes], limit_s: float, bytes_max: int) -> tuple[bytes, bool]:
    """Return the end of a program's output, and whether it ended before the limit without being stopped."""
    printed = b""
    until_s = _CLOCK.monotonic_s() + limit_s
    ended_by_itself = False
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while (left_s := until_s - _CLOCK.monotonic_s()) > 0.0:
            if selector.get_map() and selector.select(min(LOOK_S, left_s)):
                some = os.read(output.fileno(), READ_BYTES)
                printed = (printed + some)[-bytes_max:]
                if not some:
                    selector.unregister(output)
            elif not selector.get_map():
                return printed, _waits(process, left_s)
            if not ended_by_itself and process.poll() is not None:
                ended_by_itself = True
                until_s = min(until_s, _CLOCK.monotonic_s() + LAST_WORDS_S)
    return printed, ended_by_itself


def _waits(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Return whether a program that has closed its output ends within the limit."""
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a program with everything it has started, where that has not left its group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it has just ended by itself


def _ending(status: int) -> str:
    return f"exit status {status}" if status > 0 else f"ended by signal {-status}"


def _detail(what: str, said: str) -> str:
    """Return the description of a run, in at most 4 KiB."""
    text = f"{what}: {said}" if what and said else what or said
    if len(text.encode()) <= OUTPUT_BYTES_MAX:
        return text
    head = f"{what}: ... " if what else "... "
    room = OUTPUT_BYTES_MAX - len(head.encode())
    return head + said.encode()[-room:].decode(errors="ignore")
