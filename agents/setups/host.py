"""Sets this host up as its configuration allows, and in no other way: programs, units, packages, files, services and
images."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from agents.drivers.systemd import SystemdBus
from agents.setups.files import Files
from agents.setups.images import Images
from agents.setups.packages import Packages
from agents.setups.units import Services, Systemd, run_unit
from shared.base.clock import SystemClock
from shared.base.deadline import Deadline
from shared.base.errors import InvalidInput, InvalidValue, PermanentError, Problem, TransientError
from shared.config.agent import SetupCommand, SetupKeys
from shared.ports.effects import HostSetUp
from shared.runtime import subprocesses
from shared.values.host_setup import Setup, SetupPolicy
from shared.values.nodes import SetupStep
from shared.values.scalars import check_name

LOOK_S = 0.25
INHERITED = ("HOME", "LANG", "LC_ALL", "PATH", "TZ")


class OwnSetups:
    """Implements `shared.ports.agent.SetupDriver` for this machine; `node` is its name.

    Programs get TRIMTAB_NODE, TRIMTAB_ENVIRONMENT and TRIMTAB_STEP ("release" or "acquire") in their environment, and
    the same for `{node}`, `{environment}` and `{step}` in their arguments and in names of units. One that an earlier
    process of the agent has begun and that goes on is waited for: it holds the file `lock`. What the configuration does
    not allow is refused before anything is done. Raises InvalidInput for a command that does nothing.
    """

    def __init__(self, node: str, keys: SetupKeys, lock: str | Path, systemd: Systemd | None = None) -> None:
        self._node, self._keys, self._lock = node, keys, Path(lock)
        self._clock = SystemClock()
        self._systemd: Systemd = systemd or SystemdBus()
        self._packages = Packages(keys.packages, keys.helper)
        self._files = Files(keys.urls, keys.files_folder, keys.file_mib_max << 20)
        self._services = Services(keys.services, self._systemd)
        self._images = Images(keys.library, keys.images_folder)
        if problems := list(_problems(keys)):
            raise InvalidInput(*problems)

    def set_up(self, request: str, environment: str, step: SetupStep, setup: Setup) -> HostSetUp:
        """Carry out what an agreement says for a step; see the port. Blocks its thread for as long as that takes."""
        policy = setup.policy_at(step)
        if policy is SetupPolicy.NOOP and not setup.brings:
            return HostSetUp(request, True)
        try:
            check_name("environment", environment)  # it becomes the name of a folder and of a unit
        except InvalidValue as error:
            return HostSetUp(request, False, str(error))
        if objections := self._objections(policy, step, setup):
            return HostSetUp(request, False, "; ".join(objections)[: subprocesses.OUTPUT_BYTES_MAX])
        deadline = Deadline(setup.limit_s)
        said: list[str] = []
        try:
            with self._alone(deadline) as held:
                self._carry_out(policy, environment, step, setup, deadline, held, said)
        except (PermanentError, TransientError, OSError) as error:
            said.append(_told(error))
            return HostSetUp(request, False, _ended(said))
        return HostSetUp(request, True, _ended(said))

    def _objections(self, policy: SetupPolicy, step: SetupStep, setup: Setup) -> list[str]:
        """Return the parts of a setup that the configuration does not allow."""
        found: list[str] = []
        if step is SetupStep.ACQUIRE:
            found += self._services.objections(setup.services)
            found += self._packages.objections(setup.packages) + self._files.objections(setup.files)
        if policy is SetupPolicy.IMAGE and step is SetupStep.ACQUIRE:
            found += self._images.objections(setup.images)
        if policy is SetupPolicy.WIPE and not (self._keys.wipe or self._keys.wipe_units):
            found.append("no wipe command is configured")
        if policy is SetupPolicy.EXEC and setup.command not in self._keys.commands:
            found.append(_unknown(setup.command, self._keys.commands))
        return found

    def _carry_out(
        self,
        policy: SetupPolicy,
        environment: str,
        step: SetupStep,
        setup: Setup,
        deadline: Deadline,
        held: tuple[int],
        said: list[str],
    ) -> None:
        """Carry out all of it in order, and add its messages. Raises PermanentError, TransientError or OSError."""
        words = {"node": self._node, "environment": environment, "step": step.value}
        if step is SetupStep.RELEASE:
            # What may not be started is not stopped either, and keeps no node from being given back.
            self._services.stop(setup.services, deadline)
            said += self._services.objections(setup.services)
            if setup.files and self._files.remove(environment):
                said.append("files removed")
        if policy is SetupPolicy.IMAGE:
            self._do_images(environment, step, setup, deadline, said)
        elif policy is not SetupPolicy.NOOP:
            self._do_commands(policy, setup, words, deadline, held, said)
        if step is SetupStep.ACQUIRE:
            if setup.packages and (new := self._packages.install(setup.packages, deadline)):
                said.append(f"installed: {', '.join(new)}")
            if setup.files and (new := self._files.fetch(environment, setup.files, deadline)):
                said.append(f"fetched: {', '.join(new)}")
            self._services.start(setup.services, deadline)

    def _do_images(self, environment: str, step: SetupStep, setup: Setup, deadline: Deadline, said: list[str]) -> None:
        if step is SetupStep.RELEASE:
            if self._images.remove(environment):
                said.append("images removed")
        elif new := self._images.clone(environment, setup.images, deadline):
            said.append(f"cloned: {', '.join(new)}")

    def _do_commands(
        self,
        policy: SetupPolicy,
        setup: Setup,
        words: Mapping[str, str],
        deadline: Deadline,
        held: tuple[int],
        said: list[str],
    ) -> None:
        """Run a wipe, or the command that the agreement names."""
        if policy is SetupPolicy.WIPE:
            runs, units, limit_s = self._keys.wipe, self._keys.wipe_units, self._keys.wipe_limit_s
        else:
            command = self._keys.commands[setup.command]
            runs, units, limit_s = (
                (command.run,) * bool(command.run),
                (command.unit,) * bool(command.unit),
                command.limit_s,
            )
        within = deadline.within(limit_s)
        variables = {name: os.environ[name] for name in INHERITED if name in os.environ}
        variables |= {f"TRIMTAB_{name.upper()}": value for name, value in words.items()}
        for run in runs:
            arguments = [_filled(part, words) for part in run]
            ended = subprocesses.run(arguments, max(within.left_s(), LOOK_S), variables, held)
            if not ended.ok:
                raise PermanentError(f"{arguments[0]}: {ended.detail}"[: subprocesses.OUTPUT_BYTES_MAX])
            said.append(ended.detail)
        for unit in units:
            if why := run_unit(self._systemd, _filled(unit, words), within):
                raise PermanentError(why)

    @contextmanager
    def _alone(self, deadline: Deadline) -> Iterator[tuple[int]]:
        """Hold the lock; what is run inherits it, so that it is held until nothing of it is left."""
        fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not _locked(fd):
                try:
                    self._clock.sleep(min(LOOK_S, deadline.left_s()))
                except TransientError as error:
                    raise TransientError("an earlier setup of this host goes on") from error
            yield (fd,)
        finally:
            os.close(fd)


class OtherSetups:
    """A machine that is not this one: this process cannot set it up."""

    def set_up(self, request: str, environment: str, step: SetupStep, setup: Setup) -> HostSetUp:
        """Refuse any setup that has something to do."""
        del environment
        if setup.policy_at(step) is SetupPolicy.NOOP and not setup.brings:
            return HostSetUp(request, True)
        return HostSetUp(request, False, "the hypervisor's host is not this machine: it cannot be set up from here")


def _problems(keys: SetupKeys) -> Iterator[Problem]:
    """Commands that do nothing, or two things."""
    for at, run in enumerate(keys.wipe):
        if not run:
            yield Problem(f"setup.wipe[{at}]", "is empty", "a program and its arguments")
    for name, command in keys.commands.items():
        if not command.run and not command.unit:
            yield Problem(f"setup.commands.{name}.run", "is empty", "a program and its arguments, or a unit")
        if command.run and command.unit:
            yield Problem(f"setup.commands.{name}.unit", f"is {command.unit!r}", "nothing beside a program")


def _told(error: Exception) -> str:
    """Return the error's description, with the file if there is one."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _ended(said: Sequence[str]) -> str:
    """Return the end of the messages."""
    return "\n".join(filter(None, said))[-subprocesses.OUTPUT_BYTES_MAX :]


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
