"""Has an operator's own programs see to power: IPMI or Redfish, a switched socket, another scheduler's queue."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
from collections.abc import Sequence
from typing import IO

from shared.clock import SystemClock
from shared.config import PowerExec, PowerKeys
from shared.errors import ContractViolation, InvalidInput, Problem, TransientError
from shared.model import PowerOperation
from shared.ports import PowerAnswer

OUTPUT_BYTES_MAX = 4096
READ_BYTES = 65_536
LOOK_S = 0.1  # how often it is looked whether the program has ended while it prints nothing
LAST_WORDS_S = 0.2  # how long after its end its output is waited for: a child in the background may hold it open


class ExecPower:
    """Implements `shared.ports.PowerDriver`: each command that is configured is an operation that it does.

    Programs run without a shell and without input, in a process group of their own that is killed at the time limit.
    Raises InvalidInput when no command is configured.
    """

    name = "exec"

    def __init__(self, keys: PowerKeys) -> None:
        self._limit_s = keys.exec.limit_s
        self._commands = commands(keys.exec)
        if not self._commands:
            wanted = ", ".join(operation.value for operation in PowerOperation)
            raise InvalidInput(Problem("power.exec", "has no command", f"one or more of {wanted}"))
        self.does = frozenset(self._commands)
        self._clock = SystemClock()

    def operate(self, operation: PowerOperation, node: str, mac_addresses: Sequence[str]) -> PowerAnswer:
        """Run the operation's program; ok when it ends with status 0 in time. The end of what it printed is kept."""
        command = self._commands.get(operation)
        if command is None:
            raise ContractViolation(f"{self.name} does not {operation} as it is configured")
        if any("{mac}" in part for part in command) and not mac_addresses:
            return PowerAnswer(False, f"no hardware address of {node} is known")
        mac = mac_addresses[0] if mac_addresses else ""
        return self._run([part.replace("{node}", node).replace("{mac}", mac) for part in command])

    def _run(self, arguments: Sequence[str]) -> PowerAnswer:
        try:
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise TransientError(f"{arguments[0]} cannot be run: {error.strerror or error}") from error
        with process:
            output = process.stdout
            if output is None:
                raise ContractViolation("a pipe was asked for")
            try:
                printed, in_time = self._listen(process, output)
            finally:
                if process.poll() is None:
                    _kill(process)
            status = process.wait()
        if not in_time:
            return PowerAnswer(False, _detail(f"killed after {self._limit_s:g} s", printed))
        return PowerAnswer(status == 0, _detail("" if status == 0 else _ending(status), printed))

    def _listen(self, process: subprocess.Popen[bytes], output: IO[bytes]) -> tuple[bytes, bool]:
        """The end of what a program prints, and whether it ended by itself before the limit."""
        printed = b""
        until_s = self._clock.monotonic_s() + self._limit_s
        ended_by_itself = False
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while (left_s := until_s - self._clock.monotonic_s()) > 0.0:
                if selector.get_map() and selector.select(min(LOOK_S, left_s)):
                    some = os.read(output.fileno(), READ_BYTES)
                    printed = (printed + some)[-OUTPUT_BYTES_MAX:]
                    if not some:
                        selector.unregister(output)
                elif not selector.get_map():
                    return printed, _waits(process, left_s)
                if not ended_by_itself and process.poll() is not None:
                    ended_by_itself = True
                    until_s = min(until_s, self._clock.monotonic_s() + LAST_WORDS_S)
        return printed, ended_by_itself


def commands(programs: PowerExec) -> dict[PowerOperation, tuple[str, ...]]:
    """The commands that are configured, by what they do."""
    found = {operation: tuple(getattr(programs, operation.value)) for operation in PowerOperation}
    return {operation: command for operation, command in found.items() if command}


def _waits(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Whether a program that has closed its output ends within the limit."""
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


def _detail(what: str, printed: bytes) -> str:
    """What is told of an operation, in at most 4 KiB."""
    said = printed.decode(errors="replace").strip()
    text = f"{what}: {said}" if what and said else what or said
    if len(text.encode()) <= OUTPUT_BYTES_MAX:
        return text
    head = f"{what}: ... " if what else "... "
    room = OUTPUT_BYTES_MAX - len(head.encode())
    return head + said.encode()[-room:].decode(errors="ignore")
