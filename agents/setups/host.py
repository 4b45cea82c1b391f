"""Sets this host up with the programs that its configuration names, and no others."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from shared import programs
from shared.agreement import Setup, SetupPolicy
from shared.clock import SystemClock
from shared.config import SetupCommand, SetupKeys
from shared.effects import HostSetUp
from shared.errors import InvalidInput, Problem, TransientError
from shared.model import SetupStep

LOOK_S = 0.25
INHERITED = ("HOME", "LANG", "LC_ALL", "PATH", "TZ")


class OwnSetups:
    """Implements `shared.ports.SetupDriver` for this machine; `node` is its name.

    Programs get TRIMTAB_NODE, TRIMTAB_ENVIRONMENT and TRIMTAB_STEP ("release" or "acquire") in their environment, and
    the same for `{node}`, `{environment}` and `{step}` in their arguments. One that an earlier process of the agent has
    begun and that goes on is waited for: it holds the file `lock`. Raises InvalidInput for a command without a program.
    """

    def __init__(self, node: str, keys: SetupKeys, lock: str | Path) -> None:
        self._node, self._keys, self._lock = node, keys, Path(lock)
        self._clock = SystemClock()
        found = {f"setup.wipe[{at}]": command for at, command in enumerate(keys.wipe)}
        found |= {f"setup.commands.{name}.run": command.run for name, command in keys.commands.items()}
        empty = [Problem(where, "is empty", "a program and its arguments") for where, run in found.items() if not run]
        if empty:
            raise InvalidInput(*empty)

    def set_up(self, request: str, environment: str, step: SetupStep, setup: Setup) -> HostSetUp:
        """Carry out a setup policy; see the port. Blocks its thread for as long as that takes."""
        if setup.policy is SetupPolicy.NOOP:
            return HostSetUp(request, True)
        if setup.policy is SetupPolicy.WIPE:
            if not self._keys.wipe:
                return HostSetUp(request, False, "no wipe command is configured")
            commands, limit_s = self._keys.wipe, min(setup.limit_s, self._keys.wipe_limit_s)
        else:
            command = self._keys.commands.get(setup.command)
            if command is None:
                return HostSetUp(request, False, _unknown(setup.command, self._keys.commands))
            commands, limit_s = (command.run,), min(setup.limit_s, command.limit_s)
        ended = self._run_all(commands, limit_s, environment, step)
        return HostSetUp(request, ended.ok, ended.detail)

    def _run_all(
        self, commands: Sequence[Sequence[str]], limit_s: float, environment: str, step: SetupStep
    ) -> programs.Ended:
        """Run programs one after the other, all within the limit, until one fails."""
        until_s = self._clock.monotonic_s() + limit_s
        words = {"node": self._node, "environment": environment, "step": step.value}
        variables = {name: os.environ[name] for name in INHERITED if name in os.environ}
        variables |= {f"TRIMTAB_{name.upper()}": value for name, value in words.items()}
        said: list[str] = []
        try:
            with self._alone(until_s) as held:
                for command in commands:
                    arguments = [_filled(part, words) for part in command]
                    left_s = max(until_s - self._clock.monotonic_s(), LOOK_S)
                    ended = programs.run(arguments, left_s, variables, held)
                    said.append(ended.detail)
                    if not ended.ok:
                        return programs.Ended(False, f"{arguments[0]}: {ended.detail}"[: programs.OUTPUT_BYTES_MAX])
        except (OSError, TransientError) as error:
            return programs.Ended(False, str(error))
        return programs.Ended(True, "\n".join(filter(None, said))[-programs.OUTPUT_BYTES_MAX :])

    @contextmanager
    def _alone(self, until_s: float) -> Iterator[tuple[int]]:
        """Hold the lock; what is run inherits it, so that it is held until nothing of it is left."""
        fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not _locked(fd):
                if self._clock.monotonic_s() >= until_s:
                    raise TransientError("an earlier setup of this host goes on")
                self._clock.sleep(LOOK_S)
            yield (fd,)
        finally:
            os.close(fd)


class OtherSetups:
    """A machine that is not this one: this process cannot set it up."""

    def set_up(self, request: str, environment: str, step: SetupStep, setup: Setup) -> HostSetUp:
        """Refuse whatever would have to be done."""
        del environment, step
        if setup.policy is SetupPolicy.NOOP:
            return HostSetUp(request, True)
        return HostSetUp(request, False, "the hypervisor's host is not this machine: it cannot be set up from here")


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _filled(part: str, words: Mapping[str, str]) -> str:
    for name, value in words.items():
        part = part.replace(f"{{{name}}}", value)
    return part


def _unknown(command: str, known: Mapping[str, SetupCommand]) -> str:
    names = ", ".join(sorted(known)) or "none"
    return f"no setup command {command!r} is configured; there are: {names}"
